"""The charts of docs/benchmarks.md, drawn from the tables of docs/measurements.md: `python -m benchmarks.charts`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from benchmarks.chart import INK, RELIVE, bars, style

DOCS = Path(__file__).parents[1] / "docs"
SHORT = {
    "Reverb, in an environment of its own": "Reverb",
    "TorchRL, `cache_values`": "TorchRL",
    "TorchRL, uniform draws from shared memmaps": "TorchRL, without priorities",
    "copy limit": "one copy of the bytes",
    "flashbax": "Flashbax",
    "tianshou": "Tianshou",
}
LEFT_OUT = ("NumPy by hand, outputs reused", "TorchRL")
COLOURS = {
    "relive": RELIVE,
    "NumPy by hand": INK,
    "cpprb": "#0072B2",
    "Tianshou": "#009E73",
    "Flashbax": "#CC79A7",
    "Stable-Baselines3": "#E69F00",
}


class Panel(NamedTuple):
    """One column of a table; `table` is the bold line above it, "" where a section has one table."""

    title: str
    section: str
    table: str
    column: str


CALLS = (
    Panel("add one step, full buffer", "Add one step", "", "full buffer of 10^6"),
    Panel("draw 256 uniformly", "Uniform draw", "", "256 of 10^6"),
    Panel(
        "draw 256 by priority, and update",
        "Prioritized replay: draw with weights, update priorities",
        "Batch of 256",
        "10^6 items",
    ),
    Panel("draw 64 sequences of 120", "Sequences", "Uniform: add one step, draw 64 sequences", "10^6 steps"),
    Panel("draw 32 stacks of Atari frames", "Atari: stacks of four frames", "", "32, later"),
    Panel(
        "take in a step from two processes",
        "Two writers and a learner, in processes of their own",
        "Writers add one step a call",
        "a step that comes in",
    ),
)
LANES = [8, 64, 1024, 4096]
ITEMS = [10_000, 100_000, 1_000_000, 10_000_000]


def figures(page: str, panel: Panel) -> dict[str, float]:
    """Read the column's figures by library, in the order of the table."""
    section = page.split(f"\n### {panel.section}\n")[1].split("\n### ")[0]
    lines = section[section.index(f"**{panel.table}**") if panel.table else 0 :].split("\n")
    table = takewhile(lambda line: line.startswith("|"), dropwhile(lambda line: not line.startswith("|"), lines))
    heads, _, *rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in table]
    column = heads.index(panel.column)
    names = [re.sub(r" \d+\.\d\S*$", "", row[0]) for row in rows]
    return {
        SHORT.get(name, name): float(row[column].split()[0].replace(",", ""))
        for name, row in zip(names, rows, strict=True)
        if row[column] != "-" and name not in LEFT_OUT
    }


def lines_of(page: str, panels: list[Panel]) -> dict[str, list[float]]:
    """Read each library's figures over the panels, without libraries that one of them lacks."""
    found = [figures(page, panel) for panel in panels]
    return {name: [each[name] for each in found] for name in found[0] if all(name in each for each in found)}


def charts(page: str) -> Iterator[tuple[str, Figure]]:
    """Yield each chart's name and figure."""
    calls = Figure(figsize=(9.6, 6.6), layout="constrained")
    for axes, panel in zip(calls.subplots(3, 2).flat, CALLS, strict=True):
        values = dict(sorted(figures(page, panel).items(), key=lambda item: -item[1]))
        bars(axes, list(values), list(values.values()), "µs")
        axes.set_title(panel.title, fontsize=10, loc="left")
    yield "calls.svg", calls
    growth = Figure(figsize=(9.6, 3.6), layout="constrained")
    left, right = growth.subplots(1, 2)
    added = [Panel("", "Add one step of many environments", "", f"{lanes:,} rows") for lanes in LANES]
    each_lane = {n: [one / k for one, k in zip(all_, LANES, strict=True)] for n, all_ in lines_of(page, added).items()}
    curves(left, LANES, each_lane)
    left.set_title("add: µs a lane, over the lanes of a call", fontsize=10, loc="left")
    drawn = [CALLS[2]._replace(column=f"10^{len(str(items)) - 1} items") for items in ITEMS]
    curves(right, ITEMS, lines_of(page, drawn))
    right.set_title("draw 256 by priority, and update: µs, over the items stored", fontsize=10, loc="left")
    growth.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False, fontsize=9)
    yield "growth.svg", growth


def curves(axes: Axes, where: list[int], lines: dict[str, list[float]]) -> None:
    for name, values in lines.items():
        axes.plot(
            where, values, marker="o", markersize=4, color=COLOURS[name], label=name, linewidth=1 + (name == "relive")
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(where, [f"{each:,}" for each in where])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)


def main() -> None:
    """Draw all charts anew."""
    page = (DOCS / "measurements.md").read_text(encoding="utf-8")
    with style():
        for name, figure in charts(page):
            FigureCanvasAgg(figure)
            figure.savefig(DOCS / "images" / name, metadata={"Date": None})


if __name__ == "__main__":
    main()
