"""Adafactor from its paper: row and column statistics, clipping, step size, one step, the optimizer.

Source: Shazeer and Stern 2018, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost",
Algorithms 1 to 5. The two libraries in use complete the paper differently; `convention` names
which one is followed, and it is never chosen silently:

| | "transformers" | "torch" |
|---|---|---|
| eps1 | added to the squared gradient, as in the paper | lower bound of the estimate |
| step size | `lr`, or min(0.01, 1 / sqrt(t)) if `relative_step` | min(`lr`, 1 / sqrt(t)) |
| times max(eps2, RMS(param)) | if `scale_parameter` | always |
| weight decay multiplied by | the step size with its scale | `lr` |
| first moment | if `beta1` is given | never |
| float16, bfloat16 | states in float32 | states in the gradient's dtype |

With its default options "transformers" is the paper's Algorithm 5.
"""

import math

import torch
from torch import Tensor

from .base import CheckedOptimizer, new_step_counter, require_number, restore_saved_dtypes

CONVENTIONS = ("transformers", "torch")
DEFAULT_EPS = {"transformers": (1e-30, 1e-3), "torch": (None, 1e-3)}
REDUCTIONS = {"sum": torch.sum, "mean": torch.mean}


def _reduction(name: str):
    if name not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {list(REDUCTIONS)}, got {name!r}")
    return REDUCTIONS[name]


def row_col_update_(
    row: Tensor, col: Tensor, squared: Tensor, beta2: float, reduction: str = "sum"
) -> None:
    """Change the row and column statistics in place by one more matrix of squared gradients.

        row <- beta2 * row + (1 - beta2) * (sum of `squared` over its last dimension)
        col <- beta2 * col + (1 - beta2) * (sum of `squared` over its last but one dimension)

    `squared` (..., n, m), `row` (..., n), `col` (..., m): n + m numbers stand for n * m.
    `reduction="mean"` keeps means instead of sums, as both libraries do.
    Raises: ValueError for another reduction, for shapes that do not fit, or beta2 outside [0, 1).
    Source: Algorithm 4, the lines of R and C.
    """
    reduce = _reduction(reduction)
    require_number("beta2", beta2, below=1.0)
    fits = squared.ndim >= 2 and row.shape == squared.shape[:-1]
    if not (fits and col.shape == squared.shape[:-2] + squared.shape[-1:]):
        shapes = [tuple(tensor.shape) for tensor in (row, col, squared)]
        raise ValueError(f"row (..., n), col (..., m) and squared (..., n, m) do not fit: {shapes}")
    row.lerp_(reduce(squared, -1).to(row.dtype), 1 - beta2)
    col.lerp_(reduce(squared, -2).to(col.dtype), 1 - beta2)


def row_col_update(
    row: Tensor, col: Tensor, squared: Tensor, beta2: float, reduction: str = "sum"
) -> tuple[Tensor, Tensor]:
    """Return the new (row, col) and leave the arguments alone: see `row_col_update_`."""
    row, col = row.detach().clone(), col.detach().clone()
    row_col_update_(row, col, squared, beta2, reduction)
    return row, col


def factored_second_moment(
    row: Tensor, col: Tensor, reduction: str = "sum", floor: float | None = None
) -> Tensor:
    """Return the matrix (..., n, m) estimated from row (..., n) and column (..., m) statistics.

        V[i, j] = row[i] * col[j] / sum(row)         reduction="sum"
        V[i, j] = row[i] * col[j] / mean(row)        reduction="mean"

    Both give the same matrix from the same squared gradients. Its row and column sums are right,
    and where the true matrix has rank one, so is every element. The divisor is at least `floor`
    (the smallest normal number if None), so that statistics of zero give a matrix of zeros.
    Raises: ValueError for another reduction or leading dimensions that differ.
    Source: Algorithm 4, the line of V.
    """
    if row.ndim < 1 or col.ndim < 1 or row.shape[:-1] != col.shape[:-1]:
        shapes = tuple(row.shape), tuple(col.shape)
        raise ValueError(f"row (..., n) and col (..., m) do not fit: {shapes[0]} and {shapes[1]}")
    floor = torch.finfo(row.dtype).tiny if floor is None else floor
    total = _reduction(reduction)(row, -1, keepdim=True).clamp(min=floor)
    return (row / total)[..., :, None] * col[..., None, :]


def second_moment_decay(step: int, decay_rate: float = -0.8) -> float:
    """Return beta2 of this step: 1 - step ** decay_rate, which is 0 at step 1 and grows towards 1.

    Raises: ValueError if step is below 1 or decay_rate above 0.
    Source: Section 7.2 and Algorithm 5.
    """
    require_number("step", step, low=1.0)
    require_number("-decay_rate", -decay_rate)
    return 1 - step**decay_rate


def root_mean_square(tensor: Tensor) -> float:
    """Return sqrt(mean of the squared elements) as a number; 0 for an empty tensor."""
    return torch.linalg.vector_norm(tensor).item() / math.sqrt(max(tensor.numel(), 1))


def parameter_scale(param: Tensor, eps2: float = 1e-3) -> float:
    """Return max(eps2, RMS(param)): steps in proportion to the weights, but never to zero.

    Source: Algorithm 5, the line of alpha.
    """
    return max(eps2, root_mean_square(param))


def relative_step_size(step: int, warmup_init: bool = False, cap: float = 1e-2) -> float:
    """Return min(cap, 1 / sqrt(step)); with `warmup_init`, min(1e-6 * step, 1 / sqrt(step)).

    Raises: ValueError if step is below 1.
    Source: Algorithm 5 and Section 8, the line of rho.
    """
    require_number("step", step, low=1.0)
    return min(1e-6 * step if warmup_init else cap, 1 / math.sqrt(step))


