"""The numeric backends: what each sets, and that a kernel really runs under it."""

import os
import subprocess
import sys

import nbformat
import pytest

from utils import backends
from utils.environment import REPRODUCIBLE, ROOT


def test_each_folder_has_its_backend(monkeypatch, tmp_path):
    monkeypatch.delenv(backends.VARIABLE, raising=False)
    lowest = backends.settings_of("solutions", REPRODUCIBLE, tmp_path)
    best = backends.settings_of("notebooks", REPRODUCIBLE, tmp_path)
    assert lowest["ATEN_CPU_CAPABILITY"] == "default"
    assert best["ATEN_CPU_CAPABILITY"] is None
    assert lowest["OMP_NUM_THREADS"] == best["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("name", backends.BACKENDS)
def test_a_named_backend_holds_for_both_folders_and_undoes_the_others(monkeypatch, tmp_path, name):
    monkeypatch.setenv(backends.VARIABLE, name)
    found = [backends.settings_of(f, REPRODUCIBLE, tmp_path) for f in ("solutions", "notebooks")]
    assert found[0] == found[1]
    for variable, value in backends.BACKENDS[name].items():
        assert found[0].get(variable, value) == value
    for variable in ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA"):
        assert found[0][variable] == backends.BACKENDS[name].get(variable)
    assert (found[0]["IPYTHONDIR"] is not None) == (name == "no-onednn")


def test_an_unknown_backend_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv(backends.VARIABLE, "avx1024")
    with pytest.raises(ValueError, match="'avx1024'; known are lowest, avx2"):
        backends.settings_of("solutions", REPRODUCIBLE, tmp_path)


SHOWN = "import torch\nprint(torch.backends.cpu.get_cpu_capability(), torch.get_num_threads(), {})"


@pytest.mark.parametrize(
    ("name", "expected"), [("lowest", "DEFAULT 1 True"), ("no-onednn", "1 False")]
)
def test_kernels_run_under_the_backend(tmp_path, name, expected):
    """A notebook whose stored output is that of the backend passes under it and fails elsewhere."""
    source = SHOWN.format("torch.backends.mkldnn.enabled")
    if name == "no-onednn":
        source = source.replace("torch.backends.cpu.get_cpu_capability(), ", "")
    cell = nbformat.v4.new_code_cell(source, execution_count=1)
    cell.outputs = [nbformat.v4.new_output("stream", text=f"{expected}\n")]
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbformat.write(notebook, tmp_path / "shown.ipynb")
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")

    def nbval(backend):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        command += ["--nbval", "--nbval-current-env", f"--rootdir={tmp_path}", "shown.ipynb"]
        environment = {**os.environ, backends.VARIABLE: backend, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    right, wrong = nbval(name), nbval("2-threads")
    assert right.returncode == 0, right.stdout
    assert wrong.returncode == 1, wrong.stdout


def test_failed_cells_are_listed(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="solutions.01" name="Cell 0"/>'
        '<testcase classname="solutions.01" name="Cell 1"><failure/></testcase>'
        '<testcase classname="solutions.01" name="Cell 2"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    assert backends.failed_cells(report) == (
        3,
        ["solutions.01: Cell 1", "solutions.01: Cell 2"],
    )


def test_a_path_that_is_not_there_is_named(capsys):
    assert backends.main(["lowest", "notbooks"]) == 2
    assert "'notbooks' is no file here and no backend" in capsys.readouterr().out
