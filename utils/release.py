"""Derive the learner's notebooks from the solutions, and execute both.

`solutions/` is the source. A cell with an exercise holds its answer between two marker lines:

    def ema(values, beta):
        ### BEGIN SOLUTION
        #: average = ...
        average = 0.0
        return average
        ### END SOLUTION

In `notebooks/` the region becomes its `#:` lines without that prefix (the scaffold), or a size hint
and a `...` if it has none. Cells tagged `instructor` stay in `solutions/`. nbgrader's
ClearSolutions does the blanking only, and brings a database and a server extension with it; the
scaffold, its gate and the checks' verdicts would still be ours, so the few lines stand here.
"""

import copy
import os
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from utils.environment import NOTEBOOKS, REPRODUCIBLE, SOLUTIONS

BEGIN, END, SCAFFOLD = "### BEGIN SOLUTION", "### END SOLUTION", "#: "
CHECK_CALL = re.compile(r"^checks\.(\w+)\(", re.MULTILINE)
_KEPT_CELL_METADATA = ("tags", "slideshow")


class ReleaseError(Exception):
    """A lesson cannot be released; the text names the notebook, the cell and the reason."""


def blank_solution(source: str) -> str:
    """Return the cell `source` as a learner gets it: scaffold or `...` in place of each solution.

    Raises ReleaseError for markers that do not pair up, an empty region, or a scaffold line that
    matches no line of its solution (`...` stands for anything).
    """
    kept, region, indent = [], None, ""
    for line in source.split("\n"):
        marker = line.strip()
        if marker == BEGIN:
            if region is not None:
                raise ReleaseError(f"{BEGIN} twice without {END}")
            region, indent = [], line[: len(line) - len(line.lstrip())]
        elif marker == END:
            if region is None:
                raise ReleaseError(f"{END} without {BEGIN}")
            kept += _blank_region(region, indent)
            region = None
        elif region is None:
            kept.append(line)
        else:
            region.append(line)
    if region is not None:
        raise ReleaseError(f"{BEGIN} without {END}")
    return "\n".join(kept)


def _blank_region(region: list[str], indent: str) -> list[str]:
    is_scaffold = [line.strip().startswith(SCAFFOLD.strip()) for line in region]
    solution = [line for line, scaffold in zip(region, is_scaffold, strict=True) if not scaffold]
    code = [line for line in solution if line.strip() and not line.strip().startswith("#")]
    if not code:
        raise ReleaseError("a solution region holds no code")
    scaffold = [
        re.sub(r"#: ?", "", line, count=1)
        for line, scaffold in zip(region, is_scaffold, strict=True)
        if scaffold
    ]
    for line in scaffold:
        wanted = ".+".join(map(re.escape, line.strip().split("...")))
        is_comment = line.strip().startswith("#")
        if not is_comment and not any(re.fullmatch(wanted, row.strip()) for row in code):
            raise ReleaseError(f"the scaffold line {line.strip()!r} is not in its solution")
    if scaffold:
        if "..." not in "\n".join(scaffold):
            raise ReleaseError("a scaffold needs a ... to fill in")
        return scaffold
    lines = "1 line" if len(code) == 1 else f"about {len(code)} lines"
    return [f"{indent}# Your code here: {lines}.", f"{indent}..."]


def derive(solution: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return the learner's notebook for an (executed or not) `solution`, without outputs.

    Raises ReleaseError as `blank_solution` does, and for an exercise that no check follows.
    """
    notebook = copy.deepcopy(solution)
    notebook.cells = [
        cell for cell in notebook.cells if "instructor" not in cell.metadata.get("tags", [])
    ]
    unchecked = None
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
        if CHECK_CALL.search(cell.source):
            unchecked = None
        try:
            blanked = blank_solution(cell.source)
        except ReleaseError as error:
            raise ReleaseError(f"cell {cell.id}: {error}") from None
        if blanked != cell.source:
            if unchecked:
                raise ReleaseError(f"cell {unchecked}: no check follows this exercise")
            unchecked, cell.source = cell.id, blanked
    if unchecked:
        raise ReleaseError(f"cell {unchecked}: no check follows this exercise")
    return clean(notebook)


def clean(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return `notebook` with only the metadata that every machine writes the same."""
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {
                "display_name": "Python 3 (ipykernel)",
                "language": "python",
                "name": "python3",
            },
            "language_info": {"name": "python"},
        }
    )
    for cell in notebook.cells:
        kept = {key: cell.metadata[key] for key in _KEPT_CELL_METADATA if key in cell.metadata}
        cell.metadata = nbformat.from_dict(kept)
    return notebook


def execute(notebook: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    """Return `notebook` with fresh outputs, run with `folder` as its working directory.

    Raises ReleaseError for a cell that errs, unless it is tagged `raises-exception`.
    """
    notebook = copy.deepcopy(notebook)
    client = NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        coalesce_streams=True,
    )
    environment = {**os.environ, **REPRODUCIBLE, "COURSE_STRICT": "1"}
    try:
        with client.setup_kernel(env=environment):
            for index, cell in enumerate(notebook.cells):
                client.execute_cell(cell, index)
    except CellExecutionError as error:
        raise ReleaseError(f"cell {cell.id} errs:\n{error}") from None
    return clean(notebook)


def read(path: Path) -> nbformat.NotebookNode:
    """Return the notebook stored in `path`."""
    return nbformat.read(path, as_version=4)


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """Return the code cells of `notebook`, in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def verdicts(notebook: nbformat.NotebookNode) -> dict[str, str]:
    """Return what each check cell of an executed `notebook` printed, by the check's name."""
    found = {}
    for cell in code_cells(notebook):
        for name in CHECK_CALL.findall(cell.source):
            found[name] = "".join(output.get("text", "") for output in cell.outputs)
    return found


def release(name: str, solutions: Path = SOLUTIONS, notebooks: Path = NOTEBOOKS) -> None:
    """Execute `solutions/name`, derive and execute `notebooks/name`, then write both.

    Nothing is written unless all of it succeeds. Raises ReleaseError, naming the notebook, when a
    cell errs, a solution fails its own check or a blank exercise is not seen as a blank.
    """
    try:
        solution = execute(clean(read(solutions / name)), solutions)
        notebook = execute(derive(solution), notebooks)
        for folder, executed, wanted in (
            ("solutions", solution, ": right."),
            ("notebooks", notebook, ": not attempted yet."),
        ):
            for check, text in verdicts(executed).items():
                if wanted not in text:
                    raise ReleaseError(f"{folder}: checks.{check} says {text.strip()!r}")
    except ReleaseError as error:
        raise ReleaseError(f"{name}: {error}") from None
    write(solution, solutions / name)
    write(notebook, notebooks / name)


def release_all(names: list[str], jobs: int | None = None) -> list[str]:
    """Release each notebook in `names`, `jobs` at a time; return one error text per refusal."""

    def attempt(name: str) -> str | None:
        try:
            release(name)
        except ReleaseError as error:
            return str(error)
        print(f"released {name}")
        return None

    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        return [error for error in pool.map(attempt, names) if error]


def write(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Write `notebook` to `path` in one step: a reader never sees half a file."""
    nbformat.validate(notebook)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", newline="\n", dir=path.parent, suffix=".tmp", delete=False
    ) as file:
        try:
            nbformat.write(notebook, file)
            file.flush()
        except OSError:  # a full disk: what was there stays, and half a file does not
            os.unlink(file.name)
            raise
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)
