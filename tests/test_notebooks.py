"""The notebooks as files: the guard finds nothing in them, and canaries show that it would."""

import base64
import copy
import io
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import nbformat
import pytest
from PIL import Image

from tests.guard import IGNORED, problems
from utils.environment import NOTEBOOKS, ROOT, SOLUTIONS
from utils.release import code_cells, read

LESSONS = sorted([*SOLUTIONS.glob("*.ipynb"), *NOTEBOOKS.glob("*.ipynb")])
BASE = SOLUTIONS / "00_start_here.ipynb"
IGNORED_CELLS = 2  # lesson 08 shows seconds; raise only with a reason: nobody checks such an output


def label(path):
    return f"{path.parent.name}/{path.name}"


@pytest.mark.parametrize("path", LESSONS, ids=label)
def test_guard_finds_nothing(path):
    assert problems(read(path)) == []


@pytest.mark.parametrize("path", LESSONS, ids=label)
def test_most_cells_have_compared_output(path):
    cells = code_cells(read(path))
    compared = [cell for cell in cells if cell.outputs and IGNORED not in cell.source]
    assert len(compared) >= 0.6 * len(cells)


def test_ignored_outputs_are_counted():
    ignored = [c for path in LESSONS for c in code_cells(read(path)) if IGNORED in c.source]
    assert len(ignored) == IGNORED_CELLS


def first(notebook, wanted):
    return next(cell for cell in code_cells(notebook) if wanted(cell))


def has_picture(cell):
    return any("image/png" in output.get("data", {}) for output in cell.outputs)


def pictures(notebook):
    return [
        output
        for cell in code_cells(notebook)
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]


def never_executed(notebook):
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None


def one_cell_emptied(notebook):
    cell = first(notebook, lambda c: c.outputs)
    cell.outputs, cell.execution_count = [], None


def wrong_order(notebook):
    one, two = code_cells(notebook)[:2]
    one.execution_count, two.execution_count = two.execution_count, one.execution_count


def picture_removed(notebook):
    cell = first(notebook, has_picture)
    cell.outputs = [o for o in cell.outputs if "image/png" not in o.get("data", {})]


def picture_data_removed(notebook):
    del pictures(notebook)[0]["data"]["image/png"]


def pictures_swapped(notebook):
    one, two = (output["data"] for output in pictures(notebook)[:2])
    one["image/png"], two["image/png"] = two["image/png"], one["image/png"]


def picture_drawn_elsewhere(notebook):
    stream = io.BytesIO()
    Image.new("RGB", (5, 3)).save(stream, format="PNG")
    pictures(notebook)[0]["data"]["image/png"] = base64.b64encode(stream.getvalue()).decode()


def picture_garbage(notebook):
    pictures(notebook)[0]["data"]["image/png"] = "bm90IGEgcG5n"


def extra_picture(notebook):
    cell = first(notebook, has_picture)
    cell.outputs.append(copy.deepcopy(pictures(notebook)[0]))


def never_raises(notebook):
    first(notebook, lambda c: c.outputs).metadata["tags"] = ["raises-exception"]


def stored_error(notebook):
    error = nbformat.v4.new_output("error", ename="E", evalue="boom", traceback=[])
    code_cells(notebook)[0].outputs.append(error)


def skipped(notebook):
    code_cells(notebook)[0].source += "\n# NBVAL_SKIP"


def skipped_by_tag(notebook):
    code_cells(notebook)[0].metadata["tags"] = ["nbval-skip"]


def marker_in_a_string(notebook):
    code_cells(notebook)[0].source += '\ntext = """\n# NBVAL_IGNORE_OUTPUT\n# NBVAL_SKIP\n"""'


def stderr(notebook):
    output = nbformat.v4.new_output("stream", name="stderr", text="a warning")
    code_cells(notebook)[0].outputs.append(output)


def address(notebook):
    output = nbformat.v4.new_output("stream", text="<object at 0x7f3a5c0de1f0>")
    code_cells(notebook)[0].outputs.append(output)


def machine_path(notebook):
    output = nbformat.v4.new_output("stream", text="saved to /home/someone/results")
    code_cells(notebook)[0].outputs.append(output)


def bare_figure(notebook):
    data = {"text/plain": "<Figure size 640x480 with 1 Axes>"}
    code_cells(notebook)[0].outputs.append(nbformat.v4.new_output("display_data", data=data))


def raw_cell(notebook):
    notebook.cells.append(nbformat.v4.new_raw_cell("print(1)"))


def empty_cell(notebook):
    count = len(code_cells(notebook)) + 1
    notebook.cells.append(nbformat.v4.new_code_cell("", execution_count=count))


def other_kernel(notebook):
    notebook.metadata["kernelspec"]["name"] = "my-env"


CANARIES = [
    (never_executed, "execution counts"),
    (one_cell_emptied, "execution counts"),
    (wrong_order, "execution counts"),
    (picture_removed, "shows 1 pictures and stores 0"),
    (picture_data_removed, "shows 1 pictures and stores 0"),
    (pictures_swapped, "not the one that its words describe"),
    (picture_drawn_elsewhere, "not the one that its words describe"),
    (picture_garbage, "not a PNG"),
    (extra_picture, "shows 1 pictures and stores 2"),
    (never_raises, "stores no error"),
    (stored_error, "stores an error output"),
    (skipped, "marker"),
    (skipped_by_tag, "marker"),
    (marker_in_a_string, "marker"),
    (stderr, "stderr"),
    (address, "memory address"),
    (machine_path, "path of some machine"),
    (bare_figure, "use plots.show"),
    (raw_cell, "raw cells"),
    (empty_cell, "empty"),
    (other_kernel, "kernelspec"),
]


@pytest.mark.parametrize(("change", "fragment"), CANARIES, ids=[c[0].__name__ for c in CANARIES])
def test_canary_is_caught(change, fragment):
    notebook = read(BASE)
    assert problems(notebook) == []
    change(notebook)
    assert any(fragment in problem for problem in problems(notebook)), problems(notebook)


def nbval_outcomes(folder, *paths):
    """Run strict nbval on `paths` in a process of its own; return {cell number: passed}."""
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-q"]
    command += ["--nbval", "--nbval-current-env", "--nbval-cell-timeout=120"]
    command += [f"--junitxml={report}", f"--rootdir={folder}", *map(str, paths)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert report.exists(), done.stdout + done.stderr
    cases = ElementTree.parse(report).iter("testcase")
    return {
        int(case.get("name").removeprefix("Cell ")): not any(
            case.find(kind) is not None for kind in ("failure", "error", "skipped")
        )
        for case in cases
    }


def test_nbval_fails_exactly_the_cell_whose_stored_output_was_changed(tmp_path):
    notebook = read(BASE)
    cells = code_cells(notebook)
    number = next(i for i, cell in enumerate(cells) if "1,048,576" in str(cell.outputs))
    cells[number].outputs[0].text = cells[number].outputs[0].text.replace("1,048,576", "1,048,577")
    nbformat.write(notebook, tmp_path / "canary.ipynb")

    outcomes = nbval_outcomes(tmp_path, tmp_path / "canary.ipynb")

    assert len(outcomes) == len(cells)  # every code cell was a test, and none was skipped
    assert [cell for cell, passed in outcomes.items() if not passed] == [number]
