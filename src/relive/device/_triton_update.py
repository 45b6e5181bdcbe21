"""The updates of `_update.py` as Triton kernels: in one program, or in several where there are many ids.

A mask that is the `&` of a block and a number ends with `!= 0`: the interpreter makes integers of the two.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .._ring.lanes import COUNTERS, HEAD, LOST, OLDEST, READY, START, STEP
from . import _tree
from ._tree import FAN_OUT, Tree
from ._triton_numbers import block_of, launch, node, power, programs_of

# Up to so many entries one program takes all; beyond, programs of so many entries share them.
WHOLE, SHARED = 4096, 256

_ANCHOR, _STEP_OR_LOST = tl.constexpr(STEP | START), tl.constexpr(STEP | LOST)
_COUNTERS = tl.constexpr(COUNTERS)
_HEAD, _READY, _OLDEST = tl.constexpr(HEAD), tl.constexpr(READY), tl.constexpr(OLDEST)
_TOTAL, _SMALLEST = tl.constexpr(_tree.TOTAL), tl.constexpr(_tree.SMALLEST)
_COUNT, _LARGEST = tl.constexpr(_tree.COUNT), tl.constexpr(_tree.LARGEST)
_INFINITE = tl.constexpr(float("inf"))


def update(
    tree: Tree,
    marks: Tensor,
    counters: Tensor,
    rows: int,
    ids: Tensor,
    td_error: Tensor,
    late: Tensor,
    eps: float,
    alpha: float,
) -> None:
    """Set priorities as `_update.update` does."""
    n, levels = len(ids), len(tree.sums)
    if not n:
        return
    blocks, lanes, rows_together = marks.shape
    ring = (marks, counters, ids, td_error, n, lanes, blocks * rows_together, rows_together, lanes * rows)
    nodes, bits = tree.nodes, tree.nodes.view(torch.int64)
    if n <= WHOLE:
        launch(
            _update,
            1,
            block_of(n, WHOLE),
            nodes,
            bits,
            tree.state,
            tree.offsets,
            late,
            *ring,
            levels,
            EPS=eps,
            ALPHA=alpha,
        )
        return
    programs = programs_of(n, SHARED)
    slots, old = torch.empty_like(ids), torch.empty_like(ids)
    found = torch.zeros(len(late), dtype=torch.int64, device=ids.device)
    launch(_tag, programs, SHARED, bits, found, slots, old, *ring, EPS=eps)
    launch(_put, programs, SHARED, nodes, bits, tree.state, found, late, slots, old, td_error, n, EPS=eps, ALPHA=alpha)
    launch(
        _hear, programs, SHARED, nodes, tree.state.view(torch.int64), found, slots, td_error, n, EPS=eps, ALPHA=alpha
    )
    _rebuild_by_levels(tree, slots)


def rebuild(tree: Tree, slots: Tensor) -> None:
    """Recompute every sum and minimum above `slots`, as `_tree.rebuild` does; negative ones are left out."""
    n = len(slots)
    if 0 < n <= WHOLE:
        launch(_rebuild, 1, block_of(n, WHOLE), tree.nodes, tree.state, tree.offsets, slots, n, len(tree.sums))
    elif n:
        _rebuild_by_levels(tree, slots)


def _rebuild_by_levels(tree: Tree, slots: Tensor) -> None:
    """One launch for each level that has many nodes, then a program that recomputes all of the others."""
    n, levels = len(slots), len(tree.sums)
    whole = (tree.nodes, tree.state, tree.offsets)
    for level in range(levels):
        groups = len(tree.sums[level]) // FAN_OUT
        if level and groups <= WHOLE:
            launch(_rebuild_from, 1, block_of(groups, WHOLE), *whole, groups, levels, level)
            return
        launch(_redo_level, programs_of(n, SHARED), SHARED, *whole, slots, n, levels, level)


@triton.jit
def _locate(marks, counters, id, here, lanes, depth, block, capacity):
    """Slots of ids, which of them can be drawn, and which no step ever had."""
    issued = tl.maximum(id, 0)
    row = issued // lanes
    lane = issued % lanes
    memory = row % depth
    mark = tl.load(marks + (memory // block * lanes + lane) * block + memory % block, here, 0).to(tl.int32)
    at = counters + lane * _COUNTERS
    inside = (id >= 0) & (row < tl.load(at + _HEAD, here, 0))
    stored = row >= tl.load(at + _OLDEST, here, 0)
    keep = here & inside & stored & (row < tl.load(at + _READY, here, 0)) & ((mark & _ANCHOR) == _ANCHOR)
    unknown = here & ((inside == 0) | (stored & ((mark & _STEP_OR_LOST) == 0)))
    return issued % capacity, keep, unknown


@triton.jit
def _raw(td, i, here, EPS: tl.constexpr):
    """Raw priorities, and which of them are not finite."""
    raw = tl.abs(tl.load(td + i, here, 0.0).to(tl.float64)) + EPS
    return raw, here & ((raw - raw) != 0)


@triton.jit
def _count(mask):
    return tl.sum(mask.to(tl.int64))


@triton.jit
def _least(a, b):
    """Of two numbers the smaller positive one, 0 where there is none."""
    return tl.where(a > 0, tl.where((b > 0) & (b < a), b, a), b)


@triton.jit
def _redo(nodes, state, offsets, group, first, here, levels, level):
    """Recompute the entries above groups of a level; the topmost one is the state's."""
    v0, v1, v2, v3, v4, v5, v6, v7 = node(nodes + tl.load(offsets + level) + group * 8)
    total = ((v0 + v1) + (v2 + v3)) + ((v4 + v5) + (v6 + v7))
    v0, v1, v2, v3, v4, v5, v6, v7 = node(nodes + tl.load(offsets + levels + level) + group * 8)
    least = _least(_least(_least(v0, v1), _least(v2, v3)), _least(_least(v4, v5), _least(v6, v7)))
    inner = (here & (level + 1 < levels)) != 0
    above = tl.minimum(level + 1, levels - 1)
    tl.store(nodes + tl.load(offsets + above) + group, total, inner)
    tl.store(nodes + tl.load(offsets + levels + above) + group, least, inner)
    top = (first & (level + 1 == levels)) != 0
    zero = group * 0
    tl.store(state + zero + _TOTAL, total, top)
    tl.store(state + zero + _SMALLEST, tl.where(least > 0, least, _INFINITE), top)


