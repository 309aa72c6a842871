"""Optimizer state over several processes, predicted for each of them without starting any."""

import math
from collections.abc import Callable, Iterable, Sequence

import torch

from utils.memory.measured import OptimizerStateSize
from utils.memory.predicted import estimate_optimizer_state
from utils.require import whole_number

Build = Callable[[list[torch.Tensor]], torch.optim.Optimizer]


def zero_owners(sizes: Sequence[int], world_size: int) -> list[int]:
    """Return the rank that owns each tensor under `torch.distributed.optim.ZeroRedundancyOptimizer`.

    Largest tensor first (of equal ones the first), each to the rank that holds the fewest elements
    so far (of equal ones the lowest). `sizes` are elements, in the order of the parameters.
    Raises: ValueError unless `world_size` is at least 1.
    """
    whole_number("world_size", world_size)
    held, owners = [0] * world_size, [0] * len(sizes)
    for place in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        owners[place] = held.index(min(held))
        held[owners[place]] += sizes[place]
    return owners


def rows_of_rank(rows: int, world_size: int, rank: int) -> int:
    """Return how many of a tensor's rows FSDP2 (`fully_shard`) leaves with `rank`.

    Every rank is offered ceil(rows / world_size), in order, until none are left: 5 rows on 4 ranks
    are 2, 2, 1 and 0.
    Raises: ValueError for numbers that are not whole, or unless 0 <= rank < world_size.
    """
    whole_number("world_size", world_size)
    whole_number("rows", rows, 0)
    whole_number("rank", rank, 0)
    if rank >= world_size:
        raise ValueError(f"rank must be from 0 to {world_size - 1}, got {rank}")
    each = math.ceil(rows / world_size)
    return min(max(rows - rank * each, 0), each)


def estimate_zero_state(
    parameters: Iterable[torch.Tensor], build: Build, world_size: int
) -> list[OptimizerStateSize]:
    """Return what each rank's state will hold with ZeroRedundancyOptimizer, rank by rank.

    `parameters` form one group and may be on the meta device; frozen ones are dealt out as well,
    and hold nothing. `build` makes the optimizer from a list of them. A rank without a parameter
    holds 0 bytes.
    Raises: ValueError unless `world_size` is at least 1; otherwise as `estimate_optimizer_state`.
    """
    parameters = list(parameters)
    owners = zero_owners([p.numel() for p in parameters], world_size)
    shares = [[] for _ in range(world_size)]
    for parameter, owner in zip(parameters, owners, strict=True):
        shares[owner].append(parameter)
    return [_estimate(share, build) for share in shares]


def estimate_fsdp_state(
    parameters: Iterable[torch.Tensor], build: Build, world_size: int, rank: int = 0
) -> OptimizerStateSize:
    """Return what the state of `rank` will hold under FSDP2, for optimizers that step elementwise.

    Every tensor is split by rows (`rows_of_rank`); rank 0 never holds less than another. A rank
    without a row of a tensor still holds its step counter. Adafactor, Muon and bitsandbytes refuse
    such parameters: no figure holds for them.
    Raises: ValueError for a rank or a world size that cannot be, or for a parameter without
    dimensions, which FSDP2 does not take; otherwise as `estimate_optimizer_state`.
    """
    share = []
    for p in parameters:
        if p.ndim == 0:
            raise ValueError("FSDP2 splits rows: a parameter needs at least 1 dimension, got 0")
        shape = (rows_of_rank(p.shape[0], world_size, rank), *p.shape[1:])
        share.append(
            torch.empty(shape, dtype=p.dtype, device="meta", requires_grad=p.requires_grad)
        )
    return _estimate(share, build)


def _estimate(share: list[torch.Tensor], build: Build) -> OptimizerStateSize:
    return estimate_optimizer_state(build(share)) if share else OptimizerStateSize(0, 0, {})
