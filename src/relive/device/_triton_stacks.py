"""Stacks of frames in Triton: what `_ops_stacks.py` does, for one lane or one observation."""

from __future__ import annotations

import triton
import triton.language as tl

from .._ring.lanes import END, FIRST, HISTORY, LOST
from ._triton_lanes import claim
from ._triton_rows import at_of, copy, differs, put

_END, _FIRST, _HISTORY, _LOST = (tl.constexpr(mark) for mark in (END, FIRST, HISTORY, LOST))


@triton.jit
def older(
    marks, row, lane, MOST: tl.constexpr, LANES: tl.constexpr, DEPTH: tl.constexpr, TOGETHER: tl.constexpr
):  # fmt: skip
    """How many of the `MOST` rows before a row have frames of its stream."""
    found = row * 0
    going = found == 0
    for age in tl.static_range(MOST):
        mark = tl.load(marks + at_of(row - age, lane, LANES, DEPTH, TOGETHER)).to(tl.int32)
        going = going & ((mark & _FIRST) == 0)
        found += going.to(tl.int64)
    return found


@triton.jit
def successor(
    marks, mark, row, lane, MOST: tl.constexpr, LANES: tl.constexpr, DEPTH: tl.constexpr, TOGETHER: tl.constexpr
):  # fmt: skip
    """The row of the observation after a step with this mark, which `row` follows: behind older frames of its own."""
    passing = ((mark & _END) != 0) & ((mark & _LOST) == 0)
    for _ in tl.static_range(MOST):
        here = tl.load(marks + at_of(row, lane, LANES, DEPTH, TOGETHER)).to(tl.int32)
        passing = passing & ((here & _HISTORY) != 0)
        row += passing.to(tl.int64)
    return row


@triton.jit
def _frame_at(
    row, past, age, lane, REPEATS: tl.constexpr, LANES: tl.constexpr, DEPTH: tl.constexpr, TOGETHER: tl.constexpr
):  # fmt: skip
    """Where the frame is that an observation at a row has at an age; `past` is what `older` says of the row."""
    at = at_of(row - tl.minimum(age, past), lane, LANES, DEPTH, TOGETHER)
    if REPEATS == 0:
        at = tl.where(age <= past, at, LANES * DEPTH)  # the last row of each tensor is zero
    return at


@triton.jit
def copy_stack(
    source, row, past, lane, there, to, STRIDE: tl.constexpr, WORDS: tl.constexpr, FRAMES: tl.constexpr,
    REPEATS: tl.constexpr, LANES: tl.constexpr, DEPTH: tl.constexpr, TOGETHER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy the frames that an observation shows; zeros, where there is none."""
    for age in range(0, FRAMES):
        at = _frame_at(row, past, age, lane, REPEATS, LANES, DEPTH, TOGETHER)
        copy(source + at * STRIDE, there, to + (FRAMES - 1 - age) * WORDS, WORDS, BLOCK)


@triton.jit
def strays(
    given, rows, marks, row, lane, OFFSETS: tl.constexpr, WORDS: tl.constexpr, STRIDES: tl.constexpr,
    FRAMES: tl.constexpr, REPEATS: tl.constexpr, MOST: tl.constexpr, LANES: tl.constexpr, DEPTH: tl.constexpr,
    TOGETHER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Whether older frames of given stacks are not those that the step in a row shows."""
    past = older(marks, row, lane, MOST, LANES, DEPTH, TOGETHER)
    found = 0
    for o in tl.static_range(len(WORDS)):
        for age in range(0, FRAMES[o] - 1):
            at = _frame_at(row, past, age, lane, REPEATS[o], LANES, DEPTH, TOGETHER)
            here = (lane * FRAMES[o] + FRAMES[o] - 2 - age) * WORDS[o]
            found += differs(given[o], here, rows[o], at * STRIDES[o] + OFFSETS[o], WORDS[o], BLOCK)
    return found


@triton.jit
def apart(given, nexts, lane, WORDS: tl.constexpr, FRAMES: tl.constexpr, BLOCK: tl.constexpr):
    """Whether the frames of `nexts` do not continue those of `given`."""
    found = 0
    for o in tl.static_range(len(WORDS)):
        begin = lane * (FRAMES[o] * WORDS[o])
        found += differs(given[o], begin + WORDS[o], nexts[o], begin, (FRAMES[o] - 1) * WORDS[o], BLOCK)
    return found


@triton.jit
def _needed(
    given, rows, lane, OFFSETS: tl.constexpr, WORDS: tl.constexpr, STRIDES: tl.constexpr, FRAMES: tl.constexpr,
    REPEATS: tl.constexpr, LANES: tl.constexpr, DEPTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """How many older frames of given stacks padding cannot show."""
    found = 0
    for o in tl.static_range(len(WORDS)):
        for age in range(1, FRAMES[o]):
            here = (lane * FRAMES[o] + FRAMES[o] - 1 - age) * WORDS[o]
            if REPEATS[o] == 1:
                other = differs(given[o], here, given[o], here + WORDS[o], WORDS[o], BLOCK)
            else:
                other = differs(given[o], here, rows[o], LANES * DEPTH * STRIDES[o] + OFFSETS[o], WORDS[o], BLOCK)
            found = tl.where(other != 0, tl.maximum(found, age), found)
    return found


@triton.jit
def store_older(
    who, given, rows, marks, lane, head, memory, gone, stored, ready_steps, ready, drawable, oldest, counted,
    OFFSETS: tl.constexpr, WORDS: tl.constexpr, STRIDES: tl.constexpr, FRAMES: tl.constexpr, REPEATS: tl.constexpr,
    LOOKBACK: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr, DEPTH: tl.constexpr, TOGETHER: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Give older frames that padding cannot show rows of their own: how many there are, and the counters."""
    count = (head * 0).to(tl.int32)
    if who:
        count = _needed(given, rows, lane, OFFSETS, WORDS, STRIDES, FRAMES, REPEATS, LANES, DEPTH, BLOCK)
    for i in range(0, count):
        age = count - i
        at = at_of(memory, lane, LANES, DEPTH, TOGETHER)
        head, memory, gone, stored, ready_steps, ready, drawable, oldest = claim(
            marks, lane, age > 0, head, memory, gone, stored, ready_steps, ready, drawable, oldest, counted, LOOKBACK,
            LANES, ROWS, DEPTH, TOGETHER,
        )  # fmt: skip
        for o in tl.static_range(len(WORDS)):
            if FRAMES[o] > 1:
                here = (lane * FRAMES[o] + FRAMES[o] - 1 - age) * WORDS[o]
                put(rows[o], at * STRIDES[o] + OFFSETS[o], given[o], here, age < FRAMES[o], WORDS[o], BLOCK)
        tl.store(marks + at, tl.where(i == 0, _HISTORY | _FIRST, _HISTORY).to(tl.uint8))
        tl.debug_barrier()
    return count, head, memory, gone, stored, ready_steps, ready, drawable, oldest
