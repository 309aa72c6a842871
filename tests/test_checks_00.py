"""The checks of lesson 00: solution, blank, a second right answer and plausible wrong ones."""

import pytest
import torch

from tests.exercises import assert_verdict, blank, solution
from utils.checks import lesson_00 as checks
from utils.checks.core import NOT_ATTEMPTED, RIGHT, WRONG

LESSON = "00_start_here"


def by_storage(tensor):
    return tensor.untyped_storage().nbytes()


def by_table(rows, columns):
    full = rows * columns
    return {"8-bit Adam": 2 * full, "AdamW": 8 * full, "Adafactor": 4 * rows + 4 * columns}


@pytest.mark.parametrize(
    ("check", "name", "other"),
    [
        (checks.tensor_bytes, "tensor_bytes", by_storage),
        (checks.adamw_bytes, "adamw_bytes", 18_874_368.0),
        (checks.stored_bytes, "stored_bytes", by_table),
    ],
)
def test_solution_blank_and_a_second_right_answer(check, name, other):
    assert_verdict(check, solution(LESSON, name), RIGHT)
    assert_verdict(check, blank(LESSON, name), NOT_ATTEMPTED)
    assert_verdict(check, other, RIGHT)


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (lambda t: t.numel(), "you counted the numbers"),
        (lambda t: 4 * t.numel(), "4 bytes for each number"),
        (lambda t: 8 * t.numel() * t.element_size(), "a byte has 8"),
        (lambda t: t.element_size(), "how many are there"),
        (lambda t: sum(t.shape) * t.element_size(), "Case: a 3 x 5 tensor"),
        (lambda t: t.numel() * t.element_size() / 1024**2, "Case: a 3 x 5 tensor"),
        (lambda t: len(t) * t.element_size(), "counted the rows only"),
        (lambda t: t.zero_().numel() * t.element_size(), "changed its argument"),
        (60, "A function is expected"),
    ],
)
def test_wrong_tensor_bytes(answer, hint):
    assert_verdict(checks.tensor_bytes, answer, WRONG, hint)


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (768 * 3072 * 4, "AdamW keeps two"),
        (768 * 3072 * 2, "you counted numbers"),
        (18.0, "in MiB"),
        (18.874368, "in MB"),
        (3 * 768 * 3072 * 4, "not the weights"),
        ((768 + 3072) * 8, "rows x columns"),
        (12345, "Yours: 12,345"),
    ],
)
def test_wrong_adamw_bytes(answer, hint):
    assert_verdict(checks.adamw_bytes, answer, WRONG, hint)


def changed(**formulas):
    def answer(rows, columns):
        result = by_table(rows, columns)
        for name, formula in formulas.items():
            result[{"adafactor": "Adafactor", "eight": "8-bit Adam", "adamw": "AdamW"}[name]] = (
                formula(rows, columns)
            )
        return result

    return answer


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (changed(adafactor=lambda r, c: 4 * r * c), "not their product"),
        (changed(adafactor=lambda r, c: 8 * (r + c)), "one moment only"),
        (changed(adafactor=lambda r, c: r + c), "stored in 32 bits"),
        (changed(eight=lambda r, c: r * c), "still keeps two moments"),
        (changed(eight=lambda r, c: 16 * r * c), "8 bits are one byte"),
        (changed(adamw=lambda r, c: 4 * r * c), "AdamW keeps two moments"),
        (changed(adafactor=lambda r, c: 8 * r), "Case: rows=6, columns=8"),
        (lambda r, c: 8 * r * c, "A dictionary is expected"),
        (lambda r, c: {"AdamW": 8 * r * c}, "The keys should be"),
    ],
)
def test_wrong_stored_bytes(answer, hint):
    assert_verdict(checks.stored_bytes, answer, WRONG, hint)


def test_answers_are_true_of_real_tensors():
    weight = torch.nn.Parameter(torch.ones(768, 3072))
    optimizer = torch.optim.AdamW([weight])
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    moments = [v for v in optimizer.state[weight].values() if v.ndim == 2]
    assert sum(map(solution(LESSON, "tensor_bytes"), moments)) == solution(LESSON, "adamw_bytes")
