"""What the ring's arrays hold, as bits and columns, and where in them a row is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._base import check
from .._base.check import distinct
from .._base.journal import Journal
from .._base.types import Array, Bool, Bytes, Int64

# Bits of a row's mark. A row without STEP holds an observation only: a successor (boundary row), or, with HISTORY, an
# older frame of a stream's first observation. FIRST: a stream begins here. START: an item may begin here. LOST on a
# step: it ended without a final observation; LOST without STEP: this was a step that a cut dropped.
STEP, TERMINATED, TRUNCATED, CUT, LOST, FIRST, HISTORY, START = 1, 2, 4, 8, 16, 32, 64, 128
END = TERMINATED | TRUNCATED | CUT

# Columns of the per-lane counters, as `Lane` in native/lanes.hpp describes them.
HEAD, MEMORY, READY, OLDEST, HELD, STEPS, DRAWABLE, STORED = range(8)
READY_STEPS, CUTS, UNBOOTSTRAPPED, ENDS, REPEATS, CLEARED = range(8, 14)
LOADED, GONE = 14, 15
COUNTERS = 16

# Notices, as bits; `Notices` in _notices.py has their texts.
MANY_CUTS, REPEATED_FINALS, MANY_BOUNDARIES, NO_ENDS, OTHER_PADDING = 2, 4, 8, 32, 64

# Neighbouring lanes whose writes are counted together, as `NEIGHBOURS` in native/touched.hpp has them.
GROUP = 64
BEGUN, ENDED = 0, 1  # rows of `touched`

# Rows of a lane that are reserved for final observations: a share of its steps, and at least so many; of many short
# lanes, whose memory they would double, at least a quarter of the steps less one, since memory has a row more.
BOUNDARIES, _RESERVED = 1 / 16, 64
_MANY, _QUARTER, _FEWEST = 256, 4, 15

# Rows of a lane that lie together, where a lane has that many blocks at least.
_BLOCK, _LEAST = 32, 8


def rows_of(steps: int, boundaries: float) -> int:
    """Return R, the rows of a lane that keeps `steps` steps; `boundaries` is what `boundaries_of` returns."""
    if boundaries > 1:
        return steps + min(steps, int(boundaries))
    return steps + (min(steps, max(_RESERVED, math.ceil(steps * boundaries))) if boundaries else 0)


def boundaries_of(value: object, at: str) -> float:
    """Return what rows of a lane are reserved for final observations: a share of its steps, or a number from 2 on."""
    if isinstance(value, int | np.integer) and value > 1:
        return check.integer(value, at)
    return check.real(value, at, low=0.0, high=1.0)


def reserved(boundaries: float, lanes: int, steps: int) -> float:
    """Return what a new buffer's lanes reserve: what was asked for, or of many short lanes a number of rows."""
    least = max(steps // _QUARTER - 1, _FEWEST)
    short = lanes >= _MANY and least < _RESERVED and steps > _FEWEST
    return least if short and 0 < boundaries <= BOUNDARIES else boundaries


def resized(boundaries: float, steps: int) -> float:
    """Return what is reserved for another number of steps: of a number of rows no less than by default."""
    less = boundaries > 1 and rows_of(steps, boundaries) < rows_of(steps, BOUNDARIES)
    return BOUNDARIES if less else boundaries


def sizes_in(facts: Mapping[str, Any]) -> tuple[int, int, float]:
    """Read `rows`, `steps` and `boundaries` of a lane from a file; in older files each row may hold a step.

    Raises:
        ValueError, KeyError: No buffer has such lanes.
    """
    rows, steps, boundaries = facts["rows"], facts.get("steps", facts["rows"]), facts.get("boundaries", 0.0)
    good = type(rows) is type(steps) is int and 0 < steps <= rows < 2**62
    good = good and type(boundaries) in (int, float) and boundaries >= 0
    good = good and (boundaries <= 1 or type(boundaries) is int)
    if not good or rows != rows_of(steps, boundaries):
        raise ValueError("lanes of another size")
    return rows, steps, boundaries if boundaries > 1 else float(boundaries)


def first_rows(counters: Int64, rows: int) -> Int64:
    """Return the oldest stored row of each lane: no row before GONE, none that was cleared, and R rows at most."""
    first = np.maximum(counters[..., HEAD] - rows, counters[..., CLEARED])
    return np.asarray(np.minimum(np.maximum(first, counters[..., GONE]), counters[..., HEAD]))


def anchors_in(marks: Bytes) -> Bool:
    """Mark the rows that are steps at which an item may start."""
    return np.asarray((marks & (STEP | START)) == STEP | START)


def block_of(lanes: int, rows: int) -> int:
    """Return the number of a lane's rows that are contiguous in memory, a power of two; one lane needs no blocks."""
    block = _BLOCK if lanes > 1 else 1
    while block > 1 and block * _LEAST > rows:
        block //= 2
    return block


def depth_of(lanes: int, rows: int) -> int:
    """Return the rows of a lane in memory: whole blocks, for `rows` of capacity and the one after the newest."""
    block = block_of(lanes, rows)
    return (rows // block + 1) * block


def place_of(memory: Int64, lanes: Int64 | int, block: int) -> tuple[Int64, Int64 | int, Int64]:
    """Return the index in an array `[blocks, L, K]` of rows in the memory of their lanes."""
    blocks, within = np.divmod(memory, block)
    return blocks, lanes, within


def count_call(journal: Journal, touched: Int64 | None, moment: int, lanes: Int64) -> None:
    """Count a call that writes to `lanes`, when it has BEGUN and when it has ENDED; None: nothing is counted."""
    if touched is not None:
        groups = distinct(lanes // GROUP)
        journal.put(touched, (moment, groups), touched[moment, groups] + 1)


def ranges(first: Int64, last: Int64) -> tuple[Int64, Int64]:
    """List the rows `[first, last)` of every lane, one lane after the other: lanes and rows."""
    counts = np.maximum(last - first, 0).astype(
        np.intp, copy=False
    )  # what NumPy counts with, also where it has 32 bits
    lanes = np.repeat(np.arange(len(counts)), counts)
    return lanes, np.repeat(first, counts) + np.arange(len(lanes)) - np.repeat(np.cumsum(counts) - counts, counts)


def items_of(array: Array, axes: int) -> Array:
    """Return a view with `axes` axes, whose items NumPy copies as a whole: faster than number by number."""
    if array.ndim == axes:
        return array
    flat = array.reshape(*array.shape[:axes], math.prod(array.shape[axes:]))
    return flat.view(f"V{flat.shape[-1] * flat.itemsize}")[..., 0]


def get_rows(array: Array, lane: int, first: int, last: int) -> Array:
    """Return the rows `[first, last)` of a lane in an array `[blocks, L, K, ...]`; a view if they are contiguous."""
    blocks, _, block = array.shape[:3]
    begin, skipped = divmod(first % (blocks * block), block)
    end = begin + -(-(skipped + last - first) // block)
    of_lane = array[:, lane]
    found = of_lane[begin:end] if end <= blocks else np.concatenate([of_lane[begin:], of_lane[: end - blocks]])
    return found.reshape(-1, *array.shape[3:])[skipped : skipped + last - first]


def set_rows(array: Array, lane: int, first: int, values: Array) -> None:
    """Write the rows of a lane from `first` on into an array `[blocks, L, K, ...]`."""
    array, values = items_of(array, 3), items_of(values, 1)
    blocks, _, block = array.shape
    of_lane, done = array[:, lane], 0
    while left := len(values) - done:
        begin, skipped = divmod((first + done) % (blocks * block), block)
        whole = 0 if skipped else min(left // block, blocks - begin)  # the lane's memory ends there
        if whole:
            count = whole * block
            of_lane[begin : begin + whole] = values[done : done + count].reshape(whole, block)
        else:
            count = min(left, block - skipped)
            of_lane[begin, skipped : skipped + count] = values[done : done + count]
        done += count
