"""Checks of lesson 05: the factored second moment, its size, decay, clipping, one step."""

import math

import torch
from torch import Tensor

from utils.checks.core import Case, Misconception, check_function, exercise
from utils.optimizers import factored_second_moment, root_mean_square, update_clipping


def _numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@exercise("5.1")
def reconstruct(answer) -> str:
    """Check `reconstruct(row_sum, column_sum)`: the (n, m) estimate from sums."""
    cases = [
        Case(f"{len(row)} row sums and {len(column)} column sums", (row, column))
        for row, column in (
            (_numbers(12, 4), _numbers(8, 2, 6)),
            (_numbers(1, 0.5, 2.5, 6), _numbers(7, 3)),
            (_numbers(9), _numbers(2, 3, 4)),
            (_numbers(0, 5, 5), _numbers(4, 6, 0)),
        )
    ]
    misconceptions = [
        Misconception(
            torch.outer, "the product alone is too large: its rows should add up to the row sums."
        ),
        Misconception(
            lambda row, column: torch.outer(column, row) / row.sum(),
            "rows and columns are swapped: there should be a row for each row sum.",
        ),
        Misconception(
            lambda row, column: torch.outer(row, column) / row.mean(),
            "you divided by the mean; that belongs to means of rows and columns. These are sums.",
        ),
        Misconception(
            lambda row, column: torch.outer(row, column) / (row.sum() * column.sum()),
            "you divided by the total twice.",
        ),
        Misconception(
            lambda row, column: torch.outer(row, column) / (row.sum() + column.sum()),
            "the total is the sum of the row sums alone; the column sums have the same total.",
        ),
        Misconception(
            lambda row, column: torch.outer(row, column) / (len(row) * len(column)),
            "divide by the total of the sums, not by the number of cells.",
        ),
        Misconception(
            lambda row, column: (row[:, None] + column[None, :]) / row.sum(),
            "rows and columns are multiplied, not added.",
        ),
        Misconception(
            lambda row, column: (torch.outer(row, column) / row.sum()).sqrt(),
            "no root here: the second moment itself is asked for.",
        ),
    ]
    return check_function(
        answer,
        factored_second_moment,
        cases,
        misconceptions,
        error_hints={"size": "torch.outer(row_sum, column_sum) makes the matrix of products."},
    )


def _factored(shape: tuple[int, ...]) -> int:
    if len(shape) < 2:
        return math.prod(shape)
    return math.prod(shape[:-2]) * (shape[-2] + shape[-1])


@exercise("5.2")
def factored_state_size(answer) -> str:
    """Check `factored_state_size(shape)`: numbers kept of the second moment."""
    shapes = [(5, 9), (768,), (), (3, 4, 6), (8, 3, 5, 7), (64, 64, 1, 1), (2, 3, 4, 5, 6), (1, 1)]
    misconceptions = [
        Misconception(math.prod, "that is the whole second moment: nothing is factored."),
        Misconception(sum, "you added all sizes; only the last two dimensions are factored."),
        Misconception(
            lambda shape: math.prod(shape[:-1]) + shape[-1] if len(shape) > 1 else math.prod(shape),
            "you flattened the leading dimensions into rows; each leading index has a matrix of its "
            "own.",
        ),
        Misconception(
            lambda shape: shape[0] + math.prod(shape[1:]) if len(shape) > 1 else math.prod(shape),
            "you factored the first dimension against the rest; the last two are factored.",
        ),
        Misconception(
            lambda shape: (
                (shape[0] + shape[1]) * math.prod(shape[2:]) if len(shape) > 1 else math.prod(shape)
            ),
            "you factored the first two dimensions; the last two are.",
        ),
        Misconception(
            lambda shape: shape[-2] + shape[-1] if len(shape) > 1 else math.prod(shape),
            "the leading dimensions count: each of their indices has its own rows and columns.",
        ),
        Misconception(
            lambda shape: (
                2 * math.prod(shape[:-2]) * (shape[-2] + shape[-1])
                if len(shape) > 1
                else 2 * math.prod(shape)
            ),
            "there is one moment, not two.",
        ),
        Misconception(
            lambda shape: _factored(shape) if len(shape) > 1 else 0,
            "a vector cannot be factored: it is kept whole.",
        ),
        Misconception(
            lambda shape: _factored(shape) if len(shape) > 1 else math.prod(shape) + 1,
            "a vector is kept whole, with no second statistic.",
        ),
        Misconception(lambda shape: _factored(shape) + 1, "leave the step counter out."),
    ]
    cases = [Case(f"shape {shape}", (shape,)) for shape in shapes]
    return check_function(
        answer,
        _factored,
        cases,
        misconceptions,
        error_hints={"IndexError": "the shape may have fewer than two sizes: keep those whole."},
    )


