"""Settings of the whole suite, and a count that a skipped notebook cell cannot pass."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from utils.backends import settings_of
from utils.environment import REPRODUCIBLE

# Before any kernel or torch starts: workers and kernels inherit what is set here.
os.environ.update(REPRODUCIBLE)

_PROFILE = pytest.StashKey[Path]()
_cells = {"passed": 0, "other": []}


def _is_cell(nodeid: str) -> bool:
    return ".ipynb::Cell " in nodeid


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Before a notebook's kernel starts: the numeric backend of its folder."""
    if not _is_cell(item.nodeid):
        return
    profile = item.config.stash.get(_PROFILE, None)
    if profile is None:
        profile = item.config.stash[_PROFILE] = Path(tempfile.mkdtemp(prefix="ipython-"))
        item.config.add_cleanup(lambda: shutil.rmtree(profile, ignore_errors=True))
    folder = item.path.parent.name
    for variable, value in settings_of(folder, REPRODUCIBLE, profile).items():
        if value is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = value


def pytest_runtest_logreport(report):
    if not _is_cell(report.nodeid):
        return
    decided = report.when == "call" or report.outcome != "passed"
    if not decided:
        return
    # nbval marks the cells after a timeout as expected failures, which pytest lets through.
    if report.outcome == "passed" and not hasattr(report, "wasxfail"):
        _cells["passed"] += 1
    else:
        _cells["other"].append(report.nodeid)


def pytest_sessionfinish(session, exitstatus):
    if _cells["other"] and exitstatus == 0:
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter):
    if _cells["passed"] or _cells["other"]:
        terminalreporter.section("notebooks")
        terminalreporter.line(f"{_cells['passed']} notebook cells ran and passed")
        for nodeid in _cells["other"]:
            terminalreporter.line(f"not passed: {nodeid}")
