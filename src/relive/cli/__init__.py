"""The `relive` command. Each subcommand shows an example in its `--help`.

Only the parser is loaded here; PyTorch is loaded when a run starts.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from relive._base.extras import needs
from relive._base.terminal import INTERRUPTED, READER_GONE
from relive.errors import ReliveError

DESCRIPTION = """Experience replay for reinforcement learning; --version prints which.

Example: relive train sac --env-id Pendulum-v1 --use-per"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments after the program's name; None takes those of the process.

    Returns:
        Exit status: 0 done, 1 a run failed, 2 a wrong argument or a missing package, 130 ended by Ctrl-C or SIGTERM,
        141 the reader of the output ended first, as in `relive ... | head`.

    >>> main(["--version"])
    relive 0.1.0
    0
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()  # here, where a closed pipe can be handled, and not when the interpreter ends
    except BrokenPipeError:
        # Python flushes standard output once more at its end; what is still buffered goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except (ReliveError, OSError) as error:
        sys.stderr.write(f"relive: {error}\n")
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(arguments: list[str]) -> int:
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
    status = _commands(arguments).cli(args=arguments, prog="relive", description=DESCRIPTION)
    return status if isinstance(status, int) else 0


def _commands(arguments: Sequence[str]) -> Any:
    with needs("train", "relive"):
        import rich  # noqa: F401
        import tyro  # noqa: F401
    from tyro.extras import SubcommandApp

    from relive.cli import doctor, inspect, processes, shm, trajectories
    from relive.lab.commands import groups

    app = SubcommandApp()
    for name, (help_text, commands) in groups(arguments).items():
        group = SubcommandApp()
        for word, command in commands.items():
            group.command(name=word)(command)
        app.command(group, name=name, help=help_text)
    app.command(name="inspect")(inspect.inspect)
    app.command(name="verify")(inspect.verify)
    app.command(name="salvage")(inspect.salvage)
    app.command(name="convert")(trajectories.convert)
    app.command(name="top")(processes.top)
    memory = SubcommandApp()
    memory.command(name="list")(shm.list_segments)
    memory.command(name="clean")(shm.clean)
    app.command(memory, name="shm", help="Buffers in shared memory: which there are, and removing what was left.")
    app.command(name="doctor")(doctor.doctor)
    bench = _bench()
    if bench is not None:
        app.command(name="bench")(bench)
    return app


def _bench() -> Any:
    """The benchmark command, where its part of the package is there and can be loaded."""
    try:
        return importlib.import_module("relive.cli.bench").main
    except ImportError:
        return None
