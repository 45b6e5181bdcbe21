"""Stand-ins for other projects' buffers: they make the same mistakes in other words, or if `repaired` none."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

State = dict[str, Any]
Pair = tuple[Any, State, State]  # what `update` takes, and two states in a row
Step = tuple[float, ...]
_CHUNK = 4


class SavedChunks:
    """DreamerV3's: chunks of states, each saved once, whatever is written later; a mixture that has no length."""

    def __init__(self, size: int, mixed: bool, repaired: bool) -> None:
        self._size, self._mixed, self._repaired = size, mixed and not repaired, repaired
        self._states, self._next, self._rng = dict[int, State](), 0, np.random.default_rng(0)
        self._saved: dict[int, dict[int, State]] = {}

    def add(self, state: State) -> None:
        """Add a state."""
        self._states[self._next] = state
        self._states.pop(self._next - self._size - 1, None)
        self._next += 1

    def pairs(self) -> Iterator[Pair]:
        """Yield everything that can be drawn."""
        return ((at, one, self._states[at + 1]) for at, one in self._states.items() if at + 1 in self._states)

    def sample(self, n: int) -> list[Pair]:
        """Draw pairs."""
        if self._mixed:
            raise TypeError("object of type 'Mixture' has no len()")
        known = [*self.pairs()]
        return [known[i] for i in self._rng.integers(len(known), size=n)]

    def update(self, number: int, latent: float) -> None:
        """Write to a state that is still stored."""
        if number in self._states:
            self._states[number] = {**self._states[number], "latent": latent}
            if self._repaired:
                self._saved.pop(number // _CHUNK, None)

    def save(self) -> Any:
        """Save the chunks that are not saved yet, and return all that is saved."""
        for chunk in {number // _CHUNK for number in self._states} - self._saved.keys():
            self._saved[chunk] = {at: state for at, state in self._states.items() if at // _CHUNK == chunk}
        return {at: state for chunk in self._saved.values() for at, state in chunk.items()}

    def load(self, saved: Any) -> None:
        """Load chunks."""
        self._states = dict(saved)


class SlotLatents:
    """R2-Dreamer's: a ring of states; `update` writes to slots, and if `repaired` only to the state that was drawn."""

    def __init__(self, size: int, repaired: bool) -> None:
        self._size, self._repaired = size, repaired
        self._ring, self._head, self._rng = dict[int, tuple[int, State]](), 0, np.random.default_rng(0)

    def add(self, state: State) -> None:
        """Add a state."""
        self._ring[self._head % self._size] = self._head, state
        self._head += 1

    def pairs(self) -> Iterator[Pair]:
        """Yield everything that can be drawn."""
        for number in range(max(self._head - self._size, 0), self._head - 1):
            yield number, self._ring[number % self._size][1], self._ring[(number + 1) % self._size][1]

    def sample(self, n: int) -> list[Pair]:
        """Draw pairs."""
        known = [*self.pairs()]
        return [known[i] for i in self._rng.integers(len(known), size=n)]

    def update(self, number: int, latent: float) -> None:
        """Write to the slot of a state."""
        there, state = self._ring[number % self._size]
        if there == number or not self._repaired:
            self._ring[number % self._size] = there, {**state, "latent": latent}


class Segments:
    """LightZero's: game segments, and a priority for each position in one array, from which the oldest are cut off.

    Args:
        size: Positions that are kept.
        repaired: Whether it moves positions by what was removed since the draw, and does not drop all of them, refuses
            priorities that are not finite, and draws the last position of a segment, too.
        timed: Whether draws have a time; from January to August 2026 it was 0.
    """

    def __init__(self, size: int, repaired: bool, timed: bool = True) -> None:
        self._size, self._repaired, self._timed = size, repaired, timed
        self.segments: list[list[Step]] = []
        self._masses = np.zeros(0)
        self._gone, self._clock, self._cleared = 0, 0, 0
        self._rng = np.random.default_rng(0)

    def push(self, segment: list[Step]) -> None:
        """Add a segment with the largest priority, and remove the oldest ones beyond the size."""
        self._clock += 1
        largest = self._masses.max() if len(self._masses) else 1.0
        self.segments.append(segment)
        self._masses = np.append(self._masses, np.full(len(segment), largest))
        while len(self._masses) > self._size:
            many = len(self.segments.pop(0))
            self._masses, self._gone, self._cleared = self._masses[many:], self._gone + many, self._clock

    def sample(self, n: int) -> list[tuple[Step, Any, float]]:
        """Draw positions, each with a handle and a weight; what lies at a segment's end is drawn again in it."""
        self._clock += 1
        shares, drawn = self._masses + 1e-6, list[tuple[Step, Any, float]]()
        shares /= shares.sum()
        places = [(segment, at) for segment in self.segments for at in range(len(segment))]
        for index in self._rng.choice(len(shares), n, p=shares).tolist():
            segment, at = places[index]
            moved = at
            if at == len(segment) - 1 and not self._repaired:
                moved = int(self._rng.integers(max(1, len(segment) - 1)))
            index += moved - at
            handle = index, self._clock if self._timed else 0, index + self._gone
            drawn.append((segment[moved], handle, 1.0 / (len(shares) * shares[index])))
        return drawn

    def update(self, handles: Any, priorities: Any) -> None:
        """Set priorities of positions that were drawn since the last removal."""
        for (index, made, number), priority in zip(handles, priorities, strict=True):
            if self._repaired and number >= self._gone and np.isfinite(priority):
                self._masses[number - self._gone] = priority
            elif not self._repaired and made > self._cleared:
                self._masses[index] = priority


class CountedRing:
    """OGBench's: arrays by name, and a pointer that goes round; `repaired` counts the last slot, too."""

    def __init__(self, transition: Mapping[str, Any], size: int, repaired: bool) -> None:
        self._arrays = {name: np.zeros((size, *np.shape(value)), np.float32) for name, value in transition.items()}
        self._max, self._pointer, self._repaired, self.size = size, 0, repaired, 0

    def add_transition(self, transition: Mapping[str, Any]) -> None:
        """Write a step, and move on; the size follows the pointer, which is 0 after the last slot."""
        for name, value in transition.items():
            self._arrays[name][self._pointer] = value
        counted = self._pointer + 1 if self._repaired else (self._pointer + 1) % self._max
        self._pointer, self.size = (self._pointer + 1) % self._max, max(self.size, counted)

    def get_subset(self, at: Any) -> dict[str, Any]:
        """Return steps by their slots."""
        return {name: array[at] for name, array in self._arrays.items()}

    def sample(self, n: int) -> dict[str, Any]:
        """Draw steps."""
        return self.get_subset(np.random.randint(self.size, size=n))


class ScoredGroups:
    """TRL's: a heap of scores and data, of which the least score goes first; of a batch it takes the first group.

    If `repaired`, equal scores are told apart by a number, and not by the data, which cannot be compared.
    """

    def __init__(self, size: int, repaired: bool) -> None:
        self._size, self._repaired, self._number = size, repaired, 0
        self.heap: list[Any] = []

    def groups(self, spread: Any) -> list[int]:
        """List the groups of a batch that are to be added: those with a spread, or the first if any has one."""
        return np.flatnonzero(np.asarray(spread if self._repaired else max(spread)) > 0).tolist()

    def add(self, scores: list[float], data: list[dict[str, Any]]) -> None:
        """Keep groups of large scores."""
        for score, datum in zip(scores, data, strict=True):
            self._number += 1
            entry = (score, self._number, datum) if self._repaired else (score, datum)
            if len(self.heap) < self._size:
                heapq.heappush(self.heap, entry)
            elif score > self.heap[0][0] or self._repaired:
                heapq.heapreplace(self.heap, entry)

    def sample(self, n: int) -> list[dict[str, Any]]:
        """Draw groups by their scores."""
        scores = np.array([entry[0] for entry in self.heap])
        return [self.heap[i][-1] for i in np.random.choice(len(scores), n, p=scores / scores.sum())]
