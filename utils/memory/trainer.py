"""Optimizer state under transformers' Trainer, from a model and a name of
`TrainingArguments.optim`.

transformers is not imported here: the rules below were read from its version 5.24 and are tested
against the optimizer that its Trainer creates.
"""

import re
from collections.abc import Iterable, Mapping

import torch

from utils.memory import formulas
from utils.memory.bitsandbytes_state import (
    bitsandbytes_entries,
    override_notes,
    resolve_overrides,
)
from utils.memory.held import total_size
from utils.memory.measured import OptimizerStateSize
from utils.memory.parameters import model_parameters
from utils.memory.slots import all_slots, slots_with_gradient, sum_entries

NO_DECAY = re.compile(r"bias|layernorm|rmsnorm|(?:^|\.)norm(?:$|\.)|_norm(?:$|\.)")
# Options of `optim_args` that change the size, by name of the optimizer.
SIZE_OPTIONS = {"sgd": ("momentum",), "rmsprop": ("momentum", "centered")}
FORMULAS = {
    "adamw_torch": lambda w, o: formulas.adam(w),
    "adamw_torch_fused": lambda w, o: formulas.adam(w, fused=True),
    "adafactor": lambda w, o: formulas.transformers_adafactor(w),
    "sgd": lambda w, o: formulas.sgd(w, **o),
    "adagrad": lambda w, o: formulas.adagrad(w),
    "rmsprop": lambda w, o: formulas.rmsprop(w, **o),
    # Trainer passes torchao a block size of 256 for both; torchao's own default for 4 bits is 128.
    "adamw_torch_8bit": lambda w, o: formulas.torchao(w, 8, 256, 256),
    "adamw_torch_4bit": lambda w, o: formulas.torchao(w, 4, 256, 16),
}
# bitsandbytes: states and bits. Paged or not makes no difference in bytes.
BITSANDBYTES = {
    "adamw_bnb_8bit": ((1, 1), 8),
    "adamw_8bit": ((1, 1), 8),
    "paged_adamw_8bit": ((1, 1), 8),
    "paged_adamw_32bit": ((1, 1), 32),
    "ademamix": ((2, 1), 32),
    "ademamix_8bit": ((2, 1), 8),
    "paged_ademamix_32bit": ((2, 1), 32),
    "paged_ademamix_8bit": ((2, 1), 8),
    "lion_32bit": ((1,), 32),
    "lion_8bit": ((1,), 8),
    "paged_lion_32bit": ((1,), 32),
    "paged_lion_8bit": ((1,), 8),
    "rmsprop_bnb": ((1,), 32),
    "rmsprop_bnb_8bit": ((1,), 8),
    "rmsprop_bnb_32bit": ((1,), 32),
}
OPTIMIZER_NAMES = (*FORMULAS, *BITSANDBYTES)


def estimate_trainer_state(
    model: torch.nn.Module,
    optim: str = "adamw_torch_fused",
    optim_args: str | None = None,
    unused: Iterable[torch.Tensor] = (),
) -> OptimizerStateSize:
    """Return the bytes and elements that the state of Trainer's optimizer will hold after its
    first step.

    `optim` is spelled as in `TrainingArguments(optim=...)`, `optim_args` as in `TrainingArguments`
    ("momentum=0.9"). Trainer's rules are applied: frozen parameters are left out, the others go
    into a group with weight decay and one without, and an 8-bit optimizer of bitsandbytes keeps
    every `nn.Embedding` in 32 bits. Overrides that an earlier run has left in bitsandbytes count
    too, with a note. `unused` lists parameters that receive no gradient (see
    `parameters_without_gradient`). Nothing is allocated; the model may be on the meta device, and
    neither transformers nor bitsandbytes needs to be installed.

    Raises ValueError for a name without a formula, and as `model_parameters` does.
    """
    name = getattr(optim, "value", optim)  # OptimizerNames is an enum
    if name not in OPTIMIZER_NAMES:
        raise ValueError(
            f"no formula for optim={name!r}; there is one for {', '.join(OPTIMIZER_NAMES)}. For "
            "another one, build the optimizer and use estimate_optimizer_state"
        )
    model_parameters(model)
    groups = trainer_groups(model)
    slots, notes = slots_with_gradient(groups, unused)
    if name == "adagrad":  # allocates for all it is given, with or without a gradient
        slots, notes = list(all_slots(groups)), []
    if name in FORMULAS:
        options = _options(name, optim_args)
        entries = (entry for s in slots for entry in FORMULAS[name](s.weight, options))
    else:
        widths, bits = BITSANDBYTES[name]
        base = {"optim_bits": bits, "min_8bit_size": 4096, "max_unorm": 0.0}
        embeddings = [m for m in model.modules() if isinstance(m, torch.nn.Embedding)]
        overrides, registered = resolve_overrides(groups, embeddings if bits == 8 else ())
        entries = bitsandbytes_entries(slots, widths, base, overrides)
        notes += override_notes(slots, widths, base, overrides, registered)
    return total_size(sum_entries(entries), notes)


def trainer_groups(model: torch.nn.Module) -> list[Mapping]:
    """Return Trainer's two parameter groups: trainable parameters with weight decay, and without.

    Without: everything inside an `nn.LayerNorm`, and names that contain "bias", "layernorm",
    "rmsnorm", or end a part in "norm".
    """
    layer_norms = tuple(
        f"{name}."
        for name, m in model.named_modules()
        if name and isinstance(m, torch.nn.LayerNorm)
    )
    groups: tuple[list, list] = ([], [])
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            plain = name.startswith(layer_norms) or bool(NO_DECAY.search(name.lower()))
            groups[plain].append(parameter)
    return [{"params": parameters} for parameters in groups]


def _options(name: str, optim_args: str | None) -> dict:
    """Return the options among `optim_args` that change the size of the state."""
    options = {}
    for item in filter(None, (optim_args or "").replace(" ", "").split(",")):
        key, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f'optim_args is "name=value,name=value", got {optim_args!r}')
        if key in SIZE_OPTIONS.get(name, ()):
            is_flag = key == "centered"
            options[key] = value.lower() in ("true", "1", "yes") if is_flag else float(value)
    return options
