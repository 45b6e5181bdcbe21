"""`relive bench`: the questions of `benchmarks/`, answered on this machine."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._base.extras import needs
from ..errors import ArgumentError, message
from .terminal import console

SUFFIXES = (".md", ".json", ".svg", ".png")
QUESTIONS = (
    "behind_learner",
    "add_one",
    "add_batch",
    "uniform_sample",
    "small_rows",
    "per_cycle",
    "n_step",
    "cliffs",
    "sequences",
    "atari",
    "trajectories",
    "processes",
    "device",
    "memory",
    "saves",
    "import_time",
)


def main(
    questions: tuple[str, ...] = QUESTIONS,
    *,
    quick: bool = False,
    peers: tuple[str, ...] = (),
    core: int | None = None,
    out: Path | None = None,
) -> None:
    """Compare relive with other replay buffers on this machine, side by side in one run.

    Needs a source checkout: the benchmarks are not part of the installed package. Libraries that are not installed are
    named and skipped (`pip install 'relive[bench]'` brings them). Ctrl-C prints what was reached.

    Example: `relive bench --questions per_cycle uniform_sample --quick --out bench.md`.

    Args:
        questions: Which questions, by the names of their files.
        quick: Fewer sizes, fewer and shorter chunks: about a minute a question, figures a little rougher.
        peers: Only these, such as `relive numpy cpprb`; default all.
        core: The core to run on; default the one that idles most.
        out: Also write the report here: Markdown; JSON with every figure if the name ends in `.json`; a chart of the
            first question if it ends in `.svg` or `.png`.

    Raises:
        ArgumentError: An unknown question or peer, a suffix other than those, or relive was not installed from a
            source checkout.
        MissingExtra: Rich is not installed.
    """
    suite = _suite()
    known = tuple(importlib.import_module("benchmarks.peers").ADAPTERS)
    _known(questions, tuple(suite.NAMES), "relive bench --questions")
    _known(peers, known, "relive bench --peers")
    if out is not None and out.suffix not in SUFFIXES:
        known_suffixes = ", ".join(f"`{suffix}`" for suffix in SUFFIXES)
        raise ArgumentError(message(f"a name that ends in one of {known_suffixes}", f"`{out}`", "relive bench --out"))
    screen, progress = _rich()
    with progress:
        task = progress.add_task("starting", total=None)
        report = suite.run_suite(
            questions,
            scale=suite.QUICK if quick else suite.FULL,
            peers=peers or None,
            core=core,
            out=out,
            progress=lambda line: progress.update(task, description=line),
        )
    # Markdown is meant to be copied: to a file as it stands, to a terminal as tables.
    if screen.is_terminal:
        screen.print(importlib.import_module("rich.markdown").Markdown(report))
    else:
        sys.stdout.write(report)
    if out is not None:
        progress.console.print(f"written to {out}")


def checkout() -> Path:
    """Return the source checkout that holds `benchmarks/`: the one this package runs from, or the current folder.

    Raises:
        ArgumentError: Neither is one.
    """
    for folder in (Path(__file__).resolve().parents[3], Path.cwd()):
        if (folder / "benchmarks" / "suite.py").is_file():
            return folder
    remedy = "run it in a clone of relive's repository"
    raise ArgumentError(message("a source checkout with `benchmarks/`", f"`{Path.cwd()}`", "relive bench", remedy))


def _suite() -> Any:
    root = str(checkout())
    if root not in sys.path:
        sys.path.insert(0, root)
    return importlib.import_module("benchmarks.suite")


def _known(names: Sequence[str], known: Sequence[str], at: str) -> None:
    for name in names:
        if name not in known:
            raise ArgumentError(message(f"one of {', '.join(f'`{k}`' for k in known)}", f"`{name}`", at))


def _rich() -> tuple[Any, Any]:
    with needs("bench", "relive bench"):
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    # Progress goes to standard error, so that `relive bench > report.md` holds the report alone.
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return console(), Progress(*columns, console=Console(stderr=True), transient=True)
