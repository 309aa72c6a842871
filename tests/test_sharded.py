"""Optimizer state over processes: predicted, measured in real processes, none of them left."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest
import torch
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from torch import nn

from utils.environment import ROOT
from utils.memory import (
    estimate_fsdp_state,
    estimate_zero_state,
    rows_of_rank,
    zero_owners,
)
from utils.optimizers import AdamW8bit
from utils.sharded import launch, train

bnb = pytest.importorskip("bitsandbytes")
CONFIGS = sorted((ROOT / "utils/sharded/configs").glob("*.yaml"))

# Eight layers of 256 x 256: 526,336 parameters. Each process measures what it predicted, by another
# count than the course's own.
WORKER = """
import json, sys
import bitsandbytes, torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from utils.optimizers import AdamW8bit

dist.init_process_group("gloo")
classes = {
    "AdamW": torch.optim.AdamW,
    "Adafactor": torch.optim.Adafactor,
    "bitsandbytes": bitsandbytes.optim.AdamW8bit,
    "AdamW8bit": AdamW8bit,
}

def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor

def step(model, optimizer):
    torch.manual_seed(dist.get_rank())
    model(torch.randn(4, 256)).square().mean().backward()
    optimizer.step()
    tensors = {}
    for state in getattr(optimizer, "optim", optimizer).state.values():
        for value in state.values():
            if isinstance(value, torch.Tensor):
                tensors[local(value).data_ptr() or id(value)] = local(value)
    return sum(t.nbytes for t in tensors.values())

def new_model(last):
    return nn.Sequential(*[nn.Linear(256, 256) for _ in range(8)], nn.Linear(256, last))[: 8 + (last > 0)]

held = {}
for last in (0, 3):
    for name, cls in classes.items():
        model = new_model(last)
        held[f"zero {name} {last}"] = step(model, ZeroRedundancyOptimizer(model.parameters(), cls))
    model = new_model(last)
    fully_shard(model)
    held[f"fsdp AdamW {last}"] = step(model, torch.optim.AdamW(model.parameters()))
every = [None] * dist.get_world_size()
dist.all_gather_object(every, held)
if dist.get_rank() == 0:
    print(json.dumps(every))
dist.destroy_process_group()
"""
BUILD = {
    "AdamW": torch.optim.AdamW,
    "Adafactor": torch.optim.Adafactor,
    "bitsandbytes": bnb.optim.AdamW8bit,
    "AdamW8bit": AdamW8bit,
}


def layers(last):
    with torch.device("meta"):
        linear = [nn.Linear(256, 256) for _ in range(8)] + [nn.Linear(256, last)] * (last > 0)
    return list(nn.Sequential(*linear).parameters())


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """Return what three real processes held, a dictionary for each rank."""
    worker = tmp_path_factory.mktemp("worker") / "worker.py"
    worker.write_text(WORKER)
    printed = launch.torchrun(str(worker), processes=3, timeout=300)
    return json.loads(printed.splitlines()[-1])


@pytest.mark.parametrize("last", [0, 3])
@pytest.mark.parametrize("name", BUILD)
def test_zero_is_predicted_to_the_byte_on_every_rank(held, name, last):
    predicted = estimate_zero_state(layers(last), BUILD[name], len(held))
    assert [size.bytes for size in predicted] == [rank[f"zero {name} {last}"] for rank in held]


@pytest.mark.parametrize("last", [0, 3])
def test_fsdp_is_predicted_to_the_byte_on_every_rank(held, last):
    world = len(held)
    predicted = [
        estimate_fsdp_state(layers(last), torch.optim.AdamW, world, rank).bytes
        for rank in range(world)
    ]
    assert predicted == [rank[f"fsdp AdamW {last}"] for rank in held]
    assert max(predicted) == predicted[0]


def test_the_figures_of_two_processes():
    parameters = layers(0)
    assert sum(p.numel() for p in parameters) == 526_336

    def whole_and_halves(build):
        return [[s.bytes for s in estimate_zero_state(parameters, build, n)] for n in (1, 2)]

    assert whole_and_halves(torch.optim.AdamW) == [[4_210_752], [2_105_376] * 2]
    assert whole_and_halves(torch.optim.Adafactor) == [[24_640], [12_320] * 2]
    # Counted by tensor, 8 bits take 1,097,728 and 548,864; the code maps are shared, 2,048 bytes.
    eight = whole_and_halves(bnb.optim.AdamW8bit)
    assert eight == [[1_097_728 - 7 * 2048], [548_864 - 3 * 2048] * 2]
    for rank in (0, 1):
        fsdp = estimate_fsdp_state(parameters, torch.optim.AdamW, 2, rank)
        assert fsdp.bytes == 2_105_408


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
def test_owners_are_those_of_torch(world_size):
    """torch's own partition, asked of an object that was never connected to other processes."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    sizes = [5, 1, 1, 9, 9, 3, 30, 2, 5, 5]
    parameters = [torch.empty(size, requires_grad=True) for size in sizes]
    torchs = object.__new__(ZeroRedundancyOptimizer)
    torchs._partition_parameters_cache = []
    torchs.world_size, torchs.param_groups = world_size, [{"params": parameters}]
    owner = {
        id(p): rank
        for rank, groups in enumerate(torchs._partition_parameters())
        for p in groups[0]["params"]
    }
    assert zero_owners(sizes, world_size) == [owner[id(p)] for p in parameters]


