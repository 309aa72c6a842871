"""The environment that outputs are stored and compared in, and the repository's own paths."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOLUTIONS = ROOT / "solutions"
NOTEBOOKS = ROOT / "notebooks"

# One thread: small tensors are slower, not faster, when two threads share them on a busy machine.
THREADS = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

# Progress bars and hub look-ups would make stored outputs differ from run to run.
REPRODUCIBLE = {
    **THREADS,
    "TQDM_DISABLE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONPATH": str(ROOT),
}


def with_defaults(defaults: dict[str, str]) -> dict[str, str]:
    """Return this process's environment with `defaults` for what is not set, ROOT on PYTHONPATH."""
    environment = {**defaults, **os.environ}
    paths = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    # First on the path: another installed package named utils must not win.
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path for path in paths if path))
    return environment
