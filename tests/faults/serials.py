"""Which trajectories a buffer holds, found by drawing from it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rollouts import leaves, simple

from relive.trajectories import TrajectoryReplayBuffer


def serials(buffer: TrajectoryReplayBuffer) -> list[int]:
    """List the trajectories of a buffer; every row that is drawn is compared bit by bit."""
    found: set[int] = set()
    for _ in range(8):
        batch = dict(leaves(buffer.sample(2 * len(buffer) + 4)))
        codes = batch["code"].tolist()
        for name, array in batch.items():
            assert array.tobytes() == b"".join(written(serial)[name][t, b].tobytes() for serial, t, b in codes)
        found.update(serial for serial, _, _ in codes)
        if len(found) >= len(buffer):
            break
    return sorted(found)


@lru_cache(maxsize=256)
def written(serial: int) -> dict[str, Any]:
    return dict(leaves(simple(serial, length=2)))
