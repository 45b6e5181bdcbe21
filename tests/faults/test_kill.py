"""A writer is killed; what was flushed or saved is there, whole, and what was left is put in order."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from depth import LONG
from killer import killed

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")


def test_meta_a_save_that_is_acknowledged_too_early_is_found(folder):
    with pytest.raises(AssertionError, match="a save was lost"):
        killed(folder, 100 if LONG else 24, 0, "rash saves")


@pytest.mark.slow
def test_kills(folder, record_property):
    kills = 100 if LONG else 24
    told = killed(folder, kills, 0)
    record_property("cases", kills)
    assert told["kills"] == kills
    assert told["trajectories"] > 10 * kills, "the writers had written something"
    assert told["unfinished"] > kills / 10
    assert told["adopted"] > 0


def test_kills_of_saves(folder, record_property):
    """Kill at a given call of a save every other time."""
    kills, told = 50 if LONG else 12, Counter[str]()
    for seed in range(8):  # the moments depend on the machine
        (folder / str(seed)).mkdir()
        told += killed(folder / str(seed), kills, seed, "saves")
        if told["saves"] > kills // 2 and told["unfinished"]:
            break
    record_property("cases", told["kills"])
    assert told["saves"] > kills // 2
    assert told["unfinished"], "none came in the middle of a save"


@pytest.mark.slow
@pytest.mark.parametrize(("what", "seed"), [*product(["saves"], range(5)), *product(["rollouts"], range(10))])
def test_a_hundred_kills_again_and_again(what, seed, folder, record_property):
    record_property("cases", 100)
    told = killed(folder, 100, 1 + seed, what)
    assert told["saves"] > 100 or told["trajectories"] > 1000
