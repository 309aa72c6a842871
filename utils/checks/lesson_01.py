"""Checks of lesson 01: moving averages, bias correction, the direction of an update.

Those of the whole step (1.5 to 1.7) stand in `one_step`.
"""

import math

from utils.checks.core import Case, Misconception, check_function, check_value, exercise
from utils.checks.one_step import COUNTED_FROM_ZERO, adamw_step, step_is_safe, two_decays
from utils.optimizers import adamw as course

__all__ = [
    "adamw_step",
    "corrected_averages",
    "moving_averages",
    "step_is_safe",
    "steps_to_half",
    "two_decays",
    "update_direction",
]


def _run(values, old_share, new_share, start=0.0):
    averages, average = [], start
    for value in values:
        average = old_share * average + new_share * value
        averages.append(average)
    return averages


def _from_first(values, beta):
    first = values[0] if values else 0.0
    return _run(values, beta, 1 - beta, start=first)


@exercise("1.1")
def moving_averages(answer) -> str:
    """Check `moving_averages(values, beta)`: the EMA after each value, started at zero."""
    cases = [
        Case("values=[6.0, -2.0, 9.5], beta=0.75", ([6.0, -2.0, 9.5], 0.75)),
        Case("values=[-4.0], beta=0.9", ([-4.0], 0.9)),
        Case(
            "values=[1.0, 0.0, 0.0, 5.0, 2.0, -3.0], beta=0.5", ([1.0, 0, 0, 5.0, 2.0, -3.0], 0.5)
        ),
        Case("values=[3.0, 8.0], beta=0 (no memory)", ([3.0, 8.0], 0.0)),
        Case("no values at all", ([], 0.9)),
    ]
    misconceptions = [
        Misconception(
            lambda values, beta: _run(values, 1 - beta, beta),
            "the two shares are swapped: beta belongs to the old average, 1 - beta to the value.",
        ),
        Misconception(
            _from_first, "you started at the first value; here the average starts at zero."
        ),
        Misconception(
            lambda values, beta: _run(values, beta, 1.0),
            "the new value came in whole; it gets the share 1 - beta only.",
        ),
        Misconception(
            lambda values, beta: [
                beta * before + (1 - beta) * value
                for before, value in zip([0.0, *values], values, strict=False)
            ],
            "you mixed each value with the value before it; mix it with the average before it.",
        ),
        Misconception(
            lambda values, beta: [sum(values[:t]) / t for t in range(1, len(values) + 1)],
            "that is the plain mean of all values so far; an EMA forgets old ones.",
        ),
        Misconception(
            lambda values, beta: _corrected(values, beta),
            "that is the bias-corrected average; the raw one is asked for here.",
        ),
        Misconception(
            lambda values, beta: _run(values, beta, 1 - beta)[-1] if values else 0.0,
            "you returned the last average only; return the list of all of them.",
        ),
    ]
    return check_function(answer, course.ema_sequence, cases, misconceptions)


@exercise("1.2")
def steps_to_half(answer) -> str:
    """Check the prediction: steps until a value's share of an EMA with beta 0.9 is below half."""
    beta = 0.9
    exact = math.log(0.5) / math.log(beta)
    steps = math.ceil(exact)
    misconceptions = [
        Misconception(
            10, "that is the time scale 1 / (1 - beta); after it the share is near a third."
        ),
        Misconception(
            5, "the share does not fall along a straight line: each step multiplies it by beta."
        ),
        Misconception(
            steps - 1, "look at beta to that power: it is still above one half. One more step."
        ),
        Misconception(
            steps + 1, "one too many: the share is multiplied once for each newer value."
        ),
        Misconception(exact, "a number of steps is whole: round it to the side that is asked for."),
    ]
    # A wide tolerance lets a rounded 6.58 be recognised and still tells 6 from 7.
    return check_value(answer, steps, misconceptions, tolerance=1e-3)


def _corrected(values, beta):
    averages = course.ema_sequence(values, beta)
    return [average / (1 - beta**step) for step, average in enumerate(averages, start=1)]


def _corrected_in_place(values, beta):
    averages, average = [], 0.0
    for step, value in enumerate(values, start=1):
        average = (beta * average + (1 - beta) * value) / (1 - beta**step)
        averages.append(average)
    return averages


def _corrected_with(correction):
    def wrong(values, beta):
        averages = course.ema_sequence(values, beta)
        return [correction(average, beta, step) for step, average in enumerate(averages, start=1)]

    return wrong


