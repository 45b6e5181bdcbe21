"""A sampler of one's own: every environment as often as any other, however many steps of it are stored.

python examples/own_sampler.py --draws 10000
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


@relive.saved_as("balanced")  # the name and `k` are what a save has
@dataclass(frozen=True, kw_only=True)
class Balanced(Sampler):
    """Draw each environment with the same probability, and then each of its newest `k` drawable steps."""

    k: int
    replacement = True  # a batch may hold a step twice

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ArgumentError(message("at least one step", f"`{self.k}`", "Balanced(k)"))

    def index(self, ring: Ring, memory: Memory) -> BalancedIndex:
        """Make the sampler's index for one buffer."""
        return BalancedIndex(self.k, ring)


class BalancedIndex(Index):
    """The slots of every lane. A slot is an integer below `ring.slots`; `slot % ring.lanes` is its lane."""

    def __init__(self, k: int, ring: Ring) -> None:
        self._k, self._ring = k, ring
        # The counters of the last look, the slots by lane and age, and where each slot's lane ends; zeros: nothing
        # has been seen.
        none = np.empty(0, np.int64)
        self._state = np.zeros((ring.lanes, 3), np.int64), none, np.empty(0)

    def refresh(self) -> int:
        """Take in what changed; return how many slots can be drawn."""
        seen, slots, _ = self._state
        changes = self._ring.changes(seen)
        if (changes.seen != seen).any():
            lanes = self._ring.lanes
            # What is gone goes first: its slot may hold a new step by now.
            slots = np.concatenate((slots[~np.isin(slots, changes.removed)], changes.added))
            slots = slots[np.argsort(slots % lanes, kind="stable")]
            ends = np.cumsum(np.bincount(slots % lanes, minlength=lanes))
            slots = slots[ends[slots % lanes] - np.arange(len(slots)) <= self._k]
            counts = np.bincount(slots % lanes, minlength=lanes)
            masses = 1.0 / counts[slots % lanes]  # 1 for every lane that has steps
            self._state = changes.seen, slots, masses  # one assignment: an interrupted call has changed nothing
        return len(slots)

    def draw(self, n: int, rng: np.random.Generator, beta: float | None) -> Draw:
        """Draw `n` slots by one call of `rng.random(n)`; their weights are 1."""
        slots, _ = self.draw_at(rng.random(n))
        return Draw(slots, np.ones(n, np.float32))

    def report(self) -> Callable[[], Report]:
        """Report nothing more for `buffer.stats()`."""
        return Report

    # This one is for `buffer.probability`, for `stats().draw_entropy`, and for blends.

    def probability(self, slots: np.ndarray) -> np.ndarray:
        """Return the probabilities of slots that can be drawn."""
        _, known, masses = self._state
        found = np.zeros(self._ring.slots)
        found[known] = masses / masses.sum()
        return found[slots]

    # These two let several buffers be drawn from as one: shards.

    def share(self) -> Share:
        """Return the total to draw from: each lane has the mass 1."""
        _, slots, masses = self._state
        return Share(total=float(masses.sum()), count=len(slots), smallest=float(masses.min(initial=1.0)), largest=0.0)

    def draw_at(self, fractions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the slots at these fractions of the total, and their masses."""
        _, slots, masses = self._state
        ends = np.cumsum(masses)
        which = np.minimum(np.searchsorted(ends, fractions * ends[-1], "right"), len(slots) - 1)
        return slots[which], masses[which]


class TestBalanced(SamplerContract):
    """The promises of every sampler; pytest runs them, too."""

    sampler = Balanced(k=5)
    draws_all = False  # older steps are left out on purpose


def main() -> None:
    """Run the contract, draw from two environments of different speed, save and load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000, help="how many steps are drawn (default 1000)")
    args = parser.parse_args()
    print(f"Balanced keeps {TestBalanced.run_all()} promises of a sampler")
    schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    buffer = relive.ReplayBuffer(schema, 100, num_envs=2, sampler=Balanced(k=40), seed=0)
    for env, steps in ((0, 40), (1, 10)):
        time, off = np.arange(float(steps)), np.zeros(steps, bool)
        step = {"obs": time, "action": time, "reward": time, "next_obs": time + 1, "terminated": off, "truncated": off}
        buffer.extend(**{name: values[None] for name, values in step.items()}, env_ids=[env])
    envs, counts = np.unique(buffer.sample(args.draws).ids % 2, return_counts=True)
    print("environment: times drawn", dict(zip(envs.tolist(), counts.tolist(), strict=True)))
    with tempfile.TemporaryDirectory() as path:
        buffer.save(path)
        print(f"saved, and loaded by its name: {relive.load(path).sampler}")


if __name__ == "__main__":
    main()
