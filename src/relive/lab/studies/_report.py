"""What a comparison found: numbers, a table, a picture and the raw curves."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table
from rich.text import Text

import relive
from relive.errors import MissingExtra, message
from relive.lab.statistics import (
    Estimate,
    final,
    interval,
    iqm,
    paired_difference,
    probability_of_improvement,
    time_to_threshold,
)
from relive.lab.studies._runs import Outcome, paired

Array = npt.NDArray[np.float64]
BAND_RESAMPLES = 2_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """What is compared, and how its results are to be read.

    Attributes:
        title: Heading of table and picture.
        baseline: The arm that sets the threshold and that the others are compared with.
        arms: All arms, baseline first.
        unit: What time is counted in: `episodes` or `steps`.
        steps_per_unit: Environment steps of one unit.
        threshold: Return to reach; None is 90 % of the baseline's final interquartile mean.
        reference: Name and return of a fixed policy to draw beside the curves, if there is one.
        settings: Everything that decides the numbers, for the file.
    """

    title: str
    baseline: str
    arms: tuple[str, ...]
    unit: str
    steps_per_unit: int
    threshold: float | None
    reference: tuple[str, float] | None
    settings: dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curves:
    """Mean evaluation returns of the same seeds in every arm.

    Attributes:
        times: Units at each evaluation, float64 `[E]`.
        returns: By arm, float64 `[S, E]`.
        seeds: The seeds, in order.
        seconds: By arm, mean wall-clock seconds of a run.
        complete: Whether these are whole runs.
    """

    times: Array
    returns: dict[str, Array]
    seeds: list[int]
    seconds: dict[str, float]
    complete: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One arm's figures; those that compare it with the baseline are None in the baseline's own row."""

    arm: str
    final: Estimate
    worst: float
    median_time: float
    never: int
    seconds: float
    better: Estimate | None
    difference: Estimate | None
    area_difference: Estimate | None
    sooner: Estimate | None


def align(study: Study, outcomes: Sequence[Outcome]) -> Curves | None:
    """Return the curves of seeds that every arm has: whole runs, or else the part that all of those seeds reached."""
    seeds, results, complete = paired(outcomes, study.arms, lambda result: len(result.eval_steps) > 0)
    if not seeds:
        return None
    length = min(len(r.eval_steps) for runs in results.values() for r in runs)
    return Curves(
        times=results[study.baseline][0].eval_steps[:length] / study.steps_per_unit,
        returns={arm: np.array([r.eval_returns[:length].mean(axis=1) for r in runs]) for arm, runs in results.items()},
        seeds=seeds,
        seconds={arm: float(np.mean([r.seconds for r in runs])) for arm, runs in results.items()},
        complete=complete,
    )


def threshold(study: Study, curves: Curves) -> float:
    """Return the return that counts as learned, the same for every arm."""
    if study.threshold is not None:
        return study.threshold
    return 0.9 * float(iqm(final(curves.returns[study.baseline])))


def rows(study: Study, curves: Curves) -> list[Row]:
    """Return the figures of every arm, baseline first."""
    limit = threshold(study, curves)
    finals = {arm: final(returns) for arm, returns in curves.returns.items()}
    areas = {arm: returns.mean(axis=1) for arm, returns in curves.returns.items()}
    times = {arm: time_to_threshold(curves.times, returns, limit) for arm, returns in curves.returns.items()}
    found, base = [], study.baseline
    for arm in study.arms:
        other = arm != base
        found.append(
            Row(
                arm=arm,
                final=interval(finals[arm]),
                worst=float(finals[arm].min()),
                median_time=float(np.median(times[arm])),
                never=int(np.isinf(times[arm]).sum()),
                seconds=curves.seconds[arm],
                better=probability_of_improvement(finals[arm], finals[base]) if other else None,
                difference=paired_difference(finals[arm], finals[base]) if other else None,
                area_difference=paired_difference(areas[arm], areas[base]) if other else None,
                sooner=probability_of_improvement(-times[arm], -times[base]) if other else None,
            )
        )
    return found


