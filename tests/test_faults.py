"""What goes wrong on learners' machines: each fault, and what the learner sees."""

import contextlib
import errno
import functools
import getpass
import http.server
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from utils import __main__ as command_line
from utils import course, data, models
from utils.environment import NOTEBOOKS, REPRODUCIBLE, ROOT, SOLUTIONS, with_defaults
from utils.out_of_order import bound_names, hint_for
from utils.release import code_cells, read

QUICK = "01_adamw_ema"


def run_cells(cells, **options):
    """Run copies of `cells` in a kernel of their own; return them with their outputs."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.from_dict(dict(c)) for c in cells])
    NotebookClient(notebook, kernel_name="python3", timeout=300, **options).execute()
    return notebook.cells


def text_of(cell):
    """Return all that the cell shows as one text: a stream may arrive in any number of pieces."""
    parts = (o.get("text") or str(o.get("data", {}).get("text/plain")) for o in cell.outputs)
    return "".join(parts)


def test_cells_that_run_twice_give_the_same(monkeypatch):
    """Run All, and Run All again in the same kernel."""
    for variable, value in REPRODUCIBLE.items():
        monkeypatch.setenv(variable, value)
    cells = code_cells(read(NOTEBOOKS / f"{QUICK}.ipynb"))
    ran = run_cells([*cells, *cells], env=with_defaults(REPRODUCIBLE))
    first, second = ran[: len(cells)], ran[len(cells) :]
    assert [text_of(cell) for cell in first] == [text_of(cell) for cell in second]
    assert sum(map(bool, map(text_of, first))) > 10


def test_a_cell_that_runs_too_early_says_which_one_is_missing():
    cells = code_cells(read(NOTEBOOKS / f"{QUICK}.ipynb"))
    made = {name: place for place, c in enumerate(cells, 1) for name in bound_names(c.source)}
    late = next(
        c for c in cells[3:] if re.search(r"\btorch\.", c.source) and "import" not in c.source
    )
    with pytest.raises(CellExecutionError) as caught:
        run_cells([late], env=with_defaults(REPRODUCIBLE))
    found = re.search(
        r"name '(\w+)' is not defined. It is made in code cell (\d+), under \"(.+?)\": run that",
        str(caught.value),
    )
    assert found, str(caught.value)[-800:]
    assert int(found[2]) <= made[found[1]]
    assert found[3] in "\n".join(c.source for c in read(NOTEBOOKS / f"{QUICK}.ipynb").cells)


def test_a_name_of_the_learners_own_gets_no_hint():
    cell = code_cells(read(NOTEBOOKS / f"{QUICK}.ipynb"))[3].source
    assert hint_for("a_name_that_no_cell_makes", cell) is None
    assert hint_for("torch", "a cell of no lesson") is None


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import os.path as p, sys", {"p", "sys"}),
        ("def f(x):\n    y = 1", {"f"}),
        ("for i, j in z:\n    k: int = 2", {"i", "j", "k"}),
        ("with open(f) as h:\n    pass\n(w := 3)", {"h", "w"}),
        ("a = [b for b in c]", {"a"}),
        ("%magic", set()),
        ("x.y = 1; d['k'] = 2", set()),
    ],
)
def test_names_that_a_cell_makes(source, names):
    assert bound_names(source) == names


TRAINING = """
from utils import data, models, training
import torch
tokenizer = models.load_tokenizer()
tokenized = data.tokenize(data.load(), tokenizer)
model = models.load_model()
print("begin", flush=True)
optimizer, losses = training.train(
    model, lambda m: torch.optim.AdamW(m.parameters()), tokenized["train"], tokenizer,
    training.Settings(epochs=1000),
)
"""


def test_stopping_a_training_leaves_a_kernel_that_goes_on(tmp_path):
    """The stop button is an interrupt; the next cell trains the same model one step further."""
    manager, client = start_new_kernel(
        kernel_name="python3", cwd=str(tmp_path), env=with_defaults(REPRODUCIBLE)
    )
    try:
        begun = threading.Event()

        def hook(message):
            if "begin" in str(message["content"].get("text", "")):
                begun.set()
                threading.Timer(2, manager.interrupt_kernel).start()

        stopped = client.execute_interactive(TRAINING, output_hook=hook, timeout=200)
        assert begun.is_set()
        assert stopped["content"]["ename"] == "KeyboardInterrupt"
        again = TRAINING.split("model = ")[1].partition("\n")[2]
        again = again.replace("epochs=1000)", "epochs=1), max_steps=1")
        goes_on = client.execute_interactive(
            f"{again}\nassert len(losses) == 1", output_hook=lambda message: None, timeout=100
        )
        assert goes_on["content"]["status"] == "ok", goes_on["content"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert list(tmp_path.iterdir()) == []  # no checkpoint, whole or half


def python(code, **options):
    environment = with_defaults(REPRODUCIBLE) | options.pop("env", {})
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, **options
    )


ONE_STEP = TRAINING.replace("epochs=1000)", "epochs=1), max_steps=1") + "print(len(losses))"


def test_cuda_variables_on_a_machine_without_a_gpu():
    done = python(
        "from utils import models; print(next(models.load_model().parameters()).device)",
        env={"CUDA_VISIBLE_DEVICES": "0,7"},
    )
    assert (done.stdout, done.returncode) == ("cpu\n", 0), done.stderr


def test_a_home_with_spaces_and_letters_of_any_language(tmp_path):
    """The course in such a folder, the home in another, and a lesson run from a third."""
    course = tmp_path / "Größe und Ordnung" / "课程"
    home = tmp_path / "Émile's home"
    for folder in ("utils", "notebooks"):
        shutil.copytree(
            ROOT / folder, course / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    home.mkdir()
    places = {"PYTHONPATH": str(course), "HOME": str(home), "HF_HOME": str(home / "hf")}
    done = python(f"import utils; print(utils.__file__)\n{ONE_STEP}", cwd=home, env=places)
    assert done.stdout.splitlines() == [str(course / "utils/__init__.py"), "begin", "1"], (
        done.stderr
    )


def test_two_copies_side_by_side(tmp_path):
    """Each copy takes its own utils, whichever was installed."""
    for name in ("one", "two"):
        (tmp_path / name / "utils").mkdir(parents=True)
        (tmp_path / name / "utils/__init__.py").write_text(f"name = {name!r}")
    for name in ("one", "two"):
        place = {"PYTHONPATH": str(tmp_path / name)}
        done = python("import utils; print(utils.name)", env=place, cwd=tmp_path)
        assert done.stdout == f"{name}\n", done.stderr


READ_ONLY = """
mount --bind "$ROOT" "$ROOT" && mount -o remount,bind,ro "$ROOT" || exit 77
touch "$ROOT/probe" 2>/dev/null && exit 77
exec "$PYTHON" -c "$CODE"
"""


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs a mount of its own")
def test_a_checkout_that_cannot_be_written_to(tmp_path):
    """The course mounted read-only, and only the home can be written to: training still works."""
    places = {"ROOT": str(ROOT), "PYTHON": sys.executable, "CODE": ONE_STEP, "HOME": str(tmp_path)}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", READ_ONLY],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=with_defaults(REPRODUCIBLE) | places,
    )
    if done.returncode == 77 or done.stderr.startswith("unshare:"):
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    assert done.stdout.splitlines() == ["begin", "1"], done.stderr


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("where", ["copy", "notebook"])
def test_a_full_disk_costs_a_learner_nothing(tmp_path, monkeypatch, capsys, where):
    """`reset` on a full disk: the learner's notebook stays, and no half of a copy is left."""
    notebooks, kept = tmp_path / "notebooks", tmp_path / "my_copies"
    notebooks.mkdir()
    lesson = notebooks / f"{QUICK}.ipynb"
    lesson.write_text("the learner's work")

    def half(source, target):
        Path(target).write_text("the lear")
        raise FULL

    def fails(*_):
        raise FULL

    if where == "copy":
        monkeypatch.setattr(shutil, "copyfile", half)
    else:
        monkeypatch.setattr(nbformat, "write", fails)
    places = {"notebooks": notebooks, "keep": kept}
    monkeypatch.setattr(course, "reset", functools.partial(course.reset, **places))
    assert command_line.main(["reset", "01"]) == 2
    assert capsys.readouterr().err == "Nothing was reset: No space left on device.\n"
    assert lesson.read_text() == "the learner's work"
    assert [path.name for path in notebooks.iterdir()] == [lesson.name]
    assert len(list(kept.iterdir())) == (0 if where == "copy" else 1)


