"""`make bench`: ratios measured in one run, for anyone to repeat.

Three questions. How far off are the optimizer bytes that other tools predict, and how long do they
take? How fast are the optimizers from scratch beside their libraries? What does nbval add to running
a notebook? Seconds depend on the machine; the ratios of one run are what to read.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from utils.environment import NOTEBOOKS, REPRODUCIBLE, ROOT, with_defaults
from utils.libraries import load_bitsandbytes

RESULTS = ROOT / "bench.json"
_SHAPES = [(1024, 1024), (4096, 256), (1024,), (256,)] * 4


def fastest_in_turns(
    contestants: dict[str, Callable[[], object]], repeats: int
) -> dict[str, float]:
    """Return the shortest time in seconds of each function; they take turns, so noise hits all."""
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(repeats):
        for name, function in contestants.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def _stepper(build: Callable) -> Callable[[], object]:
    noise = torch.Generator().manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(shape, generator=noise)) for shape in _SHAPES]
    for param in params:
        param.grad = torch.randn(param.shape, generator=noise)
    optimizer = build(params)
    optimizer.step()
    return optimizer.step


def optimizers(repeats: int = 15) -> list[dict]:
    """Return, for each optimizer from scratch, its step time over that of its library's for-loop."""
    from transformers.optimization import Adafactor as TransformersAdafactor

    from utils.optimizers import Adafactor, AdamW, AdamW8bit

    fixed = {"relative_step": False, "scale_parameter": False, "lr": 1e-3}
    pairs = {
        "AdamW": (AdamW, lambda p: torch.optim.AdamW(p, foreach=False), 1.1),
        "Adafactor (torch)": (
            lambda p: Adafactor(p, lr=1e-2, convention="torch"),
            lambda p: torch.optim.Adafactor(p, foreach=False),
            1.1,
        ),
        "Adafactor (transformers)": (
            lambda p: Adafactor(p, convention="transformers", **fixed),
            lambda p: TransformersAdafactor(p, **fixed),
            1.1,
        ),
    }
    bitsandbytes = load_bitsandbytes()
    if bitsandbytes:
        pairs["8-bit AdamW"] = (AdamW8bit, bitsandbytes.optim.AdamW8bit, 2.0)
    rows = []
    for name, (own, library, aim) in pairs.items():
        found = fastest_in_turns({"own": _stepper(own), "library": _stepper(library)}, repeats)
        ratio = found["own"] / found["library"]
        rows.append({"optimizer": name, "own_s": found["own"], "ratio": ratio, "aim": aim})
    return rows


_CONFIGURATIONS = {
    "DistilBERT": (
        "DistilBertConfig",
        {"vocab_size": 28996},
        "DistilBertForSequenceClassification",
    ),
    "BERT": ("BertConfig", {}, "BertForMaskedLM"),
    "GPT-2": ("GPT2Config", {}, "GPT2LMHeadModel"),
    "T5-small": (
        "T5Config",
        {"d_model": 512, "d_ff": 2048, "num_layers": 6, "num_heads": 8},
        "T5ForConditionalGeneration",
    ),
    "Whisper-tiny": ("WhisperConfig", {"vocab_size": 51865}, "WhisperForConditionalGeneration"),
    "ViT": ("ViTConfig", {}, "ViTForImageClassification"),
    "ConvNeXt": ("ConvNextConfig", {}, "ConvNextForImageClassification"),
    "ModernBERT": ("ModernBertConfig", {}, "ModernBertForMaskedLM"),
    "Mamba-130m": ("MambaConfig", {"num_hidden_layers": 24}, "MambaForCausalLM"),
    "Llama-7B": ("LlamaConfig", {"vocab_size": 32000}, "LlamaForCausalLM"),
    "Mixtral-8x7B": ("MixtralConfig", {}, "MixtralForCausalLM"),
}


