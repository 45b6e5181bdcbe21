"""What the marks of a lane's rows say about its counters, and how rows are dropped from among the marks.

Kernels keep the counters while they write. They are counted again after a kill in the middle of a call, for a save that
is loaded into another ring or is damaged, and in a process whose items need other rows than the ring's own.
"""

from __future__ import annotations

import numpy as np

from .._base.frozen import Frozen
from .._base.types import Array, Bool, Bytes, Int64
from . import kernels
from .lanes import (
    CLEARED,
    CUT,
    DRAWABLE,
    END,
    FIRST,
    GONE,
    HEAD,
    HELD,
    HISTORY,
    LOST,
    MEMORY,
    OLDEST,
    READY,
    READY_STEPS,
    START,
    STEP,
    STEPS,
    STORED,
    TERMINATED,
    TRUNCATED,
    anchors_in,
    first_rows,
    place_of,
    ranges,
)
from .plans import Window


class StoredMarks(Frozen):
    """Marks of the rows that lanes store.

    Attributes:
        marks: uint8 `[N]`; those of a lane lie together, its oldest row first.
        first: The first row of each lane, int64 `[L]`.
        head: The row after its last one, `[L]`.
        begin: Where the marks of each lane begin, `[L]`, in ascending order.
    """

    marks: Bytes
    first: Int64
    head: Int64
    begin: Int64

    @staticmethod
    def of(marks: Bytes, first: Int64, head: Int64) -> StoredMarks:
        """Take marks of the rows `[first, head)` of each lane, without gaps between the lanes."""
        counts = head - first
        return StoredMarks(marks, first, head, np.cumsum(counts) - counts)

    @staticmethod
    def read(marks: Bytes, lanes: Int64, first: Int64, head: Int64) -> StoredMarks:
        """Copy marks `[blocks, lanes of the ring, K]`: those of the rows `[first, head)` of `lanes`."""
        found = np.empty((head - first).sum(), np.uint8)
        _, count, block = marks.shape
        kernels.active().copy_ranges([marks.reshape(-1)], count, block, np.stack([lanes, first, head], axis=1), [found])
        return StoredMarks.of(found, first, head)

    @property
    def end(self) -> Int64:
        """The ends of the lanes' marks."""
        return self.at(self.head)

    def at(self, rows: Int64) -> Int64:
        """Return the positions of the marks of one row of each lane."""
        return self.begin + (rows - self.first)

    def since(self, rows: Int64) -> StoredMarks:
        """Return the marks of each lane from a row on."""
        return StoredMarks(self.marks, rows, self.head, self.at(rows))

    def rows(self, at: Int64) -> Int64:
        """Return the row of each lane whose mark is at a position."""
        return self.first + (at - self.begin)


def steps_in(stored: StoredMarks) -> Int64:
    """Count the steps among the rows of each lane."""
    return _count(stored.marks & STEP, stored.begin, stored.end)


def first_kept(stored: StoredMarks, steps: int) -> Int64:
    """Return the first row of each lane that keeps `steps` steps, the newest."""
    found = np.flatnonzero((stored.marks & STEP) > 0)  # of flags, which takes less than of numbers
    low, high = np.searchsorted(found, (stored.begin, stored.end))
    if (high - low <= steps).all():
        return stored.first
    dropped = np.append(-1, found)[np.maximum(high - steps, 0)]  # the newest that is one too many
    return np.where(high - low > steps, stored.rows(dropped + 1), stored.first)


def oldest_in(stored: StoredMarks, lookback: int) -> Int64:
    """Return the first drawable row of each lane: those before it need rows that are gone."""
    marks, begin = stored.marks, stored.begin
    begins = np.flatnonzero((marks & FIRST) > 0)
    most = np.where(stored.first > 0, np.minimum(lookback, stored.end - begin), 0)
    first = np.append(begins, len(marks))[np.searchsorted(begins, begin)]
    return stored.rows(np.minimum(first, begin + most))


