"""Checks of lesson 01 on the whole AdamW step: exercises 1.5 to 1.7."""

import torch

from utils.checks.core import (
    Case,
    Misconception,
    check_function,
    check_value,
    exercise,
)
from utils.optimizers import adamw as course

COUNTED_FROM_ZERO = {
    "ZeroDivisionError": "your steps count from 0, where 1 - beta ** step is 0. "
    "After the first value the step is 1."
}


def _one_step(
    weight, gradient, first, second, step, lr, beta1, beta2, eps, weight_decay
) -> tuple[torch.Tensor, ...]:
    return course.adamw_step(
        weight,
        gradient,
        first,
        second,
        step,
        lr=lr,
        betas=(beta1, beta2),
        eps=eps,
        weight_decay=weight_decay,
    )


def _step_mutant(
    *,
    gradient=lambda g, w, decay: g,
    mix_first=lambda old, g, beta: beta * old + (1 - beta) * g,
    mix_second=lambda old, g, beta: beta * old + (1 - beta) * g**2,
    corrections=lambda beta1, beta2, t: (1 - beta1**t, 1 - beta2**t),
    move=lambda m, v, c1, c2, eps: (m / c1) / ((v / c2).sqrt() + eps),
    finish=lambda w, lr, decay, u: (1 - lr * decay) * w - lr * u,
    stored=lambda m, v, c1, c2: (m, v),
):
    """Return an AdamW step with one of its seven lines replaced: a plausible wrong answer."""

    def wrong(weight, g, first, second, step, lr, beta1, beta2, eps, weight_decay):
        g = gradient(g, weight, weight_decay)
        first, second = mix_first(first, g, beta1), mix_second(second, g, beta2)
        c1, c2 = corrections(beta1, beta2, step)
        update = move(first, second, c1, c2, eps)
        return finish(weight, lr, weight_decay, update), *stored(first, second, c1, c2)

    return wrong


def _swapped(weight, gradient, first, second, step, lr, beta1, beta2, eps, weight_decay):
    return _one_step(weight, gradient, first, second, step, lr, beta2, beta1, eps, weight_decay)


STEP_MISCONCEPTIONS = [
    Misconception(
        _swapped, "the betas are swapped: beta1 is for the first moment, beta2 for the second."
    ),
    Misconception(
        _step_mutant(corrections=lambda beta1, beta2, t: (1.0, 1.0)),
        "the bias corrections are missing: divide each moment by 1 - beta ** step.",
    ),
    Misconception(
        _step_mutant(stored=lambda m, v, c1, c2: (m / c1, v / c2)),
        "you returned the corrected moments. Those are for this step only; the next step starts "
        "from the raw ones.",
    ),
    Misconception(
        _step_mutant(move=lambda m, v, c1, c2, eps: (m / c1) / (v / c2 + eps).sqrt()),
        "eps is inside the root; add it after the root is taken.",
    ),
    Misconception(
        _step_mutant(move=lambda m, v, c1, c2, eps: (m / c1) * c2**0.5 / (v.sqrt() + eps)),
        "eps is added before the bias correction; correct the second moment first, take the root, "
        "then add eps.",
    ),
    Misconception(
        _step_mutant(move=lambda m, v, c1, c2, eps: (m / c1) / (v / c2).sqrt()),
        "eps is missing: it is added to the root.",
    ),
    Misconception(
        _step_mutant(move=lambda m, v, c1, c2, eps: (m / c1) / (v / c2 + eps)),
        "the root is missing: divide by the root of the corrected second moment, plus eps.",
    ),
    Misconception(
        _step_mutant(
            gradient=lambda g, w, decay: g + decay * w, finish=lambda w, lr, decay, u: w - lr * u
        ),
        "the decay went into the gradient. That is L2; decoupled decay shrinks the weight itself "
        "and leaves the moments alone.",
    ),
    Misconception(
        _step_mutant(finish=lambda w, lr, decay, u: (1 - lr * decay) * (w - lr * u)),
        "the decay came after the update and shrank the update too; shrink the old weight.",
    ),
    Misconception(
        _step_mutant(finish=lambda w, lr, decay, u: (1 - decay) * w - lr * u),
        "the decay is not multiplied by lr: the factor is 1 - lr * weight_decay.",
    ),
    Misconception(
        _step_mutant(finish=lambda w, lr, decay, u: w - lr * u),
        "the weight decay is missing.",
    ),
    Misconception(
        _step_mutant(finish=lambda w, lr, decay, u: (1 - lr * decay) * w + lr * u),
        "the sign: the weight moves against the gradient.",
    ),
    Misconception(
        _step_mutant(mix_second=lambda old, g, beta: beta * old + (1 - beta) * g),
        "the gradient is not squared in the second moment.",
    ),
    Misconception(
        _step_mutant(mix_second=lambda old, g, beta: beta * old + ((1 - beta) * g) ** 2),
        "the share 1 - beta2 was squared too; only the gradient is.",
    ),
    Misconception(
        _step_mutant(
            corrections=lambda beta1, beta2, t: (1 - beta1 ** (t - 1), 1 - beta2 ** (t - 1))
        ),
        "your step is one too low: `step` counts from 1, use it as it is.",
    ),
    Misconception(
        _step_mutant(
            corrections=lambda beta1, beta2, t: (1 - beta1 ** (t + 1), 1 - beta2 ** (t + 1))
        ),
        "your step is one too high: `step` already counts this step.",
    ),
]