def _averages(beta2, square=lambda g: g * g, start=1, correct=lambda average, step: average):
    """Return a moving average of squared gradients with `beta2(step)`: right or a mutant."""

    def averages(gradients):
        average, found = 0.0, []
        for step, gradient in enumerate(gradients, start=start):
            share = beta2(step)
            average = share * average + (1 - share) * square(gradient)
            found.append(correct(average, step))
        return found

    return averages


@exercise("5.3")
def second_moments(answer) -> str:
    """Check `second_moments(gradients)`: the average of squares with beta2 = 1 - step ** -0.8."""
    right = _averages(lambda step: 1 - step**-0.8)
    cases = [
        Case(f"gradients {gradients}", (gradients,))
        for gradients in ([2.0, -1.0, 0.5], [3.0], [0.0, 0.0, 4.0, -2.0, 1.0, 0.25], [-1.5] * 4)
    ]
    misconceptions = [
        Misconception(
            _averages(lambda step: 0.999),
            "beta2 is constant; Adafactor's depends on the step: 1 - step ** -0.8.",
        ),
        Misconception(
            _averages(lambda step: 0.999, correct=lambda v, step: v / (1 - 0.999**step)),
            "that is Adam's average with its bias correction; Adafactor's beta2 depends on the step.",
        ),
        Misconception(
            _averages(lambda step: step**-0.8), "beta2 and 1 - beta2 are swapped: old and new."
        ),
        Misconception(
            _averages(lambda step: 1 - step**-0.8, square=lambda g: g), "square the gradients."
        ),
        Misconception(
            _averages(lambda step: 1 - step**-0.8, square=abs),
            "square the gradients; their absolute value is not enough.",
        ),
        Misconception(
            _averages(lambda step: 1 - (step + 1) ** -0.8),
            "steps count from 1: at step 1 beta2 is 0.",
        ),
        Misconception(
            _averages(lambda step: 1 - step**-0.5), "the power is -0.8; -0.5 is the step size's."
        ),
        Misconception(
            _averages(
                lambda step: 1 - step**-0.8,
                correct=lambda v, step: v / (1 - (1 - step**-0.8) ** step),
            ),
            "no bias correction is needed: at step 1 beta2 is 0.",
        ),
        Misconception(
            lambda gradients: right(gradients)[-1:],
            "you returned the last one only; the average after each gradient is asked for.",
        ),
        Misconception(
            lambda gradients: right(gradients)[-1],
            "you returned the last one only; the average after each gradient is asked for.",
        ),
    ]
    return check_function(
        answer,
        right,
        cases,
        misconceptions,
        error_hints={"ZeroDivisionError": "your steps count from 0; they count from 1."},
    )


def _rms(tensor: Tensor) -> float:
    return root_mean_square(tensor)


@exercise("5.4")
def clip_update(answer) -> str:
    """Check `clip_update(update, threshold)`: RMS at most `threshold`."""
    cases = [
        Case("a matrix with RMS 2.5, threshold 1", (torch.full((2, 3), 2.5), 1.0)),
        Case("a vector with RMS below 1, threshold 1", (_numbers(0.5, -0.25, 0.1), 1.0)),
        Case("one large element, RMS 2, threshold 1", (_numbers(4, 0, 0, 0), 1.0)),
        Case("signs and threshold 0.5", (_numbers(3, -3, 1, -1, 2), 0.5)),
        Case("RMS 2, threshold 3", (torch.full((3, 2), -2.0), 3.0)),
        Case("an update of zeros", (torch.zeros(3), 1.0)),
    ]
    misconceptions = [
        Misconception(
            lambda u, d: u / min(1.0, _rms(u) / d) if _rms(u) else u,
            "with min, small updates are blown up and large ones left alone: take max.",
        ),
        Misconception(
            lambda u, d: u / (_rms(u) / d) if _rms(u) else u,
            "you scaled every update to the threshold; those that are small enough stay.",
        ),
        Misconception(
            lambda u, d: u.clamp(-d, d),
            "you clipped each element; the whole update is scaled by one factor.",
        ),
        Misconception(
            lambda u, d: u / max(1.0, u.norm().item() / d),
            "you used the norm; the RMS divides the sum of squares by the number of elements.",
        ),
        Misconception(
            lambda u, d: u / max(1.0, u.square().mean().item() / d),
            "the root is missing: RMS is the root of the mean square.",
        ),
        Misconception(
            lambda u, d: u / max(1.0, u.abs().mean().item() / d),
            "you used the mean absolute value; square, mean, root.",
        ),
        Misconception(
            lambda u, d: u / max(1.0, u.abs().max().item() / d),
            "you used the largest element; the RMS of all is what counts.",
        ),
        Misconception(
            lambda u, d: u / max(1.0, _rms(u)), "the threshold is ignored: divide the RMS by it."
        ),
        Misconception(
            lambda u, d: u / max(d, _rms(u)),
            "that is right only for a threshold of 1: divide by max(1, RMS / threshold).",
        ),
        Misconception(lambda u, d: u / max(1.0, _rms(u) * d), "divide the RMS by the threshold."),
        Misconception(lambda u, d: u, "the update is not clipped."),
    ]
    return check_function(answer, update_clipping, cases, misconceptions)


