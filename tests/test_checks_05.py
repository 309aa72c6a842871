"""The checks of lesson 05: solution, blank, a second right answer and plausible wrong ones."""

import math

import pytest
import torch

from tests.exercises import assert_verdict, blank, solution
from utils.checks import lesson_05 as checks
from utils.checks.core import NOT_ATTEMPTED, RIGHT, WRONG
from utils.optimizers import new_statistics

LESSON = "05_adafactor_factoring"
GIVEN = {"torch": torch, "math": math}


def by_shares(row_sum, column_sum):
    shares = row_sum / row_sum.sum()
    return shares.unsqueeze(1) * column_sum.unsqueeze(0)


def by_shapes(shape):
    return sum(part.numel() for part in new_statistics(torch.empty(shape, device="meta")))


def by_lerp(gradients):
    average, found = torch.zeros((), dtype=torch.float64), []
    for count, gradient in enumerate(gradients):
        square = torch.tensor(gradient, dtype=torch.float64) ** 2
        average = torch.lerp(average, square, (count + 1) ** -0.8)
        found.append(average.item())
    return found


def by_norm(update, threshold):
    rms = update.norm() / math.sqrt(update.numel())
    return update if rms <= threshold else update * (threshold / rms)


def rms(tensor):
    return (tensor**2).mean().sqrt().item()


def step_with(**changed):
    """Return an Adafactor step whose parts can be replaced, written apart from the checks."""
    parts = {
        "beta2": lambda t: 1 - 1 / t**0.8,
        "rows": lambda squares: squares.sum(1) / squares.shape[1],
        "columns": lambda squares: squares.sum(0) / squares.shape[0],
        "estimate": lambda r, c: (r / r.mean())[:, None] * c[None, :],
        "divide": lambda g, v: g * v.rsqrt(),
        "clip": lambda u: u / max(rms(u), 1.0),
        "move": lambda w, u, lr: w - lr * u,
    } | changed

    def step(weights, gradient, row, column, number, lr):
        beta2 = parts["beta2"](number)
        row = beta2 * row + (1 - beta2) * parts["rows"](gradient**2)
        column = beta2 * column + (1 - beta2) * parts["columns"](gradient**2)
        update = parts["clip"](parts["divide"](gradient, parts["estimate"](row, column)))
        return [parts["move"](weights, update, lr), row, column]

    return step


SECOND_ANSWERS = {
    "reconstruct": by_shares,
    "factored_state_size": by_shapes,
    "second_moments": by_lerp,
    "clip_update": by_norm,
    "adafactor_step": step_with(),
}


@pytest.mark.parametrize("name", SECOND_ANSWERS)
def test_solution_blank_and_a_second_right_answer(name):
    check = getattr(checks, name)
    assert_verdict(check, solution(LESSON, name, **GIVEN), RIGHT)
    assert_verdict(check, blank(LESSON, name, **GIVEN), NOT_ATTEMPTED)
    assert_verdict(check, SECOND_ANSWERS[name], RIGHT)


def average(beta2, square=lambda g: g**2):
    def answer(gradients):
        value, found = 0.0, []
        for step, gradient in enumerate(gradients, start=1):
            value = beta2(step) * value + (1 - beta2(step)) * square(gradient)
            found.append(value)
        return found

    return answer


def counts_from_zero(gradients):
    return [(1 - step**-0.8) * gradient for step, gradient in enumerate(gradients)]


def in_place(weights, gradient, row, column, step, lr):
    new = step_with()(weights, gradient, row, column, step, lr)
    weights.copy_(new[0])
    return new


