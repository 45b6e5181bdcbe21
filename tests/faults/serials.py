"""Which trajectories a buffer holds, found by drawing from it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rollouts import leaves, simple

from relive.trajectories import TrajectoryReplayBuffer


def serials(buffer: TrajectoryReplayBuffer) -> list[int]:
    """Which trajectories are there; every row that is drawn is compared bit by bit."""
    batch = dict(leaves(buffer.sample(max(80, 12 * len(buffer)))))
    codes = batch["code"].tolist()
    for name, array in batch.items():
        assert array.tobytes() == b"".join(written(serial)[name][t, b].tobytes() for serial, t, b in codes)
    return sorted({serial for serial, _, _ in codes})


@lru_cache(maxsize=256)
def written(serial: int) -> dict[str, Any]:
    return dict(leaves(simple(serial, length=2)))
