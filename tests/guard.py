"""What nbval lets through in a notebook file, found by reading the file.

nbval passes cells that were never executed, wrong execution order, missing, swapped and extra
pictures, and exceptions that are announced but never raised. `problems` finds each of them.
"""

import base64
import io
import re

import nbformat
from PIL import Image

from utils.release import code_cells

IGNORED = "# NBVAL_IGNORE_OUTPUT"
_MARKER = re.compile(r"nbval[_-]|pytest[_-]validate", re.IGNORECASE)
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}")
_PATH = re.compile(r"(?<![\w.])/(home|root|Users|tmp|work|opt|usr|content)/|[A-Z]:\\|site-packages")


def problems(notebook: nbformat.NotebookNode) -> list[str]:
    """Return one sentence for each thing in `notebook` that must not be there."""
    found = []
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        found.append("the kernelspec is not python3")
    code = code_cells(notebook)
    counts = [cell.execution_count for cell in code]
    if counts != list(range(1, len(code) + 1)):
        found.append(f"the execution counts are not 1 to {len(code)} in order")
    for cell in notebook.cells:
        checks = [_source, _outputs, _pictures] if cell.cell_type == "code" else [_text]
        found += [f"cell {cell.id}: {text}" for check in checks for text in check(cell)]
    return found


def _text(cell):
    if cell.cell_type == "raw":
        yield "raw cells are not run by anything"


def _source(cell):
    if not cell.source.strip():
        yield "the code cell is empty"
    source = cell.source.replace(IGNORED, "", 1)
    if _MARKER.search(source) or any(_MARKER.search(tag) for tag in cell.metadata.get("tags", [])):
        yield f"only {IGNORED} is allowed as a marker, once, and no nbval tag"


def _outputs(cell):
    errors = [output for output in cell.outputs if output.output_type == "error"]
    announced = "raises-exception" in cell.metadata.get("tags", [])
    if announced and not errors:
        yield "it is tagged raises-exception and stores no error"
    if errors and not announced:
        yield "it stores an error output"
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stderr":
            yield "it stores text written to stderr"
        for mime, text in _texts(output):
            if _ADDRESS.search(text):
                yield f"its {mime} holds a memory address"
            if _PATH.search(text):
                yield f"its {mime} holds a path of some machine"


def _texts(output):
    if output.output_type == "stream":
        yield output.name, output.text
    if output.output_type == "error":
        yield "error", output.evalue
    for mime, text in output.get("data", {}).items():
        if mime.startswith("text/"):
            yield mime, text


def _pictures(cell):
    stored = [output for output in cell.outputs if "image/png" in output.get("data", {})]
    shown = len(re.findall(r"\bplots\.show\(", cell.source))
    looped = re.search(r"^\s*for .*:$", cell.source, re.MULTILINE)
    if bool(stored) != bool(shown) or (len(stored) != shown and not looped):
        yield f"it shows {shown} pictures and stores {len(stored)}"
    for output in cell.outputs:
        data = output.get("data", {})
        if "<Figure" in data.get("text/plain", ""):
            yield "a bare figure is displayed: use plots.show"
        if "image/png" in data:
            words = _words_inside(data["image/png"])
            if words is None:
                yield "its picture is not a PNG"
            elif words != data.get("text/plain"):
                yield "its picture is not the one that its words describe"


def _words_inside(encoded: str) -> str | None:
    try:
        image = Image.open(io.BytesIO(base64.b64decode(encoded)), formats=["PNG"])
        image.load()
    except (OSError, ValueError):
        return None  # no picture at all
    return image.info.get("Description", "")