def predictions() -> list[dict]:
    """Return, for each model, AdamW's state predicted here and by other tools, in bytes.

    accelerate: what `accelerate estimate-memory` does after it has read the configuration, with its
    own way of building the model, which unties tied weights. DeepSpeed, if it is installed: its
    estimator's parameter count of the model on the meta device, 8 bytes each. `error` is the other
    tool's bytes over the exact ones, `time` accelerate's time over ours; neither counts building.
    """
    import transformers
    from accelerate import init_empty_weights
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    from utils.memory import estimate_trainer_state
    from utils.memory_command import build_on_meta

    rows = []
    for name, (config, options, architecture) in _CONFIGURATIONS.items():
        made = getattr(transformers, config)(**options, architectures=[architecture])
        model = build_on_meta(made, torch.float32)
        with init_empty_weights():
            untied = getattr(transformers, architecture)(made)
        calls = {
            "ours": lambda m=model: estimate_trainer_state(m, "adamw_torch").bytes,
            "accelerate": lambda m=untied: int(
                estimate_training_usage(calculate_maximum_sizes(m)[0], "float32")["optimizer"]
            ),
        }
        if deepspeed := _deepspeed_parameters():
            calls["deepspeed"] = lambda m=model, count=deepspeed: 8 * count(m)
        found = {tool: call() for tool, call in calls.items()}
        seconds = fastest_in_turns(calls, 3)
        row = {"model": name, "exact_bytes": found["ours"], "seconds": seconds["ours"]}
        for tool in list(calls)[1:]:
            row |= {f"{tool}_bytes": found[tool], f"{tool}_error": found[tool] / found["ours"]}
        rows.append({**row, "accelerate_time": seconds["accelerate"] / seconds["ours"]})
    return rows


def _deepspeed_parameters() -> Callable | None:
    """Return DeepSpeed's function that counts parameters, or None if it is not installed."""
    try:
        from deepspeed.runtime.zero.stage_1_and_2 import model_to_params
    except ImportError:
        return None
    return model_to_params


def nbval(lessons: tuple[str, ...] = ("01_adamw_ema", "02_adamw_memory")) -> list[dict]:
    """Return, for each lesson, the time of nbval's run over plain execution of the same notebook."""
    environment = with_defaults(REPRODUCIBLE)
    rows = []
    for lesson in lessons:
        path = str(NOTEBOOKS / f"{lesson}.ipynb")
        plain = (
            "import sys, nbformat\nfrom nbclient import NotebookClient\n"
            "notebook = nbformat.read(sys.argv[1], 4)\n"
            "resources = {'metadata': {'path': sys.argv[2]}}\n"
            "NotebookClient(notebook, resources=resources).execute()"
        )
        commands = {
            "plain": [sys.executable, "-c", plain, path, str(NOTEBOOKS)],
            "nbval": [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "--nbval",
                "--nbval-current-env",
                path,
            ],
        }

        def run(command):
            subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True)

        found = fastest_in_turns({n: lambda c=c: run(c) for n, c in commands.items()}, 2)
        ratio = found["nbval"] / found["plain"]
        rows.append({"lesson": lesson, "plain_s": found["plain"], "ratio": ratio, "aim": 1.2})
    return rows


def as_table(rows: list[dict]) -> str:
    """Return `rows`, which have the same keys, as an aligned table."""

    def shown(value) -> str:
        if isinstance(value, float):
            return f"{value:,.4f}" if value < 0.1 else f"{value:,.2f}"
        return f"{value:,}" if isinstance(value, int) else str(value)

    lines = [list(rows[0]), *([shown(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def main(path: Path = RESULTS) -> None:
    """Run all benchmarks, print a table for each, and write the numbers to a JSON file."""
    import resource  # not on Windows, where only this command needs it

    torch.set_num_threads(1)
    results = {}
    for name, benchmark in (
        ("optimizers: from scratch / library", optimizers),
        ("predicted bytes of AdamW's state: other tools / here", predictions),
        ("notebooks: nbval / plain execution", nbval),
    ):
        results[name] = benchmark()
        print(f"{name}\n\n{as_table(results[name])}\n", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results["peak_memory_bytes"] = peak * (1 if sys.platform == "darwin" else 1024)
    path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(f"written to {path.name}")


if __name__ == "__main__":
    main()
