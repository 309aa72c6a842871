"""What the command line offers around the lessons: the environment check, progress, the lab."""

import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from utils.bootstrap import SUPPORTED
from utils.environment import NOTEBOOKS, ROOT, SOLUTIONS

# What a learner needs to know about, in the order of the lessons.
PACKAGES = (
    "torch",
    "transformers",
    "accelerate",
    "datasets",
    "evaluate",
    "matplotlib",
    "jupyterlab",
    "bitsandbytes",
)


def read_pins(path: Path = ROOT / "constraints.txt") -> dict[str, str]:
    """Return the pinned version of each package in `path`, by normalised name."""
    pins = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, separator, version = line.partition("==")
        if separator and not line.startswith("#"):
            pins[normalise(name)] = version.strip()
    return pins


def normalise(name: str) -> str:
    """Return a package's `name` as the index compares it: lower case, single hyphens."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def installed_version(package: str) -> str | None:
    """Return the installed version of `package` without a build suffix (2.13.0+cpu), or None."""
    try:
        return metadata.version(package).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None


def check_environment(
    packages=PACKAGES, pins: dict[str, str] | None = None, installed=installed_version
) -> list[str]:
    """Return one sentence for each way in which this environment is not the tested one.

    An empty list means that the Python and every package are as pinned in constraints.txt.
    """
    problems = []
    if tuple(sys.version_info[:2]) not in SUPPORTED:
        problems.append(
            f"This is Python {sys.version_info[0]}.{sys.version_info[1]}; "
            "the course is tested with 3.11, 3.12 and 3.13."
        )
    pins = read_pins() if pins is None else pins
    for package in packages:
        wanted, found = pins[normalise(package)], installed(package)
        if found is None:
            problems.append(f"{package} is not installed; the course is tested with {wanted}.")
        elif found != wanted:
            problems.append(f"{package} is {found}; the course is tested with {wanted}.")
    return problems


def progress(folder: Path = NOTEBOOKS) -> list[tuple[str, int, int]]:
    """Return (lesson, exercises right, exercises in all) for each notebook in `folder`.

    Reads what the check cells printed when the notebook was last saved; nothing else is kept.
    """
    from utils.release import read, verdicts  # not above: nbformat takes seconds to import

    rows = []
    for path in sorted(folder.glob("[0-9][0-9]_*.ipynb")):
        texts = verdicts(read(path)).values()
        rows.append((path.stem, sum(": right." in text for text in texts), len(texts)))
    return rows


def reset(
    prefix: str,
    notebooks: Path = NOTEBOOKS,
    solutions: Path = SOLUTIONS,
    keep: Path = ROOT / "my_copies",
) -> Path:
    """Put back the blank form of the lesson whose name starts with `prefix`; return the kept copy.

    The learner's notebook is copied to the folder `keep` under a name that is not taken, first.
    Raises ValueError unless exactly one lesson matches; OSError, with the notebook as it was, if the
    disk is full or cannot be written to.
    """
    from utils.release import derive, read, write

    found = sorted(solutions.glob("[0-9][0-9]_*.ipynb"))
    matching = [path for path in found if prefix and path.name.startswith(prefix)]
    if len(matching) != 1:
        names = ", ".join(path.stem for path in found)
        raise ValueError(f"{prefix!r} names {len(matching)} lessons; name one of: {names}")
    lesson = notebooks / matching[0].name
    keep.mkdir(exist_ok=True)
    number = 1
    while (copy := keep / f"{lesson.stem}-{number}.ipynb").exists():
        number += 1
    try:
        shutil.copyfile(lesson, copy)
    except OSError:
        copy.unlink(missing_ok=True)  # half a copy is none
        raise
    write(derive(read(matching[0])), lesson)
    return copy


def write_pins(path: Path = ROOT / "constraints.txt") -> int:
    """Write what pip has installed here to `path`, build suffixes removed; return how many lines.

    The comment lines at the top of the file stay.
    """
    freeze = [sys.executable, "-m", "pip", "freeze", "--exclude-editable"]
    lines = subprocess.run(freeze, check=True, capture_output=True, text=True).stdout.splitlines()
    pins = [line.partition("+")[0] for line in lines if "==" in line]
    old = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    comments = [line for line in old if line.startswith("#")]
    path.write_text("\n".join([*comments, *pins]) + "\n", encoding="utf-8")
    return len(pins)
