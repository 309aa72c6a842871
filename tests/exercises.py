"""What the tests of exercise checks share: solutions taken from the notebooks, mutants, blanks."""

import functools
import textwrap

from utils.environment import SOLUTIONS
from utils.release import BEGIN, blank_solution, code_cells, read


@functools.cache
def exercise_cells(lesson: str) -> tuple[str, ...]:
    """Return the source of each exercise cell of `lesson`, for instance "00_start_here"."""
    cells = code_cells(read(SOLUTIONS / f"{lesson}.ipynb"))
    return tuple(cell.source for cell in cells if BEGIN in cell.source)


def solution(lesson: str, name: str, **given):
    """Return what the exercise cell that defines `name` defines, run with the names in `given`."""
    return _defined(lesson, name, lambda source: source, given)


def blank(lesson: str, name: str, **given):
    """Return `name` as a learner first finds it, from the same cell after blanking."""
    return _defined(lesson, name, blank_solution, given)


def _defined(lesson, name, change, given):
    for source in exercise_cells(lesson):
        if f"def {name}(" in source or f"{name} = " in source or f"class {name}(" in source:
            namespace = dict(given)
            exec(textwrap.dedent(change(source)), namespace)  # the course's own cells
            return namespace[name]
    raise LookupError(f"no exercise cell of {lesson} defines {name}")


def assert_verdict(check, answer, status: str, *fragments: str) -> None:
    """Assert that `check` gives `answer` the `status`, with each of `fragments` in its text."""
    verdict = check.verdict(answer)
    assert verdict.status == status, verdict.text
    for fragment in fragments:
        assert fragment in verdict.text, verdict.text
