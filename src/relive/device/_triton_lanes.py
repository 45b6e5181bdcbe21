"""What a program that writes to a lane does to its counters: rows are taken and given up, as `_ops_call.Call` does."""

from __future__ import annotations

import triton
import triton.language as tl

from .._ring.lanes import CUT, FIRST, LOST, START, STEP
from ._triton_rows import at_of

_STEP, _CUT, _LOST, _FIRST = (tl.constexpr(mark) for mark in (STEP, CUT, LOST, FIRST))
_ANCHOR = tl.constexpr(STEP | START)


@triton.jit
def claim(
    marks, lane, who, head, memory, gone, stored, ready_steps, ready, drawable, oldest, counted, LOOKBACK: tl.constexpr,
    LANES: tl.constexpr, ROWS: tl.constexpr, DEPTH: tl.constexpr, TOGETHER: tl.constexpr,
):  # fmt: skip
    """Take the next row: the counters, of which `counted` stays."""
    row = head - ROWS
    full = who & (row >= 0) & (row >= gone)
    stored, ready_steps, ready, drawable, oldest = retire(
        marks, row, lane, full, stored, ready_steps, ready, drawable, oldest, counted, LOOKBACK, LANES, DEPTH, TOGETHER
    )
    gone = tl.where(who, tl.maximum(gone, head + 1 - DEPTH), gone)
    memory = tl.where(who, (memory + 1) % DEPTH, memory)
    return head + who.to(tl.int64), memory, gone, stored, ready_steps, ready, drawable, oldest


@triton.jit
def retire(
    marks, row, lane, who, stored, ready_steps, ready, drawable, oldest, counted, LOOKBACK: tl.constexpr,
    LANES: tl.constexpr, DEPTH: tl.constexpr, TOGETHER: tl.constexpr,
):  # fmt: skip
    """A row is stored no longer: what is left of the counters."""
    mark = tl.load(marks + at_of(row, lane, LANES, DEPTH, TOGETHER)).to(tl.int32)
    step = (who & ((mark & _STEP) != 0)).to(tl.int64)
    late = (who & (ready == row)).to(tl.int64)
    drawable, oldest = _drop(mark, who & (oldest == row), drawable, oldest, counted)
    for _ in tl.static_range(LOOKBACK):
        mark = tl.load(marks + at_of(oldest, lane, LANES, DEPTH, TOGETHER)).to(tl.int32)
        orphan = who & (oldest <= row + LOOKBACK) & ((mark & _FIRST) == 0)
        drawable, oldest = _drop(mark, orphan, drawable, oldest, counted)
    return stored - step, ready_steps + late * step, ready + late, drawable, oldest


@triton.jit
def _drop(mark, who, drawable, oldest, counted):
    """The oldest row, which has a mark, can no longer be drawn."""
    anchor = (who & ((mark & _ANCHOR) == _ANCHOR) & (oldest < counted)).to(tl.int64)
    return drawable - anchor, oldest + who.to(tl.int64)


@triton.jit
def forget_newest(
    marks, lane, head, memory, BEHIND: tl.constexpr, LANES: tl.constexpr, DEPTH: tl.constexpr, TOGETHER: tl.constexpr
):  # fmt: skip
    """The newest step, which waits for a successor, is none any more; the step before it is its stream's last."""
    newest = at_of(memory - 1, lane, LANES, DEPTH, TOGETHER)
    mark = tl.load(marks + newest).to(tl.int32)
    tl.debug_barrier()
    tl.store(marks + newest, (mark & _FIRST | _LOST).to(tl.uint8))
    seeking = head > 0
    for behind in tl.static_range(2, BEHIND):
        before = at_of(memory - behind, lane, LANES, DEPTH, TOGETHER)
        mark = tl.load(marks + before).to(tl.int32)
        seeking = seeking & (head >= behind)
        found = (seeking & ((mark & _STEP) != 0)) != 0
        tl.debug_barrier()
        tl.store(marks + before, (mark | _CUT).to(tl.uint8), found)
        seeking = (seeking & (found == 0)) != 0
