"""A queue of anchors per lane, in the order of their rows, in readable NumPy: what uniform draws need.

Anchors come at a queue's end and go at its beginning, so two counters per lane say which are in it. What is drawn
depends on these only, not on when the queue was refreshed.
"""

from __future__ import annotations

import numpy as np

from ..._base.journal import Journal
from ..._base.types import Array, Float64, Int64
from .recency import Recency
from .ring import Ring

# Columns of `ends`: anchors that ever went and came, episodes that ever went and came.
GONE, COME, EPISODES_GONE, EPISODES_COME = range(4)


class Queue:
    """Works on arrays it is given.

    Args:
        ring: Where the anchors come from.
        places: int32 or int64, `L * R` of them: the row, modulo R, of the lane's k-th anchor, at `k % R * L + lane`.
        firsts: The same for episodes: the number, modulo R, of the anchor that each begins with; None: not kept.
        ends: int64 `[L, 4]`.
        seen: int64 `[L, 3]`: the ring's counters at the last refresh.
    """

    def __init__(self, ring: Ring, places: Array, firsts: Array | None, ends: Int64, seen: Int64) -> None:
        self._places = places.reshape(ring.rows, ring.num_lanes).T  # lanes in lock step write side by side
        self._ring, self._firsts, self._ends, self._seen = ring, firsts, ends, seen

    def refresh(self) -> int:
        """Take in what changed; return how many anchors there are."""
        changes = self._ring.changes(self._seen)
        if not np.array_equal(changes.seen, self._seen):
            with Journal() as journal:
                lanes, rows = self._ring.rows_at(changes.added)
                for lane in range(self._ring.num_lanes):
                    self._forget(journal, lane, int(changes.seen[lane, 0]))
                    self._append(journal, lane, rows[lanes == lane])
                journal.put(self._seen, slice(None), changes.seen)
        return int(self.counts().sum())

    def chooser(self, replacement: bool) -> None:
        """Do nothing: only the native kernel has a fast path for draws inside `sample`."""

    def draw(self, u: Float64) -> Int64:
        """Draw the slots of random anchors, by uniforms in [0, 1)."""
        total = int(self.counts().sum())
        return self._slots(np.minimum((u * total).astype(np.int64), total - 1))

    def draw_distinct(self, u: Float64) -> Int64:
        """Draw the slots of different anchors, at most all: the first steps of a Fisher-Yates shuffle."""
        total = int(self.counts().sum())
        moved: dict[int, int] = {}
        chosen = np.empty(len(u), np.int64)
        for i, uniform in enumerate(u.tolist()):
            j = i + min(int(uniform * (total - i)), total - i - 1)
            chosen[i] = moved.get(j, j)
            moved[j] = moved.get(i, i)
        return self._slots(chosen)

    def draw_episodes(self, u: Float64) -> Int64:
        """Draw anchors of random episodes: a scaled uniform's whole part picks the episode, the rest its anchor."""
        counts = self._ends[:, EPISODES_COME] - self._ends[:, EPISODES_GONE]
        total, starts = int(counts.sum()), np.cumsum(counts)
        which = np.minimum((u * total).astype(np.int64), total - 1)
        lanes = np.searchsorted(starts, which, "right")
        episodes = self._ends[lanes, EPISODES_GONE] + which - (starts - counts)[lanes]
        first = np.where(episodes == self._ends[lanes, EPISODES_GONE], 0, self._first(lanes, episodes))
        newest = episodes + 1 == self._ends[lanes, EPISODES_COME]
        end = np.where(newest, self._ends[lanes, COME] - self._ends[lanes, GONE], self._first(lanes, episodes + 1))
        size = end - first
        item = np.minimum(((u * total - which) * size).astype(np.int64), size - 1)
        return self.slot(lanes, first + item)

    def behind(self, slots: Int64) -> Int64:
        """Count the anchors of the same lane that are older than the ones at `slots`."""
        ring, (places, lanes) = self._ring, np.divmod(slots, self._ring.num_lanes)
        first, counts = self._ends[lanes, GONE], self.counts()
        oldest = self._places[lanes, first % ring.rows].astype(np.int64)
        low, high = np.zeros(len(slots), np.int64), np.maximum(counts[lanes] - 1, 0)
        for _ in range(int(counts.max()).bit_length()):
            middle = (low + high) // 2
            here = self._places[lanes, (first + middle) % ring.rows]
            before = (here - oldest) % ring.rows < (places - oldest) % ring.rows
            low, high = np.where(before, middle + 1, low), np.where(before, high, middle)
        return low

    def probability(self, slots: Int64) -> Float64:
        """Return the probability of anchors in a draw of one, with or without replacement."""
        if self._firsts is None:
            return np.full(len(slots), 1.0 / int(self.counts().sum()))
        total = int((self._ends[:, EPISODES_COME] - self._ends[:, EPISODES_GONE]).sum())
        each = np.stack((slots % len(self._ends), self.behind(slots)), axis=1)
        alike = [total * self._episode_size(lane, behind) for lane, behind in each.tolist()]
        return 1.0 / np.array(alike, np.float64)

    def _episode_size(self, lane: int, behind: int) -> int:
        """Count the anchors of the episode that has the one `behind` the oldest of a lane."""
        gone, come, first, last = self._ends[lane].tolist()
        begins = self._first(np.full(last - first - 1, lane), np.arange(first + 1, last))
        edges = np.concatenate(([0], begins, [come - gone]))
        at = int(np.searchsorted(edges, behind, "right"))
        return int(edges[at] - edges[at - 1])

    def recency(self, rate: float, relative: bool) -> Recency:
        """Make a law of draws that prefer new items."""
        return Recency(self, rate, relative)

    def counts(self) -> Int64:
        """Count the anchors of each lane."""
        counts: Int64 = self._ends[:, COME] - self._ends[:, GONE]
        return counts

    def _slots(self, which: Int64) -> Int64:
        """Return the slots of the anchors with these numbers, counted over all lanes."""
        counts = self.counts()
        starts = np.cumsum(counts)
        lanes = np.searchsorted(starts, which, "right")
        return self.slot(lanes, which - (starts - counts)[lanes])

    def slot(self, lanes: Int64, behind: Int64) -> Int64:
        """Return the slots of the anchors that come `behind` anchors after the oldest of their lanes."""
        places = self._places[lanes, (self._ends[lanes, GONE] + behind) % self._ring.rows]
        slots: Int64 = places.astype(np.int64) * self._ring.num_lanes + lanes
        return slots

    def _first(self, lanes: Int64, episodes: Int64) -> Int64:
        """Count the anchors between the oldest and the first of each given episode; not for the oldest episode."""
        firsts = np.asarray(self._firsts)[lanes, episodes % self._ring.rows].astype(np.int64)
        ahead: Int64 = (firsts - self._ends[lanes, GONE]) % self._ring.rows
        return ahead

    def _forget(self, journal: Journal, lane: int, oldest: int) -> None:
        """Remove anchors before the row `oldest`, and episodes that have no anchor left."""
        gone, come, episodes_gone, episodes_come = self._ends[lane].tolist()
        rows = self._ring.rows
        numbers = np.arange(gone, come)
        ahead = (self._places[lane, numbers % rows].astype(np.int64) - int(self._seen[lane, 0])) % rows
        now = gone + int((ahead < oldest - self._seen[lane, 0]).sum())
        if now == come:
            episodes_gone = episodes_come
        elif self._firsts is not None:
            later = np.arange(episodes_gone + 1, episodes_come)
            firsts = (self._firsts[lane, later % rows].astype(np.int64) - gone) % rows
            episodes_gone += int((firsts <= now - gone).sum())
        journal.put(self._ends, lane, (now, come, episodes_gone, episodes_come))

    def _append(self, journal: Journal, lane: int, rows: Int64) -> None:
        """Append anchors; one begins an episode unless the one before it is `starts` steps earlier in its stream."""
        if not len(rows):
            return
        ring = self._ring
        gone, come, episodes_gone, episodes_come = self._ends[lane].tolist()
        numbers = np.arange(come, come + len(rows)) % ring.rows
        before = self._places[lane, [(come - 1) % ring.rows]] if come > gone else [-1]
        before = np.concatenate((before, rows[:-1] % ring.rows))
        journal.put(self._places, (lane, numbers), rows % ring.rows)
        if self._firsts is not None:
            begins = ring.begins_since(np.full(len(rows), lane), rows, ring.starts)
            begins |= before != (rows - ring.starts) % ring.rows
            opened = np.arange(episodes_come, episodes_come + int(begins.sum()))
            journal.put(self._firsts, (lane, opened % ring.rows), numbers[begins])
            episodes_come += len(opened)
        journal.put(self._ends, lane, (gone, come + len(rows), episodes_gone, episodes_come))
