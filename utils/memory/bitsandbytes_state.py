"""bitsandbytes' optimizer state: which tensors are quantized, and what overrides change that.

bitsandbytes is never imported here. An optimizer of its own implies that it is loaded.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby

import torch

from utils.memory.formulas import Entry, bitsandbytes
from utils.memory.slots import Slot, all_slots, is_sharded

CODE_MAP_ELEMENTS = 256
SETTINGS = ("optim_bits", "min_8bit_size", "max_unorm")
RESET = "bitsandbytes.optim.GlobalOptimManager.get_instance().initialize()"


def widths_of(optimizer: torch.optim.Optimizer) -> tuple[int, ...] | None:
    """Return the width of each state of a bitsandbytes optimizer, or None for any other.

    A class counts as bitsandbytes' own if it inherits the methods that lay out the state, so that a
    subclass with another learning rate is known and one with another state is not.
    """
    base = sys.modules.get("bitsandbytes.optim.optimizer")
    if base is None or not isinstance(optimizer, base.Optimizer8bit):
        return None
    cls = type(optimizer)
    layout = ("step", "get_config", "get_state_buffer", "check_overrides")
    if any(_method(cls, name) is not _method(base.Optimizer8bit, name) for name in layout):
        return None
    ademamix = sys.modules["bitsandbytes.optim.ademamix"].AdEMAMix
    if optimizer.optimizer_name == "ademamix" and not isinstance(optimizer, ademamix):
        return None  # AdEMAMix32bit lays out one first moment too few, and its step fails
    widths = {base.Optimizer2State: (1, 1), base.Optimizer1State: (1,), ademamix: (2, 1)}
    return next(
        (w for c, w in widths.items() if _method(cls, "init_state") is _method(c, "init_state")),
        None,
    )


def _method(cls: type, name: str):
    return inspect.unwrap(getattr(cls, name))  # torch wraps each class's step


def bitsandbytes_entries(
    slots: Iterable[Slot],
    widths: tuple[int, ...],
    base: Mapping,
    overrides: Callable[[Slot], Mapping],
) -> Iterator[Entry]:
    """Yield the state of all slots, and the code maps that they share once.

    `base` holds the optimizer's own `optim_bits`, `min_8bit_size` and `max_unorm`;
    `overrides(slot)` what the process-wide manager puts over it. There is one float32 map of 256
    codes a state, held if anything is quantized, and copied whenever the next quantized parameter
    lives on another device.
    """
    devices = []
    for slot in slots:
        entries = list(bitsandbytes(slot.weight, widths, **config(slot, base, overrides)))
        devices += [slot.parameter.device] * any(name == "absmax1" for name, _, _ in entries)
        yield from entries
    for _ in groupby(devices):
        for index in range(1, len(widths) + 1):
            yield f"qmap{index}", CODE_MAP_ELEMENTS, 4


def config(slot: Slot, base: Mapping, overrides: Callable[[Slot], Mapping]) -> dict:
    """Return the settings of one parameter, overrides included."""
    if is_sharded(slot.parameter):
        raise ValueError("no formula holds for sharded parameters (DTensor) under bitsandbytes")
    merged = {**base, **overrides(slot)}
    return {name: merged[name] for name in SETTINGS}


def resolve_overrides(
    groups: list[Mapping], modules: Iterable[torch.nn.Module] = ()
) -> tuple[Callable[[Slot], Mapping], set[int]]:
    """Return what bitsandbytes' manager will override for a slot, and the ids of registered
    parameters.

    The manager is one for the whole process. It keeps overrides by parameter id, by (group,
    place), and as (module, name, settings) triples that the first step turns into the other two.
    `modules` are those whose `weight` Trainer is about to register for 32 bits. Reads only:
    nothing is registered.
    """
    base = sys.modules.get("bitsandbytes.optim.optimizer")
    manager = base.GlobalOptimManager.get_instance() if base else None
    by_position = dict(manager.index2config) if manager else {}
    by_id = dict(manager.pid2config) if manager else {}
    triples = list(manager.module_weight_config_triple) if manager else []
    triples += [(module, "weight", {"optim_bits": 32}) for module in modules]
    positions = {id(slot.parameter): slot.position for slot in all_slots(groups)}
    registered = set()
    for module, name, settings in triples:
        parameter = id(getattr(module, name))
        if parameter in positions:
            by_position[positions[parameter]] = by_id[parameter] = settings
            registered.add(parameter)

    def overrides(slot: Slot) -> dict:
        return {**by_position.get(slot.position, {}), **by_id.get(id(slot.parameter), {})}

    return overrides, registered


def override_notes(
    slots: list[Slot],
    widths: tuple[int, ...],
    base: Mapping,
    overrides: Callable[[Slot], Mapping],
    registered: set[int],
) -> list[str]:
    """Return sentences about the overrides that change the size."""

    def size(slot: Slot, over: Callable[[Slot], Mapping]) -> int:
        entries = bitsandbytes(slot.weight, widths, **config(slot, base, over))
        return sum(elements * size for _, elements, size in entries)

    changed = [(s, size(s, overrides) - size(s, lambda _: {})) for s in slots]
    changed = [(slot, difference) for slot, difference in changed if difference]
    own = [c for c in changed if id(c[0].parameter) in registered]
    others = [c for c in changed if id(c[0].parameter) not in registered]
    notes = []
    if own:
        notes.append(
            f"{_amount(own)} by overrides registered for modules of this model (Trainer registers "
            "every embedding for 32 bits under an 8-bit optimizer)."
        )
    if others:
        notes.append(
            f"{_amount(others)} by overrides that bitsandbytes keeps for the whole process, by "
            "place in the optimizer or by address. An earlier run may have left them; "
            f"{RESET} removes them."
        )
    return notes


def _amount(changed: list[tuple[Slot, int]]) -> str:
    difference = sum(d for _, d in changed)
    elements = sum(slot.parameter.numel() for slot, _ in changed)
    tensors = f"{len(changed)} tensor{'s' * (len(changed) != 1)} ({elements:,} elements)"
    return f"{difference:+,} bytes: {tensors} changed"
