"""A sampler of one's own with priorities: rank-based prioritization, exact at every draw.

python examples/ranked_sampler.py --alpha 0.7

Schaul et al., "Prioritized Experience Replay", ICLR 2016, section 3.3, second variant.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

import relive
from relive.errors import PriorityError, message
from relive.samplers import Carried, Draw, Index, Report, Ring, Sampler
from relive.storage import ArraySpec, Memory
from relive.testing import SamplerContract


@relive.saved_as("rank-based")  # the name and the fields are what a save has
@dataclass(frozen=True, kw_only=True)
class Ranked(Sampler):
    """Draw an item with probability `rank**-alpha / sum`, where rank 1 has the largest `|td_error| + eps`.

    Of equal priorities the one that was set earlier ranks higher; an item of priority 0 is not drawn. A draw after a
    change sorts all items: about 0.2 s for a million. Weights are divided by the largest of their batch.
    """

    alpha: float = 0.7
    beta: float = 0.4
    eps: float = 1e-6
    replacement: bool = True  # with strata; without it draws are successive
    prioritizes = True
    weights = "batch"

    def spec(self, lanes: int, rows: int) -> dict[str, ArraySpec]:
        """Name the arrays that a save has: of each slot its priority and when it was set, the largest and a clock."""
        number, slots = np.dtype(np.float64), (lanes * rows,)
        return {
            "ranked.raw": ArraySpec(slots, number, "slots"),
            "ranked.set_at": ArraySpec(slots, number, "slots"),
            "ranked.state": ArraySpec((2,), number),
            "ranked.seen": ArraySpec((lanes, 3), np.dtype(np.int64), "seen"),
        }

    def index(self, ring: Ring, memory: Memory) -> RankedIndex:
        """Make the sampler at work on one buffer."""
        return RankedIndex(self, ring, memory)

    def carried(self, slots: Mapping[str, np.ndarray], whole: Mapping[str, np.ndarray]) -> Carried:
        """Hand saved priorities to another sampler."""
        return Carried(slots["ranked.raw"], float(whole["ranked.state"][0]))


class RankedIndex(Index):
    """Priorities of slots, and the slots by rank, sorted when a draw needs them."""

    def __init__(self, settings: Ranked, ring: Ring, memory: Memory) -> None:
        self._settings, self._ring = settings, ring
        names = settings.spec(ring.lanes, ring.rows)
        self._raw, self._set_at, self._state, self._seen = (memory.host(name) for name in names)
        self._order: np.ndarray | None = None

    def refresh(self) -> int:
        """Take in what changed; return how many slots can be drawn."""
        ring, changes = self._ring, self._ring.changes(self._seen)
        if (changes.seen != self._seen).any():
            largest = 0.0 if ring.cleared(self._seen) else self._state[0]
            largest = max(largest, ring.largest_given(self._seen))
            raw = ring.priorities(changes.rows, largest or 1.0)
            self._raw[changes.removed] = 0.0
            self._set(changes.added, raw)
            self._state[0] = largest
            self._seen[:] = changes.seen  # last: after an interrupt the next call repeats all of this
        return int(np.count_nonzero(self._raw))

    def draw(self, n: int, rng: np.random.Generator, beta: float | None) -> Draw:
        """Draw `n` slots by one call of `rng.random(n)`."""
        if self._order is None:
            known = np.flatnonzero(self._raw)
            self._order = known[np.lexsort((self._set_at[known], -self._raw[known]))]
        mass, u = np.arange(1.0, len(self._order) + 1) ** -self._settings.alpha, rng.random(n)
        total = np.cumsum(mass)
        if self._settings.replacement:
            which = total.searchsorted((np.arange(n) + u) * (total[-1] / n), "right")
            which = np.minimum(which, len(mass) - 1)  # the last target may be rounded up to the total
        else:
            which, left = np.empty(n, np.int64), mass.copy()
            for i in range(n):
                total = np.cumsum(left)
                which[i] = total.searchsorted(u[i] * total[-1], "right")
                left[which[i]] = 0.0
        drawn, beta = mass[which], self._settings.beta if beta is None else beta
        weights = (drawn / drawn.min()) ** -beta
        return Draw(self._order[which], weights.astype(np.float32), drawn, beta)

    def update(self, slots: np.ndarray, td_error: np.ndarray, keep: np.ndarray | None) -> None:
        """Set priorities; of several for one slot the last counts."""
        raw = np.abs(td_error) + self._settings.eps
        if not np.isfinite(raw).all():
            raise PriorityError(message("finite TD errors", "others", "$.td_error", "check the loss"))
        if keep is not None:
            slots, raw = slots[keep], raw[keep]
        self._set(slots, raw)
        self._state[0] = max(self._state[0], self._raw[slots].max(initial=0.0))

    def priorities(self, slots: np.ndarray) -> np.ndarray:
        """Return raw priorities."""
        return self._raw[slots]

    def adopt(self, slots: np.ndarray, raw: np.ndarray, largest: float) -> None:
        """Take over the priorities of a save of another sampler."""
        self._set(slots, raw)
        self._state[0] = largest

    def report(self) -> Callable[[], Report]:
        """Add nothing to `buffer.stats()`."""
        return Report

    def _set(self, slots: np.ndarray, raw: np.ndarray) -> None:
        self._order = None
        self._raw[slots], self._set_at[slots] = raw, self._state[1] + np.arange(len(slots))
        self._state[1] += len(slots)


class TestRanked(SamplerContract):
    """The promises of every sampler; pytest runs them, too."""

    sampler = Ranked()


def main() -> None:
    """Run the contract, compare draws with their law, and load a save with another sampler."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alpha", type=float, default=0.7, help="how strongly ranks count (default 0.7)")
    alpha = parser.parse_args().alpha
    print(f"Ranked keeps {TestRanked.run_all()} promises of a sampler")
    schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    buffer = relive.ReplayBuffer(schema, 100, sampler=Ranked(alpha=alpha), seed=0)
    time, off = np.arange(4.0), np.zeros(4, bool)
    ids = buffer.extend(obs=time, action=time, reward=time, next_obs=time + 1, terminated=off, truncated=off)
    buffer.update_priorities(ids, [0.1, 7.0, 0.5, 900.0])
    drawn = np.bincount(np.concatenate([buffer.sample(100).ids for _ in range(100)])) / 10_000
    law = np.array([4, 2, 3, 1]) ** -alpha
    print("share of draws:", drawn.round(3).tolist(), "by rank:", (law / law.sum()).round(3).tolist())
    with tempfile.TemporaryDirectory() as path:
        buffer.save(path)
        loaded = relive.load(path, sampler=relive.Prioritized())
        print("priorities under `Prioritized`:", loaded.priorities(ids).round(3).tolist())


if __name__ == "__main__":
    main()
