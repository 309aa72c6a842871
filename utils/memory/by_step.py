"""The size of an optimizer's state by taking its first step on copies that hold no memory."""

import copy
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import nullcontext

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from utils.memory.held import class_path, measure_optimizer_state, unwrap
from utils.memory.measured import OptimizerStateSize
from utils.memory.slots import all_slots, is_sharded, slots_with_gradient

HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


def estimate_by_step(
    optimizer: torch.optim.Optimizer, unused: Iterable[torch.Tensor] = ()
) -> OptimizerStateSize:
    """Return the bytes and elements the state will hold, found by a real step on empty copies.

    The optimizer's own `step` runs on a copy of the optimizer whose parameters and gradients are
    on the meta device, then, if that fails, on fake tensors. Neither has memory, and the optimizer
    itself is left as it is. This works for optimizers nobody wrote a formula for. It fails where a
    step needs values: on the meta device for torch's fused kernels and Adafactor, in both ways for
    a step that needs a closure; optimizers of bitsandbytes are refused at once. Raises
    RuntimeError that names both failures; ValueError if the optimizer holds state already, wraps
    another optimizer, or has sharded parameters.
    """
    optimizer = unwrap(optimizer)
    check_fresh(optimizer)
    if any(base.__module__.startswith("bitsandbytes.") for base in type(optimizer).__mro__):
        # On the meta device some of its kernels pass without doing what they do on real memory.
        raise RuntimeError(
            f"the state of {class_path(type(optimizer))} cannot be predicted by a step: the kernels "
            "of bitsandbytes need real memory. Take one real step and use measure_optimizer_state."
        )
    if inner := _inner_optimizer(optimizer):
        raise ValueError(
            f"{class_path(type(optimizer))} wraps another optimizer in .{inner}: pass that one"
        )
    slots, notes = slots_with_gradient(optimizer.param_groups, unused)
    if any(is_sharded(slot.parameter) for slot in slots):
        raise ValueError("a step on empty copies is not possible for sharded parameters (DTensor)")
    stepped = {id(slot.parameter) for slot in slots}
    failures = []
    for kind in ("meta", "fake"):
        mode = nullcontext() if kind == "meta" else FakeTensorMode(allow_non_fake_inputs=True)
        try:
            with mode:
                empty = dict(_empty_parameters(optimizer, stepped, kind))
            clone = _empty_copy(optimizer, empty)
            with mode:
                clone.step()
            size = measure_optimizer_state(clone)
        except Exception as error:
            failures.append(f"{kind} tensors: {type(error).__name__}: {_first_line(error)}")
        else:
            note = f"found by a step of {class_path(type(optimizer))} on {kind} tensors."
            return OptimizerStateSize(size.bytes, size.elements, size.by_name, (*notes, note))
    raise RuntimeError(
        f"the state of {class_path(type(optimizer))} cannot be predicted by a step: it fails "
        f"without real memory ({'; '.join(failures)}). Take one real step and use "
        "measure_optimizer_state."
    )


def check_fresh(optimizer: torch.optim.Optimizer) -> None:
    """Raise ValueError if the optimizer holds state."""
    if any(optimizer.state.values()):
        raise ValueError(
            f"this {type(optimizer).__name__} holds state already (it has stepped, was loaded, or "
            "allocates at construction): measure_optimizer_state(optimizer) says what it holds"
        )


def _inner_optimizer(optimizer) -> str | None:
    for name, value in vars(optimizer).items():
        values = value if isinstance(value, (list, tuple)) else [value]
        if any(isinstance(v, torch.optim.Optimizer) for v in values):
            return name
    return None


def _empty_copy(optimizer, empty: dict[int, torch.Tensor]) -> torch.optim.Optimizer:
    """Return a copy that refers to empty parameters wherever the optimizer refers to real ones."""
    clone = object.__new__(type(optimizer))
    memo = {id(optimizer): clone, id(optimizer.state): defaultdict(dict), **empty}
    # Schedulers put a wrapper of the real step on the instance; hooks may reach for real tensors.
    attributes = {k: v for k, v in vars(optimizer).items() if k != "step" and k not in HOOKS}
    clone.__dict__.update(copy.deepcopy(attributes, memo))
    clone.__dict__.update({name: OrderedDict() for name in HOOKS})
    return clone


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")


def _empty_parameters(
    optimizer, stepped: set[int], kind: str
) -> Iterator[tuple[int, torch.Tensor]]:
    for slot in all_slots(optimizer.param_groups):
        p = slot.parameter
        device = "meta" if kind == "meta" else ("cpu" if p.device.type == "meta" else p.device)
        empty = torch.nn.Parameter(
            torch.empty_like(p, device=device, requires_grad=False), requires_grad=p.requires_grad
        )
        empty.__dict__.update({k: v for k, v in vars(p).items() if not isinstance(v, torch.Tensor)})
        if id(p) in stepped:
            empty.grad = torch.empty_like(empty, dtype=slot.weight.grad_dtype, requires_grad=False)
        yield id(p), empty