def table(study: Study, curves: Curves) -> Table:
    """Return the figures as a table: a column for each arm, comparisons with the baseline below."""
    digits = ".3f" if np.abs(final(curves.returns[study.baseline])).max() < 10 else ".1f"
    count, limit, found = len(curves.seeds), threshold(study, curves), rows(study, curves)
    partial = "" if curves.complete else f", stopped at {curves.times[-1]:g} {study.unit}"
    shown = Table(title=f"{study.title}: {_seeds(count)}{partial}", title_justify="left", caption_justify="left")
    shown.add_column("95 % intervals")
    for row in found:
        shown.add_column(row.arm, justify="right")
    separator = " " if len(found) < 3 else "\n"  # 80 characters hold two intervals side by side

    def add(label: str, estimates: list[Estimate | None], spec: str) -> None:
        shown.add_row(label, *(Text(_text(estimate, spec, separator)) for estimate in estimates))

    add("final return, IQM", [row.final for row in found], digits)
    shown.add_row("worst seed", *(f"{row.worst:{digits}}" for row in found))
    shown.add_row(f"{study.unit} to {limit:{digits}}, median", *(_time(row.median_time) for row in found))
    shown.add_row("never reached it", *(f"{row.never} of {count}" for row in found))
    shown.add_row("seconds a run", *(f"{row.seconds:.0f}" for row in found), end_section=True)
    add("final return, difference", [row.difference for row in found], "+" + digits)
    add("mean curve, difference", [row.area_difference for row in found], "+" + digits)
    add("P(higher final return)", [row.better for row in found], ".2f")
    add("P(reached it sooner)", [row.sooner for row in found], ".2f")
    shown.caption = f"Differences and P are against {study.baseline}; seeds are paired."
    if study.reference is not None:
        shown.caption += f"\nFor scale: {study.reference[0]} earns {study.reference[1]:{digits}}."
    return shown


def _text(estimate: Estimate | None, spec: str, separator: str) -> str:
    if estimate is None:
        return "-"
    return f"{estimate.value:{spec}}{separator}[{estimate.low:{spec}}, {estimate.high:{spec}}]"


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _time(median: float) -> str:
    return f"{median:g}" if math.isfinite(median) else "-"


def write(study: Study, curves: Curves, folder: Path) -> list[Path]:
    """Write `curves.csv`, `summary.json` and `curves.png`, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    data, summary, picture = (folder / name for name in ("curves.csv", "summary.json", "curves.png"))
    write_curves(data, (study.unit, "return"), curves.seeds, curves.times, curves.returns)
    content = {
        "title": study.title,
        "relive": relive.__version__,
        "settings": study.settings,
        "seeds": curves.seeds,
        "complete": curves.complete,
        "threshold": threshold(study, curves),
        "reference": study.reference,
        "arms": [dataclasses.asdict(row) for row in rows(study, curves)],
    }
    summary.write_text(json.dumps(_finite(content), indent=2) + "\n", encoding="utf-8")
    _draw(study, curves, picture)
    return [picture, data, summary]


def write_curves(
    path: Path, names: tuple[str, str], seeds: Sequence[int], times: Array, curves: dict[str, Array]
) -> None:
    """Write a line for each point of `curves`, by arm, float64 `[S, P]`; `names` are those of time and value."""
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["arm", "seed", *names])
        for arm, runs in curves.items():
            for seed, run in zip(seeds, runs, strict=True):
                lines.writerows((arm, seed, f"{t:g}", repr(float(y))) for t, y in zip(times, run, strict=True))


def _finite(value: Any) -> Any:
    """JSON knows no infinity: a time that was never reached is null."""
    if isinstance(value, dict):
        return {name: _finite(child) for name, child in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(child) for child in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _draw(study: Study, curves: Curves, path: Path) -> None:
    figure, axes = new_figure()
    draw_bands(axes, curves.times, curves.returns)
    limit = threshold(study, curves)
    axes.axhline(limit, color="grey", linestyle="--", linewidth=0.8, label=f"threshold {limit:.3g}")
    if study.reference is not None:
        axes.axhline(study.reference[1], color="black", linestyle=":", linewidth=0.8, label=study.reference[0])
    axes.set_xlabel(f"training {study.unit}")
    axes.set_ylabel("evaluation return: IQM and 95 % interval")
    axes.set_title(f"{study.title}: {_seeds(len(curves.seeds))}")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


def draw_bands(axes: Any, times: Array, curves: dict[str, Array]) -> None:
    """Draw the interquartile mean of `curves`, by arm, float64 `[S, P]`, and its interval, at each of `times`."""
    for arm, runs in curves.items():
        points = [interval(column, resamples=BAND_RESAMPLES) for column in runs.T]
        line = axes.plot(times, [point.value for point in points], label=arm)[0]
        band = ([point.low for point in points], [point.high for point in points])
        axes.fill_between(times, *band, color=line.get_color(), alpha=0.2, linewidth=0)


def new_figure() -> tuple[Any, Any]:
    """Return a Matplotlib figure and axes that need no display.

    Raises:
        MissingExtra: Matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        remedy = "pip install 'relive[train]'"
        raise MissingExtra(message("the package `matplotlib`", "none", "relive", remedy)) from error
    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()
