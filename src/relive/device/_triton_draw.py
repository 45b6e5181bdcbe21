"""The draws of `_draw.py` as Triton kernels, in one launch for small batches and two for large ones."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..samplers.anneal import Anneal
from ..samplers.prioritized import SCALES, Prioritized
from ._draw import Drawn
from ._tree import Tree
from ._triton_numbers import block_of, launch, node, power, programs_of, uniforms

# Up to so many draws one program makes all; beyond, programs of so many entries share them.
WHOLE, SHARED = 1024, 128
LANES = 4096  # that are added up together

_INFINITE = tl.constexpr(float("inf"))


def prioritized(
    tree: Tree,
    draws: Tensor,
    key: Tensor,
    position: Tensor,
    n: int,
    settings: Prioritized,
    beta: float | Tensor | None = None,
) -> Drawn:
    """Draw as `_draw.prioritized` does."""
    device = tree.nodes.device
    slots = torch.empty(n, dtype=torch.int64, device=device)
    values = torch.empty(n, dtype=torch.float64, device=device)
    weights = torch.empty(n, dtype=torch.float32, device=device)
    if isinstance(beta, Tensor):
        draws[1].copy_(beta)
    elif beta is not None:
        draws[1].fill_(beta)
    moves = settings.beta if isinstance(settings.beta, Anneal) else Anneal(settings.beta, settings.beta, 1)
    scale = SCALES.index(settings.weights)
    whole = n <= WHOLE
    block = block_of(n, WHOLE) if whole else SHARED
    programs = programs_of(n, block)
    least = torch.empty(programs, dtype=torch.float64, device=device)
    launch(
        _draw,
        programs,
        block,
        tree.nodes,
        tree.state,
        tree.offsets,
        draws,
        key,
        position,
        slots,
        values,
        least,
        weights,
        n,
        len(tree.sums),
        START=moves.start,
        END=moves.end,
        OVER=float(moves.over),
        GIVEN=beta is not None,
        SCALE=scale,
        STRATIFIED=settings.stratified,
        WHOLE=whole,
    )
    if not whole:
        many = triton.next_power_of_2(programs)
        launch(
            _weigh,
            programs,
            block,
            tree.state,
            draws,
            position,
            values,
            least,
            weights,
            n,
            programs,
            SCALE=scale,
            MANY=many,
        )
    return Drawn(slots, weights)


def running(ends: Tensor) -> Tensor:
    """Count as `_draw.running` does."""
    lanes = len(ends)
    counts = torch.empty(lanes, dtype=torch.int64, device=ends.device)
    launch(_count, 1, block_of(lanes, LANES), ends, counts, lanes)
    return counts


def uniform(places: Tensor, ends: Tensor, counts: Tensor, key: Tensor, position: Tensor, n: int) -> Tensor:
    """Draw as `_draw.uniform` does."""
    lanes, rows = places.shape
    slots = torch.empty(n, dtype=torch.int64, device=places.device)
    whole = n <= WHOLE
    block = block_of(n, WHOLE) if whole else SHARED
    launch(
        _choose,
        programs_of(n, block),
        block,
        places,
        ends,
        counts,
        key,
        position,
        slots,
        n,
        lanes,
        rows,
        lanes.bit_length(),
        WHOLE=whole,
    )
    if not whole:
        position.add_(n)
    return slots


@triton.jit
def _search(v0, v1, v2, v3, v4, v5, v6, v7, t):
    """The child in which `t` lies, and `t` relative to it: by a scan in pairs, or else by adding up in sequence."""
    a1, a2, a3, a4, a5, a6, a7 = v1 + v0, v2 + v1, v3 + v2, v4 + v3, v5 + v4, v6 + v5, v7 + v6
    b2, b3, b4, b5, b6, b7 = a2 + v0, a3 + a1, a4 + a2, a5 + a3, a6 + a4, a7 + a5
    c4, c5, c6, c7 = b4 + v0, b5 + a1, b6 + b2, b7 + b3
    low = (v0 <= t).to(tl.int64) + (a1 <= t).to(tl.int64) + (b2 <= t).to(tl.int64) + (b3 <= t).to(tl.int64)
    child = low + (c4 <= t).to(tl.int64) + (c5 <= t).to(tl.int64) + (c6 <= t).to(tl.int64) + (c7 <= t).to(tl.int64)
    before = tl.where(child == 1, v0, 0.0)
    before = tl.where(child == 2, a1, before)
    before = tl.where(child == 3, b2, before)
    before = tl.where(child == 4, b3, before)
    before = tl.where(child == 5, c4, before)
    before = tl.where(child == 6, c5, before)
    before = tl.where(child == 7, c6, before)
    entries = (v0, v1, v2, v3, v4, v5, v6, v7)
    mine = t * 0.0
    added = mine
    rest = mine
    exact = child * 0
    found = t != t
    for j in tl.static_range(8):
        value = entries[j]
        mine = tl.where(child == j, value, mine)
        after = added + value
        looks = (found == 0) & (value > 0)
        hit = looks & (after > t)
        exact = tl.where(looks, j, exact)
        rest = tl.where(hit, t - added, tl.where(looks, value, rest))
        found = found | hit
        added = after
    doubtful = (child == 8) | (mine <= 0)
    return tl.where(doubtful, exact, child), tl.where(doubtful, rest, t - before)


@triton.jit
def _reference(state, least, SCALE: tl.constexpr):
    """What weights are relative to, given the smallest leaf of the batch."""
    if SCALE == 0:
        reference = least
    elif SCALE == 1:
        reference = tl.load(state + 1)
    else:
        reference = tl.load(state) / tl.load(state + 4)
    return reference


@triton.jit
def _weight(values, reference, beta):
    return tl.where(values > 0, power(reference / values, beta).to(tl.float32), 0.0)


@triton.jit
def _advance(draws, position, n):
    """Count a draw, once all programs have looked at what it changes."""
    tl.store(draws, tl.load(draws) + 1.0)
    tl.store(position, tl.load(position) + n)


@triton.jit
def _draw(
    nodes,
    state,
    offsets,
    draws,
    key,
    position,
    slots,
    values,
    least,
    weights,
    n,
    levels,
    START: tl.constexpr,
    END: tl.constexpr,
    OVER: tl.constexpr,
    GIVEN: tl.constexpr,
    SCALE: tl.constexpr,
    STRATIFIED: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A thread a draw goes down the tree: a node is a line of 64 bytes, and `levels` loads wait for each other."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = i < n
    t = uniforms(key, position, i)
    total = tl.load(state)
    if STRATIFIED:
        t = i.to(tl.float64) + t
        total = total / tl.full([], n, tl.float64)
    t = t * total
    if GIVEN:
        beta = tl.load(draws + 1)
    else:
        count = tl.load(draws)
        beta = tl.where(count >= OVER, tl.full([], END, tl.float64), (count / OVER) * (END - START) + START)
        if tl.program_id(0) == 0:
            tl.store(draws + 1, beta)
    at = i * 0
    for up in range(levels):
        level = levels - 1 - up
        v0, v1, v2, v3, v4, v5, v6, v7 = node(nodes + tl.load(offsets + level) + at * 8)
        child, t = _search(v0, v1, v2, v3, v4, v5, v6, v7, t)
        at = at * 8 + child
    value = tl.load(nodes + at)
    tl.store(slots + i, at, here)
    smallest = tl.min(tl.where(here, value, _INFINITE))
    if WHOLE:
        tl.store(weights + i, _weight(value, _reference(state, smallest, SCALE), beta), here)
        tl.debug_barrier()
        _advance(draws, position, n)
    else:
        tl.store(values + i, value, here)
        tl.store(least + tl.program_id(0), smallest)


@triton.jit
def _weigh(
    state,
    draws,
    position,
    values,
    least,
    weights,
    n,
    programs,
    SCALE: tl.constexpr,
    MANY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The weights of draws that several programs made."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = i < n
    each = tl.arange(0, MANY)
    smallest = tl.min(tl.load(least + each, each < programs, _INFINITE))
    value = tl.load(values + i, here, 1.0)
    tl.store(weights + i, _weight(value, _reference(state, smallest, SCALE), tl.load(draws + 1)), here)
    if tl.program_id(0) == 0:
        _advance(draws, position, n)


@triton.jit
def _count(ends, counts, lanes, BLOCK: tl.constexpr):
    """One program: the anchors of the lanes up to each."""
    sofar = tl.load(ends) * 0
    for start in range(0, lanes, BLOCK):
        lane = start + tl.arange(0, BLOCK)
        here = lane < lanes
        mine = tl.load(ends + lane * 4 + 1, here, 0) - tl.load(ends + lane * 4, here, 0)
        tl.store(counts + lane, tl.cumsum(mine, 0) + sofar, here)
        sofar += tl.sum(mine)


@triton.jit
def _choose(
    places, ends, counts, key, position, slots, n, lanes, rows, steps, WHOLE: tl.constexpr, BLOCK: tl.constexpr
):
    """A thread a draw looks for the lane of its anchor by halves."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = i < n
    total = tl.load(counts + (lanes - 1))
    which = (uniforms(key, position, i) * total.to(tl.float64)).to(tl.int64)
    lane = i * 0
    for step in range(steps):
        probe = lane + ((i * 0 + 1) << (steps - 1 - step))
        passed = (probe <= lanes) & (tl.load(counts + (tl.minimum(probe, lanes) - 1)) <= which)
        lane = tl.where(passed, probe, lane)
    lane = tl.minimum(lane, lanes - 1)
    before = tl.load(counts + tl.maximum(lane - 1, 0))
    behind = which - tl.where(lane > 0, before, 0)
    k = (tl.load(ends + lane * 4) + behind) % rows
    place = tl.load(places + lane * rows + k).to(tl.int64)
    tl.store(slots + i, place * lanes + lane, here)
    if WHOLE:
        tl.debug_barrier()
        tl.store(position, tl.load(position) + n)