def _step_cases() -> list[Case]:
    def tensor(*rows):
        return torch.tensor(rows, dtype=torch.float64)

    weight, gradient = (
        tensor([1.0, -2.0, 0.5], [3.0, 0.25, -4.0]),
        tensor([0.5, 2.0, -0.1], [-3.0, 0.02, 1.0]),
    )
    zeros = torch.zeros_like(weight)
    first, second = (
        tensor([0.3, -0.2, 0.0], [1.5, 0.01, -0.4]),
        tensor([0.4, 0.1, 0.02], [2.0, 0.3, 0.6]),
    )
    row = tensor([2.0, -1.0, 0.5, 4.0])
    return [
        Case(
            "step 1, weight of shape (2, 3), zero moments, no decay",
            (weight, gradient, zeros, zeros, 1, 0.1, 0.9, 0.999, 1e-8, 0.0),
        ),
        Case(
            "step 4 with earlier moments, eps=0.1, no decay",
            (weight, gradient, first, second, 4, 0.05, 0.9, 0.99, 0.1, 0.0),
        ),
        Case(
            "step 1 with weight_decay=0.5",
            (weight, gradient, zeros, zeros, 1, 0.1, 0.9, 0.999, 1e-8, 0.5),
        ),
        Case(
            "step 20, everything on: eps=0.01, weight_decay=0.3",
            (weight, gradient, first, second, 20, 0.02, 0.8, 0.95, 0.01, 0.3),
        ),
        Case(
            "a gradient of zeros, weight of shape (1, 4)",
            (row, torch.zeros_like(row), 0.2 * row, row**2, 3, 0.1, 0.9, 0.99, 1e-8, 0.1),
        ),
    ]


@exercise("1.5")
def adamw_step(answer) -> str:
    """Check `adamw_step(weight, gradient, first, second, step, lr, ...)`: one whole step."""
    return check_function(
        answer, _one_step, _step_cases(), STEP_MISCONCEPTIONS, error_hints=COUNTED_FROM_ZERO
    )


