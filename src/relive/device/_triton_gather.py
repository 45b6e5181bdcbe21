"""The transitions of a draw as one Triton kernel: windows, sums of rewards, every field; one program an item."""

from __future__ import annotations

from typing import Protocol

import torch
import triton
import triton.language as tl
from torch import Tensor

from .._ring.lanes import COUNTERS, END, LOST, TERMINATED, TRUNCATED
from ..items import Transitions
from ._layout import Layout
from ._ops_gather import Fields, powers_of
from ._state import DRAWN, EMPTY, State
from ._triton_numbers import launch
from ._triton_rows import Words, at_of, copy, copy_chunk, in_words, row_of, size_of, unit_of
from ._triton_stacks import copy_stack, older, successor

_COUNTERS = tl.constexpr(COUNTERS)
_END, _LOST = tl.constexpr(END), tl.constexpr(LOST)
_TERMINATED, _TRUNCATED = tl.constexpr(TERMINATED), tl.constexpr(TRUNCATED)
_DRAWN, _EMPTY = tl.constexpr(DRAWN), tl.constexpr(EMPTY)


class Reader(Protocol):
    """An item bound to the tensors of a buffer."""

    def __call__(self, slots: Tensor, weights: Tensor | None, items: Tensor) -> Fields:
        """The fields of the items at `slots`, and their weights.

        Args:
            slots: int64 `[B]`.
            weights: float32 `[B]`; None: all are 1.
            items: A number that is above 0 where there are items; else all fields are zeros, and ids -1.
        """


