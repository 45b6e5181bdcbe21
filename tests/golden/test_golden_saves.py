"""Saves that were written once in each format are read by this version, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from needs import needs
from recorded import copied
from saved_format import BOUNDARIES, COMPRESS, LANES, STEPS, build, draws, expected, live, sample

import relive
from relive.checkpoints.inspection import verify

VERSIONS = list(BOUNDARIES)


@pytest.fixture(autouse=True)
def _installed(version: str) -> None:
    if version in COMPRESS:
        needs("zstandard")


@pytest.mark.parametrize("number", ["1", "2"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_frozen_sample_draws_what_it_drew(version: str, number: str) -> None:
    assert draws(relive.load(sample(version), number=int(number))) == expected(version)[number]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frozen_sample_is_the_script_s(version: str, tmp_path: Path) -> None:
    """Check that the same calls give the saved buffer today, and that saves there can continue."""
    assert verify(sample(version)) == []
    buffer = build(version)
    live(buffer, 0, STEPS)
    assert draws(buffer) == expected(version)["2"]
    loaded = relive.load(copied(sample(version), tmp_path / "copy"))
    live(loaded, STEPS, STEPS + 5)
    assert loaded.save(tmp_path / "copy").number == 3
    ids = [int(i) for i in np.unique(relive.load(tmp_path / "copy").sample(64).ids)]
    assert relive.load(tmp_path / "copy").read(ids).reward.tolist() == loaded.read(ids).reward.tolist()
    assert loaded.num_envs == LANES


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("steps", [6, 10, 16])
def test_another_capacity_counts_steps(version: str, steps: int) -> None:
    """Check that the newest steps are loaded, and that continued lanes keep the given number."""
    whole, loaded = relive.load(sample(version)), relive.load(sample(version), capacity=LANES * steps)
    assert loaded.capacity == LANES * steps
    ids = np.sort(loaded.column("ids").ravel())
    np.testing.assert_array_equal(ids[ids >= 0], newest(whole, steps))
    live(loaded, STEPS, STEPS + 10)
    assert len(loaded) == loaded.capacity


def newest(buffer: relive.ReplayBuffer, steps: int) -> np.ndarray:
    """Return the ids of the newest steps of every lane, in order."""
    ids = [np.sort(of_lane[of_lane >= 0])[-steps:] for of_lane in buffer.column("ids")]
    return np.sort(np.concatenate(ids))


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_small(version: str) -> None:
    assert sum(file.stat().st_size for file in sample(version).iterdir()) < 16_000
