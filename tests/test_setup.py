"""The set-up: one set of pins, one sentence for each failure, a cheap second call."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from utils import bootstrap
from utils.course import installed_version, normalise, read_pins
from utils.environment import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIREMENTS = [Requirement(text) for text in PROJECT["dependencies"]]


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda r: r.name)
def test_every_dependency_is_pinned_within_its_range_and_installed_as_pinned(requirement):
    pinned = read_pins()[normalise(requirement.name)]
    assert requirement.specifier.contains(pinned)
    assert installed_version(requirement.name) == pinned


def test_environment_yml_takes_python_from_conda_and_the_rest_from_the_pins():
    parsed = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    python, pip, rest = parsed["dependencies"]
    version = tuple(map(int, re.fullmatch(r"python=(\d+)\.(\d+)", python).groups()))
    assert version in bootstrap.SUPPORTED
    assert pip == "pip"
    # repo2docker copies the repository first only where it sees these short forms.
    assert rest == {"pip": ["-c constraints.txt", "-e ."]}


def test_python_versions_agree():
    low, high = bootstrap.SUPPORTED[0], bootstrap.SUPPORTED[-1]
    assert PROJECT["requires-python"] == f">={low[0]}.{low[1]},<{high[0]}.{high[1] + 1}"


def choose(own, others):
    versions = {"own": own, **{f"/bin/{name}": v for name, v in others.items()}}
    return bootstrap.choose_python(
        "own", lambda name: f"/bin/{name}" if name in others else None, versions.get
    )


def test_supported_python_is_taken_as_it_is():
    assert choose((3, 11), {"python3.13": (3, 13)}) == "own"


def test_another_supported_python_is_found():
    assert choose((3, 14), {"python3.11": (3, 11), "python3.12": (3, 12)}) == "/bin/python3.12"


def test_python_that_is_a_broken_shim_is_passed_over():
    assert choose((3, 9), {"python3.13": None, "python3.11": (3, 11)}) == "/bin/python3.11"


def test_wrong_python_is_one_sentence():
    with pytest.raises(bootstrap.SetupError) as error:
        choose((3, 10), {})
    text = str(error.value)
    assert "own is Python 3.10" in text
    assert "make lab PYTHON=python3.12" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (
            "WARNING: Retrying after connection broken by 'NewConnectionError(...: Failed to "
            "establish a new connection: [Errno -3] Temporary failure in name resolution')'\n"
            "ERROR: Could not find a version that satisfies the requirement setuptools>=77",
            "The package index cannot be reached",
        ),
        ("ERROR: Could not install packages: [Errno 28] No space left on device", "disk is full"),
        ("error: [Errno 13] Permission denied: '.venv'", "cannot be written to"),
        ("Error: Command '[..., '-m', 'ensurepip']' returned 1", "python3-venv"),
        ("a\nb\nERROR: something else", "Its last words: a / b / ERROR: something else"),
    ],
)
def test_failed_installation_is_one_sentence(output, words):
    text = bootstrap.explain(output)
    assert words in text
    assert "\n" not in text


def test_torch_switch(monkeypatch):
    monkeypatch.delenv("TORCH", raising=False)
    assert bootstrap.CPU_INDEX not in bootstrap.pip_command("python")
    monkeypatch.setenv("TORCH", "cpu")
    assert bootstrap.CPU_INDEX in bootstrap.pip_command("python")
    monkeypatch.setenv("TORCH", "gpu")
    with pytest.raises(bootstrap.SetupError, match="TORCH=gpu is not known"):
        bootstrap.pip_command("python")


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """A finished environment whose stamp fits; the set-up's commands are recorded, not run."""
    folder = tmp_path / ".venv"
    python = bootstrap.venv_python(folder)
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    commands = []
    monkeypatch.setattr(bootstrap, "run", lambda command, quiet=False: commands.append(command))
    bootstrap.ensure(folder)
    commands.clear()
    return folder, commands


def test_finished_environment_is_left_alone(environment):
    folder, commands = environment
    bootstrap.ensure(folder)
    assert commands == []


def test_changed_pins_are_installed_over_the_old_ones(environment, monkeypatch):
    folder, commands = environment
    stamp = bootstrap.read_stamp(folder)
    stamp["packages"] = "of other pins"
    (folder / "course-stamp.json").write_text(bootstrap.json.dumps(stamp))
    bootstrap.ensure(folder)
    assert [command[2] for command in commands] == ["pip"]


@pytest.mark.parametrize(("key", "value"), [("python", [3, 10]), ("root", "/moved/from")])
def test_stale_environment_is_made_anew(environment, key, value):
    folder, commands = environment
    stamp = bootstrap.read_stamp(folder)
    stamp[key] = value
    (folder / "course-stamp.json").write_text(bootstrap.json.dumps(stamp))
    bootstrap.ensure(folder)
    assert [command[2] for command in commands] == ["venv", "pip"]
    assert "--clear" in commands[0]


def test_nearly_full_disk_is_said_before_anything_is_created(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=2**30)
    monkeypatch.setattr(bootstrap.shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(bootstrap, "run", lambda *_, **__: pytest.fail("nothing may be run"))
    with pytest.raises(bootstrap.SetupError, match=r"about 4 GiB, and 1\.0 GiB are free"):
        bootstrap.ensure(tmp_path / ".venv")


def test_failure_shows_no_traceback(tmp_path):
    copy = tmp_path / "course"
    (copy / "utils").mkdir(parents=True)
    for name in ("pyproject.toml", "constraints.txt", "utils/bootstrap.py"):
        shutil.copyfile(ROOT / name, copy / name)
    environment = {**os.environ, "TORCH": "gpu"}
    command = [sys.executable, "utils/bootstrap.py"]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip() == "TORCH=gpu is not known: leave it out, or say TORCH=cpu."


def test_importing_utils_loads_no_torch_and_is_quick():
    code = "import sys, utils; print('torch' in sys.modules, len(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    loaded, modules = done.stdout.split()
    assert loaded == "False"
    assert int(modules) < 120  # a bare interpreter has about 50


@pytest.mark.parametrize("python", ["3.11.0", "3.12.0", "3.13.0"])
def test_every_pin_can_be_installed_on_the_first_release_of_each_python(python):
    # Debian 12 ships Python 3.11.2: a pin that needs 3.11.5 shuts its users out.
    pins = read_pins()
    refused = [
        distribution.name
        for distribution in metadata.distributions()
        if normalise(distribution.name) in pins
        and not SpecifierSet(distribution.metadata.get("Requires-Python", "")).contains(python)
    ]
    assert refused == []


def test_every_pin_is_what_is_installed():
    found = {name: installed_version(name) for name in read_pins()}
    assert {name: version for name, version in found.items() if version} == {
        name: version for name, version in read_pins().items() if found[name]
    }
