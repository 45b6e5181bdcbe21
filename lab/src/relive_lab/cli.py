"""The `relive-lab` command: `train` and `compare`. `relive train` and `relive compare` are the same."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tyro
from tyro.extras import SubcommandApp

from relive.cli import ended

DESCRIPTION = """Trainers and comparisons on relive's replay buffers; --version prints which.

Example: relive-lab train sac --env-id Pendulum-v1 --use-per"""
GROUPS = {
    "train": "Train one agent.\n\nExample: relive-lab train sac --env-id Pendulum-v1 --use-per",
    "compare": "Compare ways of replaying experience: the same seeds in every arm.\n\n"
    "Example: relive-lab compare pairs --quick",
}
# The module of each command.
COMMANDS = {
    "train": dict.fromkeys(("sac", "dqn", "r2d2"), "relive_lab.train"),
    "compare": {
        "pairs": "relive_lab.studies.pairs",
        "pendulum": "relive_lab.studies.pairs",
        "cliffwalk": "relive_lab.studies.cliffwalk",
        "tmaze": "relive_lab.studies.tmaze",
        "final-observations": "relive_lab.studies.final_observations",
        "recency": "relive_lab.studies.recency",
    },
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments after the program's name; None takes those of the process.

    Returns:
        Exit status: 0 done, 1 a run failed, 2 a wrong argument or a missing package, 130 ended by Ctrl-C or SIGTERM,
        141 the reader of the output ended first, as in `relive-lab ... | head`.

    >>> main(["--version"])
    relive-lab 0.3.0
    0
    """
    return ended("relive-lab", _run, sys.argv[1:] if argv is None else argv)


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        import relive_lab

        sys.stdout.write(f"relive-lab {relive_lab.__version__}\n")
        return 0
    if len(arguments) > 1 and arguments[1] in COMMANDS.get(arguments[0], ()):
        # It alone is loaded: PyTorch takes a second.
        group, name, *rest = arguments
        command = _entry(group, name)(rest) if group == "train" else _entry(group, name)
        status = tyro.cli(command, args=rest, prog=f"relive-lab {group} {name}")
        return status if isinstance(status, int) else 0
    group = arguments[0] if arguments else ""
    if group in GROUPS:
        texts = {name: _entry(group, name).__doc__ for name in COMMANDS[group]}
        return _show(texts, arguments[1:], f"relive-lab {group}", GROUPS[group])
    return _show(GROUPS, arguments, "relive-lab", DESCRIPTION)


def _entry(group: str, name: str) -> Callable[..., Any]:
    """Return a comparison's command, or what makes a trainer's from the rest of the line."""
    found: Callable[..., Any] = getattr(importlib.import_module(COMMANDS[group][name]), name.replace("-", "_"))
    return found


def _show(texts: Mapping[str, str | None], arguments: Sequence[str], program: str, about: str) -> int:
    """Say which commands there are, and refuse others."""
    app = SubcommandApp()
    for name, text in texts.items():
        app.command(name=name)(_stub(text))
    app.cli(args=arguments, prog=program, description=about)
    return 0


def _stub(text: str | None) -> Callable[[], None]:
    def stub() -> None: ...

    stub.__doc__ = text
    return stub
