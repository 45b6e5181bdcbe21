"""LightZero's game buffer with priorities; a stand-in, since its module imports the whole of its framework."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from relive._base.types import Float64

from .._pipeline import Item
from ._loops import Run, Runner, calls_of

# The mistakes, each with what its repair does.
REPAIRS = {
    "dropped updates": "takes the time of a draw for its time, which was 0 in 2026 from January to August",
    "any eviction": "moves positions by what was evicted since the draw, and does not drop all of them",
    "last position": "draws the last position of a segment, too",
}


class Segments:
    """Game segments, and a priority for each position in one array, from which the oldest are cut off."""

    def __init__(self, size: int, repaired: Collection[str]) -> None:
        self._size, self._repaired = size, repaired
        self.segments: list[list[tuple[float, ...]]] = []
        self.masses = np.zeros(0)
        self._gone, self.clock, self.cleared = 0, 0, 0
        self._rng = np.random.default_rng(0)

    def push(self, segment: list[tuple[float, ...]]) -> None:
        """Add a segment with the largest priority, and remove the oldest ones beyond the size."""
        self.clock += 1
        largest = self.masses.max() if len(self.masses) else 1.0
        self.segments.append(segment)
        self.masses = np.append(self.masses, np.full(len(segment), largest))
        while len(self.masses) > self._size:
            many = len(self.segments.pop(0))
            self.masses, self._gone, self.cleared = self.masses[many:], self._gone + many, self.clock

    def places(self) -> list[tuple[int, int]]:
        """Return segment and position of each priority."""
        return [(s, at) for s, segment in enumerate(self.segments) for at in range(len(segment))]

    def sample(self, n: int) -> list[tuple[tuple[float, ...], Any, float]]:
        """Draw positions, each with a handle and a weight; what lies at a segment's end is drawn again in it."""
        self.clock += 1
        shares, places, drawn = self.masses + 1e-6, self.places(), []
        shares /= shares.sum()
        for index in self._rng.choice(len(shares), n, p=shares).tolist():
            segment, at = places[index]
            moved = at
            if at >= len(self.segments[segment]) - 1 and "last position" not in self._repaired:
                moved = int(self._rng.integers(max(1, len(self.segments[segment]) - 1)))
            index += moved - at
            made = self.clock if "dropped updates" in self._repaired else 0
            handle = index, made, index + self._gone
            drawn.append((self.segments[segment][moved], handle, 1.0 / (len(shares) * shares[index])))
        return drawn

    def update(self, handles: Any, priorities: Float64) -> None:
        """Set priorities of positions that were drawn since the last removal."""
        for (index, made, number), priority in zip(handles, priorities, strict=True):
            if "any eviction" in self._repaired:
                if made and number >= self._gone:
                    self.masses[number - self._gone] = priority
            elif made > self.cleared:
                self.masses[index] = priority


class LightZero(Runner):
    """A stand-in for LightZero's buffer as it is since August 2026; a segment is an episode.

    Args:
        repaired: Those of the mistakes, names of `REPAIRS`, that are not made.
    """

    modes, lanes = (AutoresetMode.DISABLED,), 1

    def __init__(self, repaired: Collection[str] = ("dropped updates",)) -> None:
        super().__init__()
        self._repaired = frozenset(repaired)

    def _made(self, run: Run) -> Segments:
        return Segments(run.size, self._repaired)

    def _fill(self, run: Run) -> None:
        segment: list[tuple[float, ...]] = []
        for call in calls_of(run):
            if call.reset and segment:
                self._buffer.push(segment)
                segment = []
            bootstrap = 0.0 if call.terminated[0] else self._gamma
            segment.append((call.obs[0].item(), call.reward[0].item(), bootstrap, call.next_obs[0].item()))
            if call.terminated[0] or call.truncated[0]:
                self._buffer.push(segment)
                segment = []
        if segment:
            self._buffer.push(segment)

    def items(self) -> list[Item]:
        """Return every item that is stored."""
        return [Item(*self._buffer.segments[segment][at]) for segment, at in self._buffer.places()]

    def sample(self, n: int) -> list[Item]:
        """Draw items."""
        drawn = self._buffer.sample(n)
        return [Item(*step)._replace(handle=handle, weight=weight) for step, handle, weight in drawn]

    def update(self, handles: Any, td_errors: Float64) -> None:
        """Update priorities."""
        if not np.isfinite(td_errors).all():
            raise ValueError("priorities must be finite")
        self._buffer.update(handles, np.abs(td_errors))


class LightZeroSpring(LightZero):
    """The same as it was from January to August 2026."""

    def __init__(self) -> None:
        super().__init__(())