WRONG_ANSWERS = [
    ("reconstruct", lambda r, c: r[:, None] * c, "the product alone is too large"),
    ("reconstruct", lambda r, c: c[:, None] * r / r.sum(), "rows and columns are swapped"),
    ("reconstruct", lambda r, c: r[:, None] * c / r.mean(), "divided by the mean"),
    ("reconstruct", lambda r, c: r[:, None] * c / r.sum() ** 2, "divided by the total twice"),
    ("reconstruct", lambda r, c: (r[:, None] + c) / r.sum(), "multiplied, not added"),
    ("reconstruct", lambda r, c: r * c / r.sum(), "matrix of products"),
    ("factored_state_size", math.prod, "whole second moment"),
    ("factored_state_size", sum, "you added all sizes"),
    (
        "factored_state_size",
        lambda s: math.prod(s[:-1]) + s[-1] if len(s) > 1 else math.prod(s),
        "flattened the leading dimensions",
    ),
    (
        "factored_state_size",
        lambda s: s[-2] + s[-1] if len(s) > 1 else math.prod(s),
        "leading dimensions count",
    ),
    (
        "factored_state_size",
        lambda s: (s[0] + s[1]) * math.prod(s[2:]) if len(s) > 1 else math.prod(s),
        "first two dimensions",
    ),
    ("factored_state_size", lambda s: 2 * by_shapes(s), "one moment, not two"),
    ("factored_state_size", lambda s: by_shapes(s) + 1, "leave the step counter out"),
    ("factored_state_size", lambda s: by_shapes(s) if len(s) > 1 else 0, "is kept whole"),
    ("factored_state_size", lambda s: math.prod(s[:-2]) * (s[-2] + s[-1]), "fewer than two sizes"),
    ("second_moments", average(lambda t: 0.999), "beta2 is constant"),
    ("second_moments", average(lambda t: t**-0.8), "swapped"),
    ("second_moments", average(lambda t: 1 - t**-0.8, lambda g: g), "square the gradients"),
    ("second_moments", average(lambda t: 1 - (t + 1) ** -0.8), "steps count from 1"),
    ("second_moments", average(lambda t: 1 - t**-0.5), "the power is -0.8"),
    ("second_moments", counts_from_zero, "your steps count from 0"),
    ("second_moments", lambda g: by_lerp(g)[-1], "the last one only"),
    ("clip_update", lambda u, d: u / min(1.0, max(rms(u), 1e-9) / d), "take max"),
    ("clip_update", lambda u, d: u.clamp(-d, d), "clipped each element"),
    ("clip_update", lambda u, d: u / max(1.0, u.norm().item() / d), "you used the norm"),
    ("clip_update", lambda u, d: u / max(1.0, (u**2).mean().item() / d), "root is missing"),
    ("clip_update", lambda u, d: u / max(1.0, rms(u)), "threshold is ignored"),
    ("clip_update", lambda u, d: u / max(rms(u), 1e-30) * d, "those that are small enough stay"),
    ("clip_update", lambda u, d: u / max(1.0, u.abs().max().item() / d), "largest element"),
    ("clip_update", lambda u, d: u, "not clipped"),
    (
        "adafactor_step",
        step_with(rows=lambda s: s.mean(0), columns=lambda s: s.mean(1)),
        "Case: a 3 x 5 matrix",
    ),
    (
        "adafactor_step",
        step_with(rows=lambda s: s.sum(1), columns=lambda s: s.sum(0)),
        "you used sums",
    ),
    (
        "adafactor_step",
        step_with(estimate=lambda r, c: r[:, None] * c),
        "not divided by the mean of the rows",
    ),
    (
        "adafactor_step",
        step_with(estimate=lambda r, c: r[:, None] * c / r.sum()),
        "divided by the sum of the row means",
    ),
    ("adafactor_step", step_with(beta2=lambda t: 0.999), "beta2 is constant"),
    ("adafactor_step", step_with(clip=lambda u: u / min(rms(u), 1.0)), "take max"),
    ("adafactor_step", step_with(clip=lambda u: u), "not clipped"),
    ("adafactor_step", step_with(clip=lambda u: u.clamp(-1, 1)), "scale the whole"),
    ("adafactor_step", step_with(divide=lambda g, v: g / v), "divide by the root"),
    ("adafactor_step", step_with(move=lambda w, u, lr: w - u), "learning rate is missing"),
    ("adafactor_step", step_with(move=lambda w, u, lr: w + lr * u), "wrong way"),
    ("adafactor_step", in_place, "changed its argument number 1"),
    ("adafactor_step", lambda *a: step_with()(*a)[0], "3 values are expected"),
]


@pytest.mark.parametrize(
    ("name", "answer", "hint"),
    WRONG_ANSWERS,
    ids=[f"{name}-{hint[:20]}" for name, _, hint in WRONG_ANSWERS],
)
def test_wrong_answer_is_rejected_with_its_hint(name, answer, hint):
    assert_verdict(getattr(checks, name), answer, WRONG, hint)


def test_the_step_of_the_lesson_is_the_library_s():
    """With scaling, epsilons and relative steps off, transformers' Adafactor does the same."""
    from transformers.optimization import Adafactor

    torch.manual_seed(2)
    weights = torch.nn.Parameter(torch.randn(5, 3, dtype=torch.float64))
    optimizer = Adafactor([weights], lr=0.1, relative_step=False, scale_parameter=False)
    row, column = torch.zeros(5).double(), torch.zeros(3).double()
    ours, step = weights.detach().clone(), solution(LESSON, "adafactor_step", **GIVEN)
    for number in range(1, 6):
        weights.grad = torch.randn_like(weights) * number
        ours, row, column = step(ours, weights.grad, row, column, number, 0.1)
        optimizer.step()
    assert torch.allclose(ours, weights, atol=1e-12)
