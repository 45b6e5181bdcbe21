"""SAC learns: minutes, so only in the long run of the tests."""

from __future__ import annotations

import pytest

from relive_lab import SACTrainer
from relive_lab.studies.arms import ARMS
from relive_lab.studies.pairs import PENDULUM_ARMS, pendulum_config


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["uniform", "td", "precision"])
@pytest.mark.parametrize("seed", range(5))
def test_every_seed_solves_pendulum_in_5000_steps(arm: str, seed: int) -> None:
    result = SACTrainer(pendulum_config(seed, 5_000, **PENDULUM_ARMS.settings(ARMS[arm]))).train()
    assert result.eval_steps[-1] == 5_000
    assert result.eval_returns[-1].mean() >= -200.0