@triton.jit
def _update(
    nodes,
    bits,
    state,
    offsets,
    late,
    marks,
    counters,
    ids,
    td,
    n,
    lanes,
    depth,
    block,
    capacity,
    levels,
    EPS: tl.constexpr,
    ALPHA: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program: the last of several ids wins as in `_tree.put_last`, then a barrier a level."""
    i = tl.arange(0, BLOCK).to(tl.int64)
    here = i < n
    slot, keep, unknown = _locate(marks, counters, tl.load(ids + i, here, 0), here, lanes, depth, block, capacity)
    raw, infinite = _raw(td, i, here, EPS)
    unknowns = _count(unknown)
    infinites = _count(infinite)
    fine = unknowns + infinites == 0
    tl.store(late, tl.load(late) + tl.where(fine, _count(here & (keep == 0)), 0))
    tl.store(late + 1, tl.load(late + 1) + unknowns)
    tl.store(late + 2, tl.load(late + 2) + infinites)
    tl.store(late + 3, tl.load(late + 3) + tl.where(fine, n, 0))
    keep = (keep & fine) != 0
    value = power(raw, ALPHA)
    # Who comes to a leaf first gets its value back, others a tag: leaves are never negative.
    was = tl.atomic_min(bits + slot, -1 - i, keep)
    positive = _count(keep & (was > 0))
    tl.debug_barrier()
    won = keep & (tl.load(bits + slot, keep, 0) == -1 - i)
    tl.debug_barrier()
    tl.store(nodes + slot, value, won)
    tl.debug_barrier()
    heard = keep & (tl.load(nodes + slot, keep, 0.0) == value)
    tl.store(state + _COUNT, tl.load(state + _COUNT) + (_count(won & (value > 0)) - positive).to(tl.float64))
    tl.store(state + _LARGEST, tl.maximum(tl.load(state + _LARGEST), tl.max(tl.where(heard, raw, 0.0))))
    _climb(nodes, state, offsets, slot >> 3, keep, levels, 0)


@triton.jit
def _climb(nodes, state, offsets, group, here, levels, lowest):
    """One program: recompute what is above groups of the lowest level, level after level."""
    # The topmost entry is written by the first that is here.
    i = tl.arange(0, group.shape[0])
    first = here & (i == tl.min(tl.where(here, i, group.shape[0])))
    for level in range(lowest, levels):
        _redo(nodes, state, offsets, group, first, here, levels, level)
        tl.debug_barrier()
        group = group >> 3


@triton.jit
def _rebuild(nodes, state, offsets, slots, n, levels, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    slot = tl.load(slots + i, i < n, -1)
    _climb(nodes, state, offsets, tl.maximum(slot, 0) >> 3, slot >= 0, levels, 0)


@triton.jit
def _rebuild_from(nodes, state, offsets, groups, levels, level, BLOCK: tl.constexpr):
    """Recompute all that is above the entries of a level."""
    group = tl.arange(0, BLOCK).to(tl.int64)
    here = group < groups
    _climb(nodes, state, offsets, tl.where(here, group, 0), here, levels, level)


@triton.jit
def _redo_level(nodes, state, offsets, slots, n, levels, level, BLOCK: tl.constexpr):
    """Recompute what is one level above slots. At the top all programs write the same."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slots + i, i < n, -1)
    here = slot >= 0
    group = tl.maximum(slot, 0) >> (3 * (level + 1))
    _redo(nodes, state, offsets, group, here, here, levels, level)


@triton.jit
def _tag(
    bits,
    found,
    slots,
    old,
    marks,
    counters,
    ids,
    td,
    n,
    lanes,
    depth,
    block,
    capacity,
    EPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The first of many: puts tags into leaves, keeps what the first to come got back, and counts what is wrong."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = i < n
    slot, keep, unknown = _locate(marks, counters, tl.load(ids + i, here, 0), here, lanes, depth, block, capacity)
    _, infinite = _raw(td, i, here, EPS)
    tl.atomic_add(found, _count(here & (keep == 0)))
    tl.atomic_add(found + 1, _count(unknown))
    tl.atomic_add(found + 2, _count(infinite))
    was = tl.atomic_min(bits + slot, -1 - i, keep)
    tl.store(slots + i, tl.where(keep, slot, -1), here)
    tl.store(old + i, tl.where(keep, was, -1), here)


@triton.jit
def _put(
    nodes, bits, state, found, late, slots, old, td, n, EPS: tl.constexpr, ALPHA: tl.constexpr, BLOCK: tl.constexpr
):
    """The second: winners write their values; or, where something is wrong, leaves get back what they had."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = i < n
    slot = tl.load(slots + i, here, -1)
    was = tl.load(old + i, here, -1)
    keep = slot >= 0
    slot = tl.maximum(slot, 0)
    unknowns = tl.load(found + 1)
    infinites = tl.load(found + 2)
    fine = unknowns + infinites == 0
    raw, _ = _raw(td, i, here, EPS)
    value = power(raw, ALPHA)
    won = keep & (tl.load(bits + slot, keep, 0) == -1 - i)
    # Other programs write meanwhile, but no value and no leaf is another's tag.
    tl.store(nodes + slot, value, (won & fine) != 0)
    tl.store(bits + slot, was, ((was >= 0) & (fine == 0)) != 0)
    change = _count(won & (value > 0)) - _count(was > 0)
    # Whole numbers: exact in any order.
    tl.atomic_add(state + _COUNT, tl.where(fine, change, 0).to(tl.float64))
    if tl.program_id(0) == 0:
        tl.store(late, tl.load(late) + tl.where(fine, tl.load(found), 0))
        tl.store(late + 1, tl.load(late + 1) + unknowns)
        tl.store(late + 2, tl.load(late + 2) + infinites)
        tl.store(late + 3, tl.load(late + 3) + tl.where(fine, n, 0))


@triton.jit
def _hear(nodes, state_bits, found, slots, td, n, EPS: tl.constexpr, ALPHA: tl.constexpr, BLOCK: tl.constexpr):
    """The third: the largest raw priority of those whose values stand in their leaves."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = i < n
    slot = tl.load(slots + i, here, -1)
    keep = ((slot >= 0) & (tl.load(found + 1) + tl.load(found + 2) == 0)) != 0
    raw, _ = _raw(td, i, here, EPS)
    heard = keep & (tl.load(nodes + tl.maximum(slot, 0)) == power(raw, ALPHA))
    # Numbers that are not negative are ordered as their bits.
    largest = tl.max(tl.where(heard, raw, 0.0))
    tl.atomic_max(state_bits + _LARGEST, largest.to(tl.int64, bitcast=True))
