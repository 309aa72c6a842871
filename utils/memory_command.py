"""`python -m utils memory`: does training this model fit, and with which optimizer?"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import torch
import transformers

from utils.memory import (
    GIB,
    MIB,
    OPTIMIZER_NAMES,
    Plan,
    add_lora,
    count_parameters,
    format_bytes,
    plan_training,
)

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Shown if no optimizer is named; the first one that fits is suggested.
COMMON = ("adamw_torch", "adamw_bnb_8bit", "adafactor", "lion_8bit", "sgd")
SUGGESTED_RANK = 16
NOTHING_FITS = "No choice fits, not even LoRA in BF16: share the model among several devices."
_UNITS = {"MiB": MIB, "GiB": GIB, "TiB": 1024 * GIB, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_size(text: str) -> int:
    """Return the bytes of a size such as "24GiB", "80 GB" or "1.5TiB".

    Raises ValueError without a unit: GB and GiB differ by 7%.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", text)
    sizes = {unit.upper(): size for unit, size in _UNITS.items()}
    if not match or match[2].upper() not in sizes or float(match[1]) <= 0:
        raise ValueError(
            f"device memory is a number above 0 with one of the units {', '.join(_UNITS)} "
            f"(24GiB, 80GB), got {text!r}"
        )
    return round(float(match[1]) * sizes[match[2].upper()])


def load_config(name: str) -> transformers.PreTrainedConfig:
    """Return the configuration in a JSON file, a local folder, or on the hub.

    Nothing but the configuration is read, and no code of the hub is run.
    Raises ValueError in one sentence if there is none.
    """
    path = Path(name).expanduser()
    try:
        if path.is_file():
            values = json.loads(path.read_text(encoding="utf-8"))
            if "model_type" not in values:
                raise ValueError("it has no model_type, such as llama or bert")
            return transformers.AutoConfig.for_model(**values)
        return transformers.AutoConfig.from_pretrained(str(path) if path.is_dir() else name)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        what = "file" if path.is_file() else "folder" if path.is_dir() else "hub id"
        if what == "hub id" and name.startswith((".", "/", "~")):
            raise ValueError(f"there is no file or folder {name!r}") from None
        first = f"{error}".strip().split("\n")[0].rstrip(".")
        raise ValueError(
            f"no configuration was read from {name!r}, taken as a {what}: {first}. Accepted are a "
            "JSON configuration, a folder with config.json, and a hub id"
        ) from None


def build_on_meta(config: transformers.PreTrainedConfig, dtype: torch.dtype):
    """Return the model of `config` on the meta device: shapes, and no memory.

    The class is the first of `config.architectures`, otherwise a causal language model, otherwise
    the bare model.
    """
    named = [getattr(transformers, name, None) for name in config.architectures or ()]
    with torch.device("meta"):
        if named and named[0] is not None:
            model = named[0]._from_config(config)
        else:
            causal = transformers.AutoModelForCausalLM
            bare = transformers.AutoModel
            known = type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
            model = (causal if known else bare).from_config(config)
    return model.to(dtype)


def plans(
    config: transformers.PreTrainedConfig,
    optimizers: Iterable[str],
    dtype: str = "fp32",
    lora: int | None = None,
) -> tuple[dict[str, Plan], torch.nn.Module]:
    """Return a plan for each of `optimizers`, as Trainer spells them, and the model on meta.

    Raises ValueError for an optimizer without a formula or a model without LoRA's usual layers.
    """
    model = build_on_meta(config, DTYPES[dtype])
    if lora is not None:
        model = add_lora(model, lora, lora_targets(model))
    return {name: plan_training(model, name) for name in optimizers}, model


