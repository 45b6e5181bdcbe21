"""A good directory, and a file of others next to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rollouts import simple

from relive.trajectories import TrajectoryReplayBuffer


@pytest.fixture
def good(folder: Path) -> Path:
    """Make a directory with three trajectories."""
    with TrajectoryReplayBuffer(folder / "good", seed=1) as buffer:
        buffer.add_trajectories([simple(k) for k in range(3)])
    return folder / "good"


@pytest.fixture
def outside(folder: Path) -> Iterator[Path]:
    """Yield a file of others, which must keep its contents and its mode."""
    path = folder / "outside"
    path.write_bytes(b"secret")
    before = path.stat()
    yield path
    assert path.read_bytes() == b"secret"
    assert path.stat().st_mode == before.st_mode
