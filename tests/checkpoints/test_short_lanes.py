"""Many environments of few steps reserve fewer rows for final observations than 64."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relive

LANES = 256


def built(steps: int, lanes: int = LANES, **choices: Any) -> relive.ReplayBuffer:
    schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    return relive.ReplayBuffer(schema, lanes * steps, num_envs=lanes, seed=0, **choices)


def fill(buffer: relive.ReplayBuffer, steps: int, length: int) -> None:
    """Add steps of episodes of `length` to all environments."""
    lanes = buffer.num_envs
    for t in range(steps):
        ends = np.full(lanes, t % length == length - 1)
        step = {"action": np.zeros(lanes), "reward": np.full(lanes, t), "truncated": ~ends & ends}
        buffer.add(obs=np.full(lanes, t), next_obs=np.where(ends, t + 0.5, t + 1), terminated=ends, **step)


@pytest.mark.parametrize("steps", [64, 100, 256])
def test_many_short_lanes_keep_all_steps_of_episodes_of_five(steps: int, tmp_path: Path) -> None:
    """Reserve a quarter of the steps; with shorter episodes say how many are kept, and keep the number in a save."""
    buffer = built(steps)
    assert buffer.boundaries == steps // 4 - 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fill(buffer, 3 * steps, 5)
    assert len(buffer) == buffer.capacity
    with pytest.warns(relive.ReliveWarning, match=rf"A lane keeps \d+ of {steps} steps, .* `boundaries="):
        fill(buffer, 2 * steps, 2)
    assert buffer.capacity // 3 < len(buffer) < buffer.capacity
    buffer.save(tmp_path / "save")
    loaded = relive.load(tmp_path / "save")
    assert (loaded.boundaries, len(loaded)) == (buffer.boundaries, len(buffer))
    assert relive.load(tmp_path / "save", capacity=10 * buffer.capacity).boundaries == 1 / 16


def test_what_else_is_reserved_is_what_was_asked_for() -> None:
    sixteenth = 1 / 16
    asked = {(64, LANES - 1, sixteenth): sixteenth, (260, LANES, sixteenth): sixteenth, (15, LANES, 0.05): 0.05}
    asked |= {(64, LANES, each): each for each in (0, 7, 1, 0.5)} | {(16, LANES, sixteenth): 15}
    assert {key: built(key[0], key[1], boundaries=key[2]).boundaries for key in asked} == asked


def test_a_file_from_before_keeps_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open a mapped file, and load a save, of many short lanes that reserve 64 rows each."""
    monkeypatch.setattr("relive._buffer.choices.reserved", lambda boundaries, lanes, steps: boundaries)
    before = built(64, storage=relive.Mapped(tmp_path / "file"))
    monkeypatch.undo()
    fill(before, 100, 1)
    before.save(tmp_path / "save")
    before.close()
    opened, loaded = relive.open(tmp_path / "file", seed=0), relive.load(tmp_path / "save")
    for buffer in (opened, loaded):
        assert (buffer.boundaries, len(buffer)) == (1 / 16, buffer.capacity)
    fill(loaded, 100, 1)
    assert len(loaded) == loaded.capacity
