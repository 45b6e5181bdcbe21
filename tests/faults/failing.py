"""Calls to the system that fail from a given one on, and the trajectories that a buffer holds then."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from rollouts import leaves, simple
from system_calls import Done, fault

from relive.trajectories import TrajectoryReplayBuffer


@dataclass
class Failing:
    """Lets the `first` call fail and later ones, `most` of them; reads of rows do not count.

    Attributes:
        hit: The names of those that failed.
    """

    verdict: int | Done
    first: int
    most: float = 1
    hit: list[str] = field(default_factory=list)

    def __call__(self, name: str, number: int) -> int | Done | None:
        if number < self.first or name == "preadv" or len(self.hit) >= self.most:
            return None
        self.hit.append(name)
        return self.verdict


def failing(kind: str, first: int, k: int, most: float = 1) -> Failing:
    """Fail from the `k`-th call on; faults of a kind come in turn, beginning with the `first` one."""
    return Failing(fault(kind, k + first), k, most)


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


def pictured(serial: int, length: int, cells: int = 4) -> dict[str, Any]:
    """Make a trajectory that also has an image of a kilobyte for each step, which is compressed."""
    image = np.full((length, 2, 1024), serial % 251, np.uint8)
    return simple(serial, length=length, cells=cells) | {"image": image}