def clipping_divisor(update: Tensor, threshold: float = 1.0) -> float:
    """Return max(1, RMS(update) / threshold), by which `update_clipping` divides."""
    return max(1.0, root_mean_square(update) / threshold)


def update_clipping(update: Tensor, threshold: float = 1.0) -> Tensor:
    """Return the update, divided where needed so that its RMS is at most `threshold`.

        update / max(1, RMS(update) / threshold)

    Raises: ValueError unless threshold is a finite number above 0.
    Source: Section 6 and Algorithm 5.
    """
    _require_positive("threshold", threshold)
    return update / clipping_divisor(update, threshold)


def new_statistics(param: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, ...]:
    """Return the zeros that a parameter starts with: (row, col), or (full,) below 2 dimensions.

    Only the last two dimensions are factored: (..., n, m) gives row (..., n) and col (..., m).
    """
    shape = param.shape
    shapes = (shape[:-1], shape[:-2] + shape[-1:]) if param.ndim >= 2 else (shape,)
    return tuple(torch.zeros(s, dtype=dtype or param.dtype, device=param.device) for s in shapes)


def _normalized_gradient(grad, statistics, beta2, eps1, convention):
    """Return grad / sqrt(estimated second moment), after updating the statistics in place."""
    added = eps1 if convention == "transformers" else 0.0
    squared = grad.square()
    if added:
        squared.add_(added)
    if len(statistics) == 1:
        statistics[0].lerp_(squared.to(statistics[0].dtype), 1 - beta2)
    else:
        row_col_update_(*statistics, squared, beta2, "mean")
    del squared  # as large as the parameter; freed before the next tensor of that size is made

    wide = [statistic.to(grad.dtype) for statistic in statistics]
    if convention == "torch":
        if len(wide) == 2:
            estimate = factored_second_moment(*wide, "mean", floor=eps1)
        else:
            estimate = wide[0].clone()
        return estimate.clamp_(min=eps1 * eps1).rsqrt_().mul_(grad)
    if len(wide) == 1:
        return wide[0].rsqrt().mul_(grad)
    # Row and column one after the other: the product of two tiny statistics would underflow.
    row, col = wide
    update = grad * (row / row.mean(-1, keepdim=True)).rsqrt_()[..., :, None]
    return update.mul_(col.rsqrt()[..., None, :])


def adafactor_step_(
    param: Tensor,
    grad: Tensor,
    statistics: tuple[Tensor, ...],
    step: int,
    *,
    convention: str,
    lr: float | None = None,
    eps: tuple[float | None, float] | None = None,
    clip_threshold: float = 1.0,
    decay_rate: float = -0.8,
    weight_decay: float = 0.0,
    scale_parameter: bool = True,
    relative_step: bool = True,
    warmup_init: bool = False,
    beta1: float | None = None,
    first: Tensor | None = None,
) -> None:
    """Change `param`, `statistics` (and `first`) in place by one Adafactor step.

        V      <- estimate from the statistics after adding grad ** 2 with beta2 = 1 - step ** -0.8
        U      <- grad / sqrt(V), clipped to RMS `clip_threshold`
        param  <- param - decay * param - step_size * U

    `statistics` comes from `new_statistics`; `step` counts from 1. Step size, decay and the place
    of eps = (eps1, eps2) follow `convention`: see the table at the head of this module. With `beta1`
    the moving average `first` of step_size * U is subtracted instead of its last value.
    Raises: ValueError for options out of range or foreign to the convention: see
    `check_adafactor_options`.
    """
    eps1, eps2 = DEFAULT_EPS[convention] if eps is None else eps
    eps1 = torch.finfo(param.dtype).eps if eps1 is None else eps1
    scale = parameter_scale(param, eps2) if scale_parameter else 1.0
    if convention == "torch":
        step_size = scale * relative_step_size(step, cap=lr)
        decay = weight_decay * lr
    else:
        step_size = scale * (relative_step_size(step, warmup_init) if relative_step else lr)
        decay = weight_decay * step_size

    weights = param
    if param.dtype in (torch.float16, torch.bfloat16):
        weights, grad = param.float(), grad.float()
    beta2 = second_moment_decay(step, decay_rate)
    update = _normalized_gradient(grad, statistics, beta2, eps1, convention)
    step_size /= clipping_divisor(update, clip_threshold)
    if decay:
        weights.mul_(1 - decay)
    if beta1 is None:
        weights.sub_(update, alpha=step_size)
    else:
        weights.sub_(first.mul_(beta1).add_(update, alpha=(1 - beta1) * step_size))
    if weights is not param:
        param.copy_(weights)


def adafactor_step(
    param: Tensor,
    grad: Tensor,
    statistics: tuple[Tensor, ...],
    step: int,
    *,
    first: Tensor | None = None,
    **options,
) -> tuple:
    """Return the new (param, statistics), and `first` as a third where one was given.

    Formula, options and errors: `adafactor_step_`. No argument is changed.
    """
    check_adafactor_options({**DEFAULT_OPTIONS, **options})
    new_param = param.detach().clone()
    new_stats = tuple(statistic.detach().clone() for statistic in statistics)
    new_first = None if first is None else first.detach().clone()
    with torch.no_grad():
        adafactor_step_(new_param, grad, new_stats, step, first=new_first, **options)
    return (new_param, new_stats) if first is None else (new_param, new_stats, new_first)
