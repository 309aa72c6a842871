"""A library that cannot run here: one sentence, and the lesson goes on without it."""

import subprocess
import sys
import types

import pytest

from utils import plots
from utils.environment import NOTEBOOKS
from utils.libraries import load_bitsandbytes
from utils.release import code_cells, read


def test_the_library_is_returned_where_it_runs(capsys):
    assert load_bitsandbytes().__name__ == "bitsandbytes"
    assert capsys.readouterr().out == ""


def broken():
    def quantize(*_, **__):
        raise RuntimeError("no native library\nfor this platform")

    return types.SimpleNamespace(functional=types.SimpleNamespace(quantize_blockwise=quantize))


@pytest.mark.parametrize(
    ("module", "words"), [(None, "bitsandbytes"), (broken(), "(no native library)")]
)
def test_one_sentence_where_it_cannot_run(module, words, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "bitsandbytes", module)
    assert load_bitsandbytes() is None
    printed = capsys.readouterr().out
    assert printed.startswith("bitsandbytes cannot run here (")
    assert words in printed
    assert printed.count("\n") == 1


def test_nothing_is_written_to_stderr_on_import():
    code = "from utils.libraries import load_bitsandbytes; load_bitsandbytes()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""


def test_lesson_07_runs_without_the_library(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    monkeypatch.setattr(plots, "show", lambda figure: None)
    names = {"__name__": "__main__"}
    for cell in code_cells(read(NOTEBOOKS / "07_adam_8bit.ipynb")):
        exec(cell.source, names)  # the course's own cells
    printed = capsys.readouterr().out
    assert printed.count("bitsandbytes cannot run here") == 1
    assert "AdamW8bit       the farthest weight moved" in printed
    assert "really held" not in printed
