"""What each rule of replay gains on the Blind Cliffwalk; bars stand outside what 10 seeds show 99.8 % of the time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relive.cli import main
from relive_lab.cliffwalk import LEARNERS, Walk

SEEDS = range(10)


def updates(learner: str, arm: str, n: int = 8, seeds: range = SEEDS) -> list[float]:
    runs = [Walk(n=n, learner=learner, arm=arm, seed=seed).run() for seed in seeds]
    return [run for run in runs if run is not None]


@pytest.fixture(scope="module", name="gain")
def _gain() -> dict[str, float]:
    """Return the ratio of uniform replay's median updates to those of each arm: a table, n = 8, 510 transitions."""
    medians = {arm: float(np.median(updates("table", arm))) for arm in LEARNERS["table"]}
    return {arm: medians["uniform"] / median for arm, median in medians.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arm", "least", "most"),
    [
        ("oracle", 15, 30),
        ("prop 1", 5.5, 10),
        ("prop 0.6", 4.3, 8.5),
        ("prop 0.6, beta 0.4", 2.4, 4.8),
        ("prop 0.6, beta 1", 0.65, 1.25),
    ],
)
def test_the_gain_of_an_arm(gain: dict[str, float], arm: str, least: float, most: float) -> None:
    assert least <= gain[arm] <= most


@pytest.mark.slow
def test_weights_take_back_the_gain_step_by_step(gain: dict[str, float]) -> None:
    assert gain["prop 0.6, beta 1"] < gain["prop 0.6, beta 0.4"] < gain["prop 0.6"]


def test_a_shared_bias_leaves_a_gain() -> None:
    assert np.median(updates("linear", "uniform")) >= 2.3 * np.median(updates("linear", "prop 0.6"))


@pytest.mark.slow
def test_a_network_gains_too() -> None:
    uniform, prioritized = (updates("network", arm, seeds=range(2)) for arm in LEARNERS["network"])
    assert max(prioritized) < np.median(uniform)


@pytest.mark.slow
def test_all_bars_of_the_whole_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "cliffwalk", "--out", str(tmp_path)]) == 0, capsys.readouterr().out
    assert "too few seeds" not in capsys.readouterr().out
