"""What the marks of a lane's rows say about its counters, and how rows are dropped from among the marks.

Kernels keep the counters while they write. They are counted again after a kill in the middle of a call, for a save that
is loaded into another ring or is damaged, and in a process whose items need other rows than the ring's own. `marks` are
those of the stored rows of one lane, the first of which has the number `first`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._base.types import Array, Bool, Bytes, Int64
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
    get_rows,
    set_rows,
)
from .plans import Window


def steps_in(marks: Bytes) -> int:
    """The number of rows that hold a step."""
    return int(np.count_nonzero(marks & STEP))


def first_kept(marks: Bytes, first: int, steps: int) -> int:
    """The first row of a lane that keeps `steps` steps, the newest."""
    stored = np.flatnonzero(marks & STEP)
    return first + int(stored[-steps - 1]) + 1 if len(stored) > steps else first


def oldest_in(marks: Bytes, first: int, lookback: int) -> int:
    """The first row that can be drawn: of those before it, rows that are read with them are gone."""
    most = min(lookback, len(marks)) if first else 0
    begins = np.flatnonzero(marks[:most] & FIRST)
    return first + (int(begins[0]) if len(begins) else most)


def ready_in(marks: Bytes, first: int, held: int, window: Window) -> int:
    """The first row whose window is not complete; `held`: the row after the newest holds an observation."""
    if not window.across:  # the windows of earlier streams are
        closed = np.flatnonzero((marks & (STEP | END)) != STEP)
        begin = int(closed[-1]) + 1 if len(closed) else 0
        return first + min(max(begin, len(marks) - window.span + held), len(marks))
    cuts = np.flatnonzero(((marks & CUT) > 0) | _dropped(marks))
    begin = int(cuts[-1]) + 1 if len(cuts) else 0
    steps = begin + np.flatnonzero(marks[begin:] & STEP)
    complete = len(steps) + held - window.span
    if complete > 0:
        return first + int(steps[complete - 1]) + 1
    return first + (int(steps[0]) if len(steps) else len(marks))


def recount(counters: Int64, marks: Bytes, first: int, oldest: int, ready: int, depth: int) -> None:
    """Set the counters of a lane that follow from its head, and from which of its rows can be drawn.

    Args:
        counters: The lane's.
        marks: Of its rows.
        first: The first of these.
        oldest: The first row that can be drawn.
        ready: The first row whose window is not complete.
        depth: How many rows a lane has in memory.
    """
    counters[[OLDEST, READY, MEMORY]] = oldest, ready, counters[HEAD] % depth
    counters[STORED] = steps_in(marks)
    counters[DRAWABLE] = np.count_nonzero(anchors_in(marks[oldest - first : max(ready, oldest) - first]))


def recount_ready_steps(counters: Int64, marks: Bytes, first: int) -> None:
    """Set the steps before the row `READY`."""
    counters[READY_STEPS] = counters[STEPS] - steps_in(marks[counters[READY] - first :])


def recover(marks: Bytes, counters: Int64, number: int, rows: int, steps: int, window: Window) -> None:
    """Put right the lane `number` in the marks of all lanes, after a kill in the middle of a call.

    Args:
        marks: Of all lanes.
        counters: The lane's.
        number: The lane.
        rows: Of a lane.
        steps: That a lane keeps.
        window: Of the items.
    """
    head, oldest = int(counters[HEAD]), int(first_rows(counters, rows))
    first = first_kept(get_rows(marks, number, oldest, head), oldest, steps)
    if first > oldest:
        counters[GONE] = first
    low, cleared = max(0, head - rows), int(counters[CLEARED])
    if cleared > low and get_rows(marks, number, low, cleared).any():  # a clear was killed before its end
        set_rows(marks, number, low, np.zeros(cleared - low, np.uint8))
    if cleared == head:
        counters[HELD] = 0
    if head and counters[HELD] == head:
        # An observation, whatever was to become of it.
        set_rows(marks, number, head, np.zeros(1, np.uint8))
    kept = get_rows(marks, number, first, head)
    oldest = min(max(int(counters[OLDEST]), oldest_in(kept, first, window.lookback)), head)
    recount(counters, kept, first, oldest, min(max(int(counters[READY]), first), head), marks[:, 0].size)
    anchors = np.flatnonzero(anchors_in(kept))
    if len(anchors):
        since = np.count_nonzero(kept[anchors[-1] :] & (STEP | LOST))
        counters[STEPS] += (since - counters[STEPS]) % window.starts
    if window.across:
        recount_ready_steps(counters, kept, first)


def with_starts(marks: Bytes, steps: int, starts: int) -> Bytes:
    """The marks where items start at every `starts`-th step; `steps`: how many the lane was ever given."""
    counted = ((marks & STEP) > 0) | _dropped(marks)
    since: Any = np.cumsum(counted)
    numbers = steps - (since[-1] if len(since) else 0) + since - 1
    starting = np.where(numbers % starts == 0, marks | START, marks & ~np.uint8(START))
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


def _dropped(marks: Bytes) -> Bool:
    """Which rows were steps that a cut dropped."""
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
    """Whether the observation after a step cannot be read."""
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
        if window.lookback:  # the action before this step is not known
            marks[row] &= ~np.uint8(START)
        marks[end] |= FIRST
    elif row > end:
        marks[end] |= FIRST


def _without_steps(marks: Array) -> Array:
    """The marks of rows whose steps are dropped: their numbers count on."""
    return np.where(marks & (STEP | LOST), LOST, 0).astype(np.uint8)
