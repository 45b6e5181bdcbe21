"""One column of an answer as a bar chart, for a README: `relive bench --questions per_cycle --out chart.svg`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.question import Answer, Setting
from benchmarks.report import NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RELIVE, OTHERS, INK = "#D55E00", "#9A9A9A", "#2B2B2B"


def draw(answer: Answer, out: Path) -> None:
    """Write the chart of the setting with a batch of 256 and most items, or else of the last one, as SVG or PNG.

    Bars are the 20th percentile of the chunks, as in the tables; a name carries its version.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    setting = chosen(answer)
    rows = {name: row for name, row in answer.rows.items() if setting.key in row.cells}
    order = sorted(rows, key=lambda name: rows[name].cells[setting.key].figure, reverse=True)
    scale = answer.question.unit_scale if setting.scale is None else setting.scale
    values = [rows[name].cells[setting.key].figure * scale for name in order]
    labels = [f"{NAMES.get(name, name)} {rows[name].version}".strip() for name in order]
    with style():
        figure = Figure(figsize=(7.2, 0.9 + 0.34 * len(order)), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        bars(axes, labels, values, answer.question.unit)
        axes.set_title(f"{answer.question.title} ({setting.table.lower()}, {setting.label})", fontsize=10, loc="left")
        figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)


def style() -> AbstractContextManager[None]:
    """Write text as text, in the reader's font, and the same file for the same figures."""
    from matplotlib import rc_context

    return rc_context({"svg.fonttype": "none", "svg.hashsalt": "relive", "font.family": "sans-serif"})


def bars(axes: Axes, labels: Sequence[str], values: Sequence[float], unit: str) -> None:
    """Draw a bar with its figure for each label; relive's has its colour."""
    colours = [RELIVE if each.startswith("relive") else OTHERS for each in labels]
    drawn = axes.barh(labels, values, color=colours, height=0.66)
    axes.bar_label(drawn, [shown(value, unit) for value in values], padding=4, color=INK)
    axes.set_xlim(0, 1.16 * max(values))
    axes.xaxis.set_visible(False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, colors=INK)


def shown(value: float, unit: str) -> str:
    """Format a bar's label, small values with two digits."""
    return f"{value:,.{0 if value >= 10 else 1}f} {unit}"


def chosen(answer: Answer) -> Setting:
    """Return the setting that is drawn."""
    measured = [s for s in answer.settings if any(s.key in row.cells for row in answer.rows.values())]
    usual = [s for s in measured if s.key in ("cycle-learner", "256@1000000")]
    return (usual or measured)[-1]
