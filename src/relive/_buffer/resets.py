"""How the streams begin that follow an episode: it shows which mistake with an autoreset mode a loop makes."""

from __future__ import annotations

import numpy as np

from .._base.frozen import Frozen
from .._base.types import Array, Bool, Int64
from .._ring.lanes import HEAD, HISTORY, LOST, STEP, TERMINATED, TRUNCATED, first_rows, ranges
from .._ring.ring import Ring


class Resets(Frozen):
    """The streams in a ring that follow an episode whose final observation is a new one, `[n]`.

    Attributes:
        bootstrapped: Whether that episode was truncated and did not terminate, so that its final observation is used.
        repeated: Whether the stream begins with that final observation.
        mode: The autoreset mode in which streams begin so, where rewards or observations tell.
    """

    bootstrapped: Bool
    repeated: Bool
    mode: str | None

    @classmethod
    def of(cls, ring: Ring) -> Resets:
        """Read all rows of a ring. Call it under the buffer's lock."""
        lanes, rows = ranges(first_rows(ring.counters, ring.rows), ring.counters[:, HEAD])
        marks, places = ring.marks[ring.at(rows, lanes)], ring.storage(rows, lanes)
        steps = np.flatnonzero(marks & STEP)
        finals = np.flatnonzero((marks & (STEP | HISTORY | LOST)) == 0)
        finals = finals[(finals > steps[0]) & (finals < steps[-1])] if len(steps) else finals[:0]
        k = np.searchsorted(steps, finals)
        before, first, second = steps[k - 1], steps[k], steps[np.minimum(k + 1, len(steps) - 1)]
        ended = ((marks[before] & (TERMINATED | TRUNCATED)) > 0) & (lanes[before] == lanes[first])
        ended &= _unequal(ring, places[before], places[finals])
        before, finals, first, second = before[ended], finals[ended], first[ended], second[ended]
        repeated = ~_unequal(ring, places[finals], places[first])
        others = np.setdiff1d(steps, first, assume_unique=True)
        second = second[lanes[second] == lanes[first]]
        return cls(
            (marks[before] & TERMINATED) == 0,
            repeated,
            _mode(ring, places[first], places[second], places[others]),
        )


def _mode(ring: Ring, firsts: Int64, seconds: Int64, others: Int64) -> str | None:
    """Return the mode in which streams begin with the final observation of the episode before.

    A step that only resets has reward 0. So one that has a reward is none, and none has where nearly all others do. It
    begins anywhere and leads to where episodes begin: often one of a few observations.
    """
    if _rewarded(ring, firsts).any():
        return "SAME_STEP"
    if len(others) and _rewarded(ring, others).mean() >= 0.9:
        return "NEXT_STEP"
    return "NEXT_STEP" if _kinds(ring, firsts) >= 2 * _kinds(ring, seconds) else None


def _rewarded(ring: Ring, places: Int64) -> Bool:
    rewards = ring.reward[places]
    rewarded: Bool = (rewards != 0).any(axis=tuple(range(1, rewards.ndim)))
    return rewarded


def _unequal(ring: Ring, places: Int64, others: Int64) -> Bool:
    """Mark the rows whose newest frames differ from those of `others`, byte for byte."""
    unequal = np.zeros(len(places), bool)
    for column in ring.observations:
        unequal |= (_bytes(column, places) != _bytes(column, others)).any(axis=1)
    return unequal


def _kinds(ring: Ring, places: Int64) -> int:
    """Count the different observations in these rows."""
    return len(np.unique(np.concatenate([_bytes(column, places) for column in ring.observations], axis=1), axis=0))


def _bytes(column: Array, places: Int64) -> Array:
    rows = np.ascontiguousarray(column[places])
    return rows.reshape(len(rows), rows[:1].size).view(np.uint8).reshape(len(rows), rows[:1].nbytes)