class GatherTransitions:
    """Reads what `_ops_gather.ReadTransitions` does; arguments are the same."""

    def __init__(self, layout: Layout, state: State, item: Transitions) -> None:
        self._layout, self._state, self._gammas = layout, state, tuple(powers_of(item).tolist())
        self._folds, self._chunk = item.n_step > 1, item.n_step if item.chunk else 0
        reward = layout.part("reward")
        copied = [part for part in layout.parts if not (self._folds and part is reward)]
        observed = [part for part in layout.parts if part.observed]
        self._jobs = [(part.keys, part) for part in copied]
        self._jobs += [(("next_obs", *part.keys[1:]), part) for part in observed]
        self._after = (0,) * len(copied) + (1,) * len(observed)
        self._several = tuple(self._chunk if part in layout.actions else 0 for _, part in self._jobs)
        self._words = Words.of(layout, state, [part for _, part in self._jobs])
        self._reward = reward
        self._rewards = state.rows[reward.array].view(-1).view(reward.dtype)

    def __call__(self, slots: Tensor, weights: Tensor | None, items: Tensor) -> Fields:
        n, layout, state, device = len(slots), self._layout, self._state, slots.device

        def made(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
            return torch.empty((n, *shape), dtype=dtype, device=device)

        fields: Fields = {
            keys: made((several, *part.whole) if several else part.whole, part.dtype)
            for (keys, part), several in zip(self._jobs, self._several, strict=True)
        }
        copies = tuple(in_words(fields[keys], size_of(layout, part)) for keys, part in self._jobs)
        reward, itemsize = self._reward, self._reward.dtype.itemsize
        if self._folds:
            fields["reward",] = made(reward.shape, reward.dtype)
        for name, dtype in _FACTS.items():
            fields[name,] = made((), dtype)
        if self._chunk:
            fields["mask",] = made((self._chunk,), torch.bool)
        drawn = made((), torch.float32) if weights is None else weights
        fields["weights",] = drawn
        launch(
            _gather,
            n,
            self._words.block,
            slots,
            items,
            state.counters,
            state.marks,
            state.flags,
            state.discounts,
            drawn,
            tuple(
                fields[name,].view(torch.uint8) if dtype is torch.bool else fields[name,]
                for name, dtype in _FACTS.items()
            ),
            self._words.rows,
            copies,
            self._rewards,
            fields["reward",].view(-1),
            fields["mask",].view(torch.uint8) if self._chunk else state.marks,
            n,
            OFFSETS=self._words.offsets,
            WORDS=self._words.words,
            STRIDES=self._words.strides,
            EVERY=self._words.every,
            KEPT=self._words.kept,
            FRAMES=self._words.frames,
            REPEATS=self._words.repeats,
            AFTER=self._after,
            SEVERAL=self._several,
            CHUNK=self._chunk,
            GAMMAS=self._gammas,
            REWARD_OFFSET=reward.offset // itemsize,
            REWARD_STRIDE=layout.widths[reward.array] // itemsize,
            REWARDS=reward.nbytes // itemsize if self._folds else 0,
            FILLS=weights is None,
            HISTORY=layout.history,
            LANES=layout.lanes,
            ROWS=layout.rows,
            DEPTH=layout.depth,
            TOGETHER=layout.block,
        )
        return fields | {keys: part.shown(fields[keys]) for keys, part in self._jobs if part.stack}


_FACTS = {
    "discount": torch.float32,
    "terminated": torch.bool,
    "truncated": torch.bool,
    "steps": torch.int32,
    "ids": torch.int64,
}


@triton.jit
def _gather(
    slots,
    items,
    counters,
    marks,
    flags,
    discounts,
    weights,
    facts,
    rows,
    copies,
    rewards,
    reward_out,
    mask,
    n,
    OFFSETS: tl.constexpr,
    WORDS: tl.constexpr,
    STRIDES: tl.constexpr,
    EVERY: tl.constexpr,
    KEPT: tl.constexpr,
    FRAMES: tl.constexpr,
    REPEATS: tl.constexpr,
    AFTER: tl.constexpr,
    SEVERAL: tl.constexpr,
    CHUNK: tl.constexpr,
    GAMMAS: tl.constexpr,
    REWARD_OFFSET: tl.constexpr,
    REWARD_STRIDE: tl.constexpr,
    REWARDS: tl.constexpr,
    FILLS: tl.constexpr,
    HISTORY: tl.constexpr,
    LANES: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    TOGETHER: tl.constexpr,
    BLOCK: tl.constexpr,
):
    item = tl.program_id(0).to(tl.int64)
    valid = (tl.load(items) > 0).to(tl.int32) != 0  # a mask of whole numbers, also interpreted
    row, lane = row_of(counters, tl.load(slots + item), LANES, ROWS, _COUNTERS)
    at = at_of(row, lane, LANES, DEPTH, TOGETHER)
    mark = tl.load(marks + at).to(tl.int32)
    steps = row * 0 + 1
    for _ in tl.static_range(len(GAMMAS) - 2):
        going = (mark & _END) == 0
        steps = steps + going.to(tl.int64)
        later = tl.load(marks + at_of(row + steps - 1, lane, LANES, DEPTH, TOGETHER)).to(tl.int32)
        mark = tl.where(going, later, mark)
    lost = (mark & _LOST) != 0
    terminated = (mark & _TERMINATED) != 0
    next_row = row + steps - lost.to(tl.int64)
    if HISTORY > 0:
        next_row = successor(marks, mark, next_row, lane, HISTORY, LANES, DEPTH, TOGETHER)
        past = older(marks, row, lane, HISTORY, LANES, DEPTH, TOGETHER)
        next_past = older(marks, next_row, lane, HISTORY, LANES, DEPTH, TOGETHER)
    after = at_of(next_row, lane, LANES, DEPTH, TOGETHER)
    # The last row of each tensor is zero.
    at = tl.where(valid, at, LANES * DEPTH)
    after = tl.where(valid, after, LANES * DEPTH)
    for f in tl.static_range(len(WORDS)):
        if EVERY[f] > 0:
            unit = unit_of(row, lane, LANES, EVERY[f], KEPT[f])
            copy(rows[f] + unit * STRIDES[f], valid, copies[f] + item * WORDS[f], WORDS[f], BLOCK)
        elif FRAMES[f] > 1:
            copy_stack(
                rows[f] + OFFSETS[f],
                next_row if AFTER[f] == 1 else row,
                next_past if AFTER[f] == 1 else past,
                lane,
                valid,
                copies[f] + item * (FRAMES[f] * WORDS[f]),
                STRIDES[f],
                WORDS[f],
                FRAMES[f],
                REPEATS[f],
                LANES,
                DEPTH,
                TOGETHER,
                BLOCK,
            )
        elif SEVERAL[f] > 0:
            copy_chunk(
                rows[f] + OFFSETS[f],
                row,
                lane,
                steps,
                valid,
                copies[f] + item * (SEVERAL[f] * WORDS[f]),
                STRIDES[f],
                WORDS[f],
                SEVERAL[f],
                LANES,
                DEPTH,
                TOGETHER,
                BLOCK,
            )
        else:
            begin = tl.where(AFTER[f] == 1, after, at) * STRIDES[f] + OFFSETS[f]
            copy(rows[f] + begin, valid, copies[f] + item * WORDS[f], WORDS[f], BLOCK)
    for start in range(0, REWARDS, BLOCK):
        i = start + tl.arange(0, BLOCK)
        here = i < REWARDS
        from_here = rewards + REWARD_OFFSET + i
        total = tl.load(from_here + at * REWARD_STRIDE, here, 0).to(tl.float64)
        for k in tl.static_range(1, len(GAMMAS) - 1):
            place = at_of(row + k, lane, LANES, DEPTH, TOGETHER)
            more = tl.load(from_here + place * REWARD_STRIDE, here, 0).to(tl.float64)
            total = tl.where(valid & (k < steps), total + more * GAMMAS[k], total)
        tl.store(reward_out + item * REWARDS + i, total.to(reward_out.dtype.element_ty), here)
    for ahead in range(CHUNK):
        tl.store(mask + item * CHUNK + ahead, (valid & (ahead < steps)).to(tl.uint8))
    discount = tl.load(discounts + steps)
    tl.store(facts[0] + item, tl.where(terminated | lost | (valid == 0), 0.0, discount))
    tl.store(facts[1] + item, (terminated & valid).to(tl.uint8))
    tl.store(facts[2] + item, (((mark & _TRUNCATED) != 0) & valid).to(tl.uint8))
    tl.store(facts[3] + item, tl.where(valid, steps, 0).to(tl.int32))
    tl.store(facts[4] + item, tl.where(valid, row * LANES + lane, -1))
    if FILLS:
        tl.store(weights + item, valid.to(tl.float32))
    if item == 0:
        tl.store(flags + _DRAWN, tl.load(flags + _DRAWN) + n)
        tl.store(flags + _EMPTY, tl.load(flags + _EMPTY) + (valid == 0).to(tl.int64))
