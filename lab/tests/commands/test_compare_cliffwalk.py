"""`relive-lab compare cliffwalk`: what it runs, what it shows, which bars it judges, and how it ends."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from relive.errors import ArgumentError
from relive_lab.cli import main
from relive_lab.cliffwalk import LEARNERS, Walk
from relive_lab.statistics import ratio_of_medians
from relive_lab.studies import cliffwalk_report
from relive_lab.studies.cliffwalk import Options, gather
from relive_lab.studies.cliffwalk_report import Cell, Findings, bars, ratio

Figures = dict[Cell, dict[int, float]]


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cliffwalk_report, "ratio_of_medians", partial(ratio_of_medians, resamples=200))


def test_from_the_command_to_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "cliffwalk", "--n", "3", "4", "--seeds", "2", "--first-seed", "5", "--jobs", "1"]
    assert main([*words, "--learners", "table", "linear", "--out", str(tmp_path / "walk")]) == 0
    shown = capsys.readouterr().out
    assert "Blind Cliffwalk: 32 runs on 1 process" in shown
    assert "[32/32] " in shown
    for text in (
        "right, 2 seeds: a table\n",
        "right, 2 seeds: a table and a bias\n",
        "memory",
        "gain: median of uniform",
    ):
        assert text in shown
    assert "Bars" not in shown  # none are set for chains this short
    assert (tmp_path / "walk" / "cliffwalk.png").read_bytes().startswith(b"\x89PNG")
    lines = list(csv.DictReader((tmp_path / "walk" / "cliffwalk.csv").read_text().splitlines()))
    assert len(lines) == 32
    walk = Walk(n=4, learner="table", arm="prop 1", seed=6)
    mine = {"learner": "table", "n": "4", "memory": "30", "arm": "prop 1", "seed": "6"}
    assert {**mine, "updates": str(walk.run())} in lines
    summary = json.loads((tmp_path / "walk" / "summary.json").read_text())
    cell = next(c for c in summary["cells"] if (c["learner"], c["n"], c["arm"]) == ("table", 4, "prop 1"))
    assert (cell["seeds"], cell["unsolved"]) == (2, 0)
    assert cell["gain"]["low"] <= cell["gain"]["value"] <= cell["gain"]["high"]
    assert summary["settings"]["first_seed"] == 5


def test_the_whole_comparison() -> None:
    walks = Options().walks()
    assert len(set(walks)) == len(walks)
    counts = Counter((walk.learner, walk.n, walk.arm) for walk in walks)
    assert {counts["table", n, arm] for n in (2, 4, 6, 8, 10, 12) for arm in LEARNERS["table"]} == {30}
    assert counts["table", 14, "uniform"] == counts["table", 14, "prop 1"] == 10
    assert counts["table", 14, "prop 0.6, beta 1"] == 0
    assert {arm for learner, _, arm in counts if learner == "linear"} == {"uniform", "prop 0.6"}
    assert {n: counts["network", n, "uniform"] for n in (4, 6, 8, 10, 12, 14)} == {
        4: 0, 6: 20, 8: 20, 10: 20, 12: 20, 14: 0,
    }  # fmt: skip
    assert [walk.n for walk in walks] == sorted(walk.n for walk in walks)
    arms = [{walk.seed for walk in walks if (walk.n, walk.arm) == (8, arm)} for arm in ("uniform", "prop 1")]
    assert arms == [set(range(30))] * 2


def test_quick_and_chosen_lengths() -> None:
    quick = Counter((walk.learner, walk.n, walk.arm) for walk in Options(quick=True, first_seed=3).walks())
    assert (quick["table", 10, "uniform"], quick["network", 10, "uniform"], quick["network", 8, "uniform"]) == (
        10,
        5,
        0,
    )
    assert max(n for _, n, _ in quick) == 10
    chosen = Options(n=(16, 3), seeds=4, learners=("network", "table")).walks()
    assert Counter((walk.learner, walk.n) for walk in chosen if walk.arm == "uniform") == {
        ("table", 3): 4, ("network", 3): 4, ("table", 16): 4, ("network", 16): 4,
    }  # fmt: skip
    with pytest.raises(ArgumentError):
        Options(n=(1,)).walks()


def good(n: int, seeds: int = 30) -> Figures:
    """Make figures that keep every bar: the usual medians, the same for every seed."""
    table = {
        "uniform": 107_000, "oracle": 680, "prop 1": 9_100, "prop 0.6": 10_500,
        "prop 0.6, beta 0.4": 18_600, "prop 0.6, beta 1": 122_000,
    }  # fmt: skip
    found = {Cell("table", n, arm): dict.fromkeys(range(seeds), float(value)) for arm, value in table.items()}
    for length, gain in ((4, 2.1), (6, 4.2), (8, 6.0)):
        found[Cell("table", length, "uniform")] = dict.fromkeys(range(seeds), 1_000.0 * gain)
        found[Cell("table", length, "prop 0.6")] = dict.fromkeys(range(seeds), 1_000.0)
    for arm in ("prop 1", "prop 0.6"):
        found[Cell("table", 14, arm)] = dict.fromkeys(range(10), 33_000.0)
    for arm, value in (("uniform", 76_000), ("prop 0.6", 13_000)):
        found[Cell("linear", n, arm)] = dict.fromkeys(range(seeds), float(value))
    for arm, value in (("uniform", 4_050), ("prop 0.6, beta 0.4", 1_850)):
        found[Cell("network", n, arm)] = dict.fromkeys(range(20), float(value))
    return found


@pytest.mark.parametrize("n", [10, 12])
def test_good_figures_keep_all_bars(n: int) -> None:
    judged = bars(good(n))
    assert len(judged) == 10
    assert all(bar.holds is True for bar in judged)
    assert sum(f"n = {n}" in bar.text for bar in judged) == 8


@pytest.mark.parametrize(
    ("cell", "updates", "broken"),
    [
        (Cell("table", 12, "prop 0.6"), 13_500, "uniform / prop 0.6 >= 8"),
        (Cell("table", 12, "prop 1"), 12_000, "uniform / prop 1 >= 9"),
        (Cell("table", 12, "oracle"), 900, "uniform / oracle >= 120"),
        (Cell("table", 12, "prop 0.6, beta 1"), 11_000, "beta 1 within"),
        (Cell("table", 12, "prop 0.6, beta 1"), 160_000, "beta 1 within"),
        (Cell("table", 12, "prop 0.6, beta 0.4"), 10_400, "beta 0.4 between"),
        (Cell("table", 12, "prop 0.6, beta 0.4"), 123_000, "beta 0.4 between"),
        (Cell("table", 6, "prop 0.6"), 2_100, "gain of prop 0.6 grows"),
        (Cell("table", 14, "prop 1"), 29_000, "TD arms, updates"),
        (Cell("linear", 12, "prop 0.6"), 20_000, "linear, n = 12: uniform / prop 0.6 >= 4"),
        (Cell("network", 12, "prop 0.6, beta 0.4"), 2_500, "network, n = 12: uniform / prop 0.6, beta 0.4 >= 1.7"),
        (Cell("network", 12, "prop 0.6, beta 0.4"), 4_050, "slowest prop <"),
    ],
)
def test_each_bar_can_break(cell: Cell, updates: float, broken: str) -> None:
    found = good(12)
    found[cell] = dict.fromkeys(found[cell], float(updates))
    assert any(broken in bar.text for bar in bars(found) if bar.holds is False)


def test_few_seeds_are_not_judged_and_missing_arms_are_left_out() -> None:
    found = good(12, seeds=29)
    judged = bars(found)
    assert {bar.holds for bar in judged if bar.text.startswith(("table, n = 12", "linear"))} == {None}
    assert bars({cell: runs for cell, runs in found.items() if cell.arm == "uniform"}) == []
    without = bars({cell: runs for cell, runs in found.items() if cell.arm != "oracle"})
    assert len(without) == len(judged) - 1


def test_a_ratio_pairs_seeds() -> None:
    found: Figures = {
        Cell("table", 4, "uniform"): {0: 10.0, 1: 30.0, 2: 1e9},
        Cell("table", 4, "prop 1"): {1: 10.0, 0: 5.0, 3: 1e9},
    }
    gain = ratio(found, "table", 4, "prop 1")
    assert gain is not None
    assert (gain[0].value, gain[0].low, gain[0].high, gain[1]) == (20 / 7.5, 2.0, 3.0, 2)
    assert ratio(found, "table", 4, "oracle") is None


def test_runs_that_were_never_done_are_shown_as_such(tmp_path: Path) -> None:
    found = {cell: runs for cell, runs in good(12).items() if cell.learner == "table"}
    found[Cell("table", 12, "oracle")] = dict.fromkeys(range(30), math.inf)
    shown = io.StringIO()
    console = Console(width=80, file=shown)
    for part in Findings(found, {}).shown():
        console.print(part)
    assert "right, 10 to 30 seeds: a table" in shown.getvalue()
    assert re.search(r"oracle .* never", shown.getvalue())
    assert "…" not in shown.getvalue()
    _, data, summary = Findings(found, {}).write(tmp_path)
    assert "table,12,8190,oracle,7,inf" in data.read_text().splitlines()
    cells = json.loads(summary.read_text())["cells"]
    assert next(cell for cell in cells if cell["unsolved"])["median"] is None


def test_results_are_gathered_by_cell_in_the_order_of_arms() -> None:
    walks = [Walk(n=4, learner="table", arm=arm, seed=seed) for arm in ("oracle", "uniform") for seed in (2, 0)]
    found = gather((walk, 10.0 * walk.seed) for walk in walks)
    assert [cell.arm for cell in found] == ["uniform", "oracle"]
    assert list(found[Cell("table", 4, "oracle")].items()) == [(0, 0.0), (2, 20.0)]
