"""How every study goes: run, print what was found and whether its bars hold, write the files, end with a status."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from rich import box
from rich.console import RenderableType
from rich.table import Table

import relive
from relive.cli.terminal import console, say, say_files
from relive.errors import ArgumentError, message
from relive_lab.studies.runner import Display, Outcome, T, Work, exit_status, run_all


def at_least(options: object, **lows: int) -> None:
    """Refuse options, named as fields of `options`, that are given and lower than this."""
    for name, low in lows.items():
        value = getattr(options, name)
        if value is not None and value < low:
            raise ArgumentError(message(f"at least {low}", f"`{value}`", f"--{name.replace('_', '-')}"))


@dataclasses.dataclass(frozen=True)
class Bar:
    """A limit that a figure should keep; `holds` is None where there are too few seeds to say."""

    text: str
    reached: str
    holds: bool | None


class Findings(Protocol):
    """The findings of a study."""

    @property
    def bars(self) -> list[Bar]:
        """Conditions that the findings are held against."""

    def shown(self) -> list[RenderableType]:
        """Return what is printed."""

    def write(self, folder: Path) -> list[Path]:
        """Write the files of the study, and return their paths."""


def conduct(
    title: str,
    tasks: Sequence[T],
    work: Work[T],
    jobs: int,
    find: Callable[[list[Outcome[T]]], Findings | None],
    out: Path,
    *,
    bars_decide: bool = False,
) -> int:
    """Run a study, print what `find` makes of the outcomes, write its files, and return the exit status.

    With `bars_decide` a bar that does not hold makes the status 1.
    """
    screen, workers = console(), min(jobs, len(tasks))
    say(screen, f"{title}: {len(tasks)} runs on {workers} processes, same seeds in every arm")
    outcomes = run_all(tasks, work, Display(tasks, screen), workers)
    found = find(outcomes)
    if found is None:
        say(screen, "No seed has a result in every arm: nothing to compare.")
        return exit_status(tasks, outcomes)
    for part in found.shown():
        screen.print(part)
    if found.bars:
        table = Table("bar", "reached", "holds", title="Bars", title_justify="left", box=box.SIMPLE, padding=(0, 1))
        for bar in found.bars:
            table.add_row(bar.text, bar.reached, {True: "yes", False: "NO", None: "too few seeds"}[bar.holds])
        screen.print(table)
    say_files(screen, found.write(out))
    missed = bars_decide and any(bar.holds is False for bar in found.bars)
    return 1 if missed else exit_status(tasks, outcomes)


def write_files(
    folder: Path, name: str, header: list[str], lines: Iterable[Iterable[Any]], summary: dict[str, Any], figure: Any
) -> list[Path]:
    """Write a picture and a CSV called `name`, and `summary.json`; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    picture, data, numbers = (folder / file for file in (f"{name}.png", f"{name}.csv", "summary.json"))
    with data.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *lines])
    text = json.dumps(_plain({"relive": relive.__version__, **summary}), indent=2)
    numbers.write_text(text + "\n", encoding="utf-8")
    figure.savefig(picture, dpi=120)
    return [picture, data, numbers]


def _plain(value: Any) -> Any:
    """Convert dataclasses to dicts, and infinities, which JSON does not have, to null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, dict):
        return {name: _plain(child) for name, child in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(child) for child in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def new_figure(panels: int = 1) -> tuple[Any, Any]:
    """Return a Matplotlib figure that needs no display, and its axes: one, or as many as `panels`, side by side."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # here: it takes a while to load
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8 if panels == 1 else 5.5 * panels, 5), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, panels)