def ready_in(stored: StoredMarks, held: Bool, window: Window) -> Int64:
    """Return the first row of each lane whose window is incomplete.

    Args:
        stored: The marks.
        held: Whether the row after a lane's newest holds an observation.
        window: Of the items.
    """
    marks, end = stored.marks, stored.end
    if not window.across:  # the windows of earlier streams are
        begin = np.maximum(stored.begin, _after_last((marks & (STEP | END)) != STEP, end))
        return stored.rows(np.minimum(np.maximum(begin, end - window.span + held), end))
    begin = np.maximum(stored.begin, _after_last(((marks & CUT) > 0) | _dropped(marks), end))
    found = np.flatnonzero((marks & STEP) > 0)
    low, high = np.searchsorted(found, (begin, end))
    complete = high - low + held - window.span
    steps = np.append(found, len(marks))
    waiting = np.where(complete > 0, steps[low + np.maximum(complete, 1) - 1] + 1, steps[low])
    return stored.rows(np.minimum(waiting, end))


def recount(counters: Int64, stored: StoredMarks, oldest: Int64, ready: Int64, depth: int) -> None:
    """Set the counters of lanes that follow from their heads, and from which of their rows can be drawn.

    Args:
        counters: The lanes', `[L, 16]`.
        stored: The marks.
        oldest: The first row of each lane that can be drawn.
        ready: The first row whose window is not complete.
        depth: How many rows a lane has in memory.
    """
    counters[:, OLDEST], counters[:, READY], counters[:, MEMORY] = oldest, ready, counters[:, HEAD] % depth
    counters[:, STORED] = steps_in(stored)
    counters[:, DRAWABLE] = _count(anchors_in(stored.marks), stored.at(oldest), stored.at(np.maximum(ready, oldest)))


def recount_ready_steps(counters: Int64, stored: StoredMarks) -> None:
    """Set the steps before the row `READY`."""
    counters[:, READY_STEPS] = counters[:, STEPS] - steps_in(stored.since(counters[:, READY]))


def recover(marks: Bytes, counters: Int64, lanes: Int64, rows: int, steps: int, window: Window) -> None:
    """Put right some lanes, after a kill in the middle of a call.

    Args:
        marks: Of all lanes, `[blocks, L, K]`.
        counters: Of all lanes, `[L, 16]`.
        lanes: Numbers of lanes.
        rows: Of a lane.
        steps: That a lane keeps.
        window: Of the items.
    """
    blocks, _, block = marks.shape
    depth, now = blocks * block, counters[lanes]
    head, oldest = now[:, HEAD], first_rows(now, rows)
    low, cleared = np.maximum(head - rows, 0), np.minimum(now[:, CLEARED], head)
    left = np.flatnonzero(StoredMarks.read(marks, lanes, low, np.maximum(cleared, low)).marks)
    if len(left):  # a clear was killed before its end
        lane, row = (each[left] for each in ranges(low, cleared))
        marks[place_of(row % depth, lanes[lane], block)] = 0
    now[cleared == head, HELD] = 0
    held = (head > 0) & (now[:, HELD] == head)
    # An observation, whatever was to become of it.
    marks[place_of(head[held] % depth, lanes[held], block)] = 0
    stored = StoredMarks.read(marks, lanes, oldest, head)
    first = first_kept(stored, steps)
    now[:, GONE] = np.where(first > oldest, first, now[:, GONE])
    stored = stored.since(first)
    oldest = np.minimum(np.maximum(now[:, OLDEST], oldest_in(stored, window.lookback)), head)
    recount(now, stored, oldest, np.minimum(np.maximum(now[:, READY], first), head), depth)
    if window.starts > 1:
        newest = _after_last(anchors_in(stored.marks), stored.end) - 1
        since = _count(stored.marks & (STEP | LOST), newest, stored.end)
        now[:, STEPS] += np.where(newest >= stored.begin, (since - now[:, STEPS]) % window.starts, 0)
    if window.across:
        recount_ready_steps(now, stored)
    counters[lanes] = now


def with_starts(stored: StoredMarks, steps: Int64, starts: int) -> Bytes:
    """Return the marks of lanes in which items start at every `starts`-th step, or, if it is 0, where streams begin.

    Args:
        stored: The marks.
        steps: How many steps each lane was ever given.
        starts: So many.
    """
    marks = stored.marks
    counted = np.append(0, np.cumsum(((marks & STEP) > 0) | _dropped(marks)))
    numbers = np.repeat(steps - counted[stored.end], stored.end - stored.begin) + counted[:-1]
    if starts:
        begins = numbers % starts == 0
    else:
        begins = (marks & FIRST > 0) | (np.append(0, marks)[:-1] & STEP == 0)
        oldest = stored.begin[stored.begin < stored.end]
        begins[oldest] = marks[oldest] & FIRST > 0  # of what came before it nothing is known
    starting = np.where(begins, marks | START, marks & ~np.uint8(START))
    return np.where(marks & STEP, starting, marks).astype(np.uint8)


