"""What a buffer of trajectories must do, as a plain list of nested dicts."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rollouts import leaves


@dataclass
class Saved:
    """A checkpoint."""

    trajectories: list[tuple[int, dict[str, Any]]]
    rng: np.random.Generator


@dataclass
class Oracle:
    """Trajectories with their ids, oldest first."""

    rng: np.random.Generator
    window: int
    most: int | None = None
    most_bytes: int | None = None
    counter: int = 0
    added: int = 0
    trajectories: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    def add(self, given: list[dict[str, Any]]) -> None:
        for kept in given:
            self.trajectories.append((self.counter, kept))
            self.counter += 1
            self.added += 1
        self.retain()

    def retain(self) -> None:
        if self.most is not None:
            del self.trajectories[: max(len(self.trajectories) - self.most, 0)]
        if self.most_bytes is not None:
            while len(self.trajectories) > 1 and self.nbytes > self.most_bytes:
                del self.trajectories[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, where a next observation that repeats is counted once."""
        return sum(stored_bytes(kept) for _, kept in self.trajectories)

    @property
    def samples(self) -> int:
        return sum(len(rows(kept)) for _, kept in self.trajectories)

    def draw(self, n: int) -> list[tuple[dict[str, Any], int, int]]:
        """Draw trajectory, step and environment of each of `n` draws."""
        inside = self.trajectories[-self.window :] if self.window else self.trajectories
        every = [(kept, t, b) for _, kept in inside for t, b in rows(kept)]
        return [every[k] for k in self.rng.integers(0, len(every), n)]

    def clear(self) -> None:
        self.trajectories = []

    def save(self) -> Saved:
        return Saved(list(self.trajectories), copy.deepcopy(self.rng))

    def load(self, saved: Saved, rank: int = 0, world: int = 1) -> None:
        sizes = [len(saved.trajectories) // world + (k < len(saved.trajectories) % world) for k in range(world)]
        first = sum(sizes[:rank])
        self.trajectories = saved.trajectories[first : first + sizes[rank]]
        self.counter = max((id_ + 1 for id_, _ in self.trajectories), default=0)
        self.added = len(self.trajectories)
        self.rng = copy.deepcopy(saved.rng)
        self.retain()


def rows(kept: dict[str, Any]) -> list[tuple[int, int]]:
    """Step and environment of every row, in the order of rows."""
    length, width = kept["code"].shape[:2]
    return [(t, b) for t in range(length) for b in range(width)]


def stored_bytes(kept: dict[str, Any]) -> int:
    """Count the bytes of its arrays; one further step replaces a `next_obs` that is `curr_obs` a step later."""
    total = sum(array.nbytes for _, array in leaves(kept))
    for name, later in leaves(kept.get("next_obs", {})):
        now = dict(leaves(kept["curr_obs"]))[name]
        if now[1:].tobytes() == later[:-1].tobytes():
            total += later[-1].nbytes - later.nbytes
    return total


def assert_rows(batch: Any, drawn: list[tuple[dict[str, Any], int, int]]) -> None:
    """Check that the batch holds these rows, bit by bit, and no other field."""
    found = dict(leaves(batch))
    assert drawn
    assert found.keys() == dict(leaves(drawn[0][0])).keys()
    for name, array in found.items():
        wanted = np.stack([dict(leaves(kept))[name][t, b] for kept, t, b in drawn])
        assert array.dtype == wanted.dtype, name
        assert array.shape == wanted.shape, name
        assert array.tobytes() == wanted.tobytes(), name
