"""A sampler of one's own: uniform over the newest steps of every lane.

python examples/own_sampler.py --k 3
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import relive
from relive.errors import ArgumentError, message
from relive.samplers import Draw, Index, Report, Ring, Sampler, Share
from relive.storage import Memory
from relive.testing import SamplerContract


@relive.saved_as("recent")  # the name and `k` are what a save has
@dataclass(frozen=True, kw_only=True)
class Recent(Sampler):
    """Draw each of the newest `k` drawable steps of every lane with the same probability."""

    k: int
    replacement = True  # a batch may hold a step twice

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ArgumentError(message("at least one step", f"`{self.k}`", "Recent(k)"))

    def index(self, ring: Ring, memory: Memory) -> RecentIndex:
        """Make the sampler's index for one buffer."""
        return RecentIndex(self.k, ring)


class RecentIndex(Index):
    """The newest slots of every lane. A slot is an integer below `ring.slots`; `slot % ring.lanes` is its lane."""

    def __init__(self, k: int, ring: Ring) -> None:
        self._k, self._ring = k, ring
        # The counters of the last look, and the slots by lane and age. Zeros: nothing has been seen.
        self._state = np.zeros((ring.lanes, 3), np.int64), np.empty(0, np.int64)

    def refresh(self) -> int:
        """Take in what changed; return how many slots can be drawn."""
        seen, slots = self._state
        changes = self._ring.changes(seen)
        if (changes.seen != seen).any():
            # What is gone goes first: its slot may hold a new step by now.
            slots = np.concatenate((slots[~np.isin(slots, changes.removed)], changes.added))
            slots = slots[np.argsort(slots % self._ring.lanes, kind="stable")]
            lanes = slots % self._ring.lanes
            ends = np.cumsum(np.bincount(lanes, minlength=self._ring.lanes))
            slots = slots[ends[lanes] - np.arange(len(slots)) <= self._k]
            self._state = changes.seen, slots  # one assignment: an interrupted call has changed nothing
        return len(slots)

    def draw(self, n: int, rng: np.random.Generator, beta: float | None) -> Draw:
        """Draw `n` slots by one call of `rng.random(n)`; their weights are 1."""
        slots, _ = self.draw_at(rng.random(n))
        return Draw(slots, np.ones(n, np.float32))

    def report(self) -> Callable[[], Report]:
        """Report nothing more for `buffer.stats()`."""
        return Report

    # These two let several buffers be drawn from as one: shards.

    def share(self) -> Share:
        """Return the total to draw from: each slot has the mass 1."""
        count = len(self._state[1])
        return Share(total=float(count), count=count, smallest=1.0, largest=0.0)

    def draw_at(self, fractions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the slots at these fractions of the total, and their masses."""
        _, slots = self._state
        which = np.minimum((fractions * len(slots)).astype(np.int64), len(slots) - 1)
        return slots[which], np.ones(len(which))


class TestRecent(SamplerContract):
    """The promises of every sampler; pytest runs them, too."""

    sampler = Recent(k=5)
    draws_all = False  # older steps are left out on purpose


def main() -> None:
    """Run the contract, draw from two lanes, save and load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--k", type=int, default=3, help="how many steps of every lane (default 3)")
    args = parser.parse_args()
    print(f"Recent keeps {TestRecent.run_all()} promises of a sampler")
    schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    buffer = relive.ReplayBuffer(schema, 100, num_envs=2, sampler=Recent(k=args.k), seed=0)
    time = np.tile(np.arange(20.0), (2, 1))
    off = np.zeros((2, 20), bool)
    buffer.extend(obs=time, action=time, reward=time, next_obs=time + 1, terminated=off, truncated=off)
    times, counts = np.unique(buffer.sample(1000).obs, return_counts=True)
    print("time step: times drawn", dict(zip(times.tolist(), counts.tolist(), strict=True)))
    with tempfile.TemporaryDirectory() as path:
        buffer.save(path)
        print(f"saved, and loaded by its name: {relive.load(path).sampler}")


if __name__ == "__main__":
    main()