class Dying(http.server.BaseHTTPRequestHandler):
    """A hub that promises a file and closes the connection in the middle of it."""

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.send_header("ETag", '"1"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.end_headers()

    def do_GET(self):
        self.do_HEAD()
        self.wfile.write(b'{"model_type": "distil')

    def log_message(self, *_): ...


@pytest.fixture
def dying_hub():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Dying)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def closed_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


LOADS = {
    "model": "models.load_model('someone/a-model')",
    "tokenizer": "models.load_tokenizer('someone/a-model')",
    "data set": "data.load('someone/a-data-set')",
}


@pytest.mark.parametrize("hub", ["down", "dying", "offline"])
def test_a_hub_that_fails_is_one_sentence(hub, dying_hub, tmp_path):
    code = "import time; time.sleep = lambda seconds: None  # retries wait\n"
    code += "from utils import data, models\n"
    for load in LOADS.values():
        code += f"try:\n    {load}\nexcept data.NotLoadedError as error:\n    print(error)\n"
    done = python(
        code,
        env={
            "HF_ENDPOINT": dying_hub if hub == "dying" else closed_port(),
            "HF_HOME": str(tmp_path),
            "HF_HUB_OFFLINE": "1" if hub == "offline" else "0",
            "HF_HUB_DOWNLOAD_TIMEOUT": "2",
        },
        timeout=200,
    )
    sentences = done.stdout.splitlines()
    assert len(sentences) == len(LOADS), done.stderr
    for kind, sentence in zip(LOADS, sentences, strict=True):
        assert re.match(rf"The {kind} was not loaded: .*someone/a-", sentence)
        assert "To go on offline, unset COURSE_" in sentence
    files = [p for p in tmp_path.rglob("*.json") if p.stat().st_size]
    assert files == []  # nothing half-loaded is taken for whole the next time