@exercise("1.3")
def corrected_averages(answer) -> str:
    """Check `corrected_averages(values, beta)`: the bias-corrected EMA after each value."""
    cases = [
        Case("values=[6.0, -2.0, 9.5], beta=0.75", ([6.0, -2.0, 9.5], 0.75)),
        Case("values=[-4.0, 1.0], beta=0.999", ([-4.0, 1.0], 0.999)),
        Case("values=[0.5, 0.0, 3.0, 3.0, -8.0], beta=0.9", ([0.5, 0.0, 3.0, 3.0, -8.0], 0.9)),
        Case("values=[3.0, 8.0], beta=0 (no memory)", ([3.0, 8.0], 0.0)),
        Case("no values at all", ([], 0.9)),
    ]
    misconceptions = [
        Misconception(course.ema_sequence, "no correction yet: these are the raw averages."),
        Misconception(
            _corrected_in_place,
            "you kept the corrected average and mixed the next value into it, so the correction "
            "piles up. Keep the raw average; correct a copy.",
        ),
        Misconception(
            _corrected_with(lambda average, beta, step: average / (1 - beta)),
            "you divided by 1 - beta at every step; the divisor changes with the step.",
        ),
        Misconception(
            _corrected_with(lambda average, beta, step: average * (1 - beta**step)),
            "you multiplied by the sum of the shares; divide by it, the raw average is too small.",
        ),
        Misconception(
            _corrected_with(lambda average, beta, step: average / beta**step),
            "the divisor is the sum of the shares handed out so far, 1 - beta ** step.",
        ),
        Misconception(
            _corrected_with(lambda average, beta, step: average / (1 - beta * step)),
            "beta is multiplied by itself at each step: a power, not a product.",
        ),
        Misconception(
            _corrected_with(lambda average, beta, step: average / (1 - beta ** (step + 1))),
            "your step is one too high: after the first value it is 1.",
        ),
        Misconception(
            _from_first, "start at zero and divide; starting at the first value differs."
        ),
    ]
    return check_function(answer, _corrected, cases, misconceptions, error_hints=COUNTED_FROM_ZERO)


def _direction(gradients, beta1, beta2):
    first = _corrected(gradients, beta1)[-1]
    second = _corrected([gradient**2 for gradient in gradients], beta2)[-1]
    return first / math.sqrt(second)


def _last(values, beta):
    return course.ema_sequence(values, beta)[-1]


def _squares(gradients):
    return [gradient**2 for gradient in gradients]


@exercise("1.4")
def update_direction(answer) -> str:
    """Check `update_direction(gradients, beta1, beta2)`: corrected first over root of second."""
    gradients = [4.0, -1.0, 2.5]
    cases = [
        Case("gradients=[4.0, -1.0, 2.5], betas 0.9 and 0.99", (gradients, 0.9, 0.99)),
        Case("the same gradients, times 1000", ([1000 * g for g in gradients], 0.9, 0.99)),
        Case("one gradient, -0.02, betas 0.9 and 0.999", ([-0.02], 0.9, 0.999)),
        Case(
            "gradients=[1, 1, 1, -7, 0, 2, 2, 0.5], betas 0.8 and 0.95",
            ([1.0, 1.0, 1.0, -7.0, 0.0, 2.0, 2.0, 0.5], 0.8, 0.95),
        ),
        Case("gradients=[0.003, 0.0], betas 0.5 and 0.75", ([0.003, 0.0], 0.5, 0.75)),
    ]
    misconceptions = [
        Misconception(
            lambda g, beta1, beta2: _last(g, beta1) / math.sqrt(_last(_squares(g), beta2)),
            "the bias corrections are missing: both averages start at zero.",
        ),
        Misconception(
            lambda g, beta1, beta2: _corrected(g, beta1)[-1] / math.sqrt(_last(_squares(g), beta2)),
            "the second moment is not corrected: it starts at zero as well.",
        ),
        Misconception(
            lambda g, beta1, beta2: _last(g, beta1) / math.sqrt(_corrected(_squares(g), beta2)[-1]),
            "the first moment is not corrected: it starts at zero as well.",
        ),
        Misconception(
            lambda g, beta1, beta2: _corrected(g, beta1)[-1] / _corrected(_squares(g), beta2)[-1],
            "the root is missing: without it the result changes when the gradients are rescaled.",
        ),
        Misconception(
            lambda g, beta1, beta2: _corrected(g, beta1)[-1] / abs(_corrected(g, beta2)[-1]),
            "that is the square of an average; the second moment is the average of the squares.",
        ),
        Misconception(
            lambda g, beta1, beta2: _direction(g, beta2, beta1),
            "the betas are swapped: beta1 is for the gradients, beta2 for their squares.",
        ),
        Misconception(
            lambda g, beta1, beta2: _direction(g, beta1, beta1),
            "you used beta1 for both averages; the squares have beta2.",
        ),
        Misconception(
            lambda g, beta1, beta2: abs(_direction(g, beta1, beta2)),
            "the sign is lost: only the denominator comes from squares.",
        ),
        Misconception(
            lambda g, beta1, beta2: g[-1] / math.sqrt(_corrected(_squares(g), beta2)[-1]),
            "the numerator is the average of the gradients, not the last gradient.",
        ),
    ]
    return check_function(answer, _direction, cases, misconceptions, error_hints=COUNTED_FROM_ZERO)
