"""The charts of docs/benchmarks.md show the figures of the tables in docs/measurements.md."""

from __future__ import annotations

from needs import needs

needs("matplotlib")
from benchmarks import charts
from benchmarks.chart import shown


def test_the_bars_are_those_of_the_tables() -> None:
    page = (charts.DOCS / "measurements.md").read_text(encoding="utf-8")
    drawn = (charts.DOCS / "images" / "calls.svg").read_text(encoding="utf-8")
    for panel in charts.CALLS:
        found = charts.figures(page, panel)
        assert "relive" in found
        assert len(found) > 3
        missing = [name for name, value in found.items() if f">{shown(value, 'µs')}<" not in drawn]
        assert not missing, "python -m benchmarks.charts"
