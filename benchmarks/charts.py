"""Answers as charts: one column of any question, and those of docs/benchmarks.md (`python -m benchmarks.page`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.question import Answer, Setting
from benchmarks.report import NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RELIVE, OTHERS, INK = "#D55E00", "#9A9A9A", "#2B2B2B"
COLOURS = {
    "relive": RELIVE,
    "NumPy by hand": INK,
    "cpprb": "#0072B2",
    "Tianshou": "#009E73",
    "Flashbax": "#CC79A7",
    "Stable-Baselines3": "#E69F00",
    "rlox": "#56B4E9",
}
SHORT = {
    **NAMES,
    "reverb": "Reverb",
    "torchrl": "TorchRL",
    "torchrl-shared": "TorchRL, without priorities",
    "limit": "one copy of the bytes",
    "flashbax": "Flashbax",
    "tianshou": "Tianshou",
}
FRONT = "Microseconds to add one step, sample 256 of a million and update priorities; shorter is better"
CALLS = (
    ("add one step, full buffer", "add_one", "full"),
    ("sample 256 uniformly", "uniform_sample", "256"),
    ("sample 256 by priority, and update", "per_cycle", "256@1000000"),
    ("add one step, sample 64 sequences of 120", "sequences", "draw@1000000"),
    ("sample 32 stacks of Atari frames", "atari", "later-32"),
    ("take in a step from two processes", "processes", "add-1"),
)
LANES = (8, 64, 1_024, 4_096)
ITEMS = (10_000, 100_000, 1_000_000, 10_000_000)


def draw(answer: Answer, out: Path) -> None:
    """Write the chart of the setting with a batch of 256 and most items, or else of the last one, as SVG or PNG."""
    setting = chosen(answer)
    title = f"{answer.question.title} ({', '.join(filter(None, (setting.table.lower(), setting.label)))})"
    write(one(title, column(answer, setting.key, versions=True), answer.question.unit), out)


def chosen(answer: Answer) -> Setting:
    """Return the setting that is drawn."""
    measured = [s for s in answer.settings if any(s.key in row.cells for row in answer.rows.values())]
    usual = [s for s in measured if s.key in ("cycle-learner", "256@1000000")]
    return (usual or measured)[-1]


def column(answer: Answer, key: str, *, versions: bool = False) -> dict[str, float]:
    """Return the figures of a setting by library, in the unit of the table; none of TorchRL without its cache."""
    scale = next((s.scale for s in answer.settings if s.key == key), None)
    return {
        f"{SHORT.get(name, name)} {row.version * versions}".strip(): row.cells[key].figure
        * (scale or answer.question.unit_scale)
        for name, row in answer.rows.items()
        if key in row.cells and name != "torchrl-plain"
    }


def front(answer: Answer) -> Figure:
    """Return the README's chart; libraries without priorities are in it with a uniform draw, as relive is, too."""
    values = column(answer, "cycle-learner", versions=True)
    without = {n: r for n, r in answer.rows.items() if n == "relive" or "cycle-learner" not in r.cells}
    plain = column(Answer(answer.question, answer.scale, answer.settings, without), "plain-learner", versions=True)
    return one(FRONT, values | {f"{name}, uniform, no update": value for name, value in plain.items()}, "µs")


def one(title: str, values: Mapping[str, float], unit: str) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 0.9 + 0.34 * len(values)), layout="constrained")
    bars(figure.subplots(), values, unit)
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    return figure


def pages(answers: Mapping[str, Answer]) -> Iterator[tuple[str, Figure]]:
    """Yield the name and the figure of each chart of the documentation."""
    from matplotlib.figure import Figure

    if "behind_learner" in answers:
        yield "behind_learner.svg", front(answers["behind_learner"])
    if not {question for _, question, _ in CALLS} | {"add_batch"} <= answers.keys():
        return
    calls = Figure(figsize=(9.6, 7.2), layout="constrained")
    for axes, (title, question, key) in zip(calls.subplots(3, 2).flat, CALLS, strict=True):
        bars(axes, column(answers[question], key), "µs")
        axes.set_title(title, fontsize=10, loc="left")
    yield "calls.svg", calls
    growth = Figure(figsize=(9.6, 3.6), layout="constrained")
    left, right = growth.subplots(1, 2)
    curves(left, LANES, [column(answers["add_batch"], str(lanes)) for lanes in LANES], each=True)
    left.set_title("add: µs an environment, over the environments of a call", fontsize=10, loc="left")
    drawn = [(n, column(answers["per_cycle"], f"256@{n}")) for n in ITEMS]
    there = [(n, values) for n, values in drawn if values]
    curves(right, [n for n, _ in there], [values for _, values in there])
    right.set_title("sample 256 by priority, and update: µs, over the items stored", fontsize=10, loc="left")
    lines = {}
    for axes in (left, right):
        lines |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    growth.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=7, frameon=False, fontsize=9)
    yield "growth.svg", growth


def write(figure: Figure, out: Path) -> None:
    """Write text as text, in the reader's font, and the same file for the same figures."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "relive", "font.family": "sans-serif"}):
        FigureCanvasAgg(figure)
        figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)


def bars(axes: Axes, values: Mapping[str, float], unit: str) -> None:
    """Draw a bar with its figure for each label, the longest first; relive's have its colour."""
    ordered = dict(sorted(values.items(), key=lambda item: -item[1]))
    colours = [RELIVE if each.startswith("relive") else OTHERS for each in ordered]
    drawn = axes.barh(list(ordered), list(ordered.values()), color=colours, height=0.66)
    axes.bar_label(drawn, [shown(value, unit) for value in ordered.values()], padding=4, color=INK)
    axes.set_xlim(0, 1.16 * max(ordered.values()))
    axes.xaxis.set_visible(False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, colors=INK)


def shown(value: float, unit: str) -> str:
    """Format a bar's label, small values with two digits."""
    return f"{value:,.{0 if value >= 10 else 1}f} {unit}"


def curves(axes: Axes, where: Sequence[int], columns: Sequence[Mapping[str, float]], *, each: bool = False) -> None:
    """Draw a line for each library that all columns have; `each` divides by the place."""
    from matplotlib.ticker import LogLocator

    for name in [name for name in columns[0] if all(name in values for values in columns)]:
        line = [values[name] / (at if each else 1) for at, values in zip(where, columns, strict=True)]
        width = 1 + (name == "relive")
        axes.plot(where, line, marker="o", markersize=4, color=COLOURS[name], label=name, linewidth=width)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(list(where), [f"{at:,}" for at in where])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK)
