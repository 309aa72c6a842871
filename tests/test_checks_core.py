"""The three answers of a check, and what counts as equal, attempted or harmful."""

import pytest
import torch

from tests.exercises import assert_verdict
from utils.checks.core import (
    NOT_ATTEMPTED,
    RIGHT,
    WRONG,
    Case,
    Misconception,
    check_function,
    check_value,
    difference,
    exercise,
)

CASES = [
    Case("x=[1, 2, 4], k=3", (torch.tensor([1.0, 2.0, 4.0]), 3)),
    Case("k=0", (torch.ones(2), 0)),
]
HINT = "you divided; the question asks for a product."


@exercise("9.1")
def scale(answer):
    wrong = [Misconception(lambda x, k: x / k, HINT)]
    return check_function(answer, lambda x, k: x * k, CASES, wrong)


@exercise("9.2")
def count(answer):
    return check_value(answer, 131_566_188, [Misconception(502, "that is in MiB.")])


def right_answer(x, k):
    return x * k


def another_right_answer(x, k):
    return sum((x for _ in range(k)), torch.zeros_like(x))


def blank(x, k): ...


def blank_with_words(x, k):
    """Return x times k."""
    # Your code here: 1 line.
    ...


def half_filled(x, k):
    scaled = ...
    return scaled


def not_implemented(x, k):
    raise NotImplementedError


def no_return(x, k):
    x * k


def divides(x, k):
    return x / k


def changes_its_input(x, k):
    return x.mul_(k)


def broadcasts(x, k):
    return (x * k)[None]


def a_constant(x, k):
    return torch.tensor([3.0, 6.0, 12.0])


def errs(x, k):
    return x[17]


@pytest.mark.parametrize("answer", [right_answer, another_right_answer])
def test_right_answers_are_accepted(answer):
    assert_verdict(scale, answer, RIGHT, "Exercise 9.1: right. 2 cases pass.")


@pytest.mark.parametrize(
    "answer", [..., None, blank, blank_with_words, half_filled, not_implemented]
)
def test_blanks_are_not_attempted(answer):
    assert_verdict(scale, answer, NOT_ATTEMPTED, "not attempted yet", "Replace the ...")


@pytest.mark.parametrize(
    ("answer", "fragment"),
    [
        (no_return, "Is a return statement missing?"),
        (divides, f"Likely cause: {HINT}"),
        (changes_its_input, "changed its argument number 1"),
        (broadcasts, "The shape should be (3,); yours is (1, 3)."),
        (a_constant, "k=0"),
        (errs, "Your function raised IndexError"),
        (17, "A function is expected here; this is 17."),
    ],
)
def test_wrong_answers_are_explained(answer, fragment):
    assert_verdict(scale, answer, WRONG, "Exercise 9.1: not yet.", fragment)


def test_wrong_answer_shows_the_case_and_both_values():
    text = scale.verdict(divides).text
    assert "Case: x=[1, 2, 4], k=3" in text
    assert "expected: tensor of shape (3,): [3, 6, 12]" in text
    assert "yours:    tensor of shape (3,): [0.333333, 0.666667, 1.33333]" in text


def test_wrong_value_is_not_told_the_solution():
    text = count.verdict(131_566_084).text
    assert "Yours: 131,566,084" in text
    assert "131,566,188" not in text
    assert_verdict(count, 502, WRONG, "Likely cause: that is in MiB.")
    assert_verdict(count, 131_566_188, RIGHT)
    assert_verdict(count, torch.tensor(131_566_188), RIGHT)
    assert_verdict(count, "many", WRONG, "A number is expected")
    assert_verdict(count, True, WRONG, "A number is expected")


def test_check_prints_one_text_and_returns_nothing(capsys):
    assert scale(right_answer) is None
    assert capsys.readouterr().out == "Exercise 9.1: right. 2 cases pass.\n"


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (1.0 + 1e-9, 1.0),
        (2, 2.0),
        (float("nan"), float("nan")),
        ([1.0, (2, 3)], (1, [2.0, 3.0])),
        ({"a": torch.ones(2)}, {"a": torch.ones(2, dtype=torch.float64)}),
        (torch.ones(0, 3), torch.ones(0, 3)),
        ("x", "x"),
    ],
)
def test_equal(got, expected):
    assert difference(got, expected, 1e-6) is None


@pytest.mark.parametrize(
    ("got", "expected", "fragment"),
    [
        (1.01, 1.0, "expected: 1"),
        (float("nan"), 1.0, "yours:    nan"),
        (0.0, 1e-12, "expected: 1e-12"),
        ([1, 2], [1, 2, 3], "3 values are expected; yours has 2."),
        (1.0, (1.0, 2.0), "2 values are expected; this is one float."),
        (torch.ones(3), torch.ones(3, 1), "The shape should be (3, 1); yours is (3,)."),
        ([1.0, 1.0], torch.ones(2), "A tensor is expected; this is list."),
        ({"a": 1}, {"b": 1}, "The keys should be ['b']; yours are ['a']."),
        (torch.ones(2), 1.0, "A number is expected; this is Tensor."),
        ("y", "x", "'y'"),
    ],
)
def test_different(got, expected, fragment):
    assert fragment in difference(got, expected, 1e-6)