@exercise("1.6")
def two_decays(answer) -> str:
    """Check the prediction (weight after Adam with L2, weight after AdamW), first step.

    The weight is 2.0, the gradient -0.5, lr 0.1 and weight_decay 0.5.
    """
    if isinstance(answer, list):
        answer = tuple(answer)
    misconceptions = [
        Misconception(
            (2.1, 2.0),
            "the second is right. For the first, add weight_decay * weight to the gradient: which "
            "sign has the sum?",
        ),
        Misconception(
            (1.9, 1.9),
            "the first is right. AdamW's moments never see the decay: its step has the sign of the "
            "gradient alone.",
        ),
        Misconception((2.0, 1.9), "both numbers are right, in the other order."),
        Misconception(
            (2.1, 2.1), "you left the decay out of both: it is 0.5, and the weight is not zero."
        ),
        Misconception(
            (1.95, 1.95),
            "you moved by lr times the gradient. Adam's first step has the size lr, whatever the "
            "size of the gradient.",
        ),
        Misconception(
            (1.9, 1.8),
            "the first is right. For the second: the gradient is negative, so the step is upwards.",
        ),
        Misconception(
            (1.9, 1.1),
            "the first is right. In the second the decay is lr * weight_decay * weight, not "
            "weight_decay * weight.",
        ),
        Misconception(
            (1.9, 1.995),
            "the first is right. In the second you shrank the moved weight: shrink the old one.",
        ),
        Misconception((1.9, 2.1), "the first is right. In the second the decay is missing."),
    ]
    return check_value(answer, (1.9, 2.0), misconceptions, tolerance=1e-6)


@exercise("1.7")
def step_is_safe(answer) -> str:
    """Check `step_is_safe(gradients)`: True if every gradient that exists is finite."""
    nan, inf = float("nan"), float("inf")
    fine = torch.tensor([[0.5, -3.0, 2e-9]])
    cases = [
        Case("two finite tensors", ([fine, torch.tensor([4.0, -1.0])],)),
        Case("a NaN in the first of two tensors", ([torch.tensor([1.0, nan, 2.0]), fine],)),
        Case("a NaN in the last tensor only", ([fine, torch.tensor([[1.0], [nan]])],)),
        Case("an infinity", ([torch.tensor([1.0, inf]), fine],)),
        Case("a negative infinity", ([fine, torch.tensor([-inf, 0.0])],)),
        Case("a finite tensor and a None", ([fine, None],)),
        Case("a None before a NaN", ([None, torch.tensor([nan])],)),
        Case("large finite gradients", ([torch.tensor([3e38, 3e38, -1.0])],)),
        Case("no gradient at all", ([],)),
    ]

    def of_present(combine, is_good):
        return lambda gradients: combine(is_good(g) for g in gradients if g is not None)

    def is_finite(gradient):
        return bool(gradient.isfinite().all())

    right = of_present(all, is_finite)
    misconceptions = [
        Misconception(
            of_present(all, lambda g: not g.isnan().any()),
            "an infinity is not a NaN; torch.isfinite is False for both.",
        ),
        Misconception(
            of_present(all, lambda g: not g.isinf().any()),
            "a NaN is not an infinity; torch.isfinite is False for both.",
        ),
        Misconception(
            of_present(any, is_finite),
            "one finite gradient is not enough: all of them must be finite.",
        ),
        Misconception(
            of_present(all, lambda g: bool(g.isfinite().any())),
            "one finite number is not enough: all numbers of a gradient must be finite.",
        ),
        Misconception(
            lambda gradients: right(gradients[:1]), "you looked at the first gradient only."
        ),
        Misconception(
            lambda gradients: right(gradients[-1:]),
            "the last gradient alone decides in yours: return False as soon as one is not finite.",
        ),
        Misconception(
            lambda gradients: all(g is not None for g in gradients) and right(gradients),
            "a gradient of None is no danger: the optimizer passes over that parameter.",
        ),
        Misconception(
            lambda gradients: not right(gradients), "the wrong way round: True means safe."
        ),
        Misconception(
            of_present(all, lambda g: bool(g.sum().isfinite())),
            "the sum of large finite numbers can overflow: look at each number.",
        ),
    ]
    passed_over = "a parameter that took no part has the gradient None: pass over it."
    return check_function(
        answer,
        right,
        cases,
        misconceptions,
        error_hints={"NoneType": passed_over},
        hint_fits_every_case=True,
    )