def drop_rows(marks: Bytes, lost: Bool, blind: Bool, older: int, window: Window) -> int:
    """Drop rows from among the marks, and end and begin streams there; returns how many gaps there are now.

    Args:
        marks: Changed in place.
        lost: Which rows go.
        blind: Which of them have no observation either.
        older: Older frames that observations show.
        window: Of the items.
    """
    edges = np.flatnonzero(np.diff(lost, prepend=False, append=False)).reshape(-1, 2)
    for begin, end in edges.tolist():
        _end_before(marks, begin, blind, older, window)
        marks[begin:end] = _without_steps(marks[begin:end])
        _begin_again(marks, end, older, window)
    return len(edges)


def _count(flags: Array, begin: Int64, end: Int64) -> Int64:
    """Count the nonzero entries of `flags[begin:end]` for each pair of positions."""
    low, high = np.searchsorted(np.flatnonzero(flags != 0), (begin, end))
    return np.asarray(high - low)


def _after_last(flags: Bool, end: Int64) -> Int64:
    """Return the position after the last flag set before each of `end`, or 0."""
    found = np.flatnonzero(flags)
    return np.asarray(np.append(-1, found)[np.searchsorted(found, end)] + 1)


def _dropped(marks: Bytes) -> Bool:
    """Mark the rows whose steps a cut dropped."""
    return np.asarray((marks & (STEP | LOST)) == LOST)


def _end_before(marks: Bytes, begin: int, blind: Bool, older: int, window: Window) -> None:
    """End the stream before the gap at `begin`, without a step whose successor is in the gap."""
    least = max(0, begin - (window.span + 3) * (2 + 2 * older))  # a step takes as many rows at most
    steps = least + np.flatnonzero(marks[least:begin] & STEP)
    if len(steps) and _blind_after(marks, int(steps[-1]), blind):
        marks[steps[-1]] = LOST | marks[steps[-1]] & FIRST
        steps = steps[:-1]
    if not len(steps):
        return
    last = steps[-1]
    closing = CUT if window.across else END
    if not marks[last] & closing:
        # Across episodes an item also shows how the next one begins.
        need = window.span + bool(marks[last] & (TERMINATED | TRUNCATED))
        near = steps[max(0, len(steps) - need + 1) :]
        ends = np.flatnonzero(marks[near] & closing)
        marks[near[ends[-1] + 1 :] if len(ends) else near] &= ~np.uint8(START)
    marks[last] |= CUT


def _blind_after(marks: Bytes, step: int, blind: Bool) -> bool:
    """Return True if the observation after a step cannot be read."""
    if marks[step] & LOST:
        return False
    after = step + 1
    if marks[step] & END:  # a final observation may have brought older frames of its own
        while after + 1 < len(marks) and marks[after] & HISTORY:
            after += 1
    return bool(blind[step + 1 : after + 1].any())


def _begin_again(marks: Bytes, end: int, older: int, window: Window) -> None:
    """Begin a stream behind the gap that ends at `end`: its first rows are only older frames of those that follow."""
    row = end
    while row < min(end + older, len(marks)) and not marks[row] & FIRST:
        marks[row] = HISTORY | _without_steps(marks[row])
        row += 1
    if row < len(marks) and not marks[row] & FIRST:
        # What came before this step is not known: no item shows it as its first one.
        begun = marks[row : row + max(window.lookback + 1 - max(older, 1), 0)]
        begun[: _until_first(begun)] &= ~np.uint8(START)
        marks[end] |= FIRST
    elif row > end:
        marks[end] |= FIRST


def _until_first(marks: Bytes) -> int:
    """Count the marks before one that begins a stream."""
    first = np.flatnonzero(marks & FIRST)
    return int(first[0]) if len(first) else len(marks)


def _without_steps(marks: Array) -> Array:
    """Mark the steps of rows as dropped; their numbers still count."""
    return np.where(marks & (STEP | LOST), LOST, 0).astype(np.uint8)
