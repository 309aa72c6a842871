"""Second moments kept as row and column statistics: n + m numbers in the place of n * m.

Source: Shazeer and Stern 2018, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost",
Section 3 and Algorithm 4.
"""

import torch
from torch import Tensor

from .base import require_floating, require_number

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
    Raises: ValueError for another reduction, for shapes that do not fit, or beta2 outside [0, 1);
    TypeError unless `squared` is real floating point.
    Source: Algorithm 4, the lines of R and C.
    """
    reduce = _reduction(reduction)
    require_number("beta2", beta2, below=1.0)
    require_floating("squared", squared)
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
    require_floating("row", row)
    floor = torch.finfo(row.dtype).tiny if floor is None else floor
    total = _reduction(reduction)(row, -1, keepdim=True).clamp(min=floor)
    return (row / total)[..., :, None] * col[..., None, :]


def new_statistics(param: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, ...]:
    """Return the zeros that a parameter starts with: (row, col), or (full,) below 2 dimensions.

    Only the last two dimensions are factored: (..., n, m) gives row (..., n) and col (..., m).
    """
    shape = param.shape
    shapes = (shape[:-1], shape[:-2] + shape[-1:]) if param.ndim >= 2 else (shape,)
    return tuple(torch.zeros(s, dtype=dtype or param.dtype, device=param.device) for s in shapes)
