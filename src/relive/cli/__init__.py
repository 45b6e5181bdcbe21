"""The `relive` command. Each subcommand shows an example in its `--help`; only the parser is loaded here."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from relive._base.extras import needs
from relive.cli.terminal import INTERRUPTED, READER_GONE
from relive.errors import ArgumentError, MissingExtra, ReliveError, ReliveWarning, message

DESCRIPTION = """Experience replay for reinforcement learning; --version prints which, --version --json
what to put into a report of a bug.

Example: relive inspect runs/agent/buffer"""
# Commands of the trainers and their comparisons, which are a distribution of its own.
OF_THE_LAB = ("train", "compare")
_ABOUT = {
    "doctor": "Examine a replay buffer, a library's or your own: is each item right at every boundary?",
    "inspect": "Summarise a saved buffer, shards or trajectories; --html writes a page with plots.",
    "verify": "Compare all files of a save with their checksums.",
    "salvage": "Write what is sound in a damaged directory to a new one.",
    "convert": "Convert a directory of trajectories to another layout.",
    "top": "Watch a shared or mapped buffer, or an autosave, that is in use.",
    "shm": "List buffers in shared memory, and remove what was left.",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments after the program's name; None takes those of the process.

    Returns:
        The exit status, 0 done, 1 a run failed, 2 a wrong argument or a missing package, 130 ended by Ctrl-C or
        SIGTERM, 141 the reader of the output ended first, as in `relive ... | head`.

    >>> main(["--version"])
    relive 0.3.0
    0
    """
    return ended("relive", _run, sys.argv[1:] if argv is None else argv)


def ended(name: str, run: Callable[[list[str]], int], argv: Sequence[str]) -> int:
    """Run a command, and return its exit status, as `main` has it; `name` begins lines about refusals and warnings.

    An empty argument is refused: paths would take it for the current directory, and it comes of a variable not set.
    """
    usual = warnings.showwarning

    def shown(message: Warning | str, category: type[Warning], *at: Any, **more: Any) -> None:
        """Print what relive says itself without the line of code that called it, which is none of the user's."""
        if issubclass(category, ReliveWarning):
            sys.stderr.write(f"{name}: {message}\n")
        else:
            usual(message, category, *at, **more)

    try:
        try:
            for number, argument in enumerate(argv):
                if not argument or (argument.startswith("--") and argument.endswith("=")):
                    got = f"`{argument}`" if argument else "an empty one"
                    at = f"{name} {' '.join(argv[:number])}".strip()
                    raise ArgumentError(message("an argument with a value", got, at, "is a variable set?"))
            with warnings.catch_warnings():
                setattr(warnings, "showwarning", shown)  # noqa: B010 - its declared type has names for all arguments
                return run(list(argv))
        finally:
            sys.stdout.flush()  # here, where a closed pipe can be handled, and not when the interpreter ends
    except BrokenPipeError:
        # Python flushes standard output once more at its end; what is still buffered goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except (ReliveError, OSError) as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(arguments: list[str]) -> int:
    if arguments == ["--version", "--json"]:
        from relive.cli.version import report

        sys.stdout.write(f"{report()}\n")
        return 0
    if arguments == ["--version"]:
        import relive

        sys.stdout.write(f"relive {relive.__version__}\n")
        return 0
    if arguments[:1] == ["shm"] and arguments[1:] in (["list"], ["clean"]):
        from relive.cli import shm

        return shm.list_segments() if arguments[1] == "list" else shm.clean()
    if arguments[:1] == ["doctor"]:
        from relive.cli import doctor

        return doctor.main(arguments[1:])
    if arguments[:1] == ["batches"]:
        from relive.cli import batches

        return batches.main(arguments[1:])
    if arguments[:1] and arguments[0] in OF_THE_LAB:
        return _lab(arguments)
    if arguments[:1] in ([], ["-h"], ["--help"]) and not (find_spec("rich") and find_spec("tyro")):
        return _plain_help()
    status = _commands().cli(args=arguments, prog="relive", description=DESCRIPTION)
    return status if isinstance(status, int) else 0


def _plain_help() -> int:
    """List the commands without the packages that most of them need."""
    import argparse

    parser = argparse.ArgumentParser("relive", description=DESCRIPTION, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, about in _ABOUT.items():
        commands.add_parser(name, help=about)
    parser.epilog = "All but doctor and shm need Rich and tyro: pip install 'relive[cli]'"
    parser.print_help()
    return 0


def _lab(arguments: list[str]) -> int:
    """Run a command of `relive-lab`, or say how to get it."""
    from importlib.metadata import entry_points

    found = list(entry_points(group="relive.commands", name=arguments[0]))
    if not found:
        at = f"relive {arguments[0]}"
        raise MissingExtra(message("the package `relive-lab`", "none", at, "pip install relive-lab"))
    status: int = found[0].load()(arguments)
    return status


def _commands() -> Any:
    with needs("cli", "relive"):
        import rich  # noqa: F401
        import tyro  # noqa: F401
    from tyro.extras import SubcommandApp

    from relive.cli import batches, doctor, inspect, processes, shm, trajectories

    app = SubcommandApp()
    app.command(name="inspect")(inspect.inspect)
    app.command(name="verify")(inspect.verify)
    app.command(name="salvage")(inspect.salvage)
    app.command(name="convert")(trajectories.convert)
    app.command(name="top")(processes.top)
    app.command(name="batches")(batches.batches)
    memory = SubcommandApp()
    memory.command(name="list")(shm.list_segments)
    memory.command(name="clean")(shm.clean)
    app.command(memory, name="shm", help="Buffers in shared memory: which there are, and removing what was left.")
    app.command(name="doctor")(doctor.doctor)
    if _of_lab():
        app.command(name="train")(_train)
        app.command(name="compare")(_compare)
    bench = _bench()
    if bench is not None:
        app.command(name="bench")(bench)
    return app


def _train() -> None:
    """Train one agent; a command of relive-lab."""


def _compare() -> None:
    """Compare ways of replaying experience; a command of relive-lab."""


def _of_lab() -> list[Any]:
    from importlib.metadata import entry_points

    return [entry for name in OF_THE_LAB for entry in entry_points(group="relive.commands", name=name)]


def _bench() -> Any:
    """Return the benchmark command, or None outside a checkout, which has the benchmarks."""
    try:
        bench = importlib.import_module("relive.cli.bench")
        bench.checkout()
        return bench.main
    except (ImportError, ArgumentError):
        return None
