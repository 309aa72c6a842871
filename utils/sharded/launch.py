"""Start torchrun from a notebook, and leave no process behind."""

import json
import os
import subprocess
import sys

import psutil

from utils.environment import ROOT
from utils.require import whole_number

TORCHRUN = (sys.executable, "-m", "torch.distributed.run")


def torchrun(*arguments: str, processes: int = 2, timeout: float = 600) -> str:
    """Run `torchrun --standalone --nproc-per-node PROCESSES ARGUMENTS`; return what it printed.

    It runs in the course's folder. However it ends (also by Ctrl-C or the stop button), all
    processes that it started have ended when this returns.
    Raises: ValueError unless `processes` is at least 1; RuntimeError with the start of the
    error output if torchrun fails; TimeoutError after `timeout` seconds.
    """
    whole_number("processes", processes)
    command = [*TORCHRUN, "--standalone", f"--nproc-per-node={processes}", *arguments]
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        # One thread each: processes that fight for cores are slower, and torchrun would warn.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    started = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        printed, errors = started.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"torchrun was stopped after {timeout:g} s") from None
    finally:
        _stop(started)
    if started.returncode:
        raise RuntimeError(f"torchrun ended with status {started.returncode}:\n{errors[:3000]}")
    return printed


def reports(*arguments: str, processes: int = 2) -> list[list[dict]]:
    """Run `utils.sharded.train` with `arguments`; return, for each run, the report of each rank.

    Raises: as `torchrun` does.
    """
    printed = torchrun("-m", "utils.sharded.train", *arguments, processes=processes)
    return [json.loads(line) for line in printed.splitlines() if line.startswith("[{")]


def processes_left() -> int:
    """Return how many processes that this one started are still running."""
    children = psutil.Process().children(recursive=True)
    return sum(child.status() != psutil.STATUS_ZOMBIE for child in children)


def _stop(started: subprocess.Popen) -> None:
    """End torchrun and its workers; each worker leads a session of its own, so all are listed."""
    if started.poll() is not None:
        return
    family = psutil.Process(started.pid).children(recursive=True)
    started.terminate()  # torchrun then ends its workers
    try:
        started.wait(10)
    except subprocess.TimeoutExpired:
        started.kill()
    for process in family:
        if process.is_running():
            process.kill()
    psutil.wait_procs(family, timeout=10)
    started.communicate()
