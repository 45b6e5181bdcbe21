"""What `relive compare cliffwalk` found: tables, bars, a picture and the raw counts."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich import box
from rich.table import Table

import relive
from relive.lab.cliffwalk import ARMS
from relive.lab.statistics import Estimate
from relive.lab.studies._report import new_figure

RESAMPLES = 5_000
TITLES = {"table": "a table", "linear": "a table and a bias", "network": "a network"}
TD_ARMS = ("greedy", "prop 1", "prop 0.6", "rank 0.7")


class Cell(NamedTuple):
    """One arm at one length."""

    learner: str
    n: int
    arm: str

    @property
    def memory(self) -> int:
        """Transitions."""
        return (2 << self.n) - 2


# Updates (infinity: never) by cell and seed.
Found = Mapping[Cell, Mapping[int, float]]


@dataclasses.dataclass(frozen=True)
class Bar:
    """A limit that the figures should keep; `holds` is None where there are too few seeds to say."""

    text: str
    reached: str
    holds: bool | None


@dataclasses.dataclass(frozen=True)
class Limits:
    """Where the bars stand at one length: outside what that many seeds show 99.8 % of the time.

    Attributes:
        n: The length.
        seeds: Seeds that the bars of `table` and `linear` need.
        table: Least gain, uniform / arm, with a table.
        beta_one: Range of uniform / (prop 0.6, beta 1).
        linear: Least gain with a table and a bias.
        network: Least gain with a network.
        network_seeds: Seeds that the bars of the network need.
        rising: Lengths over which the gain of prop 0.6 grows.
    """

    n: int
    seeds: int
    table: Mapping[str, float]
    beta_one: tuple[float, float]
    linear: Mapping[str, float]
    network: float
    network_seeds: int
    rising: tuple[int, ...]


LIMITS = (
    Limits(
        n=12,
        seeds=30,
        table={"prop 0.6": 8.0, "prop 1": 9.0, "rank 0.7": 5.0, "rank 1": 6.0, "oracle": 120.0},
        beta_one=(0.7, 1.25),
        linear={"prop 0.6": 4.0, "rank 0.7": 3.0},
        network=1.7,
        network_seeds=20,
        rising=(4, 6, 8, 12),
    ),
    Limits(
        n=10,
        seeds=10,
        table={"prop 0.6": 6.0, "prop 1": 7.5, "rank 0.7": 4.5, "rank 1": 6.0, "oracle": 40.0},
        beta_one=(0.65, 1.35),
        linear={"prop 0.6": 3.0, "rank 0.7": 3.0},
        network=1.3,
        network_seeds=5,
        rising=(4, 6, 8, 10),
    ),
)
FLOOR_AT, FLOOR, FLOOR_SEEDS = 14, 0.9, 5


def median(found: Found, learner: str, n: int, arm: str) -> float | None:
    """Median updates over seeds; None if there is no run."""
    runs = found.get(Cell(learner, n, arm))
    return float(np.median(list(runs.values()))) if runs else None


def ratio(found: Found, learner: str, n: int, arm: str) -> tuple[Estimate, int] | None:
    """Median updates of `uniform` over those of `arm`, on the seeds that both have, and how many these are.

    The interval is a 95 % percentile bootstrap over pairs of runs with the same seed.
    """
    base, runs = (found.get(Cell(learner, n, name), {}) for name in ("uniform", arm))
    seeds = [seed for seed in base if seed in runs]
    pairs = np.array([[base[seed], runs[seed]] for seed in seeds]).reshape(-1, 2)
    if not seeds or not np.isfinite(pairs).all():
        return None
    rows = np.random.default_rng(0).integers(len(seeds), size=(RESAMPLES, len(seeds)))
    drawn = np.median(pairs[rows], axis=1)
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], (0.025, 0.975))
    value = np.median(pairs[:, 0]) / np.median(pairs[:, 1])
    return Estimate(float(value), float(low), float(high)), len(seeds)


def bars(found: Found) -> list[Bar]:
    """Judge everything that was run at a length for which there are limits, the longest of them."""
    judged: list[Bar] = []
    for learner in ("table", "linear", "network"):
        for limits in LIMITS:
            if ratio(found, learner, limits.n, "prop 0.6, beta 0.4" if learner == "network" else "prop 0.6"):
                judged += {"table": _table_bars, "linear": _linear_bars, "network": _network_bars}[learner](
                    found, limits
                )
                break
    return judged


def _table_bars(found: Found, limits: Limits) -> list[Bar]:
    judged = [_at_least(found, "table", limits, arm, least) for arm, least in limits.table.items()]
    low, high = limits.beta_one
    plain, half, whole = (ratio(found, "table", limits.n, f"prop 0.6{beta}") for beta in ("", ", beta 0.4", ", beta 1"))
    if plain and half and whole:
        enough = min(plain[1], half[1], whole[1]) >= limits.seeds
        value = whole[0].value
        text = f"table, n = {limits.n}: beta 1 within {low} to {high}"
        judged.append(Bar(text, f"{value:.2f}", low <= value <= high if enough else None))
        text, reached = "beta 0.4 between beta 0 and 1", half[0].value
        between = value < reached < plain[0].value
        judged.append(Bar(f"table, n = {limits.n}: {text}", f"{reached:.2f}", between if enough else None))
    gains = [ratio(found, "table", n, "prop 0.6") for n in limits.rising]
    known = [gain for gain in gains if gain]
    if len(known) == len(gains):
        values = [gain.value for gain, _ in known]
        enough = all(seeds >= limits.seeds for _, seeds in known)
        text = f"table: gain of prop 0.6 grows, n = {', '.join(map(str, limits.rising))}"
        shown = ", ".join(f"{value:.1f}" for value in values)
        judged.append(Bar(text, shown, values == sorted(set(values)) if enough else None))
    floors = {arm: found[cell] for arm in TD_ARMS if (cell := Cell("table", FLOOR_AT, arm)) in found}
    if floors:
        least, arm = min((float(np.median(list(runs.values()))), arm) for arm, runs in floors.items())
        share = least / Cell("table", FLOOR_AT, arm).memory
        enough = min(len(runs) for runs in floors.values()) >= FLOOR_SEEDS
        text = f"table, n = {FLOOR_AT}: TD arms, updates / memory >= {FLOOR}"
        judged.append(Bar(text, f"{share:.2f} ({arm})", share >= FLOOR if enough else None))
    return [bar for bar in judged if bar.reached]


def _linear_bars(found: Found, limits: Limits) -> list[Bar]:
    judged = [_at_least(found, "linear", limits, arm, least) for arm, least in limits.linear.items()]
    return [bar for bar in judged if bar.reached]


def _network_bars(found: Found, limits: Limits) -> list[Bar]:
    arm, n = "prop 0.6, beta 0.4", limits.n
    gain = ratio(found, "network", n, arm)
    middle = median(found, "network", n, "uniform")
    if gain is None or middle is None:
        return []
    enough = gain[1] >= limits.network_seeds
    slowest = max(found[Cell("network", n, arm)].values())
    least = limits.network
    return [
        Bar(
            f"network, n = {n}: uniform / prop >= {least}", f"{gain[0]:.2f}", gain[0].value >= least if enough else None
        ),
        Bar(
            f"network, n = {n}: slowest prop < median uniform",
            f"{slowest:,.0f} < {middle:,.0f}" if slowest < middle else f"{slowest:,.0f}, {middle:,.0f}",
            slowest < middle if enough else None,
        ),
    ]


def _at_least(found: Found, learner: str, limits: Limits, arm: str, least: float) -> Bar:
    gain = ratio(found, learner, limits.n, arm)
    text = f"{learner}, n = {limits.n}: uniform / {arm} >= {least:g}"
    if gain is None:
        return Bar(text, "", None)
    spec = ".0f" if least >= 20 else ".1f"
    return Bar(text, f"{gain[0]:{spec}}", gain[0].value >= least if gain[1] >= limits.seeds else None)


def heading(found: Found, learner: str) -> str:
    """What the tables of a learner are about."""
    counts = sorted({len(runs) for cell, runs in found.items() if cell.learner == learner})
    seeds = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    return f"Median updates until the values are right, {seeds} seeds: {TITLES[learner]}"


def medians_table(found: Found, learner: str) -> Table:
    """Median updates: a row for each arm, a column for each length."""
    lengths = _lengths(found, learner)
    shown = Table("n", box=box.SIMPLE, padding=(0, 1))
    for n in lengths:
        shown.add_column(f"{n}", justify="right")
    shown.add_row("memory", *(f"{Cell(learner, n, '').memory:,}" for n in lengths), end_section=True)
    for arm in _arms(found, learner):
        shown.add_row(arm, *(_count(median(found, learner, n, arm)) for n in lengths))
    return shown


def details_table(found: Found, learner: str) -> Table:
    """Spread over seeds and gain against uniform, at the longest length that every arm has."""
    arms = _arms(found, learner)
    whole = [n for n in _lengths(found, learner) if all(Cell(learner, n, arm) in found for arm in arms)]
    n = whole[-1] if whole else _lengths(found, learner)[-1]
    caption = "gain: median of uniform / median of the arm, with a 95 % interval over seeds"
    shown = Table(box=box.SIMPLE, padding=(0, 1), caption=caption, caption_justify="left")
    for name in (f"n = {n}", "seeds", "median", "lowest", "highest", "gain"):
        shown.add_column(name, justify="left" if name.startswith("n =") else "right")
    for arm in arms:
        runs = list(found.get(Cell(learner, n, arm), {}).values())
        if not runs:
            continue
        gain = ratio(found, learner, n, arm) if arm != "uniform" else None
        spread = (_count(float(value)) for value in (np.median(runs), min(runs), max(runs)))
        shown.add_row(arm, str(len(runs)), *spread, _gain(gain[0]) if gain else "")
    return shown


def bars_table(judged: list[Bar]) -> Table:
    """What should hold, what was reached, and whether it does."""
    shown = Table("bar", "reached", "holds", box=box.SIMPLE, padding=(0, 1))
    for bar in judged:
        shown.add_row(bar.text, bar.reached, {True: "yes", False: "NO", None: "too few seeds"}[bar.holds])
    return shown


def write(found: Found, judged: list[Bar], settings: dict[str, Any], folder: Path) -> list[Path]:
    """Write `cliffwalk.png`, `cliffwalk.csv` and `summary.json`, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    picture, data, summary = (folder / name for name in ("cliffwalk.png", "cliffwalk.csv", "summary.json"))
    with data.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["learner", "n", "memory", "arm", "seed", "updates"])
        for cell, runs in found.items():
            lines.writerows((cell.learner, cell.n, cell.memory, cell.arm, seed, f"{u:g}") for seed, u in runs.items())
    rows = []
    for cell, runs in found.items():
        gain = ratio(found, cell.learner, cell.n, cell.arm)
        updates = list(runs.values())
        figures = {"median": float(np.median(updates)), "lowest": min(updates), "highest": max(updates)}
        rows.append(
            {
                **cell._asdict(),
                "memory": cell.memory,
                "seeds": len(runs),
                **{name: value if math.isfinite(value) else None for name, value in figures.items()},
                "unsolved": sum(math.isinf(value) for value in updates),
                "gain": dataclasses.asdict(gain[0]) if gain else None,
            }
        )
    content = {
        "relive": relive.__version__,
        "settings": settings,
        "cells": rows,
        "bars": [dataclasses.asdict(bar) for bar in judged],
    }
    summary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    _draw(found, picture)
    return [picture, data, summary]


