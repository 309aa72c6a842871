"""The checks of lesson 08: solution, blank, a second right answer and plausible wrong ones."""

import math
import statistics

import pytest
import torch

from tests.exercises import assert_verdict, blank, solution
from utils.checks import lesson_08 as checks
from utils.checks.core import NOT_ATTEMPTED, RIGHT, WRONG
from utils.optimizers import AdamW8bit

LESSON = "08_choosing_an_optimizer"
GIVEN = {"torch": torch, "statistics": statistics}


def by_hand(a, b):
    """The same test, squared: no root is taken."""

    def mean(values):
        return sum(values) / len(values)

    def squared_error(values):
        return sum((v - mean(values)) ** 2 for v in values) / (len(values) - 1) / len(values)

    return (mean(a) - mean(b)) ** 2 > 4 * (squared_error(a) + squared_error(b))


def by_floor(device_gib, weight_bytes, state_bytes, allowance_gib):
    return math.floor((device_gib - allowance_gib) * 2**30 / (weight_bytes * 2 + state_bytes))


SECOND_ANSWERS = {"clear_difference": by_hand, "largest_model": by_floor}


@pytest.mark.parametrize("name", SECOND_ANSWERS)
def test_solution_blank_and_a_second_right_answer(name):
    check = getattr(checks, name)
    assert_verdict(check, solution(LESSON, name, **GIVEN), RIGHT)
    assert_verdict(check, blank(LESSON, name, **GIVEN), NOT_ATTEMPTED)
    assert_verdict(check, SECOND_ANSWERS[name], RIGHT)


def clear(spread=statistics.variance, root=True, both=True, absolute=True, factor=2.0, share=True):
    def answer(a, b):
        error = spread(a) / (len(a) if share else 1)
        error += spread(b) / (len(b) if share else 1) if both else 0
        gap = statistics.mean(a) - statistics.mean(b)
        return (abs(gap) if absolute else gap) > factor * (error**0.5 if root else error)

    return answer


def largest(unit=2**30, gradients=2, moments=1, allowance=-1, extra=0):
    def answer(device_gib, weight_bytes, state_bytes, allowance_gib):
        room = (device_gib + allowance * allowance_gib) * unit
        return int(room / (gradients * weight_bytes + moments * state_bytes)) + extra

    return answer


WRONG_ANSWERS = [
    ("clear_difference", clear(absolute=False), "absolute difference"),
    ("clear_difference", clear(spread=statistics.pvariance), "divide by n - 1"),
    ("clear_difference", clear(root=False), "root is missing"),
    ("clear_difference", clear(share=False), "divided by its number"),
    ("clear_difference", clear(both=False), "both spreads"),
    ("clear_difference", clear(factor=1.0), "twice the standard error"),
    ("clear_difference", clear(factor=0.0), "any two runs differ"),
    ("clear_difference", lambda a, b: min(a) > max(b) or min(b) > max(a), "all runs of one"),
    ("clear_difference", lambda a, b: 0.5, "True or False"),
    ("largest_model", largest(gradients=1), "gradients need"),
    ("largest_model", largest(gradients=0), "have to fit as well"),
    ("largest_model", largest(unit=10**9), "1024**3"),
    ("largest_model", largest(allowance=0), "taken off first"),
    ("largest_model", largest(allowance=1), "not added"),
    ("largest_model", largest(moments=2), "whole state"),
    ("largest_model", largest(extra=1), "round down"),
    (
        "largest_model",
        lambda d, w, s, a: (d - a) * 1024**3 / (2 * w + s),
        "whole number of parameters",
    ),
    ("largest_model", lambda d, w, s, a: (d - a) * 1024**3 / (2 * w + s) / 1e9, "not billions"),
]


@pytest.mark.parametrize(
    ("name", "answer", "hint"),
    WRONG_ANSWERS,
    ids=[f"{name}-{hint[:20]}-{place}" for place, (name, _, hint) in enumerate(WRONG_ANSWERS)],
)
def test_wrong_answer_is_rejected_with_its_hint(name, answer, hint):
    assert_verdict(getattr(checks, name), answer, WRONG, hint)


def eight_bits(model):
    return AdamW8bit(model.parameters(), lr=1e-3)


def part_of_the_model(model):
    """AdamW for attention in the last layer, both classifier layers, and all vectors."""
    trained = []
    for name, parameter in model.named_parameters():
        chosen = "layer.1.attention" in name or "classifier" in name or parameter.ndim < 2
        parameter.requires_grad_(chosen)
        trained += [parameter] if chosen else []
    return torch.optim.AdamW(trained, lr=2e-3)


@pytest.mark.parametrize(
    "answer", [eight_bits, part_of_the_model, solution(LESSON, "make_optimizer", **GIVEN)]
)
def test_the_capstone_has_several_right_answers(answer):
    assert_verdict(checks.capstone, answer, RIGHT, "bytes of 1,000,000")


CAPSTONE_WRONG = [
    (lambda m: torch.optim.AdamW(m.parameters()), "3,345,584 bytes, the budget is 1,000,000"),
    (lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9), "1,672,"),
    (lambda m: torch.optim.Adafactor(m.parameters(), lr=1e-6), "within the budget. But"),
    (lambda m: m, "An optimizer is expected"),
    (lambda m: 1 / 0, "ZeroDivisionError"),
    (lambda m: torch.optim.AdamW(m.parameters(), lr=-1), "ValueError"),
]


@pytest.mark.parametrize(("answer", "words"), CAPSTONE_WRONG, ids=[w for _, w in CAPSTONE_WRONG])
def test_wrong_capstones(answer, words):
    assert_verdict(checks.capstone, answer, WRONG, words)


def test_a_blank_capstone_does_not_train():
    assert_verdict(checks.capstone, blank(LESSON, "make_optimizer", **GIVEN), NOT_ATTEMPTED)
