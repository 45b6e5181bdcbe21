"""Lanes of few steps reserve fewer rows for final observations than they did: files from before are read on."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relive
from relive._ring import lanes as rules

LANES, STEPS = 3, 64


def built(steps: int = STEPS, **choices: Any) -> relive.ReplayBuffer:
    choices = {"sampler": relive.Prioritized(), "seed": 0} | choices
    return relive.ReplayBuffer(
        relive.Schema(obs=relive.Field(), action=relive.Field()), LANES * steps, num_envs=LANES, **choices
    )


def fill(buffer: relive.ReplayBuffer, begin: int, end: int, length: int) -> None:
    """Add steps `begin` to `end` to all lanes, of episodes of `length`."""
    for t in range(begin, end):
        ends = np.full(LANES, t % length == length - 1)
        step = {"action": np.zeros(LANES), "reward": np.full(LANES, t), "truncated": ~ends & ends}
        buffer.add(obs=np.full(LANES, t), next_obs=np.where(ends, t + 0.5, t + 1), terminated=ends, **step)


@pytest.mark.parametrize("steps", [64, 100, 128, 200, 256])
def test_short_lanes_take_little_more_than_their_steps(steps: int) -> None:
    """Keep all steps of episodes of five, in rows for a quarter of them; with shorter episodes say how many."""
    buffer = built(steps)
    assert rules.depth_of(LANES, buffer._core.ring.rows) <= 1.28 * steps
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fill(buffer, 0, 3 * steps, 5)
    assert len(buffer) == buffer.capacity
    with pytest.warns(relive.ReliveWarning, match=rf"A lane keeps \d+ of {steps} steps, .* `boundaries="):
        fill(buffer, 3 * steps, 5 * steps, 2)
    assert STEPS // 2 * LANES < len(buffer) < buffer.capacity


def test_lanes_of_other_lengths_reserve_what_they_did() -> None:
    reserved = {steps: rules.rows_of(steps, rules.BOUNDARIES) - steps for steps in (1, 15, 16, 260, 1024, 10_000)}
    assert reserved == {1: 1, 15: 15, 16: 15, 260: 64, 1024: 64, 10_000: 625}
    assert rules.rows_of(100, 0.5) == 150


@pytest.mark.parametrize("how", ["save", "file"])
def test_files_with_the_rows_of_before_go_on(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep each step of short episodes, and draw what would have been drawn."""
    path = tmp_path / "kept"
    with monkeypatch.context() as before:
        before.setattr(rules, "FEWEST", rules._RESERVED)
        kept = built(storage=relive.Mapped(path) if how == "file" else relive.Ram())
        assert kept._core.ring.rows == 2 * STEPS
        fill(kept, 0, 200, 1)
        twin = built()
        fill(twin, 0, 200, 1)
        if how == "save":
            kept.save(path)
        kept.close()
    loaded = relive.load(path) if how == "save" else relive.open(path, seed=0)
    assert (loaded._core.ring.rows, loaded.boundaries, len(loaded)) == (2 * STEPS, STEPS, LANES * STEPS)
    fill(loaded, 200, 300, 1)
    fill(twin, 200, 300, 1)
    assert loaded.sample(50).ids.tolist() == twin.sample(50).ids.tolist()
    loaded.save(tmp_path / "again")
    again = relive.load(tmp_path / "again")
    assert (again._core.ring.rows, len(again)) == (2 * STEPS, LANES * STEPS)
    if how == "save":
        larger = relive.load(path, capacity=LANES * 10_000)
        assert (larger.boundaries, larger._core.ring.rows) == (rules.BOUNDARIES, 10_625)