def _step(
    *,
    beta2=lambda step: 1 - step**-0.8,
    reduce=torch.mean,
    dims=(1, 0),
    estimate=lambda row, column: torch.outer(row, column) / row.mean(),
    normalize=lambda g, v: g / v.sqrt(),
    clip=lambda u: u / max(1.0, _rms(u)),
    old=False,
    move=lambda w, lr, u: w - lr * u,
):
    """Return an Adafactor step with one line replaced: right, or a plausible wrong answer."""

    def step(weights, gradient, row, column, number, lr):
        share, squared = beta2(number), gradient.square()
        new_row = share * row + (1 - share) * reduce(squared, dim=dims[0])
        new_column = share * column + (1 - share) * reduce(squared, dim=dims[1])
        used = (row, column) if old else (new_row, new_column)
        update = clip(normalize(gradient, estimate(*used)))
        return move(weights, lr, update), new_row, new_column

    return step


def _matrices(rows: int, columns: int, seed: int) -> tuple[Tensor, Tensor]:
    chance = torch.Generator().manual_seed(seed)
    shape, kind = (rows, columns), {"generator": chance, "dtype": torch.float64}
    return torch.randn(shape, **kind), torch.randn(shape, **kind)


def _step_case(rows: int, columns: int, step: int, lr: float, factor: float = 1.0) -> Case:
    weights, gradient = _matrices(rows, columns, seed=rows * 10 + step)
    old = _matrices(rows, columns, seed=step)[0].square() * 0.3
    label = f"a {rows} x {columns} matrix, step {step}, lr {lr:g}"
    return Case(label, (weights, gradient * factor, old.mean(1), old.mean(0), step, lr))


@exercise("5.5")
def adafactor_step(answer) -> str:
    """Check `adafactor_step(weights, gradient, row, column, step, lr)` for a matrix."""
    cases = [
        _step_case(3, 5, 1, 0.1),
        _step_case(4, 2, 7, 0.01),
        _step_case(4, 4, 12, 0.05, factor=20.0),
        _step_case(1, 6, 3, 0.1),
        _step_case(5, 3, 40, 0.1, factor=0.05),  # an update that is too small to be clipped
    ]
    misconceptions = [
        Misconception(
            _step(dims=(0, 1)),
            "rows and columns are swapped: the mean over dimension 1 leaves one number a row.",
        ),
        Misconception(_step(reduce=torch.sum), "you used sums; row and column hold means here."),
        Misconception(
            _step(estimate=torch.outer),
            "the product of row and column means is not divided by the mean of the rows.",
        ),
        Misconception(
            _step(estimate=lambda row, column: torch.outer(row, column) / row.sum()),
            "you divided by the sum of the row means; with means, divide by their mean.",
        ),
        Misconception(
            _step(beta2=lambda step: 0.999),
            "beta2 is constant; it depends on the step: 1 - step ** -0.8.",
        ),
        Misconception(_step(beta2=lambda step: step**-0.8), "old and new share are swapped."),
        Misconception(
            _step(clip=lambda u: u / min(1.0, _rms(u))),
            "with min, the clipping blows small updates up: take max.",
        ),
        Misconception(_step(clip=lambda u: u), "the update is not clipped."),
        Misconception(
            _step(clip=lambda u: u / max(1.0, u.norm().item())),
            "the clipping uses the norm; take the RMS.",
        ),
        Misconception(
            _step(clip=lambda u: u.clamp(-1, 1)),
            "the clipping acts on each element; scale the whole.",
        ),
        Misconception(
            _step(normalize=lambda g, v: g / v), "divide by the root of the second moment."
        ),
        Misconception(
            _step(normalize=lambda g, v: g),
            "the gradient is not divided by the second moment's root.",
        ),
        Misconception(
            _step(old=True), "the estimate uses the old row and column means; take the new ones."
        ),
        Misconception(_step(move=lambda w, lr, u: w + lr * u), "the weights move the wrong way."),
        Misconception(_step(move=lambda w, lr, u: w - u), "the learning rate is missing."),
    ]
    return check_function(answer, _step(), cases, misconceptions)