def lora_targets(model: torch.nn.Module) -> tuple[str, ...]:
    """Return the names of the attention layers that LoRA usually takes in this model.

    Query and value projections under the names that transformers gives them. Raises ValueError if
    the model has none of them.
    """
    present = {
        name.rsplit(".", 1)[-1]
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    }
    known = (
        ("q_proj", "v_proj"),
        ("q_lin", "v_lin"),
        ("query", "value"),
        ("q", "v"),
        ("q_b_proj", "kv_b_proj"),
        ("query_key_value",),
        ("qkv_proj",),
        ("Wqkv",),
    )
    for targets in known:
        if set(targets) <= present:
            return targets
    raise ValueError(
        "no query and value projections were found for --lora; the linear layers are named "
        f"{', '.join(sorted(present)) or 'nothing'}"
    )


def first_that_fits(config, limit: int, dtype: str, lora: int | None) -> str | None:
    """Return the first choice within `limit` bytes, in words: another optimizer, BF16, then LoRA."""
    choices = [(dtype, lora)]
    if lora is None:
        choices += [("bf16", None)] if dtype == "fp32" else []
        choices += [("bf16" if dtype == "fp32" else dtype, SUGGESTED_RANK)]
    for kind, rank in choices:
        try:
            found, _ = plans(config, COMMON, kind, rank)
        except ValueError:  # no layers for LoRA
            continue
        for name, plan in found.items():
            if plan.total <= limit:
                extra = f" --lora {rank}" if rank else ""
                return f"--optimizer {name} --dtype {kind}{extra}: {format_bytes(plan.total)}"
    return None


def report(
    name: str,
    optimizer: str | None = None,
    dtype: str = "fp32",
    lora: int | None = None,
    device_memory: int | None = None,
) -> dict:
    """Return everything that the command says about the model `name`, as numbers and words."""
    if optimizer is not None and optimizer not in OPTIMIZER_NAMES:
        raise ValueError(
            f"no formula for --optimizer {optimizer}; there is one for {', '.join(OPTIMIZER_NAMES)}"
        )
    config = load_config(name)
    found, model = plans(config, [optimizer] if optimizer else COMMON, dtype, lora)
    counted = count_parameters(model)
    result = {
        "model": type(model).__name__,
        "parameters": counted.total,
        "trainable": counted.trainable,
        "dtype": dtype,
        "lora_rank": lora,
        "plans": {
            o: {
                "weights": p.weights,
                "gradients": p.gradients,
                "optimizer": p.optimizer,
                "total": p.total,
            }
            for o, p in found.items()
        },
        "notes": [f"{o}: {note}" for o, p in found.items() for note in p.notes],
    }
    if device_memory is not None:
        result["device_memory"] = device_memory
        result["fits"] = {o: p.total <= device_memory for o, p in found.items()}
        if not any(result["fits"].values()):
            result["first_that_fits"] = first_that_fits(config, device_memory, dtype, lora)
    return result


def as_text(result: dict) -> str:
    """Return the report as a table and sentences."""
    lora = f", LoRA of rank {result['lora_rank']}" if result["lora_rank"] else ""
    lines = [
        f"{result['model']}: {result['parameters']:,} parameters, {result['trainable']:,} of them "
        f"trained, {result['dtype']}{lora}",
        "",
        f"{'optimizer':20} {'part':10} {'bytes':>22} {'MiB':>16} {'GiB':>12}",
    ]
    for optimizer, plan in result["plans"].items():
        for part, size in plan.items():
            lines.append(
                f"{optimizer:20} {part:10} {size:>22,} {size / MIB:>16,.2f} {size / GIB:>12,.2f}"
            )
        if "fits" in result:
            fits = "fits" if result["fits"][optimizer] else "does not fit"
            lines.append(f"{'':20} {fits} into {format_bytes(result['device_memory'])}")
        lines.append("")
    if "first_that_fits" in result:
        choice = result["first_that_fits"]
        found = f"The first choice that fits: {choice}" if choice else NOTHING_FITS
        lines += [found, ""]
    lines += [*result["notes"], ""] if result["notes"] else []
    lines.append("Activations, buffers and temporary memory come on top: they depend on the batch.")
    return "\n".join(lines)
