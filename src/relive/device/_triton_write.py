"""One step of all lanes as one Triton kernel, one program a lane: what `_ops_write.add` and the samplers do."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .._ring.lanes import (
    CLEARED,
    COUNTERS,
    CUT,
    CUTS,
    DRAWABLE,
    END,
    ENDS,
    FIRST,
    GONE,
    HEAD,
    HELD,
    LOST,
    MEMORY,
    OLDEST,
    READY,
    READY_STEPS,
    REPEATS,
    START,
    STEP,
    STEPS,
    STORED,
    TERMINATED,
    TRUNCATED,
    UNBOOTSTRAPPED,
)
from ._layout import Layout
from ._ops_write import Step
from ._state import COME_ANCHORS, GONE_ANCHORS, UNFIT, State
from ._tree import COUNT, ITEMS, LARGEST
from ._triton_lanes import claim, forget_newest, retire
from ._triton_numbers import launch, power
from ._triton_rows import Words, at_of, differs, in_words, put, size_of, unit_of
from ._triton_stacks import apart, store_older, strays

_STEP, _CUT, _LOST, _FIRST, _START = (tl.constexpr(mark) for mark in (STEP, CUT, LOST, FIRST, START))
_TERMINATED, _TRUNCATED, _END = (tl.constexpr(mark) for mark in (TERMINATED, TRUNCATED, END))
_ANCHOR = tl.constexpr(STEP | START)
_COUNTERS = tl.constexpr(COUNTERS)
_HEAD, _MEMORY, _READY, _OLDEST = (tl.constexpr(counter) for counter in (HEAD, MEMORY, READY, OLDEST))
_HELD, _STEPS, _DRAWABLE, _STORED = (tl.constexpr(counter) for counter in (HELD, STEPS, DRAWABLE, STORED))
_READY_STEPS, _CUTS, _UNBOOTSTRAPPED = (tl.constexpr(counter) for counter in (READY_STEPS, CUTS, UNBOOTSTRAPPED))
_ENDS, _REPEATS, _CLEARED, _GONE = (tl.constexpr(counter) for counter in (ENDS, REPEATS, CLEARED, GONE))
_GONE_ANCHORS, _COME_ANCHORS = tl.constexpr(GONE_ANCHORS), tl.constexpr(COME_ANCHORS)
_COUNT, _LARGEST, _ITEMS, _UNFIT = (tl.constexpr(number) for number in (COUNT, LARGEST, ITEMS, UNFIT))


class Write:
    """Writes steps.

    Args:
        layout: The sizes.
        state: The tensors.
        alpha: Exponent of priorities; None: items are drawn uniformly.
        initial: The priority of items while none was set.
        runs: Rows without a step that may follow each other in a lane.
    """

    def __init__(self, layout: Layout, state: State, alpha: float | None, initial: float, runs: int) -> None:
        self._layout, self._state, self._alpha, self._initial = layout, state, alpha, initial
        self._given_up = 1 + runs
        self._most_gone = layout.most_gone(runs)
        self._observed = [part for part in layout.parts if part.observed]
        self._words = Words.of(layout, state, layout.parts)
        self._of_obs = Words.of(layout, state, self._observed)

    @property
    def touched(self) -> int:
        """Leaves of a lane that a call may change."""
        return self._most_gone + self._layout.most_anchors

    def __call__(self, step: Step) -> tuple[Tensor, Tensor]:
        """Write a step; its ids, and the slots `[L * touched]` whose leaves changed, -1 for others."""
        layout, state = self._layout, self._state
        lanes, device, prioritized = layout.lanes, state.marks.device, self._alpha is not None
        ids = torch.empty(lanes, dtype=torch.int64, device=device)
        slots = torch.empty(lanes * self.touched if prioritized else 0, dtype=torch.int64, device=device)
        values = tuple(in_words(step.values[part.keys], size_of(layout, part)) for part in layout.parts)
        nexts = tuple(in_words(step.nexts[part.keys], size_of(layout, part)) for part in self._observed)
        observed = tuple(value for part, value in zip(layout.parts, values, strict=True) if part.observed)
        masks = tuple(
            mask.contiguous().view(torch.uint8) for mask in (step.active, step.known, step.terminated, step.truncated)
        )
        launch(
            _write,
            lanes,
            self._words.block,
            state.counters,
            state.marks,
            state.given,
            state.clock if step.priority is None else step.priority,
            state.tree,
            state.sums,
            state.places,
            state.ends,
            state.flags,
            ids,
            slots,
            masks,
            values,
            self._words.rows,
            observed,
            nexts,
            self._of_obs.rows,
            OFFSETS=self._words.offsets,
            WORDS=self._words.words,
            STRIDES=self._words.strides,
            EVERY=self._words.every,
            HAS=self._words.kept,
            FRAMES=self._words.frames,
            OBS_OFFSETS=self._of_obs.offsets,
            OBS_WORDS=self._of_obs.words,
            OBS_STRIDES=self._of_obs.strides,
            OBS_FRAMES=self._of_obs.frames,
            OBS_REPEATS=self._of_obs.repeats,
            COMPARES=not step.continues,
            GIVES=step.priority is not None,
            KEEPS=len(state.given) > 0,
            PRIORITIZED=prioritized,
            ALPHA=self._alpha or 0.0,
            INITIAL=self._initial,
            GIVEN_UP=self._given_up,
            MOST_GONE=self._most_gone,
            MOST_READY=layout.most_ready,
            MOST_ANCHORS=layout.most_anchors,
            LOOKBACK=layout.lookback,
            HISTORY=layout.history,
            BEHIND=min(layout.rows, 2 * layout.history + 3) + 1,
            AGES=min(layout.rows, layout.history + 2),
            SPAN=layout.span,
            STARTS=layout.starts,
            KEPT=layout.steps,
            LANES=lanes,
            ROWS=layout.rows,
            DEPTH=layout.depth,
            TOGETHER=layout.block,
            GONE_BLOCK=triton.next_power_of_2(self._most_gone),
            COME_BLOCK=triton.next_power_of_2(layout.most_ready),
        )
        return ids, slots


@triton.jit
def _write(
    counters, marks, given, priority, nodes, sums, places, ends, flags, ids, slots, masks, values, rows, observed,
    nexts, obs_rows, OFFSETS: tl.constexpr, WORDS: tl.constexpr, STRIDES: tl.constexpr, EVERY: tl.constexpr,
    HAS: tl.constexpr, FRAMES: tl.constexpr, OBS_OFFSETS: tl.constexpr, OBS_WORDS: tl.constexpr,
    OBS_STRIDES: tl.constexpr, OBS_FRAMES: tl.constexpr, OBS_REPEATS: tl.constexpr,
    COMPARES: tl.constexpr, GIVES: tl.constexpr, KEEPS: tl.constexpr, PRIORITIZED: tl.constexpr,
    ALPHA: tl.constexpr, INITIAL: tl.constexpr, GIVEN_UP: tl.constexpr, MOST_GONE: tl.constexpr,
    MOST_READY: tl.constexpr, MOST_ANCHORS: tl.constexpr, LOOKBACK: tl.constexpr, HISTORY: tl.constexpr,
    BEHIND: tl.constexpr, AGES: tl.constexpr, SPAN: tl.constexpr,
    STARTS: tl.constexpr, KEPT: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr, DEPTH: tl.constexpr,
    TOGETHER: tl.constexpr, GONE_BLOCK: tl.constexpr, COME_BLOCK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    lane = tl.program_id(0).to(tl.int64)
    c = counters + lane * _COUNTERS
    head, memory, ready, oldest = tl.load(c + _HEAD), tl.load(c + _MEMORY), tl.load(c + _READY), tl.load(c + _OLDEST)
    held, steps = tl.load(c + _HELD), tl.load(c + _STEPS)
    drawable, stored = tl.load(c + _DRAWABLE), tl.load(c + _STORED)
    ready_steps, cuts = tl.load(c + _READY_STEPS), tl.load(c + _CUTS)
    cleared, gone = tl.load(c + _CLEARED), tl.load(c + _GONE)
    active = tl.load(masks[0] + lane) != 0
    terminated, truncated = tl.load(masks[2] + lane) != 0, tl.load(masks[3] + lane) != 0
    ended = (terminated | truncated) != 0
    lost = active & ended & (tl.load(masks[1] + lane) == 0)
    counted, oldest_then, drawable_then = ready, oldest, drawable

    # A stream whose observation is another one than its step before left is cut.
    holds = (held > 0) & (held == head)
    newest = at_of(memory - 1, lane, LANES, DEPTH, TOGETHER)
    mark = tl.load(marks + newest).to(tl.int32)
    opened = (head > 0) & ((mark & (_STEP | _END)) == _STEP)
    closing = active & (held < 0)
    if COMPARES:
        here = at_of(memory, lane, LANES, DEPTH, TOGETHER)
        differing = 0
        for o in tl.static_range(len(OBS_WORDS)):
            begin = here * OBS_STRIDES[o] + OBS_OFFSETS[o]
            given_at = (lane * OBS_FRAMES[o] + OBS_FRAMES[o] - 1) * OBS_WORDS[o]
            differing += differs(observed[o], given_at, obs_rows[o], begin, OBS_WORDS[o], BLOCK)
        if HISTORY > 0:
            astray = tl.where(opened, strays(
                observed, obs_rows, marks, head - 1, lane, OBS_OFFSETS, OBS_WORDS, OBS_STRIDES, OBS_FRAMES, OBS_REPEATS,
                HISTORY, LANES, DEPTH, TOGETHER, BLOCK,
            ), 0)  # fmt: skip
            differing += astray
            if (active & opened & (holds == 0) & (astray != 0)) != 0:
                forget_newest(marks, lane, head, memory, BEHIND, LANES, DEPTH, TOGETHER)
                opened = opened & (head < 0)
                ready, ready_steps, cuts, stored = head, steps, cuts + 1, stored - 1
        closing = (active & holds & (differing != 0)) != 0
    begins = (active & ((opened == 0) | closing)) != 0

    # Episodes whose final observation is a new one, and those whose next stream begins with it.
    last = tl.where((ROWS > 1) & (head > 1), memory - 2, memory - 1)
    for age in tl.static_range(2, AGES):  # frames that the final one brought along
        before_mark = tl.load(marks + at_of(last, lane, LANES, DEPTH, TOGETHER)).to(tl.int32)
        last = tl.where(((before_mark & _STEP) == 0) & (head > age), last - 1, last)
    last_mark = tl.load(marks + at_of(last, lane, LANES, DEPTH, TOGETHER)).to(tl.int32)
    stands = begins & (closing == 0) & (head > 0) & ((mark & (_STEP | _LOST)) == 0)
    stands = stands & ((last_mark & (_TERMINATED | _TRUNCATED)) != 0)
    if stands:
        moved = 0
        other = 0
        last_at = at_of(last, lane, LANES, DEPTH, TOGETHER)
        for o in tl.static_range(len(OBS_WORDS)):
            final_at = newest * OBS_STRIDES[o] + OBS_OFFSETS[o]
            before_at = last_at * OBS_STRIDES[o] + OBS_OFFSETS[o]
            moved += differs(obs_rows[o], before_at, obs_rows[o], final_at, OBS_WORDS[o], BLOCK)
            given_at = (lane * OBS_FRAMES[o] + OBS_FRAMES[o] - 1) * OBS_WORDS[o]
            other += differs(observed[o], given_at, obs_rows[o], final_at, OBS_WORDS[o], BLOCK)
        tl.store(c + _ENDS, tl.load(c + _ENDS) + tl.where(moved != 0, 1, 0))
        tl.store(c + _REPEATS, tl.load(c + _REPEATS) + tl.where((moved != 0) & (other == 0), 1, 0))

    # Close.
    tl.store(marks + newest, (mark | _CUT).to(tl.uint8), closing)
    tl.debug_barrier()
    head, memory, gone, stored, ready_steps, ready, drawable, oldest = claim(
        marks, lane, closing, head, memory, gone, stored, ready_steps, ready, drawable, oldest, counted, LOOKBACK,
        LANES, ROWS, DEPTH, TOGETHER,
    )  # fmt: skip
    held = tl.where(closing, 0, held)
    ready = tl.where(closing, head, ready)
    ready_steps = tl.where(closing, steps, ready_steps)
    cuts = cuts + closing.to(tl.int64)

    # Older frames of a stream that begins.
    if HISTORY > 0:
        older, head, memory, gone, stored, ready_steps, ready, drawable, oldest = store_older(
            begins, observed, obs_rows, marks, lane, head, memory, gone, stored, ready_steps, ready, drawable, oldest,
            counted, OBS_OFFSETS, OBS_WORDS, OBS_STRIDES, OBS_FRAMES, OBS_REPEATS, LOOKBACK, LANES, ROWS, DEPTH,
            TOGETHER, BLOCK,
        )  # fmt: skip
        begins = (begins & (older == 0)) != 0

    # The step.
    row_of_step = head
    at = at_of(memory, lane, LANES, DEPTH, TOGETHER)
    head, memory, gone, stored, ready_steps, ready, drawable, oldest = claim(
        marks, lane, active, head, memory, gone, stored, ready_steps, ready, drawable, oldest, counted, LOOKBACK, LANES,
        ROWS, DEPTH, TOGETHER,
    )  # fmt: skip
    for f in tl.static_range(len(WORDS)):
        if EVERY[f] > 0:
            kept = (active & (steps % EVERY[f] == 0)) != 0
            # The row that it is written over was that of a step long before.
            gone = tl.where(kept, tl.maximum(gone, (row_of_step // EVERY[f] - HAS[f] + 1) * EVERY[f]), gone)
            unit = unit_of(row_of_step, lane, LANES, EVERY[f], HAS[f])
            put(rows[f], unit * STRIDES[f], values[f], lane * WORDS[f], kept, WORDS[f], BLOCK)
        else:
            newest_frame = (lane * FRAMES[f] + FRAMES[f] - 1) * WORDS[f]
            put(rows[f], at * STRIDES[f] + OFFSETS[f], values[f], newest_frame, active, WORDS[f], BLOCK)
    if KEEPS:
        now = tl.load(sums + _LARGEST) * 0.0
        if GIVES:
            number = tl.load(priority + lane)
            fit = (number >= 0) & (number - number == 0)
            now = tl.where(fit, -tl.abs(number), now)
            tl.atomic_add(flags + _UNFIT, (active & (fit == 0)).to(tl.int64))
        tl.store(given + at, now, active)
    flag = _STEP + terminated.to(tl.int32) * _TERMINATED + truncated.to(tl.int32) * _TRUNCATED
    flag += lost.to(tl.int32) * _LOST + begins.to(tl.int32) * _FIRST + (steps % STARTS == 0).to(tl.int32) * _START
    follows = (active & (lost == 0)) != 0
    over = ended
    if HISTORY > 0:
        goes_apart = (follows & (apart(observed, nexts, lane, OBS_WORDS, OBS_FRAMES, BLOCK) != 0)) != 0
        cutting = (goes_apart & (ended == 0)) != 0
        flag += cutting.to(tl.int32) * _CUT
        cuts += cutting.to(tl.int64)
        over = (ended | goes_apart) != 0
    tl.store(marks + at, flag.to(tl.uint8), active)
    tl.debug_barrier()
    for _ in tl.static_range(GIVEN_UP):
        too_many = active & (stored >= KEPT)
        row = tl.minimum(tl.maximum(tl.maximum(head - ROWS, cleared), gone), head)
        stored, ready_steps, ready, drawable, oldest = retire(
            marks, row, lane, too_many, stored, ready_steps, ready, drawable, oldest, counted, LOOKBACK, LANES, DEPTH,
            TOGETHER,
        )  # fmt: skip
        gone = tl.where(too_many, tl.maximum(gone, row + 1), gone)
    steps = steps + active.to(tl.int64)
    stored = stored + active.to(tl.int64)
    held = tl.where(active, 0, held)

    # The observation after it.
    final = (follows & over) != 0
    going = (follows & (over == 0)) != 0
    first = (head * 0).to(tl.int32)
    if HISTORY > 0:
        older, head, memory, gone, stored, ready_steps, ready, drawable, oldest = store_older(
            goes_apart, nexts, obs_rows, marks, lane, head, memory, gone, stored, ready_steps, ready, drawable, oldest,
            counted, OBS_OFFSETS, OBS_WORDS, OBS_STRIDES, OBS_FRAMES, OBS_REPEATS, LOOKBACK, LANES, ROWS, DEPTH,
            TOGETHER, BLOCK,
        )  # fmt: skip
        first = (goes_apart & (older == 0)).to(tl.int32) * _FIRST
    at = at_of(memory, lane, LANES, DEPTH, TOGETHER)
    room = tl.where(follows, tl.maximum(gone, head + 1 - DEPTH), gone)
    head, memory, _, stored, ready_steps, ready, drawable, oldest = claim(
        marks, lane, final, head, memory, gone, stored, ready_steps, ready, drawable, oldest, counted, LOOKBACK, LANES,
        ROWS, DEPTH, TOGETHER,
    )  # fmt: skip
    gone = room
    for o in tl.static_range(len(OBS_WORDS)):
        begin = at * OBS_STRIDES[o] + OBS_OFFSETS[o]
        newest_frame = (lane * OBS_FRAMES[o] + OBS_FRAMES[o] - 1) * OBS_WORDS[o]
        put(obs_rows[o], begin, nexts[o], newest_frame, follows, OBS_WORDS[o], BLOCK)
    tl.debug_barrier()
    tl.store(marks + at, first.to(tl.uint8), follows)
    held = tl.where(going, head, held)
    holds = (held > 0) & (held == head)
    complete = tl.maximum(ready, head - SPAN + holds.to(tl.int64))
    ready = tl.where(active, tl.where(over, head, complete), ready)
    tl.debug_barrier()

    # What can be drawn now.
    j = tl.arange(0, COME_BLOCK)
    come = tl.maximum(counted, oldest) + j
    come_at = at_of(come, lane, LANES, DEPTH, TOGETHER)
    come_mark = tl.load(marks + come_at).to(tl.int32)
    came = (j < MOST_READY) & (come < ready) & ((come_mark & _ANCHOR) == _ANCHOR)
    dropped = drawable_then - drawable
    drawable = drawable + tl.sum(came.to(tl.int64))
    if PRIORITIZED:
        k = tl.arange(0, GONE_BLOCK)
        leaving = oldest_then + k
        went = (k < MOST_GONE) & (leaving < tl.minimum(oldest, counted))
        slot = leaving % ROWS * LANES + lane
        before = tl.load(nodes + slot, went, 0.0)
        positive = -tl.sum((before > 0).to(tl.int64))
        tl.store(nodes + slot, before * 0.0, went)
        out = slots + lane * (MOST_GONE + MOST_ANCHORS)
        tl.store(out + k, tl.where(went, slot, -1), k < MOST_GONE)
        tl.debug_barrier()
        raw = tl.load(given + come_at, came, 0.0)
        largest = tl.load(sums + _LARGEST)
        largest = tl.where(largest > 0, largest, largest * 0.0 + INITIAL)  # a number alone becomes a float32
        raw = tl.where(raw.to(tl.int64, bitcast=True) < 0, -raw, largest)
        slot = come % ROWS * LANES + lane
        value = power(raw, ALPHA)
        before = tl.load(nodes + slot, came, 0.0)
        positive += tl.sum((came & (value > 0)).to(tl.int64)) - tl.sum((before > 0).to(tl.int64))
        tl.store(nodes + slot, value, came)
        number = tl.cumsum(came.to(tl.int64), 0) - 1
        tl.store(out + MOST_GONE + number, slot, came)
        tl.store(out + MOST_GONE + j, -1, ((j >= tl.sum(came.to(tl.int64))) & (j < MOST_ANCHORS)) != 0)
        # Whole numbers: exact in any order.
        tl.atomic_add(sums + _COUNT, positive.to(tl.float64))
        tl.atomic_add(sums + _ITEMS, (drawable - drawable_then).to(tl.float64))
    else:
        total = tl.load(ends + lane * 4 + _COME_ANCHORS)
        place = (total + tl.cumsum(came.to(tl.int64), 0) - 1) % ROWS
        tl.store(places + lane * ROWS + place, (come % ROWS).to(places.dtype.element_ty), came)
        tl.store(ends + lane * 4 + _GONE_ANCHORS, tl.load(ends + lane * 4 + _GONE_ANCHORS) + dropped)
        tl.store(ends + lane * 4 + _COME_ANCHORS, total + tl.sum(came.to(tl.int64)))

    tl.store(c + _HEAD, head)
    tl.store(c + _MEMORY, memory)
    tl.store(c + _READY, ready)
    tl.store(c + _OLDEST, oldest)
    tl.store(c + _HELD, held)
    tl.store(c + _STEPS, steps)
    tl.store(c + _DRAWABLE, drawable)
    tl.store(c + _STORED, stored)
    tl.store(c + _READY_STEPS, ready_steps)
    tl.store(c + _CUTS, cuts)
    tl.store(c + _GONE, gone)
    missed = (lost & truncated & (terminated == 0)).to(tl.int64)
    tl.store(c + _UNBOOTSTRAPPED, tl.load(c + _UNBOOTSTRAPPED) + missed)
    tl.store(ids + lane, tl.where(active, row_of_step * LANES + lane, -1))