def test_lab_takes_another_port_if_its_own_is_in_use(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        lab = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "utils",
                "lab",
                "--no-browser",
                f"--port={port}",
                "--allow-root",
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=with_defaults({}) | {"JUPYTER_CONFIG_DIR": str(tmp_path)},
        )
        try:
            lines = []
            for line in lab.stdout:
                lines.append(line)
                if found := re.search(r"http://127\.0\.0\.1:(\d+)/lab\S*token=", line):
                    break
        finally:
            lab.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                lab.wait(20)
            lab.kill()
    assert found, "".join(lines)
    assert int(found[1]) != port
    assert any("is already in use" in line for line in lines)


def test_nothing_is_run_that_comes_from_elsewhere():
    sources = [c.source for path in SOLUTIONS.glob("*.ipynb") for c in code_cells(read(path))]
    sources += [path.read_text(encoding="utf-8") for path in (ROOT / "utils").rglob("*.py")]
    for source in sources:
        assert not re.search(r"trust_remote_code\s*=\s*True", source)
        assert not re.search(r"^\s*[!%](pip|conda|curl|wget|sh|bash)\b", source, re.MULTILINE)
        assert not re.search(r"\b(urlopen|urlretrieve|requests\.get|httpx\.get)\(", source)


def test_outputs_hold_no_name_of_a_machine_or_user():
    names = {getpass.getuser(), platform.node(), str(ROOT), sys.prefix, os.path.expanduser("~")}
    names -= {"root", "localhost", "/", "/root", ""}  # words of their own
    for path in [*SOLUTIONS.glob("*.ipynb"), *NOTEBOOKS.glob("*.ipynb")]:
        for cell in code_cells(read(path)):
            text = str([o for o in cell.outputs if "image/png" not in o.get("data", {})])
            for name in names:
                assert not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text), (path.name, name)


def test_no_lesson_depends_on_the_working_directory():
    for path in SOLUTIONS.glob("*.ipynb"):
        for cell in code_cells(read(path)):
            assert not re.search(
                r"""(open|Path|read_text)\(["'](?![/~])[\w./]*["']\)""", cell.source
            )
            assert "os.chdir" not in cell.source


def test_the_data_and_the_model_need_no_network():
    start = time.perf_counter()
    assert len(data.load()) == 2
    assert models.load_model().num_parameters() > 0
    assert time.perf_counter() - start < 60  # no retries of a hub that is not there
