"""The course's command line: `python -m utils COMMAND`."""

import argparse
import json
import os
import sys

from utils.environment import ROOT, SOLUTIONS, THREADS, with_defaults


def lab(arguments: list[str]) -> int:
    """Open JupyterLab on the first lesson; `arguments` go to `jupyter lab`."""
    from utils.course import check_environment

    for problem in check_environment():
        print("Note:", problem)
    print(
        "JupyterLab listens on this machine only (127.0.0.1) and asks for the token in the address "
        "below. Press Ctrl-C twice to stop it.",
        flush=True,
    )
    os.chdir(ROOT)
    os.environ.update(with_defaults(THREADS))  # the kernels inherit it
    from jupyterlab.labapp import main as run_lab

    command = ["notebooks/00_start_here.ipynb", "--ServerApp.ip=127.0.0.1"]
    command += [f"--ServerApp.root_dir={ROOT}", *arguments]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # containers: Jupyter refuses root otherwise
    run_lab(command)
    return 0


def release(prefixes: list[str]) -> int:
    """Release the lessons whose file names start with one of `prefixes`, or all of them."""
    from utils.release import release_all

    names = [path.name for path in sorted(SOLUTIONS.glob("*.ipynb"))]
    unknown = [prefix for prefix in prefixes if not any(n.startswith(prefix) for n in names)]
    if unknown:
        print(f"No lesson in solutions/ starts with {unknown[0]!r}. There are: {', '.join(names)}")
        return 2
    chosen = [name for name in names if not prefixes or name.startswith(tuple(prefixes))]
    errors = release_all(chosen)
    for error in errors:
        print(f"not released: {error}", file=sys.stderr)
    return 1 if errors else 0


def check() -> int:
    """Say whether this environment is the tested one."""
    from utils.course import check_environment

    problems = check_environment()
    print("\n".join(problems) or "This environment is the tested one.")
    return 1 if problems else 0


def progress() -> int:
    """Print how many exercises of each lesson are right, as last saved."""
    from utils.course import progress as rows

    for lesson, right, total in rows():
        print(f"{lesson:32} {right:2d} of {total:2d} exercises right")
    return 0


def reset(prefix: str) -> int:
    """Put back the blank form of one lesson; the learner's copy is kept beside it."""
    from utils.course import reset as reset_lesson

    try:
        kept = reset_lesson(prefix)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, a folder that cannot be written to
        print(f"Nothing was reset: {error.strerror or error}.", file=sys.stderr)
        return 2
    print(f"Reset. Your copy is kept as {kept.relative_to(ROOT)}.")
    return 0


def constraints() -> int:
    """Write constraints.txt from this environment: every package at its installed version."""
    from utils.course import write_pins

    print(f"{write_pins()} versions written to constraints.txt")
    return 0


def memory(given: argparse.Namespace) -> int:
    """Say what training a model needs for weights, gradients and optimizer state, in bytes."""
    # Reading a configuration needs no progress bar, and no warning about missing weights.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from utils import memory_command

    try:
        size = given.device_memory and memory_command.parse_size(given.device_memory)
        result = memory_command.report(
            given.model, given.optimizer, given.dtype, given.lora, size or None
        )
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(result, indent=2) if given.json else memory_command.as_text(result))
    return 0 if "fits" not in result or any(result["fits"].values()) else 1


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m utils", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(function, argument: str | None = None, **options) -> argparse.ArgumentParser:
        words = (function.__doc__ or "").partition("\n")[0]
        sub = commands.add_parser(function.__name__, help=words, description=words)
        if argument:
            sub.add_argument(argument, **options)
        return sub

    command(lab)
    command(check)
    command(progress)
    command(reset, "lesson", help="how the lesson's file name starts, for instance 01")
    command(release, "lessons", nargs="*", help="how the file names start; all if none is given")
    command(constraints)
    sub = command(memory, "model", help="a JSON configuration, a folder with one, or a hub id")
    sub.add_argument(
        "--optimizer", help="as TrainingArguments.optim spells it; several if not given"
    )
    sub.add_argument("--dtype", default="fp32", choices=("fp32", "bf16", "fp16"))
    sub.add_argument(
        "--lora", type=int, metavar="RANK", help="train LoRA matrices of this rank only"
    )
    sub.add_argument("--device-memory", metavar="SIZE", help="24GiB or 80GB: say whether it fits")
    sub.add_argument("--json", action="store_true", help="print JSON in place of a table")

    given, rest = parser.parse_known_args(arguments)
    if rest and given.command != "lab":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    match given.command:
        case "lab":
            return lab(rest)
        case "reset":
            return reset(given.lesson)
        case "release":
            return release(given.lessons)
        case "check":
            return check()
        case "memory":
            return memory(given)
        case "progress":
            return progress()
        case _:
            return constraints()


if __name__ == "__main__":
    sys.exit(main())
