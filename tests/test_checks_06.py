"""The checks of lesson 06: solution, blank, a second right answer and plausible wrong ones."""

import math

import pytest
import torch
from transformers.optimization import Adafactor

from tests.exercises import assert_verdict, blank, solution
from utils.checks import lesson_06 as checks
from utils.checks.core import NOT_ATTEMPTED, RIGHT, WRONG
from utils.optimizers import new_statistics

LESSON = "06_adafactor_training"


def statistics(parameter):
    return sum(part.numel() for part in new_statistics(parameter))


GIVEN = {
    "torch": torch,
    "math": math,
    "statistics": statistics,
    "TransformersAdafactor": Adafactor,
}


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def by_statistics(model, library):
    extra = {"torch": 1, "transformers": 2}[library]
    return sum(statistics(p) + extra for p in trained(model))


def counted(of=statistics, parameters=trained, torch_extra=1, transformers_extra=2):
    """Return an answer to 6.2 whose parts can be replaced."""

    def answer(model, library):
        extra = torch_extra if library == "torch" else transformers_extra
        return sum(of(p) + extra for p in parameters(model))

    return answer


def all_names(model):
    return [p for _, p in model.named_parameters(remove_duplicate=False) if p.requires_grad]


def by_selection(model, count):
    """Pick the largest that is left, `count` times; `max` keeps the first of equal ones."""
    left = {name: statistics(p) for name, p in model.named_parameters() if p.requires_grad}
    found = []
    while left and len(found) < count:
        found.append(max(left, key=left.get))
        del left[found[-1]]
    return found


def ranked(size, keep=lambda p: p.requires_grad, reverse=True):
    def answer(model, count):
        sizes = [(size(p), name) for name, p in model.named_parameters() if keep(p)]
        return [name for _, name in sorted(sizes, key=lambda s: s[0], reverse=reverse)][:count]

    return answer


def by_setting(parameters, lr):
    optimizer = Adafactor(parameters, lr=1.0, scale_parameter=False, relative_step=False)
    for group in optimizer.param_groups:
        group["lr"] = lr
    return optimizer


SECOND_ANSWERS = {
    "predicted": [1406, 1412.0],
    "adafactor_state_elements": by_statistics,
    "largest_states": by_selection,
    "obedient_adafactor": by_setting,
}


@pytest.mark.parametrize("name", SECOND_ANSWERS)
def test_solution_blank_and_a_second_right_answer(name):
    check = getattr(checks, name)
    assert_verdict(check, solution(LESSON, name, **GIVEN), RIGHT)
    assert_verdict(check, blank(LESSON, name, **GIVEN), NOT_ATTEMPTED)
    assert_verdict(check, SECOND_ANSWERS[name], RIGHT)


FIXED = {"relative_step": False, "scale_parameter": False}

WRONG_ANSWERS = [
    ("predicted", (1412, 1406), "the other library's"),
    ("predicted", (1400, 1406), "the steps are missing"),
    ("predicted", (750, 756), "biases and LayerNorm are kept whole"),
    ("predicted", (756, 762), "biases and LayerNorm are kept whole"),
    ("predicted", (2 * 70650 + 6, 1412), "AdamW's state"),
    ("predicted", (1406, 70656), "rows plus its columns"),
    ("predicted", (1403, 1412), "one step a layer"),
    ("predicted", (4 * 1406, 1412), "bytes"),
    ("predicted", 1406, "A pair is expected"),
    ("adafactor_state_elements", counted(parameters=lambda m: m.parameters()), "frozen"),
    ("adafactor_state_elements", counted(parameters=all_names), "twice"),
    ("adafactor_state_elements", counted(transformers_extra=1), "RMS for each tensor"),
    ("adafactor_state_elements", counted(torch_extra=2), "RMS for each tensor"),
    ("adafactor_state_elements", counted(torch_extra=0), "forgot the step"),
    ("adafactor_state_elements", counted(of=torch.Tensor.numel), "expected: 29"),
    ("adafactor_state_elements", counted(of=lambda p: 2 * p.numel()), "AdamW's state"),
    ("adafactor_state_elements", counted(of=lambda p: sum(p.shape)), "only the last two"),
    (
        "adafactor_state_elements",
        counted(
            of=lambda p: p.numel() if p.ndim < 2 else p.shape[0] + p.numel() // p.shape[0],
        ),
        "not flattened",
    ),
    (
        "adafactor_state_elements",
        counted(of=lambda p: statistics(p) if p.ndim > 1 else 0),
        "biases are not factored",
    ),
    (
        "adafactor_state_elements",
        lambda m, library: by_statistics(m.requires_grad_(False), library),
        "expected: 29",
    ),
    ("largest_states", ranked(torch.Tensor.numel), "by the number of parameters"),
    ("largest_states", ranked(statistics, keep=lambda p: True), "frozen"),
    ("largest_states", ranked(statistics, reverse=False), "smallest first"),
    ("largest_states", ranked(lambda p: statistics(p) if p.ndim > 1 else 0), "vectors count"),
    (
        "largest_states",
        lambda m, c: sorted(by_selection(m, c), key=[n for n, _ in m.named_parameters()].index),
        "put the largest first",
    ),
    (
        "largest_states",
        lambda m, c: sorted(
            by_selection(m, 99), key=lambda n: (-statistics(m.get_parameter(n)), n)
        )[:c],
        "not by name",
    ),
    ("largest_states", lambda m, c: by_selection(m, 99), "only the first `count`"),
    ("largest_states", lambda m, c: [(n, 1) for n in by_selection(m, c)], "expected"),
    ("obedient_adafactor", lambda p, lr: Adafactor(p, lr=lr), "no learning rate to give"),
    ("obedient_adafactor", lambda p, lr: Adafactor(p, **FIXED), "pass lr on"),
    ("obedient_adafactor", lambda p, lr: Adafactor(p, lr=lr, relative_step=False), "grow with"),
    (
        "obedient_adafactor",
        lambda p, lr: torch.optim.Adafactor(p, lr=lr),
        "PyTorch's always does it",
    ),
    (
        "obedient_adafactor",
        lambda p, lr: torch.optim.Adafactor(p, lr=lr, **FIXED),
        "options of the version in transformers",
    ),
    ("obedient_adafactor", lambda p, lr: Adafactor(p, lr=1e-3, **FIXED), "fixed in your function"),
    ("obedient_adafactor", lambda p, lr: Adafactor(p, lr=lr, beta1=0.9, **FIXED), "first moment"),
    ("obedient_adafactor", lambda p, lr: torch.optim.AdamW(p, lr=lr), "AdamW"),
    (
        "obedient_adafactor",
        lambda p, lr: torch.optim.AdamW(p, lr=lr, eps=0.0, weight_decay=0.0),
        "this is AdamW",
    ),
    ("obedient_adafactor", lambda p, lr: {"lr": lr}, "an optimizer is expected"),
]


@pytest.mark.parametrize(
    ("name", "answer", "hint"),
    WRONG_ANSWERS,
    ids=[f"{name}-{hint[:20]}-{place}" for place, (name, _, hint) in enumerate(WRONG_ANSWERS)],
)
def test_wrong_answer_is_rejected_with_its_hint(name, answer, hint):
    assert_verdict(getattr(checks, name), answer, WRONG, hint)
