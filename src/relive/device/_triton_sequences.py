"""The sequences of a draw as one Triton kernel: every field, sums of rewards; one program a position of an item."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .._ring.lanes import COUNTERS, END, FIRST, LOST, STEP, TERMINATED, TRUNCATED
from ..items import Sequences
from ._layout import Layout
from ._ops_gather import Fields, powers_of
from ._ops_sequences import firsts, ids_of_steps, shown
from ._state import DRAWN, EMPTY, State
from ._triton_numbers import launch
from ._triton_rows import Words, at_of, copy, in_words, row_of, size_of, unit_of
from ._triton_stacks import copy_stack, older, successor

_COUNTERS = tl.constexpr(COUNTERS)
_STEP, _END, _LOST, _FIRST = (tl.constexpr(mark) for mark in (STEP, END, LOST, FIRST))
_TERMINATED, _TRUNCATED = tl.constexpr(TERMINATED), tl.constexpr(TRUNCATED)
_DRAWN, _EMPTY = tl.constexpr(DRAWN), tl.constexpr(EMPTY)
_FACTS = {
    "discount": torch.float32,
    "terminated": torch.bool,
    "truncated": torch.bool,
    "steps": torch.int32,
    "mask": torch.bool,
}


class GatherSequences:
    """Reads what `_ops_sequences.ReadSequences` does; arguments are the same."""

    def __init__(self, layout: Layout, state: State, item: Sequences) -> None:
        self._layout, self._state, self._item = layout, state, item
        self._gammas = tuple(powers_of(item).tolist())
        self._words = Words.of(layout, state, layout.parts)
        self._reward = layout.part("reward")
        self._rewards = state.rows[self._reward.array].view(-1).view(self._reward.dtype)

    def __call__(self, slots: Tensor, weights: Tensor | None, items: Tensor) -> Fields:
        n, layout, state, item, device = len(slots), self._layout, self._state, self._item, slots.device

        def made(shape: tuple[int, ...], dtype: torch.dtype, times: int = 0) -> Tensor:
            lead = (n,) if not times else (times, n) if item.time_major else (n, times)
            return torch.empty((*lead, *shape), dtype=dtype, device=device)

        reward, itemsize, folds = self._reward, self._reward.dtype.itemsize, item.n_step > 1
        copied = {
            part.keys: made(part.whole, part.dtype, 0 if part.every else layout.span + 1) for part in layout.parts
        }
        fields = {part.keys: copied[part.keys] for part in layout.states}
        facts = {name: made((), dtype, item.steps) for name, dtype in _FACTS.items()}
        fields |= {(name,): fact for name, fact in facts.items()}
        fields |= firsts(layout, state, slots, items > 0)
        fields["ids",] = made((), torch.int64)
        fields["weights",] = made((), torch.float32) if weights is None else weights
        sums = made(reward.shape, reward.dtype, item.steps) if folds else self._rewards
        launch(
            _unroll,
            n * (layout.span + 1),
            self._words.block,
            slots,
            items,
            state.counters,
            state.marks,
            state.flags,
            state.discounts,
            fields["ids",],
            fields["weights",],
            tuple(fact.view(torch.uint8) if fact.dtype is torch.bool else fact for fact in facts.values()),
            self._words.rows,
            tuple(in_words(copied[part.keys], size_of(layout, part)) for part in layout.parts),
            self._rewards,
            sums.view(-1),
            n,
            OFFSETS=self._words.offsets,
            WORDS=self._words.words,
            STRIDES=self._words.strides,
            EVERY=self._words.every,
            KEPT=self._words.kept,
            FRAMES=self._words.frames,
            REPEATS=self._words.repeats,
            OBSERVED=tuple(int(part.observed) for part in layout.parts),
            GAMMAS=self._gammas,
            REWARD_OFFSET=reward.offset // itemsize,
            REWARD_STRIDE=layout.widths[reward.array] // itemsize,
            REWARDS=reward.nbytes // itemsize if folds else 0,
            FILLS=weights is None,
            LENGTH=item.steps,
            SPAN=layout.span,
            SPAN_BLOCK=triton.next_power_of_2(layout.span),
            TIME_MAJOR=item.time_major,
            HISTORY=layout.history,
            LANES=layout.lanes,
            ROWS=layout.rows,
            DEPTH=layout.depth,
            TOGETHER=layout.block,
        )
        for part in layout.parts:
            if not part.every:
                fields |= shown(item, part, copied[part.keys])
        if folds:
            fields["reward",] = sums
        if item.step_ids:
            fields["step_ids",] = ids_of_steps(item, layout, fields)
        return fields


@triton.jit
def _unroll(
    slots,
    items,
    counters,
    marks,
    flags,
    discounts,
    ids,
    weights,
    facts,
    rows,
    copies,
    rewards,
    reward_out,
    n,
    OFFSETS: tl.constexpr,
    WORDS: tl.constexpr,
    STRIDES: tl.constexpr,
    EVERY: tl.constexpr,
    KEPT: tl.constexpr,
    FRAMES: tl.constexpr,
    REPEATS: tl.constexpr,
    OBSERVED: tl.constexpr,
    GAMMAS: tl.constexpr,
    REWARD_OFFSET: tl.constexpr,
    REWARD_STRIDE: tl.constexpr,
    REWARDS: tl.constexpr,
    FILLS: tl.constexpr,
    LENGTH: tl.constexpr,
    SPAN: tl.constexpr,
    SPAN_BLOCK: tl.constexpr,
    TIME_MAJOR: tl.constexpr,
    HISTORY: tl.constexpr,
    LANES: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    TOGETHER: tl.constexpr,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    item, t = program // (SPAN + 1), program % (SPAN + 1)
    valid = (tl.load(items) > 0).to(tl.int32) != 0  # a mask of whole numbers, also interpreted
    row, lane = row_of(counters, tl.load(slots + item), LANES, ROWS, _COUNTERS)

    # How many positions have a step, and the mark of the last of them.
    each = tl.arange(0, SPAN_BLOCK)
    mark = tl.load(marks + at_of(row + each, lane, LANES, DEPTH, TOGETHER), each < SPAN, 0).to(tl.int32)
    found = tl.min(tl.where((mark & _END) != 0, each, SPAN)) + 1
    last = tl.load(marks + at_of(row + found - 1, lane, LANES, DEPTH, TOGETHER)).to(tl.int32)
    lost = (last & _LOST) != 0
    mark = tl.load(marks + at_of(row, lane, LANES, DEPTH, TOGETHER)).to(tl.int32)
    earlier = tl.load(marks + at_of(row - 1, lane, LANES, DEPTH, TOGETHER)).to(tl.int32)
    preceded = ((mark & _FIRST) == 0) & ((earlier & _STEP) != 0)

    # The observation here, the final one behind the end; and the step before it, if any.
    here_row = row + tl.minimum(t, found - lost.to(tl.int64))
    if HISTORY > 0:
        final = successor(marks, last, row + found - lost.to(tl.int64), lane, HISTORY, LANES, DEPTH, TOGETHER)
        here_row = tl.where(t < found, row + t, final)
        past = older(marks, here_row, lane, HISTORY, LANES, DEPTH, TOGETHER)
    at = at_of(here_row, lane, LANES, DEPTH, TOGETHER)
    before = at_of(row + t - 1, lane, LANES, DEPTH, TOGETHER)
    has = valid & (t <= found) & ((t > 0) | preceded)
    place = program
    if TIME_MAJOR:
        place = t * n + item
    for f in tl.static_range(len(WORDS)):
        if EVERY[f] > 0:
            if t == 0:
                unit = unit_of(row, lane, LANES, EVERY[f], KEPT[f])
                copy(rows[f] + unit * STRIDES[f], valid, copies[f] + item * WORDS[f], WORDS[f], BLOCK)
        elif FRAMES[f] > 1:
            copy_stack(
                rows[f] + OFFSETS[f],
                here_row,
                past,
                lane,
                valid,
                copies[f] + place * (FRAMES[f] * WORDS[f]),
                STRIDES[f],
                WORDS[f],
                FRAMES[f],
                REPEATS[f],
                LANES,
                DEPTH,
                TOGETHER,
                BLOCK,
            )
        elif OBSERVED[f] == 1:
            begin = at * STRIDES[f] + OFFSETS[f]
            copy(rows[f] + begin, valid, copies[f] + place * WORDS[f], WORDS[f], BLOCK)
        else:
            begin = before * STRIDES[f] + OFFSETS[f]
            copy(rows[f] + begin, has, copies[f] + place * WORDS[f], WORDS[f], BLOCK)

    # The window that begins here.
    left = found - t
    here = t < LENGTH
    there = valid & (left > 0)
    steps = tl.where(there, tl.minimum(left, len(GAMMAS) - 1), 0)
    ends = there & (left <= len(GAMMAS) - 1)
    over = ends & ((last & (_TERMINATED | _LOST)) != 0)
    place = item * LENGTH + t
    if TIME_MAJOR:
        place = t * n + item
    for start in range(0, REWARDS, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total = tl.zeros([BLOCK], tl.float64)
        for k in tl.static_range(len(GAMMAS) - 1):
            from_there = rewards + at_of(row + t + k, lane, LANES, DEPTH, TOGETHER) * REWARD_STRIDE + REWARD_OFFSET
            more = tl.load(from_there + i, ((i < REWARDS) & (k < steps)) != 0, 0).to(tl.float64)
            total = total + tl.where(k < steps, more * GAMMAS[k], 0.0)
        out = reward_out + place * REWARDS + i
        tl.store(out, total.to(reward_out.dtype.element_ty), ((i < REWARDS) & here) != 0)
    discount = tl.load(discounts + steps)
    tl.store(facts[0] + place, tl.where(there & (over == 0), discount, 0.0), here)
    tl.store(facts[1] + place, (ends & ((last & _TERMINATED) != 0)).to(tl.uint8), here)
    tl.store(facts[2] + place, (ends & ((last & _TRUNCATED) != 0)).to(tl.uint8), here)
    tl.store(facts[3] + place, steps.to(tl.int32), here)
    tl.store(facts[4] + place, there.to(tl.uint8), here)
    if t == 0:
        tl.store(ids + item, tl.where(valid, row * LANES + lane, -1))
        if FILLS:
            tl.store(weights + item, valid.to(tl.float32))
    if program == 0:
        tl.store(flags + _DRAWN, tl.load(flags + _DRAWN) + n)
        tl.store(flags + _EMPTY, tl.load(flags + _EMPTY) + (valid == 0).to(tl.int64))
