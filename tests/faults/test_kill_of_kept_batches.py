"""Processes that keep their last batches are killed; what they leave is whole but for one batch, which says so."""

from __future__ import annotations

import mmap
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forking import forked

import relive

LAST, WIDTH = 4, 3_000
SIZES = [1, 2, 2, 40, 3, 40, 40, 60]  # the file grows three times


def learn(path: Path, got: np.ndarray) -> None:
    """Sample and update for ever; count what the learner got in memory that outlives the process."""
    buffer = relive.ReplayBuffer(
        relive.Schema(obs=relive.Field(WIDTH), action=relive.Field()), 100, sampler=relive.Prioritized(), seed=0
    )
    for t in range(100):
        obs = np.full(WIDTH, t)
        buffer.add(obs=obs, action=t, reward=t, next_obs=obs + 1, terminated=False, truncated=False)
    buffer.keep_batches(path, last=LAST)
    while True:
        batch = buffer.sample(SIZES[int(got[0]) % len(SIZES)] if got[0] < 60 else 60)
        got[0] += 1
        buffer.update_priorities(batch.ids, batch.ids + 0.5)
        got[1] = got[0]


def check(path: Path, got: int, updated: int) -> int:
    """Check that the newest batches are there and whole; return how many are torn."""
    found = relive.kept_batches(path)
    numbers = [kept.number for kept in found]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else got == 0
    torn = [kept.number for kept in found if kept.torn]
    assert torn in ([], [got + 1]), "a batch that the learner got is torn"
    whole = [kept for kept in found if not kept.torn]
    assert len(whole) >= min(got, LAST - 1)
    assert not got or whole[-1].number in (got, got + 1)  # it may be there before it is counted
    for kept in whole:
        assert (kept.obs == kept.ids[:, None]).all()
        assert (kept.next_obs == kept.ids[:, None] + 1).all()
        assert kept.reward.tolist() == kept.ids.tolist()
        if kept.number <= updated:
            assert kept.td_error.tolist() == (kept.ids + 0.5).tolist()
        elif kept.td_error is not None:
            assert kept.number == updated + 1
    return len(torn)


def kill(folder: Path, number: int, after: float) -> int:
    path, shared = folder / f"batches{number}", mmap.mmap(-1, mmap.PAGESIZE)
    got = np.frombuffer(shared, np.int64)
    with forked(lambda: learn(path, got), endless=True):
        while not path.exists():
            time.sleep(0.001)
        time.sleep(after)
    torn = check(path, int(got[0]), int(got[1]))
    path.unlink()
    return torn


@pytest.mark.parametrize("kills", [12, pytest.param(500, marks=pytest.mark.slow)])
def test_kills_leave_whole_batches(kills: int, tmp_path: Path, record_property: Any) -> None:
    record_property("cases", kills)
    rng = random.Random(kills)
    torn = sum(kill(tmp_path, number, rng.uniform(0, 0.04)) for number in range(kills))
    print(f"{torn} of {kills} kills tore a batch")
    assert kills < 100 or torn > 0
