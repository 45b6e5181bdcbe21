"""R2D2 remembers a cue: over a corridor of six steps in seconds, of ten in the long run of the tests."""

from __future__ import annotations

import pytest

from relive_lab.studies.runner import Outcome
from relive_lab.studies.study import Job, trainer_of
from relive_lab.studies.tmaze import ARMS, BASE, BEST, tmaze_config, tmaze_study

# The ring is full before the end, and the finals of short episodes are in it.
pytestmark = pytest.mark.filterwarnings("ignore:.*final observations take rows:relive.errors.ReliveWarning")


@pytest.mark.slow
def test_the_bars_of_the_comparison_hold() -> None:
    jobs = [Job(arm, seed, tmaze_config(arm, seed, 20_000)) for seed in range(10) for arm in ARMS]
    found = tmaze_study({}).curves([Outcome(job, trainer_of(job.config)(job.config).train(), True) for job in jobs])
    assert found is not None
    assert all(bar.holds for bar in found.bars), found.bars
    assert found.finals["no memory"].max() < 0.7
    assert found.finals[BEST].min() > found.finals[BASE].max()
