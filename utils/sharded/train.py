"""Train the course's classifier on several processes, with the optimizer's state whole or sharded.

    torchrun --standalone --nproc-per-node 2 -m utils.sharded.train --shard zero

runs on CPUs (gloo) and, where CUDA is there, on one GPU for each process (NCCL). Every process
reports what it predicted and what it held; rank 0 prints all reports as one line of JSON. Several
machines: see `utils/sharded/configs/`.
"""

import argparse
import contextlib
import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from transformers import DataCollatorWithPadding
from transformers.optimization import Adafactor as TransformersAdafactor

from utils import data, models
from utils.libraries import load_bitsandbytes
from utils.memory import estimate_optimizer_state, measure_optimizer_state
from utils.optimizers import AdamW8bit

SHARDINGS = ("none", "zero", "fsdp")
BATCH_SIZE = 32  # of all processes together


def optimizer_class(name: str) -> tuple[type[torch.optim.Optimizer], dict]:
    """Return the class and the settings that `--optimizer` names.

    "adamw_8bit" is bitsandbytes', or the course's own where that library cannot run.
    Raises: KeyError for another name.
    """
    bitsandbytes = load_bitsandbytes() if name == "adamw_8bit" else None
    return {
        "adamw": (torch.optim.AdamW, {"lr": 1e-3}),
        "adafactor": (torch.optim.Adafactor, {"lr": 2e-2}),
        "adafactor_transformers": (
            TransformersAdafactor,
            {"lr": 1e-3, "scale_parameter": False, "relative_step": False},
        ),
        "adamw_8bit": (
            bitsandbytes.optim.AdamW8bit if bitsandbytes else AdamW8bit,
            {"lr": 1e-3},
        ),
    }[name]


def shard(model: nn.Module, how: str, name: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return what is called in place of `model`, and its optimizer."""
    cls, options = optimizer_class(name)
    if how == "fsdp":
        for module in list(model.modules()):
            if type(module).__name__ in model._no_split_modules:  # the transformer's layers
                fully_shard(module)
        fully_shard(model)  # what the layers do not hold: embeddings and head
        return model, cls(model.parameters(), **options)
    called = DistributedDataParallel(model) if dist.is_initialized() else model
    if how == "zero":
        return called, ZeroRedundancyOptimizer(model.parameters(), optimizer_class=cls, **options)
    return called, cls(model.parameters(), **options)


def batches(rank: int, world_size: int) -> DataLoader:
    """Return this rank's part of every batch: with any number of ranks the same whole batches."""
    tokenizer = models.load_tokenizer()
    train = data.tokenize(data.load(), tokenizer)["train"]
    return DataLoader(
        train,
        batch_size=BATCH_SIZE // world_size,
        sampler=DistributedSampler(train, world_size, rank, shuffle=True, seed=0),
        collate_fn=DataCollatorWithPadding(tokenizer),
    )


def fit(called: nn.Module, optimizer: torch.optim.Optimizer, loader, steps: int) -> list[float]:
    """Train for `steps` steps; return this process's loss of each."""
    losses = []
    device = next(called.parameters()).device
    for _, batch in zip(range(steps), loader, strict=False):
        loss = called(**batch.to(device)).loss
        loss.backward()  # DDP and FSDP average the gradients over all processes
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def whole_weights(model: nn.Module) -> torch.Tensor:
    """Return all weights as one vector; sharded ones are gathered, so every rank has to call it."""
    whole = (p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters())
    return torch.cat([p.detach().flatten().cpu() for p in whole])


def run(
    how: str, name: str, loader, steps: int, device: torch.device
) -> tuple[dict, torch.Tensor | None]:
    """Train once; return this process's report and all weights.

    If the optimizer refuses sharded parameters, the report says so and there are no weights.
    """
    model = models.load_model(seed=0).to(device)
    called, optimizer = shard(model, how, name)
    report = {"shard": how, "optimizer": name}
    with contextlib.suppress(ValueError):  # no formula: the step below says what is wrong
        report["predicted"] = estimate_optimizer_state(optimizer).bytes
    try:
        report["losses"] = fit(called, optimizer, loader, steps)
    except RuntimeError as error:
        if how != "fsdp":
            raise
        return {**report, "refused": str(error).splitlines()[0]}, None
    report["measured"] = measure_optimizer_state(optimizer).bytes
    return report, whole_weights(model)


def main() -> None:
    """Run every combination of `--shard` and `--optimizer`; rank 0 prints the reports."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shard", nargs="+", choices=SHARDINGS, default=["zero"])
    parser.add_argument("--optimizer", nargs="+", default=["adamw"])
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("start it with torchrun, which gives every process its rank")
    on_gpu = torch.cuda.is_available()
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    refused = False
    try:
        loader = batches(dist.get_rank(), dist.get_world_size())
        for name in arguments.optimizer:
            unsharded = None
            for how in arguments.shard:
                report, weights = run(how, name, loader, arguments.steps, device)
                unsharded = weights if how == "none" else unsharded
                if unsharded is not None and weights is not None:
                    report["difference"] = (weights - unsharded).abs().max().item()
                refused = refused or "refused" in report
                reports = [None] * dist.get_world_size()
                dist.all_gather_object(reports, report)
                if dist.get_rank() == 0:
                    print(json.dumps(reports), flush=True)
        if refused:
            # A step that was refused leaves an exchange half done, and the interpreter's orderly end
            # then aborts now and then ("terminate called without an active exception").
            dist.barrier()
            os._exit(0)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
