"""Create .venv with the pinned packages; every failure is one clear sentence.

Runs before anything is installed, and possibly under the wrong Python. So: the standard library
only, and no syntax newer than Python 3.6.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUPPORTED = ((3, 11), (3, 12), (3, 13))
NEEDED_GIB = 4
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
LAB_SETTINGS = {
    # A kernel starts with its notebook, and nothing is fetched from outside.
    "@jupyterlab/docmanager-extension:plugin": {"autoStartDefaultKernel": True},
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    },
}
# Every kernel explains a NameError of cells that ran out of order.
KERNEL_SETTINGS = {"IPKernelApp": {"extensions": ["utils.out_of_order"]}}


class SetupError(Exception):
    """The set-up cannot go on; the text is the one sentence that the user reads."""


def version_of(python):
    """Return (major, minor) of the interpreter `python`, or None if it does not run."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        found = subprocess.run(
            [python, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=60,
        )
        return tuple(int(part) for part in found.stdout.split())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def choose_python(current=sys.executable, which=shutil.which, version=version_of):
    """Return a supported interpreter: `current`, else the newest python3.x that is on the PATH.

    Raises SetupError if there is none.
    """
    own = version(current)
    if own in SUPPORTED:
        return current
    for major, minor in reversed(SUPPORTED):
        found = which(f"python{major}.{minor}")
        if found and version(found) == (major, minor):
            return found
    own = ".".join(map(str, own or ("unknown",)))
    raise SetupError(
        f"This course needs Python 3.11, 3.12 or 3.13, and {current} is Python {own}: install one "
        "of them and run the command again, naming it if needed, for instance "
        "`make lab PYTHON=python3.12`."
    )


def fingerprint(root, python_version):
    """Return what decides whether an existing environment still fits: pins, Python and place."""
    digest = hashlib.sha256()
    for name in ("constraints.txt", "pyproject.toml"):
        digest.update((root / name).read_bytes())
    return {
        "packages": digest.hexdigest(),
        "python": list(python_version),
        "root": str(root),
    }


def read_stamp(environment):
    """Return the fingerprint that a finished set-up left in `environment`, or {}."""
    try:
        return json.loads((environment / "course-stamp.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def venv_python(environment):
    """Return the path of the interpreter inside `environment`, on any platform."""
    if os.name == "nt":
        return environment / "Scripts" / "python.exe"
    return environment / "bin" / "python"


def has_pip(python):
    """Return whether the interpreter `python` runs and has pip: a set-up cut short may lack it."""
    try:
        command = [str(python), "-c", "import pip"]
        return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def explain(output):
    """Return the one sentence for a failed installer whose messages are `output`."""
    text = output.lower()
    if "no space left" in text or "errno 28" in text or "not enough space" in text:
        return (
            f"The disk is full: the course's packages need about {NEEDED_GIB} GiB under {ROOT}. "
            "Free some space and run the command again."
        )
    network = (
        "(from versions: none)",  # an index that cannot be reached has no versions of anything
        "name resolution",
        "newconnectionerror",
        "failed to establish a new connection",
        "max retries exceeded",
        "getaddrinfo failed",
        "connection refused",
        "network is unreachable",
        "timed out",
        "connecttimeout",
        "proxyerror",
        "cannot connect to proxy",
    )
    if any(sign in text for sign in network):
        return (
            "The package index cannot be reached: the first run needs the network once, later "
            "runs do not. Check the connection (and proxy) and run the command again."
        )
    if "permission denied" in text or "read-only file system" in text:
        return (
            f"The folder {ROOT} cannot be written to: copy the course to a folder of your own and "
            "run the command there."
        )
    if "ensurepip" in text:
        return (
            "This Python cannot create virtual environments: install its venv package "
            "(on Debian and Ubuntu: apt install python3-venv) and run the command again."
        )
    last = [line for line in output.strip().splitlines() if line.strip()][-3:]
    return f"The installation failed. Its last words: {' / '.join(last)}"


def run(command, quiet=False):
    """Run `command`; raise SetupError with one sentence if it fails. Progress stays visible."""
    out = subprocess.PIPE if quiet else None
    process = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, cwd=str(ROOT))
    if process.returncode != 0:
        words = (process.stdout or b"") + process.stderr
        raise SetupError(explain(words.decode("utf-8", "replace")))


def pip_command(python):
    """Return the installer's command line; TORCH=cpu asks for PyTorch's own CPU-only builds."""
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    choice = os.environ.get("TORCH", "")
    if choice not in ("", "cpu"):
        raise SetupError(f"TORCH={choice} is not known: leave it out, or say TORCH=cpu.")
    if choice == "cpu":
        command += ["--extra-index-url", CPU_INDEX]
    return [*command, "--constraint", "constraints.txt", "--editable", "."]


def write_settings(environment):
    """Write what JupyterLab and the kernels of `environment` read; what is there stays untouched."""
    for place, settings in (
        (("share", "jupyter", "lab", "settings", "overrides.json"), LAB_SETTINGS),
        (("etc", "ipython", "ipython_kernel_config.json"), KERNEL_SETTINGS),
    ):
        path, text = environment.joinpath(*place), json.dumps(settings, indent=1)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def ensure(environment=ROOT / ".venv"):
    """Create or update `environment` unless its stamp says that it fits already.

    Raises SetupError with one sentence for a wrong Python, no network, a full or read-only disk.
    """
    stamp = read_stamp(environment)
    inside = venv_python(environment)
    version = version_of(str(inside))
    if version and stamp == fingerprint(ROOT, version):
        write_settings(environment)
        return
    python = choose_python()
    free = shutil.disk_usage(str(ROOT)).free / 1024**3
    if not stamp and free < NEEDED_GIB:
        raise SetupError(
            f"The disk is nearly full: the course's packages need about {NEEDED_GIB} GiB, and "
            f"{free:.1f} GiB are free under {ROOT}."
        )
    moved = stamp and (stamp.get("root") != str(ROOT) or stamp.get("python") != list(version or ()))
    if version not in SUPPORTED or moved or not has_pip(inside):
        print(f"Creating .venv with {python}.", flush=True)
        run([python, "-m", "venv", "--clear", str(environment)], quiet=True)
    print("Installing the course's packages into .venv: a few minutes, once.", flush=True)
    run(pip_command(inside))
    write_settings(environment)
    done = fingerprint(ROOT, version_of(str(inside)))
    (environment / "course-stamp.json").write_text(json.dumps(done), encoding="utf-8")


def main():
    try:
        ensure()
    except SetupError as error:
        sys.exit(str(error))
    except PermissionError as error:
        sys.exit(explain(f"permission denied: {error}"))
    except OSError as error:
        sys.exit(explain(str(error)))
    except KeyboardInterrupt:
        sys.exit("Stopped. Run the command again to go on.")


if __name__ == "__main__":
    main()
