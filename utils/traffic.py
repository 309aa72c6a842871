"""Memory traffic: the bytes that an optimizer's step reads and writes."""

from collections.abc import Callable, Iterable

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def memory_traffic(step: Callable[[], object], read_only: Iterable[torch.Tensor] = ()) -> int:
    """Return the bytes that the tensor operations inside `step()` read and write.

    Each operation reads its input tensors and writes those that it returns or changes; views move
    nothing. What a fused kernel keeps in registers between two operations is inside one
    operation, and so is not counted: that is the point of fusing. `read_only` lists tensors that
    operations may change but do not (fused optimizers name the gradients, for a scaler that is not
    used here); for those only reading counts. Caches are not modelled.
    """
    mode = _Traffic({id(tensor) for tensor in read_only})
    with mode:
        step()
    return mode.bytes


class _Traffic(TorchDispatchMode):
    """Adds up the bytes of the inputs and outputs of every operation."""

    def __init__(self, read_only: set[int]):
        super().__init__()
        self.bytes = 0
        self.read_only = read_only

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not _is_view(func, args, result):
            self.bytes += _size((args, kwargs)) + self._written(func, args, kwargs, result)
        return result

    def _written(self, func, args, kwargs, result) -> int:
        named = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
        changed = [
            tensor
            for argument in func._schema.arguments
            if argument.alias_info is not None and argument.alias_info.is_write
            for tensor in tree_leaves(named.get(argument.name))
            if id(tensor) not in self.read_only
        ]
        if changed:
            return _size(changed)
        return _size(result)


def _is_view(func, args, result) -> bool:
    returns = func._schema.returns
    if returns and all(r.alias_info is not None and not r.alias_info.is_write for r in returns):
        return True
    given = [t for t in tree_leaves(args) if isinstance(t, torch.Tensor)]
    is_changed = any(
        a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments
    )
    # Some operations, such as `_unsafe_view`, do not declare that they share the memory.
    return (
        isinstance(result, torch.Tensor)
        and not is_changed
        and len(given) == 1
        and result.untyped_storage()._cdata == given[0].untyped_storage()._cdata
    )


def _size(tree) -> int:
    tensors = (t for t in tree_leaves(tree) if isinstance(t, torch.Tensor))
    return sum(t.numel() * t.element_size() for t in tensors)
