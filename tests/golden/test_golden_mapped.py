"""A mapped file of format 1, which counts no writes, is opened by this version, drawn from and written to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from recorded import DATA, unpacked

import relive

LANES, STEPS = 2, 40


def step(t: int) -> dict[str, object]:
    """Make a step of the file, whose ids of one draw have the priority `id % 5 + 0.5`."""
    made = {"action": [t, -t], "reward": [t / 4, -t / 4]}
    made |= {"terminated": [t % 7 == 6, False], "truncated": [False, t % 9 == 8]}
    return {"obs": np.full((LANES, 2), t), "next_obs": np.full((LANES, 2), t + 1), **made}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return unpacked(DATA / "mapped_1.gz", tmp_path / "steps.buf")


def newest(buffer: relive.ReplayBuffer, last: int) -> None:
    """Check that all drawable steps are the given ones, up to moment `last` of both lanes."""
    batch = buffer.read(np.unique(buffer.sample(2000).ids))
    moments = batch.next_obs[:, 0] - 1
    np.testing.assert_array_equal(np.abs(batch.action), moments)
    np.testing.assert_array_equal(np.abs(batch.reward), moments / 4)
    assert moments.max() == last
    assert len(batch.ids) == len(buffer)


def test_it_draws_what_was_stored(file: Path) -> None:
    with relive.open(file) as buffer:
        newest(buffer, STEPS - 1)
        ids = np.unique(buffer.sample(2000).ids)
        known = buffer.priorities(ids)
        set_later = np.abs(known - (ids % 5 + 0.5)) < 1e-5
        assert set_later.sum() >= len(ids) - 3  # a few were not in the batch whose priorities were set


def test_draws_see_what_is_added(file: Path) -> None:
    """Check this even without a count of the written lanes."""
    with relive.open(file) as buffer:
        for t in range(STEPS, STEPS + 30):
            buffer.add(**step(t))
            newest(buffer, t)


def test_a_later_format_is_refused(file: Path) -> None:
    data = bytearray(file.read_bytes())
    assert data[8:12] == (1).to_bytes(4, "little")
    data[8] = 3
    file.write_bytes(data)
    with pytest.raises(relive.errors.StorageError, match=r"up to 2`?, got `?format 3"):
        relive.open(file)
