"""What `relive-lab compare cliffwalk` found: tables, bars, a picture and the raw counts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich import box
from rich.console import RenderableType
from rich.table import Table

from relive_lab.cliffwalk import ARMS
from relive_lab.statistics import Estimate, ratio_of_medians
from relive_lab.studies.conduct import Bar, new_figure, write_files

TITLES = {"table": "a table", "linear": "a table and a bias", "network": "a network"}
TD_ARMS = ("prop 1", "prop 0.6")
NETWORK_ARM = "prop 0.6, beta 0.4"


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


class Limits(NamedTuple):
    """The bars at one length: outside what `seeds` show 99.8 % of the time."""

    n: int
    seeds: Mapping[str, int]  # by learner
    gains: Mapping[
        str, Mapping[str, float]
    ]  # least uniform / arm, by learner; the first arm decides which limits count
    beta_one: tuple[float, float]  # range of uniform / (prop 0.6, beta 1)
    rising: tuple[int, ...]  # lengths over which the gain of prop 0.6 grows


LIMITS = (
    Limits(
        n=12,
        seeds={"table": 30, "linear": 30, "network": 20},
        gains={
            "table": {"prop 0.6": 8.0, "prop 1": 9.0, "oracle": 120.0},
            "linear": {"prop 0.6": 4.0},
            "network": {NETWORK_ARM: 1.7},
        },
        beta_one=(0.7, 1.25),
        rising=(4, 6, 8, 12),
    ),
    Limits(
        n=10,
        seeds={"table": 10, "linear": 10, "network": 5},
        gains={
            "table": {"prop 0.6": 6.0, "prop 1": 7.5, "oracle": 40.0},
            "linear": {"prop 0.6": 3.0},
            "network": {NETWORK_ARM: 1.3},
        },
        beta_one=(0.65, 1.35),
        rising=(4, 6, 8, 10),
    ),
)
FLOOR_AT, FLOOR, FLOOR_SEEDS = 14, 0.9, 5


def ratio(found: Found, learner: str, n: int, arm: str) -> tuple[Estimate, int] | None:
    """Estimate the ratio of median updates of `uniform` and `arm` on their common seeds, and count these."""
    base, runs = (found.get(Cell(learner, n, name), {}) for name in ("uniform", arm))
    seeds = [seed for seed in base if seed in runs]
    pairs = np.array([[base[seed], runs[seed]] for seed in seeds]).reshape(-1, 2)
    if not seeds or not np.isfinite(pairs).all():
        return None
    return ratio_of_medians(pairs[:, 0], pairs[:, 1]), len(seeds)


def bars(found: Found) -> list[Bar]:
    """Judge everything that was run at a length for which there are limits, the longest of them."""
    further: dict[str, Callable[[Found, Limits], Iterable[Bar]]]
    further = {"table": _table_bars, "linear": lambda found, limits: (), "network": _network_bars}
    judged: list[Bar] = []
    for learner, more in further.items():
        for limits in LIMITS:
            if ratio(found, learner, limits.n, next(iter(limits.gains[learner]))):
                judged += [*_gains(found, learner, limits), *more(found, limits)]
                break
    return judged


def _gains(found: Found, learner: str, limits: Limits) -> Iterator[Bar]:
    for arm, least in limits.gains[learner].items():
        gain = ratio(found, learner, limits.n, arm)
        if gain is not None:
            text, spec = f"{learner}, n = {limits.n}: uniform / {arm} >= {least:g}", ".0f" if least >= 20 else ".2f"
            yield Bar(text, f"{gain[0]:{spec}}", gain[0].value >= least if gain[1] >= limits.seeds[learner] else None)


def _table_bars(found: Found, limits: Limits) -> Iterator[Bar]:
    low, high = limits.beta_one
    plain, half, whole = (ratio(found, "table", limits.n, f"prop 0.6{beta}") for beta in ("", ", beta 0.4", ", beta 1"))
    if plain and half and whole:
        enough = min(plain[1], half[1], whole[1]) >= limits.seeds["table"]
        value, between = whole[0].value, half[0].value
        text = f"table, n = {limits.n}: beta 1 within {low} to {high}"
        yield Bar(text, f"{value:.2f}", low <= value <= high if enough else None)
        text = f"table, n = {limits.n}: beta 0.4 between beta 0 and 1"
        yield Bar(text, f"{between:.2f}", value < between < plain[0].value if enough else None)
    gains = [gain for n in limits.rising if (gain := ratio(found, "table", n, "prop 0.6"))]
    if len(gains) == len(limits.rising):
        values = [gain.value for gain, _ in gains]
        enough = all(seeds >= limits.seeds["table"] for _, seeds in gains)
        text = f"table: gain of prop 0.6 grows, n = {', '.join(map(str, limits.rising))}"
        reached = ", ".join(f"{value:.1f}" for value in values)
        yield Bar(text, reached, values == sorted(set(values)) if enough else None)
    floors = {arm: list(found[cell].values()) for arm in TD_ARMS if (cell := Cell("table", FLOOR_AT, arm)) in found}
    if floors:
        least, arm = min((float(np.median(runs)), arm) for arm, runs in floors.items())
        share = least / Cell("table", FLOOR_AT, arm).memory
        enough = min(map(len, floors.values())) >= FLOOR_SEEDS
        text = f"table, n = {FLOOR_AT}: TD arms, updates / memory >= {FLOOR}"
        yield Bar(text, f"{share:.2f} ({arm})", share >= FLOOR if enough else None)


def _network_bars(found: Found, limits: Limits) -> Iterator[Bar]:
    gain = ratio(found, "network", limits.n, NETWORK_ARM)
    enough = gain is not None and gain[1] >= limits.seeds["network"]
    slowest = max(found[Cell("network", limits.n, NETWORK_ARM)].values())
    middle = float(np.median(list(found[Cell("network", limits.n, "uniform")].values())))
    reached = f"{slowest:,.0f} < {middle:,.0f}" if slowest < middle else f"{slowest:,.0f}, {middle:,.0f}"
    text = f"network, n = {limits.n}: slowest prop < median uniform"
    yield Bar(text, reached, slowest < middle if enough else None)


@dataclasses.dataclass(frozen=True)
class Findings:
    """All cells that were run, and the settings of the study."""

    found: Found
    settings: dict[str, Any]

    @property
    def bars(self) -> list[Bar]:
        """The bars that should hold at the lengths that were run."""
        return bars(self.found)

    def shown(self) -> list[RenderableType]:
        """Return a heading and two tables for each learner."""
        makers = (self._heading, self._medians, self._details)
        return [make(learner) for learner in self._learners for make in makers]

    def write(self, folder: Path) -> list[Path]:
        """Write `cliffwalk.png`, `cliffwalk.csv` and `summary.json`, and return their paths."""
        header = ["learner", "n", "memory", "arm", "seed", "updates"]
        lines = (
            (cell.learner, cell.n, cell.memory, cell.arm, seed, f"{updates:g}")
            for cell, runs in self.found.items()
            for seed, updates in runs.items()
        )
        summary = {"settings": self.settings, "bars": self.bars, "cells": [self._summary(cell) for cell in self.found]}
        return write_files(folder, "cliffwalk", header, lines, summary, self._picture())

    @property
    def _learners(self) -> list[str]:
        return [learner for learner in TITLES if any(cell.learner == learner for cell in self.found)]

    def _lengths(self, learner: str) -> list[int]:
        return sorted({cell.n for cell in self.found if cell.learner == learner})

    def _arms(self, learner: str) -> list[str]:
        return list(dict.fromkeys(cell.arm for cell in self.found if cell.learner == learner))

    def _runs(self, learner: str, n: int, arm: str) -> list[float]:
        return list(self.found.get(Cell(learner, n, arm), {}).values())

    def _heading(self, learner: str) -> str:
        counts = sorted({len(runs) for cell, runs in self.found.items() if cell.learner == learner})
        seeds = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
        return f"Median updates until the values are right, {seeds} seeds: {TITLES[learner]}"

    def _medians(self, learner: str) -> Table:
        """Make a row for each arm, a column for each length."""
        lengths = self._lengths(learner)
        table = _table("n", *map(str, lengths))
        table.add_row("memory", *(f"{Cell(learner, n, '').memory:,}" for n in lengths), end_section=True)
        for arm in self._arms(learner):
            runs = (self._runs(learner, n, arm) for n in lengths)
            table.add_row(arm, *(_count(float(np.median(each))) if each else "-" for each in runs))
        return table

    def _details(self, learner: str) -> Table:
        """Spread over seeds and gain against uniform, at the longest length that every arm has."""
        arms, lengths = self._arms(learner), self._lengths(learner)
        n = max((n for n in lengths if all(self._runs(learner, n, arm) for arm in arms)), default=lengths[-1])
        table = _table(f"n = {n}", "seeds", "median", "lowest", "highest", "gain")
        table.caption = "gain: median of uniform / median of the arm, with a 95 % interval over seeds"
        for arm in arms:
            if self._runs(learner, n, arm):
                facts = self._summary(Cell(learner, n, arm))
                spread = (_count(facts[name]) for name in ("median", "lowest", "highest"))
                gain = _gain(facts["gain"]) if facts["gain"] and arm != "uniform" else ""
                table.add_row(arm, str(facts["seeds"]), *spread, gain)
        return table

    def _summary(self, cell: Cell) -> dict[str, Any]:
        updates, gain = self._runs(*cell), ratio(self.found, *cell)
        facts = {**cell._asdict(), "memory": cell.memory, "seeds": len(updates), "median": float(np.median(updates))}
        facts |= {"lowest": min(updates), "highest": max(updates), "unsolved": sum(map(math.isinf, updates))}
        return {**facts, "gain": gain[0] if gain else None}

    def _picture(self) -> Any:
        learners = self._learners
        figure, panels = new_figure(len(learners))
        for axes, learner in zip(np.ravel(panels), learners, strict=True):
            for arm in self._arms(learner):
                self._draw(axes, learner, arm)
            if learner != "network":  # its batches hold more than one transition
                sizes = [Cell(learner, n, "").memory for n in self._lengths(learner)]
                axes.plot(sizes, sizes, color="black", linestyle=":", linewidth=0.8, label="every transition once")
            axes.set(xscale="log", yscale="log", xlabel="transitions in the memory")
            axes.set_title(f"Blind Cliffwalk, {TITLES[learner]}")
            low, high = axes.get_ylim()
            axes.set_ylim(low, high * (high / low) ** 0.3)  # room for the legend
            axes.legend(frameon=False, fontsize="small", loc="upper left", ncols=2)
        np.ravel(panels)[0].set_ylabel("updates until the values are right: median, lowest to highest")
        return figure

    def _draw(self, axes: Any, learner: str, arm: str) -> None:
        cells = [Cell(learner, n, arm) for n in self._lengths(learner)]
        solved = [(cell, runs) for cell in cells if (runs := self._runs(*cell)) and np.isfinite(runs).all()]
        sizes, color = [cell.memory for cell, _ in solved], f"C{list(ARMS).index(arm)}"
        axes.plot(sizes, [np.median(runs) for _, runs in solved], "-o", markersize=3, color=color, label=arm)
        lowest, highest = ([pick(runs) for _, runs in solved] for pick in (min, max))
        axes.fill_between(sizes, lowest, highest, color=color, alpha=0.15, linewidth=0)


def _table(first: str, *others: str) -> Table:
    table = Table(first, box=box.SIMPLE, padding=(0, 1), caption_justify="left")
    for name in others:
        table.add_column(name, justify="right")
    return table


def _gain(gain: Estimate) -> str:
    """Format with three figures."""
    digits = sum(gain.value < limit for limit in (10, 100))
    return f"{gain:.{digits}f}"


def _count(updates: float) -> str:
    return f"{updates:,.0f}" if math.isfinite(updates) else "never"
