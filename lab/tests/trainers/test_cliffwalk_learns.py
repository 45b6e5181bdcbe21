"""What each rule of replay gains on the Blind Cliffwalk; bars stand outside what 10 seeds show 99.8 % of the time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relive.cli import main
from relive_lab.cliffwalk import Walk

SEEDS = range(10)


def updates(learner: str, arm: str, n: int = 8, seeds: range = SEEDS) -> list[float]:
    runs = [Walk(n=n, learner=learner, arm=arm, seed=seed).run() for seed in seeds]
    return [run for run in runs if run is not None]


def test_a_shared_bias_leaves_a_gain() -> None:
    assert np.median(updates("linear", "uniform")) >= 2.3 * np.median(updates("linear", "prop 0.6"))


@pytest.mark.slow
def test_all_bars_of_the_whole_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "cliffwalk", "--out", str(tmp_path)]) == 0, capsys.readouterr().out
    assert "too few seeds" not in capsys.readouterr().out