def _draw(found: Found, path: Path) -> None:
    learners = [learner for learner in TITLES if any(cell.learner == learner for cell in found)]
    figure, first = new_figure()
    first.remove()
    figure.set_size_inches(5.5 * len(learners), 5)
    for place, learner in enumerate(learners, 1):
        axes = figure.add_subplot(1, len(learners), place)
        sizes = [Cell(learner, n, "").memory for n in _lengths(found, learner)]
        for arm in _arms(found, learner):
            _draw_arm(axes, found, learner, arm, f"C{list(ARMS).index(arm)}")
        if learner != "network":  # whose batches hold more than one
            axes.plot(sizes, sizes, color="black", linestyle=":", linewidth=0.8, label="every transition once")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("transitions in the memory")
        axes.set_title(f"Blind Cliffwalk, {TITLES[learner]}")
        low, high = axes.get_ylim()
        axes.set_ylim(low, high * (high / low) ** 0.3)  # room for the legend
        axes.legend(frameon=False, fontsize="small", loc="upper left", ncols=2)
        if place == 1:
            axes.set_ylabel("updates until the values are right: median, lowest to highest")
    figure.savefig(path, dpi=110)


def _draw_arm(axes: Any, found: Found, learner: str, arm: str, color: str) -> None:
    cells = [(cell, list(runs.values())) for cell, runs in found.items() if (cell.learner, cell.arm) == (learner, arm)]
    cells = [(cell, runs) for cell, runs in cells if np.isfinite(runs).all()]
    sizes = [cell.memory for cell, _ in cells]
    axes.plot(sizes, [np.median(runs) for _, runs in cells], "-o", markersize=3, color=color, label=arm)
    lowest, highest = ([pick(runs) for _, runs in cells] for pick in (min, max))
    axes.fill_between(sizes, lowest, highest, color=color, alpha=0.15, linewidth=0)


def _lengths(found: Found, learner: str) -> list[int]:
    return sorted({cell.n for cell in found if cell.learner == learner})


def _arms(found: Found, learner: str) -> list[str]:
    return list(dict.fromkeys(cell.arm for cell in found if cell.learner == learner))


def _gain(gain: Estimate) -> str:
    """Three figures."""
    digits = sum(gain.value < limit for limit in (10, 100))
    return f"{gain:.{digits}f}"


def _count(updates: float | None) -> str:
    if updates is None:
        return "-"
    return f"{updates:,.0f}" if math.isfinite(updates) else "never"
