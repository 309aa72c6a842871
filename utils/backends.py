"""`make test-backends`: nbval over both folders under several numeric backends, as one table.

Other processors round differently: they have other vector instructions, and their libraries add up
in another order. Each backend here makes this machine behave like another kind of machine. An output
that does not hold under all of them is printed with too many digits.
"""

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from utils.environment import ROOT

VARIABLE = "COURSE_BACKEND"
BACKENDS = {
    "lowest": {"ATEN_CPU_CAPABILITY": "default"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "best": {},
    "2-threads": {"OMP_NUM_THREADS": "2"},
    "mkl-compatible": {"MKL_CBWR": "COMPATIBLE"},
    "onednn-sse41": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "no-onednn": {"COURSE_NO_ONEDNN": "1"},
}
# The ordinary run: each lesson meets both ends, since it lies in both folders.
BY_FOLDER = {"solutions": "lowest", "notebooks": "best"}
_KNOWN = {variable for settings in BACKENDS.values() for variable in settings}
# oneDNN has no variable of its own for this. Every kernel runs the files of this profile first.
_NO_ONEDNN = "import torch\n\ntorch.backends.mkldnn.set_flags(False)\n"


def settings_of(folder: str, defaults: dict[str, str], profile: Path) -> dict[str, str | None]:
    """Return the variables for the kernels of `folder`; None stands for one that must not be set.

    `COURSE_BACKEND` names the backend; without it `BY_FOLDER` decides. `profile` is where IPython
    keeps its profile if oneDNN is to be off.
    Raises: ValueError for an unknown backend.
    """
    name = os.environ.get(VARIABLE) or BY_FOLDER.get(folder, "best")
    if name not in BACKENDS:
        raise ValueError(f"{VARIABLE} is {name!r}; known are {', '.join(BACKENDS)}")
    settings = {variable: defaults.get(variable) for variable in _KNOWN} | BACKENDS[name]
    settings["IPYTHONDIR"] = None
    if settings.pop("COURSE_NO_ONEDNN"):
        startup = profile / "profile_default" / "startup"
        startup.mkdir(parents=True, exist_ok=True)
        (startup / "00_no_onednn.py").write_text(_NO_ONEDNN, encoding="utf-8")
        settings["IPYTHONDIR"] = str(profile)
    return settings


def failed_cells(report: Path) -> tuple[int, list[str]]:
    """Return how many cells pytest's XML report counts, and those that failed, with their file."""
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [
        f"{case.get('classname', '')}: {case.get('name')}"
        for case in cases
        if any(case.find(kind) is not None for kind in ("failure", "error", "skipped"))
    ]
    return len(cases), failed


def run(name: str, paths: list[str]) -> tuple[int, list[str], float]:
    """Run nbval under one backend; return the number of cells, the failed ones, and seconds."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--maxprocesses=4"]
        command += ["--dist=loadfile", "--nbval", "--nbval-current-env"]
        command += ["--nbval-cell-timeout=600", f"--junitxml={report}", "-p", "no:cacheprovider"]
        done = subprocess.run(
            # The suite's conftest prepares the kernels, so one of its (quick) files goes along.
            [*command, "tests/test_backends.py", *paths],
            cwd=ROOT,
            env={**os.environ, VARIABLE: name},
            capture_output=True,
            text=True,
        )
        if not report.exists():
            raise RuntimeError(f"nbval did not run under {name}:\n{done.stdout}{done.stderr}")
        cells, failed = failed_cells(report)
    return cells, failed, time.perf_counter() - start


def main(arguments: list[str]) -> int:
    """Run the backends (all, or those named) over both folders (or the paths given)."""
    names = [a for a in arguments if a in BACKENDS] or list(BACKENDS)
    paths = [a for a in arguments if a not in BACKENDS] or list(BY_FOLDER)
    if missing := [path for path in paths if not (ROOT / path).exists()]:
        print(f"{missing[0]!r} is no file here and no backend; known are {', '.join(BACKENDS)}")
        return 2
    print(f"{'backend':16}{'cells':>7}{'failed':>8}{'seconds':>9}", flush=True)
    failures = 0
    for name in names:
        cells, failed, seconds = run(name, paths)
        print(f"{name:16}{cells:>7}{len(failed):>8}{seconds:>9.0f}", flush=True)
        for cell in failed:
            print(f"    {cell}", flush=True)
        failures += len(failed)
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
