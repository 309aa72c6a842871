"""The command line around the lessons: environment check, progress, reset, lab."""

import os
import shutil
import subprocess
import sys

import nbformat
import pytest

from utils import __main__ as command_line
from utils.course import check_environment, progress, read_pins, reset, write_pins
from utils.environment import NOTEBOOKS, ROOT, SOLUTIONS, with_defaults

PINS = {"torch": "2.13.0", "two-words": "1.0"}


def test_tested_environment_has_no_problems():
    assert check_environment() == []


def test_other_version_and_missing_package_are_named():
    found = {"torch": "2.12.1", "Two_Words": None}.get
    assert check_environment(("torch", "Two_Words"), PINS, found) == [
        "torch is 2.12.1; the course is tested with 2.13.0.",
        "Two_Words is not installed; the course is tested with 1.0.",
    ]


def test_untested_python_is_named(monkeypatch):
    monkeypatch.setattr("sys.version_info", (3, 14, 0))
    assert "This is Python 3.14" in check_environment((), PINS)[0]


def test_pins_are_read_by_normalised_name(tmp_path):
    path = tmp_path / "constraints.txt"
    path.write_text("# words == not a pin\nTwo_Words==1.0\ntorch==2.13.0\n")
    assert read_pins(path) == PINS


def test_writing_pins_keeps_comments_and_drops_build_suffixes(tmp_path):
    path = tmp_path / "constraints.txt"
    path.write_text("# a comment\nold==1\n")
    count = write_pins(path)
    lines = path.read_text().splitlines()
    assert lines[0] == "# a comment"
    assert len(lines) == count + 1
    assert f"torch=={read_pins()['torch']}" in lines
    assert not any("+" in line or "old" in line for line in lines)


def test_progress_counts_the_checks_that_say_right():
    total = {name: count for name, _, count in progress(SOLUTIONS)}
    assert total["00_start_here"] == 3
    assert all(right == count for _, right, count in progress(SOLUTIONS))
    assert all(right == 0 for _, right, _ in progress(NOTEBOOKS))


@pytest.fixture
def learner(tmp_path):
    folders = {name: tmp_path / name for name in ("notebooks", "solutions")}
    for folder in folders.values():
        folder.mkdir()
    shutil.copy(SOLUTIONS / "00_start_here.ipynb", folders["solutions"])
    (folders["notebooks"] / "00_start_here.ipynb").write_text("the learner's work")
    return {**folders, "keep": tmp_path / "my_copies"}


def test_reset_puts_the_blank_back_and_keeps_every_copy(learner):
    first = reset("00", **learner)
    assert first.read_text() == "the learner's work"
    sources = [c.source for c in nbformat.read(learner["notebooks"] / first_name(), 4).cells]
    assert sources == [c.source for c in nbformat.read(NOTEBOOKS / first_name(), 4).cells]
    second = reset("00", **learner)
    assert second != first
    assert first.read_text() == "the learner's work"


def first_name():
    return "00_start_here.ipynb"


@pytest.mark.parametrize("prefix", ["", "77", "start"])
def test_reset_of_no_lesson_names_the_lessons(learner, prefix):
    with pytest.raises(ValueError, match="names 0 lessons; name one of: 00_start_here"):
        reset(prefix, **learner)
    assert (learner["notebooks"] / first_name()).read_text() == "the learner's work"


def test_lab_listens_on_this_machine_only_and_passes_arguments_on(monkeypatch, capsys):
    seen = []
    monkeypatch.setattr("jupyterlab.labapp.main", seen.extend)
    monkeypatch.setattr("os.environ", dict(os.environ))
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert command_line.main(["lab", "--no-browser", "--port", "8899"]) == 0
    assert seen[:2] == ["notebooks/00_start_here.ipynb", "--ServerApp.ip=127.0.0.1"]
    position = seen.index("--no-browser")
    assert seen[position : position + 3] == ["--no-browser", "--port", "8899"]
    assert not any("token" in part for part in seen)  # Jupyter's own token stays on
    assert "this machine only" in capsys.readouterr().out
    assert os.environ["OMP_NUM_THREADS"] == "1"


def test_the_courses_utils_comes_before_another_package_of_that_name(tmp_path, monkeypatch):
    (tmp_path / "utils").mkdir()
    (tmp_path / "utils" / "__init__.py").write_text("raise ImportError('the wrong utils')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = "import utils; print(utils.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path.parent,
        env=with_defaults({}),
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == str(ROOT / "utils" / "__init__.py")


def test_release_of_an_unknown_lesson_names_the_lessons(capsys):
    assert command_line.main(["release", "77"]) == 2
    assert "starts with '77'. There are: 00_start_here.ipynb" in capsys.readouterr().out


def test_unknown_argument_is_refused(capsys):
    with pytest.raises(SystemExit):
        command_line.main(["check", "--fast"])
    assert "unrecognized arguments: --fast" in capsys.readouterr().err
