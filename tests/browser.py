"""Open lessons in JupyterLab in headless Chromium, Run All, take screenshots.

For maintainers, not part of `make test`: needs `pip install playwright` and a Chromium.

    python tests/browser.py SHOTS_FOLDER CHROMIUM LESSON [LESSON ...]

Exits with 1 if a cell shows an error output or a code cell was not executed.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
TOKEN = "browser-check"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until(condition, seconds: float, what: str):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            result = condition()
        except OSError:
            result = None
        if result:
            return result
        time.sleep(0.5)
    raise TimeoutError(f"{what} did not happen within {seconds:.0f} s")


def sessions(port: int) -> list[dict]:
    address = f"http://127.0.0.1:{port}/api/sessions?token={TOKEN}"
    with urllib.request.urlopen(address) as answer:
        return json.load(answer)


def kernel_states(port: int) -> list[str]:
    return [session["kernel"]["execution_state"] for session in sessions(port)]


def run_lesson(page, port: int, lesson: str, shots: Path) -> list[str]:
    """Run All on `lesson`; return what went wrong, and leave screenshots of the whole of it."""
    page.goto(f"http://127.0.0.1:{port}/lab/tree/{lesson}?token={TOKEN}&reset")
    page.wait_for_selector(".jp-NotebookPanel-toolbar", timeout=120_000)
    wait_until(lambda: kernel_states(port) == ["idle"], 120, "the kernel's start")
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    name = lesson.replace("/", "-").removesuffix(".ipynb")
    panel = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)").first
    errors = panel.locator("[data-mime-type='application/vnd.jupyter.error']")
    cells = json.loads((ROOT / lesson).read_text(encoding="utf-8"))["cells"]
    wanted = [f"[{n}]:" for n in range(1, 1 + sum(c["cell_type"] == "code" for c in cells))]

    def prompts():
        texts = panel.locator(".jp-CodeCell .jp-InputPrompt").all_inner_texts()
        return [text.strip() for text in texts]

    # The kernel alone does not tell: between two cells it can be idle for seconds. After an error
    # no cell waits any more ([*]), and some were never run ([ ]).
    problems = []
    stopped = []

    def settled():
        found = prompts()
        stopped.append(kernel_states(port) == ["idle"] and found[-1] == "[ ]:")
        return found == wanted or errors.count() or stopped[-20:] == [True] * 20

    with contextlib.suppress(TimeoutError):
        wait_until(settled, 400, "the end of Run All")
    if prompts() != wanted:
        problems.append(f"{len(wanted)} code cells, their prompts: {prompts()}")
    problems += [text[:300] for text in errors.all_inner_texts()]
    everything = panel.locator(".jp-Cell").all()
    for number, cell in enumerate(everything[::4]):
        cell.scroll_into_view_if_needed()
        page.wait_for_timeout(200)
        page.screenshot(path=str(shots / f"{name}-{number:02d}.png"))
    return problems


def main(shots: str, chromium: str, *lessons: str) -> int:
    folder, port = Path(shots), free_port()
    folder.mkdir(parents=True, exist_ok=True)
    python = str(ROOT / ".venv" / "bin" / "python")
    command = [python, "-m", "utils", "lab", "--no-browser", f"--port={port}"]
    command.append(f"--IdentityProvider.token={TOKEN}")
    settings = folder / "settings"
    # Every cell in the page, not only those in view: what is not there cannot be checked.
    write_settings(settings, "notebook-extension/tracker", '{"windowingMode": "none"}')
    # What runs here must not be saved over the lesson.
    write_settings(settings, "docmanager-extension/plugin", '{"autosave": false}')
    environment = {**os.environ, "JUPYTERLAB_SETTINGS_DIR": str(settings.resolve())}
    server = subprocess.Popen(command, cwd=ROOT, env=environment)
    failed = False
    try:
        wait_until(lambda: kernel_states(port) == [], 120, "JupyterLab's start")
        with sync_playwright() as playwright:
            options = {"executable_path": chromium, "args": ["--no-sandbox", "--disable-gpu"]}
            browser = playwright.chromium.launch(**options)
            for lesson in lessons:
                page = browser.new_page(viewport={"width": 1280, "height": 1000})
                problems = run_lesson(page, port, lesson, folder)
                print(lesson, problems or "ran without an error", flush=True)
                failed = failed or bool(problems)
                page.close()
                for session in sessions(port):
                    delete(port, f"sessions/{session['id']}")
            browser.close()
    finally:
        server.terminate()
        server.wait(30)
    return int(failed)


def write_settings(folder: Path, plugin: str, text: str) -> None:
    path = folder / "@jupyterlab" / f"{plugin}.jupyterlab-settings"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def delete(port: int, what: str) -> None:
    address = f"http://127.0.0.1:{port}/api/{what}?token={TOKEN}"
    urllib.request.urlopen(urllib.request.Request(address, method="DELETE"))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
