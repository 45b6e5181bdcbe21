"""What a comparison makes of its runs: which seeds count, and what the numbers are."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from relive_lab import SACConfig, TrainResult
from relive_lab.studies.runner import Outcome
from relive_lab.studies.study import Job, Study, evaluations


def study(**changes: Any) -> Study:
    settings: dict[str, Any] = {
        "title": "SAC on a toy",
        "baseline": "uniform",
        "arms": ("uniform", "prioritized"),
        "unit": "episodes",
        "measure": evaluations(100),
        "reference": ("a rule", 3.0),
        "settings": {"seeds": 2},
    }
    return Study(**{**settings, **changes})


def outcome(arm: str, seed: int, curve: list[float], complete: bool = True) -> Outcome:
    """Make a run whose evaluations, of two episodes each, have the means of `curve`."""
    steps = 1_000 * np.arange(1, len(curve) + 1)
    returns = np.array([[value - 1, value + 1] for value in curve]).reshape(-1, 2)
    result = TrainResult(
        eval_steps=steps, eval_episodes=steps // 100, eval_returns=returns, episode_steps=steps,
        episode_returns=steps * 0.0, steps=1_000 * len(curve), updates=0, seconds=seed + 1.0,
    )  # fmt: skip
    return Outcome(Job(arm, seed, SACConfig()), result, complete)


WHOLE = [
    outcome("uniform", 0, [0, 0, 2, 2, 2, 2, 2]),
    outcome("prioritized", 0, [0, 2, 2, 2, 2, 2, 2]),
    outcome("prioritized", 1, [0, 0, 0, 0, 0, 0, 1]),
    outcome("uniform", 1, [0, 2, 2, 2, 2, 2, 2]),
]


def test_the_figures_of_whole_runs() -> None:
    curves = study().curves(WHOLE)
    assert curves is not None
    assert curves.complete
    assert curves.seeds == [0, 1]
    assert curves.times.tolist() == [10, 20, 30, 40, 50, 60, 70]
    assert curves.threshold == pytest.approx(1.8)
    uniform, prioritized = curves.figures()
    assert uniform.final.value == 2.0
    assert (uniform.median_time, uniform.never) == (45.0, 0)  # 50 and 40
    assert uniform.better is None
    assert prioritized.final.value == pytest.approx(1.1)  # 2 and 1/5
    assert min(prioritized.finals) == pytest.approx(0.2)
    assert (prioritized.median_time, prioritized.never) == (math.inf, 1)  # 40 and never
    assert prioritized.difference is not None
    assert prioritized.difference.value == pytest.approx(-0.9)
    assert prioritized.area_difference is not None
    assert prioritized.area_difference.value == pytest.approx((2 - 11) / 14)
    assert prioritized.better is not None
    assert prioritized.better.value == 0.25  # ties with two, loses to two
    assert prioritized.sooner is not None
    assert prioritized.sooner.value == pytest.approx(1.5 / 4)  # 40 beats 50, ties with 40; never loses twice
    assert uniform.seconds == 1.5


def test_a_fixed_threshold_is_kept() -> None:
    curves = study(threshold=-200.0).curves(WHOLE)
    assert curves is not None
    assert curves.threshold == -200.0


def test_seeds_that_an_arm_lacks_are_left_out() -> None:
    failed = Outcome(Job("uniform", 2, SACConfig()), None, False, "broken")
    curves = study().curves([*WHOLE, outcome("prioritized", 2, [5] * 7), failed])
    assert curves is not None
    assert curves.seeds == [0, 1]


def test_runs_that_were_stopped_do_not_shorten_whole_ones() -> None:
    stopped = [outcome("uniform", 2, [0, 1], complete=False), outcome("prioritized", 2, [0], complete=False)]
    curves = study().curves([*WHOLE, *stopped])
    assert curves is not None
    assert curves.seeds == [0, 1]
    assert len(curves.times) == 7


def test_without_whole_runs_the_part_that_all_reached_is_compared() -> None:
    stopped = [outcome("uniform", 2, [0, 1, 2], complete=False), outcome("prioritized", 2, [0, 4], complete=False)]
    curves = study().curves(stopped)
    assert curves is not None
    assert not curves.complete
    assert curves.values["uniform"].tolist() == [[0, 1]]
    assert curves.values["prioritized"].tolist() == [[0, 4]]


@pytest.mark.parametrize("outcomes", [[], WHOLE[:1], [outcome("uniform", 0, []), outcome("prioritized", 0, [1])]])
def test_nothing_to_compare(outcomes: list[Outcome]) -> None:
    assert study().curves(outcomes) is None


def test_the_table_fits_80_columns() -> None:
    curves = study().curves(WHOLE)
    assert curves is not None
    shown = io.StringIO()
    Console(width=80, file=shown).print(*curves.shown())
    text = shown.getvalue()
    assert "SAC on a toy: 2 seeds" in text
    assert "episodes to 1.800, median" in text
    assert "1 of 2" in text
    assert "a rule earns 3.000" in text
    assert "…" not in text


def test_the_files(tmp_path: Path) -> None:
    curves = study().curves(WHOLE)
    assert curves is not None
    picture, data, summary = curves.write(tmp_path / "new" / "folder")
    assert picture.read_bytes().startswith(b"\x89PNG")
    lines = list(csv.DictReader(data.read_text().splitlines()))
    assert len(lines) == 2 * 2 * 7
    assert lines[1] == {"arm": "uniform", "seed": "0", "episodes": "20", "return": "0.0"}
    found = json.loads(summary.read_text())
    assert found["threshold"] == pytest.approx(1.8)
    assert found["arms"][0]["better"] is None
    assert found["arms"][1]["median_time"] is None  # JSON has no infinity
    assert found["arms"][1]["final"]["value"] == pytest.approx(1.1)
    assert found["seeds"] == [0, 1]
