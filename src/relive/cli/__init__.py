"""The `relive` command: train, compare, and measure, each subcommand with an example in its `--help`.

Only the parser is loaded here; PyTorch comes in when a run starts.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

from relive._interrupt import INTERRUPTED
from relive.errors import MissingExtra, ReliveError, message

DESCRIPTION = """Experience replay for reinforcement learning; --version prints which.

Example: relive train sac --env-id Pendulum-v1 --use-per"""
TRAIN = """Train one agent.

Example: relive train sac --env-id Pendulum-v1 --use-per"""
COMPARE = """Compare ways of replaying experience: the same seeds in every arm.

Example: relive compare pairs --quick"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments after the program's name; None takes those of the process.

    Returns:
        Exit status: 0 done, 1 a run failed, 2 a wrong argument or a missing package, 130 ended by Ctrl-C.

    >>> main(["--version"])
    relive 0.1.0
    0
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments == ["--version"]:
            return _version()
        status = _commands().cli(args=arguments, prog="relive", description=DESCRIPTION)
        return status if isinstance(status, int) else 0
    except (ReliveError, OSError) as error:
        sys.stderr.write(f"relive: {error}\n")
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED


def _version() -> int:
    import relive

    sys.stdout.write(f"relive {relive.__version__}\n")
    return 0


def _commands() -> Any:
    for package in ("tyro", "rich"):
        try:
            importlib.import_module(package)
        except ImportError as error:
            remedy = "pip install 'relive[train]'"
            raise MissingExtra(message(f"the package `{package}`", "none", "relive", remedy)) from error
    from tyro.extras import SubcommandApp

    from relive.cli import inspect, trajectories
    from relive.lab import commands
    from relive.lab.studies import cliffwalk, pairs, tmaze

    trains, compares, app = SubcommandApp(), SubcommandApp(), SubcommandApp()
    trains.command(name="sac")(commands.sac)
    trains.command(name="dqn")(commands.dqn)
    trains.command(name="r2d2")(commands.r2d2)
    compares.command(name="pairs")(pairs.pairs)
    compares.command(name="pendulum")(pairs.pendulum)
    compares.command(name="cliffwalk")(cliffwalk.cliffwalk)
    compares.command(name="tmaze")(tmaze.tmaze)
    app.command(trains, name="train", help=TRAIN)
    app.command(compares, name="compare", help=COMPARE)
    app.command(name="inspect")(inspect.inspect)
    app.command(name="verify")(inspect.verify)
    app.command(name="convert")(trajectories.convert)
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