def test_rows_are_those_of_torch_chunk():
    for rows in (0, 1, 2, 5, 8, 1000):
        for world_size in (1, 2, 3, 4, 7, 64):
            chunks = [len(c) for c in torch.empty(rows, 2).chunk(world_size)]
            chunks += [0] * (world_size - len(chunks))
            assert [rows_of_rank(rows, world_size, r) for r in range(world_size)] == chunks


@pytest.mark.parametrize("world_size", [0, -1, 1.5, True, None, "2"])
def test_a_world_size_that_cannot_be_is_named(world_size):
    with pytest.raises(ValueError, match="world_size must be a whole number of at least 1"):
        zero_owners([1], world_size)
    with pytest.raises(ValueError, match="world_size must be a whole number of at least 1"):
        rows_of_rank(4, world_size, 0)
    with pytest.raises(ValueError, match="processes must be a whole number of at least 1"):
        launch.torchrun("-c", "pass", processes=world_size)


def test_wrong_ranks_and_scalars_are_named():
    with pytest.raises(ValueError, match="rank must be from 0 to 1, got 2"):
        rows_of_rank(4, 2, 2)
    with pytest.raises(ValueError, match="at least 1 dimension"):
        estimate_fsdp_state([torch.empty(())], torch.optim.AdamW, 2)


def test_a_rank_without_tensors_holds_nothing():
    parameters = [torch.empty(4, 4, requires_grad=True)]
    sizes = estimate_zero_state(parameters, torch.optim.AdamW, 3)
    assert [size.bytes for size in sizes] == [132, 0, 0]


def test_the_script_needs_torchrun(capsys, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(sys, "argv", ["train"])
    with pytest.raises(SystemExit):
        train.main()
    assert "start it with torchrun" in capsys.readouterr().err


def test_a_failing_program_is_reported_with_its_traceback():
    with pytest.raises(RuntimeError, match=r"(?s)status 1.*ZeroDivisionError"):
        launch.torchrun("--no-python", sys.executable, "-c", "1 / 0")
    assert launch.processes_left() == 0


SLEEPER = "import os, time; print(os.getpid(), flush=True); time.sleep(120)"


def test_no_process_is_left_after_a_timeout():
    before = {p.pid for p in psutil.process_iter()}
    with pytest.raises(TimeoutError, match="after 5 s"):
        launch.torchrun("--no-python", sys.executable, "-c", SLEEPER, timeout=5)
    left = [p for p in psutil.process_iter(["cmdline"]) if SLEEPER in (p.info["cmdline"] or [])]
    assert [p for p in left if p.pid not in before] == []


def test_no_process_is_left_after_an_interrupt(tmp_path):
    """Ctrl-C in the program that started torchrun, as the stop button sends it to a kernel."""
    program = (
        "import sys\nfrom utils.sharded.launch import processes_left, torchrun\n"
        "try:\n"
        f"    torchrun('--no-python', sys.executable, '-c', {SLEEPER!r})\n"
        "except KeyboardInterrupt:\n    print('interrupted, left:', processes_left())\n"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    children = []
    for _ in range(600):
        children = psutil.Process(started.pid).children(recursive=True)
        if sum(SLEEPER in child.cmdline() for child in children) == 2 + 1:  # and torchrun itself
            break
        time.sleep(0.1)
    assert len(children) == 3
    started.send_signal(signal.SIGINT)
    assert started.communicate(timeout=60)[0] == "interrupted, left: 0\n"
    assert [child for child in children if child.is_running()] == []


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_accelerate_reads_the_configurations(path):
    config = load_config_from_file(str(path))
    assert config.num_processes == 8 * config.num_machines
    assert config.distributed_type == "MULTI_GPU"
    known = set(vars(config))
    assert set(yaml.safe_load(path.read_text())) <= known
    assert f"--config_file {path.relative_to(ROOT)}" in path.read_text()


def test_two_machines_find_each_other():
    """The two-machine command of the lesson, with both machines here and one process on each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*launch.TORCHRUN, "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d"]
    command += [f"--rdzv-endpoint=127.0.0.1:{port}", "-m", "utils.sharded.train"]
    command += ["--shard", "fsdp", "--steps", "2"]
    machines = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    printed = "".join(machine.communicate(timeout=300)[0] for machine in machines)
    assert [machine.returncode for machine in machines] == [0, 0]
    ranks = json.loads(printed)
    assert [rank["measured"] for rank in ranks] == [1_672_872] * 2
