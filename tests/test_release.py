"""The release: what a learner sees of a solution, what is refused, what a second run changes."""

import copy
import json

import nbformat
import pytest

from utils.environment import NOTEBOOKS, SOLUTIONS
from utils.release import (
    ReleaseError,
    blank_solution,
    code_cells,
    derive,
    execute,
    read,
    release,
    write,
)

NAMES = sorted(path.name for path in SOLUTIONS.glob("*.ipynb"))


def without_outputs(notebook):
    notebook = copy.deepcopy(notebook)
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    return json.loads(nbformat.writes(notebook))


def test_both_folders_hold_the_same_lessons():
    assert NAMES
    assert sorted(path.name for path in NOTEBOOKS.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_notebook_is_what_its_solution_gives(name):
    derived = without_outputs(derive(read(SOLUTIONS / name)))
    assert without_outputs(read(NOTEBOOKS / name)) == derived


@pytest.mark.parametrize("name", NAMES)
def test_no_solution_reaches_the_learner(name):
    text = (NOTEBOOKS / name).read_text(encoding="utf-8")
    assert "SOLUTION" not in text
    assert "instructor" not in text.lower()


def test_region_without_scaffold_becomes_a_size_hint_and_a_blank():
    source = (
        "def f(x):\n    ### BEGIN SOLUTION\n    y = x + 1\n\n    # why\n    return y\n"
        "    ### END SOLUTION"
    )
    assert blank_solution(source) == "def f(x):\n    # Your code here: about 2 lines.\n    ..."


def test_scaffold_lines_stay_without_their_prefix():
    source = (
        "def f(x):\n    ### BEGIN SOLUTION\n    #: y = ...\n    y = x + 1\n"
        "    #: # then:\n    #: return ...\n    return y\n    ### END SOLUTION\nprint(3)"
    )
    assert blank_solution(source) == "def f(x):\n    y = ...\n    # then:\n    return ...\nprint(3)"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("### BEGIN SOLUTION\nx = 1", "without ### END"),
        ("x = 1\n### END SOLUTION", "without ### BEGIN"),
        ("### BEGIN SOLUTION\n### BEGIN SOLUTION\nx = 1\n### END SOLUTION", "twice"),
        ("### BEGIN SOLUTION\n# only words\n### END SOLUTION", "holds no code"),
        ("### BEGIN SOLUTION\n#: y = ...\nx = 1\n### END SOLUTION", "'y = ...' is not in"),
        ("### BEGIN SOLUTION\n#: x = 1\nx = 1\n### END SOLUTION", "needs a ..."),
    ],
)
def test_bad_region_is_refused(body, reason):
    with pytest.raises(ReleaseError, match=r"(?i)solution|scaffold") as error:
        blank_solution(body)
    assert reason in str(error.value)


ANSWER = "### BEGIN SOLUTION\n#: adamw_bytes = ...\nadamw_bytes = 18874368\n### END SOLUTION"
CHECK = "from utils.checks import lesson_00 as checks\n\nchecks.adamw_bytes(adamw_bytes)"


def lesson(*sources, tags=()):
    cells = [
        nbformat.v4.new_code_cell(source, id=f"cell-{number}")
        for number, source in enumerate(sources)
    ]
    for cell in cells:
        cell.metadata["tags"] = list(tags)
    return nbformat.v4.new_notebook(cells=cells)


@pytest.fixture
def folders(tmp_path):
    for name in ("solutions", "notebooks"):
        (tmp_path / name).mkdir()
    return tmp_path / "solutions", tmp_path / "notebooks"


def released(folders, notebook):
    write(notebook, folders[0] / "x.ipynb")
    release("x.ipynb", *folders)
    return [(folder / "x.ipynb").read_bytes() for folder in folders]


def test_exercise_without_a_check_is_refused():
    with pytest.raises(ReleaseError, match="cell-0: no check follows"):
        derive(lesson(ANSWER, "print(1)"))
    with pytest.raises(ReleaseError, match="cell-0: no check follows"):
        derive(lesson(ANSWER, ANSWER, CHECK))


def test_cells_for_instructors_stay_in_solutions():
    notebook = lesson("print(1)")
    notebook.cells += lesson("print(2)", tags=["instructor"]).cells
    assert [cell.source for cell in derive(notebook).cells] == ["print(1)"]


def test_second_release_changes_nothing_byte_for_byte(folders):
    picture = (
        "from utils import plots\nfrom utils.plots import overview\n\n"
        "plots.show(overview.three_states(2, 3))"
    )
    once = released(folders, lesson("print('a')\nprint('b')", picture, ANSWER, CHECK))
    release("x.ipynb", *folders)
    assert once == [(folder / "x.ipynb").read_bytes() for folder in folders]
    assert b"Exercise 0.2: right." in once[0]
    assert b"Exercise 0.2: not attempted yet." in once[1]
    assert b"18874368" not in once[1]


def test_solution_that_fails_its_own_check_is_refused(folders):
    wrong = ANSWER.replace("18874368", "18874367")
    with pytest.raises(ReleaseError, match=r"x.ipynb: solutions: checks.adamw_bytes says"):
        released(folders, lesson(wrong, CHECK))
    assert not (folders[1] / "x.ipynb").exists()


def test_blank_that_counts_as_an_answer_is_refused(folders):
    # Without a ... of its own the learner's cell would already hold the answer.
    given = (
        "adamw_bytes = 18874368\n### BEGIN SOLUTION\n#: other = ...\nother = 3\n### END SOLUTION"
    )
    with pytest.raises(ReleaseError, match=r"x.ipynb: notebooks: checks.adamw_bytes says"):
        released(folders, lesson(given, CHECK))


def test_notebook_that_errs_is_refused_and_nothing_is_written(folders):
    with pytest.raises(ReleaseError, match=r"x.ipynb: cell cell-1 errs:(.|\n)*ZeroDivisionError"):
        released(folders, lesson("print(1)", "1 / 0"))
    assert not (folders[1] / "x.ipynb").exists()


def test_execution_is_in_the_lessons_folder_and_leaves_clean_metadata(folders):
    notebook = lesson("from pathlib import Path\n\nprint(Path.cwd().name)")
    notebook.metadata["widgets"] = {"state": 1}
    notebook.cells[0].metadata["execution"] = {"at": "some time"}
    done = execute(notebook, folders[0])
    assert done.cells[0].outputs[0].text == "solutions\n"
    assert done.cells[0].metadata == {"tags": []}
    assert sorted(done.metadata) == ["kernelspec", "language_info"]
