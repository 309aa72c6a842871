"""An IPython extension: a name that is not there yet says which cell makes it.

Cells that run out of order, or after the kernel has restarted, end in a NameError. In a notebook of
this course its text then names the cell to run first. The set-up loads this extension in every kernel.
"""

import ast
import json
import os
from pathlib import Path

from utils.environment import NOTEBOOKS, SOLUTIONS


def load_ipython_extension(shell) -> None:
    """Explain NameErrors in `shell` from now on."""
    shell.set_custom_exc((NameError,), _show)


def _show(shell, kind, error, trace, tb_offset=None):
    hint = hint_for(error.name, shell.user_ns.get("In", [""])[-1]) if error.name else None
    if hint:
        error.args = (f"{error}. {hint}",)
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset)


def hint_for(
    name: str, cell: str, folders: tuple[Path, ...] = (NOTEBOOKS, SOLUTIONS)
) -> str | None:
    """Return the sentence that says which cell makes `name`, or None if no cell is known to.

    The notebook is the one that holds a cell with the source `cell`, else the one that Jupyter
    says is open.
    """
    paths = [path for folder in folders for path in sorted(folder.glob("*.ipynb"))]
    opened = Path(os.environ.get("JPY_SESSION_NAME", "")).name
    notebooks = [_cells(path) for path in paths]
    holding = [cells for cells in notebooks if any(source == cell for _, source in cells)]
    by_name = [cells for path, cells in zip(paths, notebooks, strict=True) if path.name == opened]
    for cells in (holding or by_name)[:1]:
        for number, (heading, source) in enumerate(cells, start=1):
            if name in bound_names(source):
                return (
                    f'It is made in code cell {number}, under "{heading}": run that cell first, '
                    "or choose Run > Run All Above Selected Cell"
                )
    return None


def _cells(path: Path) -> list[tuple[str, str]]:
    """Return the nearest heading above and the source of every code cell."""
    found, heading = [], ""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError):
        return []  # a notebook that is being saved, say
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            found.append((heading, source))
        else:
            titles = [line.lstrip("# ") for line in source.splitlines() if line.startswith("#")]
            heading = titles[0] if titles else heading
    return found


def bound_names(source: str) -> set[str]:
    """Return the names that running `source` at the top level binds; none if it is not Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return set()
    names: set[str] = set()
    pending = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(
            node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
        ):
            continue  # names of their own
        else:
            pending += ast.iter_child_nodes(node)
    return names
