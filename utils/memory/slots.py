"""Which parameters of an optimizer will hold state, and as what a formula sees them."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from utils.memory.formulas import Entry, Weight
from utils.memory.measured import StateSize


@dataclass(frozen=True)
class Slot:
    """One parameter at its place in the optimizer."""

    parameter: torch.Tensor
    group: Mapping
    position: tuple[int, int]  # group, place in the group

    @property
    def weight(self) -> Weight:
        """The part of the parameter that this process holds, as a formula sees it."""
        p = self.parameter
        held = p.to_local() if is_sharded(p) else p
        if is_traceable_wrapper_subclass(held):
            raise ValueError(
                f"no formula holds for a parameter of class {type(held).__name__}: "
                "its optimizer state depends on that class"
            )
        if p.grad is not None and p.grad.layout != torch.strided:
            raise ValueError(
                f"no formula holds for a gradient of layout {p.grad.layout} (parameter of shape "
                f"{tuple(p.shape)}): dense gradients are accepted"
            )
        grad_dtype = p.grad.dtype if p.grad is not None else (p.grad_dtype or p.dtype)
        return Weight(tuple(held.shape), p.dtype, grad_dtype)


def is_sharded(parameter: torch.Tensor) -> bool:
    """Return whether the parameter is a DTensor, as FSDP2 and tensor parallelism make them."""
    distributed = sys.modules.get(
        "torch.distributed.tensor"
    )  # slow to import, so never imported here
    return distributed is not None and isinstance(parameter, distributed.DTensor)


def all_slots(groups: Iterable[Mapping]) -> Iterator[Slot]:
    """Yield the parameters of all groups, each one once, where it is met first."""
    seen = set()
    for i, group in enumerate(groups):
        for j, parameter in enumerate(group["params"]):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield Slot(parameter, group, (i, j))


def slots_with_gradient(
    groups: Iterable[Mapping], unused: Iterable[torch.Tensor] = ()
) -> tuple[list[Slot], list[str]]:
    """Return the parameters that the next step will see a gradient for, and notes about the others.

    If any parameter has a gradient already, those with one count, as in the step itself. If none
    has, all that require a gradient count, but those listed in `unused`. Raises ValueError for an
    `unused` entry that is not in the groups, or that has a gradient.
    """
    slots = list(all_slots(groups))
    unused_ids = _checked_unused(slots, unused)
    after_backward = any(s.parameter.grad is not None for s in slots)
    chosen, frozen, without = [], [], []
    for slot in slots:
        p = slot.parameter
        has_gradient = p.grad is not None if after_backward else p.requires_grad
        if has_gradient and id(p) not in unused_ids:
            chosen.append(slot)
        elif p.requires_grad:
            without.append(slot)
        else:
            frozen.append(slot)
    notes = []
    if frozen:
        notes.append(f"{_count(frozen)} frozen: no gradient, no state.")
    if without:
        reason = "others have a gradient, these have none" if after_backward else "listed as unused"
        notes.append(f"{_count(without)} without state: {reason}.")
    return chosen, notes


def parameters_without_gradient(
    model: torch.nn.Module, loss: torch.Tensor
) -> dict[str, torch.nn.Parameter]:
    """Return the trainable parameters that `loss` gives no gradient, by name.

    An optimizer keeps no state for them (BERT's pooler, when the loss does not pass through it).
    Pass the values as `unused` to the estimates. With model and inputs on the meta device nothing
    is allocated or computed; otherwise the gradients are computed once, apart from `.grad`, which
    stays as it is. Raises RuntimeError, from autograd, if the loss has no graph or is no scalar.
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(
        loss, list(named.values()), retain_graph=True, allow_unused=True
    )
    return {name: p for (name, p), g in zip(named.items(), gradients, strict=True) if g is None}


def sum_entries(entries: Iterable[Entry]) -> dict[str, StateSize]:
    """Return the entries' sizes by state name."""
    by_name: dict[str, StateSize] = {}
    for name, elements, size in entries:
        entry = StateSize(1, elements, elements * size)
        by_name[name] = by_name.get(name, StateSize(0, 0, 0)) + entry
    return by_name


def _checked_unused(slots: list[Slot], unused: Iterable[torch.Tensor]) -> set[int]:
    known = {id(s.parameter): s.parameter for s in slots}
    unused = list(unused)
    for parameter in unused:
        if not isinstance(parameter, torch.Tensor):
            raise TypeError(f"unused takes parameters, got {type(parameter).__name__}")
        if id(parameter) not in known:
            raise ValueError(
                f"unused lists a tensor of shape {tuple(parameter.shape)} that is not optimized"
            )
        if parameter.grad is not None:
            raise ValueError(
                f"unused lists a parameter of shape {tuple(parameter.shape)} that has a gradient"
            )
    return set(map(id, unused))


def _count(slots: list[Slot]) -> str:
    elements = sum(s.parameter.numel() for s in slots)
    return f"{len(slots)} tensor{'s' * (len(slots) != 1)} ({elements:,} elements)"
