"""The words of the lessons: every number is computed nearby, and the voice is the course's."""

import re

import nbformat
import pytest

from utils.environment import ROOT, SOLUTIONS
from utils.release import code_cells, read

LESSONS = sorted(SOLUTIONS.glob("*.ipynb"))
_NUMBER = re.compile(r"(?<![\w.])\d[\d,_]*(?:\.\d+)?(?:M|[ -]million)?(?!\w)")
_HOUSE_STYLE = {
    "an exclamation mark": re.compile(r"\w!(?!=)"),
    "simply or just": re.compile(r"\b(simply|just)\b", re.IGNORECASE),
    "an emoji": re.compile("[\U0001f300-\U0001faff\u2600-\u27bf]"),
}


def _plain(number: str) -> str:
    return number.replace(",", "").replace("_", "")


def figures(text: str) -> set[str]:
    """Return the numbers in `text` that a reader may rely on: three digits or more, no years."""
    text = re.sub(r"\]\([^)]*\)|<[^>]+>", " ", text)  # link targets and tags are no prose
    found = {_plain(number) for number in _NUMBER.findall(text)}
    return {
        number
        for number in found
        if len(number.replace("-million", "").removesuffix(" million").strip("M").replace(".", ""))
        >= 3
        and not re.fullmatch(r"(19|20)\d\d", number)
    }


def missing(text: str, there: set[str]) -> list[str]:
    """Return the figures in `text` that are not in `there`.

    65.8M and 65.8 million stand for any number there that rounds to them.
    """

    def stands(figure: str) -> bool:
        digits = figure.replace("-million", "").removesuffix(" million").removesuffix("M")
        if digits == figure:
            return figure in there
        decimals = len(digits.partition(".")[2])
        return any(f"{float(number) / 1e6:.{decimals}f}" == digits for number in there)

    return sorted(figure for figure in figures(text) if not stands(figure))


def computed(notebook) -> set[str]:
    """Return every number in the code and the outputs of `notebook`."""
    texts = []
    for cell in code_cells(notebook):
        texts.append(cell.source)
        for output in cell.outputs:
            texts.append(output.get("text", ""))
            texts.append(output.get("evalue", ""))
            data = output.get("data", {})
            texts += [text for mime, text in data.items() if mime.startswith("text/")]
    joined = "\n".join(texts)
    numbers = re.findall(r"\d[\d,_]*(?:\.\d+)?", joined)
    return {_plain(number) for number in numbers}


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_every_number_in_prose_stands_in_code_or_output(path):
    notebook = read(path)
    there = computed(notebook)
    found = {
        cell.id: missing(cell.source, there)
        for cell in notebook.cells
        if cell.cell_type == "markdown" and missing(cell.source, there)
    }
    assert found == {}


def test_a_number_that_nothing_computes_is_noticed():
    cells = [
        nbformat.v4.new_markdown_cell(
            "It has 65.8M, 65,783,042 parameters, takes 501.9 MiB (2019)."
        ),
        nbformat.v4.new_code_cell("print(65_783_042)"),
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    assert missing(cells[0].source, computed(notebook)) == ["501.9"]
    assert missing("65.9M, or 65.8 million", computed(notebook)) == ["65.9M"]


def words(path):
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    cells = read(path).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


@pytest.mark.parametrize(
    "path", [*LESSONS, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name
)
def test_house_style(path):
    text = re.sub(r"```.*?```|`[^`]*`", " ", words(path), flags=re.DOTALL)
    found = {
        name: pattern.findall(text)
        for name, pattern in _HOUSE_STYLE.items()
        if pattern.search(text)
    }
    assert found == {}
