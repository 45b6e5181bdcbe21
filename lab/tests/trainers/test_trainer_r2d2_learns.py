"""R2D2 remembers a cue: over a corridor of six steps in seconds, of ten in the long run of the tests."""

from __future__ import annotations

from typing import Any

import pytest

from relive_lab import R2D2Config, R2D2Trainer
from relive_lab.studies.runner import Outcome
from relive_lab.studies.study import Job, trainer_of
from relive_lab.studies.tmaze import ARMS, BASE, BEST, tmaze_config, tmaze_study

# The ring is full before the end, and the finals of short episodes are in it.
pytestmark = pytest.mark.filterwarnings("ignore:.*final observations take rows:relive.errors.ReliveWarning")


def turns_right(**changes: Any) -> float:
    """Share of evaluation episodes with the right turn, after training on sequences shorter than the corridor."""
    config = R2D2Config(
        env_kwargs={"length": 6},
        total_steps=12_000,
        epsilon_steps=3_000,
        explore_weights=(4, 1, 1, 1),
        starts=2,
        eval_every=12_000,
        per_beta_anneal_steps=1_100,
        torch_threads=1,
        **changes,
    )
    result = R2D2Trainer(config).train()
    return float((result.eval_returns[-1] > 0.5).mean())


@pytest.mark.slow
def test_a_stored_memory_carries_the_cue() -> None:
    assert turns_right(length=5, burn_in=2, use_per=True) >= 0.9


@pytest.mark.slow
def test_without_it_nothing_does() -> None:
    assert turns_right(length=5, burn_in=0, state="zero") <= 0.7


@pytest.mark.slow
def test_the_bars_of_the_comparison_hold() -> None:
    jobs = [Job(arm, seed, tmaze_config(arm, seed, 20_000)) for seed in range(10) for arm in ARMS]
    found = tmaze_study({}).curves([Outcome(job, trainer_of(job.config)(job.config).train(), True) for job in jobs])
    assert found is not None
    assert all(bar.holds for bar in found.bars), found.bars
    assert found.finals["no memory"].max() < 0.7
    assert found.finals[BEST].min() > found.finals[BASE].max()
