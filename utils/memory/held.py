"""Optimizer state as memory really holds it."""

from collections.abc import Iterator

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from utils.memory.measured import EMPTY_STATE, OptimizerStateSize, StateSize, iterate_leaves


def measure_optimizer_state(optimizer: torch.optim.Optimizer) -> OptimizerStateSize:
    """Return the bytes and elements that the optimizer's state holds now, in all and by state name.

    Memory is counted by storage: one that several tensors share counts once (under the first name
    that leads to it), a view counts the whole storage that it keeps alive, and a tensor subclass
    counts the tensors inside it (codes and scales, or the local shard). A storage of the
    parameters themselves adds nothing. Python numbers are no tensors and add nothing. Elements are
    those of the tensors in memory.

    Takes any `torch.optim.Optimizer`; accelerate's wrapper and `ZeroRedundancyOptimizer` are
    looked into (the latter gives this process's share). Raises TypeError for anything else,
    ValueError for a tensor that cannot be looked into. An empty state gives 0 bytes and a note.
    """
    optimizer = unwrap(optimizer)
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    seen = {_identity(t) for p in parameters for t in plain_tensors(p)}
    by_name: dict[str, StateSize] = {}
    for state in optimizer.state.values():
        for name, value in state.items():
            for leaf in iterate_leaves(name, value):
                for tensor in plain_tensors(leaf) if isinstance(leaf, torch.Tensor) else ():
                    if _identity(tensor) not in seen:
                        seen.add(_identity(tensor))
                        num_bytes = tensor.untyped_storage().nbytes()
                        size = StateSize(1, num_bytes // tensor.element_size(), num_bytes)
                        by_name[name] = by_name.get(name, StateSize(0, 0, 0)) + size
    return total_size(by_name, () if by_name else (EMPTY_STATE,))


def total_size(by_name: dict[str, StateSize], notes: tuple[str, ...] = ()) -> OptimizerStateSize:
    """Return the sizes with their sum."""
    total = sum(by_name.values(), StateSize(0, 0, 0))
    return OptimizerStateSize(total.bytes, total.elements, by_name, tuple(notes))


def unwrap(optimizer) -> torch.optim.Optimizer:
    """Return the optimizer that holds the state: accelerate's and ZeRO's wrappers are taken off.

    Raises TypeError if it is no `torch.optim.Optimizer`.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"expected a torch.optim.Optimizer, got {type(optimizer).__name__}")
    wrapped = {
        "accelerate.optimizer.AcceleratedOptimizer": "optimizer",
        "torch.distributed.optim.zero_redundancy_optimizer.ZeroRedundancyOptimizer": "optim",
    }.get(class_path(type(optimizer)))
    return unwrap(getattr(optimizer, wrapped)) if wrapped else optimizer


def class_path(cls: type) -> str:
    """Return the class's module and name, such as "torch.optim.adam.Adam"."""
    return f"{cls.__module__}.{cls.__qualname__}"


def plain_tensors(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the tensors with memory of their own that `tensor` consists of.

    Raises ValueError for layouts and subclasses that do not show what they hold.
    """
    if is_traceable_wrapper_subclass(tensor):
        parts = (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])
        for part in parts:
            if isinstance(part, torch.Tensor):  # a DTensor lists its device mesh too
                yield from plain_tensors(part)
    elif tensor.layout == torch.sparse_coo:
        yield tensor._indices()
        yield tensor._values()
    elif tensor.layout == torch.strided and not _is_opaque(tensor):
        yield tensor
    else:
        raise ValueError(
            f"cannot see what memory a {type(tensor).__name__} of layout {tensor.layout} holds"
        )


def _is_opaque(tensor: torch.Tensor) -> bool:
    """Return whether the tensor claims memory that it does not have (a wrapper subclass)."""
    if isinstance(tensor, FakeTensor):  # claims it on purpose
        return False
    try:
        tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return True
    return False


def _identity(tensor: torch.Tensor) -> int:
    # data_ptr() is 0 for every meta tensor; the storage object's own address tells them apart.
    return tensor.untyped_storage()._cdata
