"""Optimizer state, predicted to the byte before the first step."""

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch

from utils.memory import formulas
from utils.memory.bitsandbytes_state import (
    bitsandbytes_entries,
    override_notes,
    resolve_overrides,
    widths_of,
)
from utils.memory.by_step import check_fresh, estimate_by_step
from utils.memory.formulas import Entry, Weight
from utils.memory.held import class_path, measure_optimizer_state, total_size, unwrap
from utils.memory.measured import OptimizerStateSize
from utils.memory.slots import Slot, is_sharded, slots_with_gradient, sum_entries

# Class, or its path where the library may not be there -> formula of a parameter and its group.
FORMULAS: dict[type | str, Callable[[Weight, Mapping], Iterable[Entry]]] = {
    torch.optim.Adam: lambda w, g: formulas.adam(w, g["amsgrad"], bool(g["fused"])),
    torch.optim.AdamW: lambda w, g: formulas.adam(w, g["amsgrad"], bool(g["fused"])),
    torch.optim.SGD: lambda w, g: formulas.sgd(w, g["momentum"]),
    torch.optim.RMSprop: lambda w, g: formulas.rmsprop(w, g["momentum"], g["centered"]),
    torch.optim.Adafactor: lambda w, g: formulas.torch_adafactor(w),
    torch.optim.Muon: lambda w, g: formulas.muon(w),
    "transformers.optimization.Adafactor": lambda w, g: formulas.transformers_adafactor(
        w, g["beta1"]
    ),
    "utils.optimizers.adamw_8bit.AdamW8bit": lambda w, g: formulas.own_adamw_8bit(
        w, g["min_8bit_size"]
    ),
}
NOT_SHARDED = {
    torch.optim.Adafactor,
    torch.optim.Muon,
    "transformers.optimization.Adafactor",
    "utils.optimizers.adamw_8bit.AdamW8bit",
}
# torchao's class -> bits a code, float32 values in the code map.
TORCHAO_CODES = {"8bit": (8, 256), "4bit": (4, 16), "Fp8": (8, 0)}
TORCHAO = {
    f"{module}.{kind}{codes}": values
    for module in ("torchao.optim.adam", "torchao.prototype.low_bit_optim.adam")
    for kind in ("Adam", "AdamW")
    for codes, values in TORCHAO_CODES.items()
}


def estimate_optimizer_state(
    optimizer: torch.optim.Optimizer, unused: Iterable[torch.Tensor] = ()
) -> OptimizerStateSize:
    """Return the bytes and elements that the state will hold after the first step, by state name.

    Equal, to the byte, to `measure_optimizer_state(optimizer)` after that step. Nothing is
    allocated, and the parameters may be on the meta device. Formulas cover torch's Adam, AdamW,
    SGD, RMSprop, Adagrad, Adafactor and Muon, transformers' Adafactor, bitsandbytes, torchao's
    low-bit Adam and AdamW, and this course's AdamW8bit (see `utils.memory.formulas`). Any other
    optimizer takes a step on empty copies (`estimate_by_step`).

    State goes to the parameters that receive a gradient. Once a backward pass has run, those are
    the ones that have one. Before, they are the ones that require one, except those listed in
    `unused` (see `parameters_without_gradient`). Each parameter counts once, tied or listed twice.
    A sharded parameter (DTensor) counts with this process's shard. `notes` says in words what a
    reader may not expect.

    Raises TypeError if it is no optimizer; ValueError if it holds state already (except Adagrad,
    which allocates at construction, so what it holds is the answer), or for parameters and
    gradients that the formula or the optimizer does not support; RuntimeError if there is neither
    a formula nor a way to step.
    """
    optimizer = unwrap(optimizer)
    kind = type(optimizer)
    if kind is torch.optim.Adagrad:
        size = measure_optimizer_state(optimizer)
        note = "Adagrad allocates at construction, for every parameter that it is given."
        return OptimizerStateSize(size.bytes, size.elements, size.by_name, (note,))
    check_fresh(optimizer)
    kind = kind if kind in FORMULAS else class_path(kind)
    slots, notes = slots_with_gradient(optimizer.param_groups, unused)
    if kind in FORMULAS:
        entries = _each(slots, FORMULAS[kind], kind)
    elif kind in TORCHAO:
        bits, code_map = TORCHAO[kind]
        entries = _each(
            slots,
            lambda w, g: formulas.torchao(w, bits, optimizer.block_size, code_map, g["amsgrad"]),
            kind,
        )
    elif widths := widths_of(optimizer):
        base = vars(optimizer.args)
        overrides, registered = resolve_overrides(optimizer.param_groups)
        entries = bitsandbytes_entries(slots, widths, base, overrides)
        notes += override_notes(slots, widths, base, overrides, registered)
    else:
        return estimate_by_step(optimizer, unused)
    return total_size(sum_entries(entries), notes)


def _each(
    slots: Iterable[Slot], formula: Callable[[Weight, Mapping], Iterable[Entry]], kind: type | str
) -> Iterator[Entry]:
    """Yield the formula's entries for each slot."""
    for slot in slots:
        if kind in NOT_SHARDED and is_sharded(slot.parameter):
            raise ValueError(f"no formula holds for sharded parameters (DTensor) under {kind}")
        if slot.group.get("fused") and not slot.weight.dtype.is_floating_point:
            raise ValueError(f"fused=True takes floating point parameters, not {slot.weight.dtype}")
        yield from formula(slot.weight, slot.group)
