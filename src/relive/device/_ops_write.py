"""Adding steps, cutting and clearing, in PyTorch's operations: what the kernels in Triton must agree with.

Every call looks at all lanes; which of them change is a mask, never an index, so no call waits for the device. Each
lane writes to rows of its own, so no two entries of an index are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from .._ring.lanes import (
    CLEARED,
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
from ._layout import Layout, Part
from ._state import UNFIT, State

ANCHOR = STEP | START


class Step(NamedTuple):
    """One step of every lane.

    Attributes:
        values: For each field its values `[L, ...]`, by its keys.
        nexts: The next observations; the final ones where the episode ended.
        terminated: bool `[L]`.
        truncated: bool `[L]`.
        active: bool `[L]`: lanes that take part.
        known: bool `[L]`: where `nexts` has a final observation, in lanes that ended.
        continues: Whether the caller says that each observation is the successor of the lane's step before.
        priority: Raw priorities, float64 `[L]`; None: none are given.
    """

    values: dict[tuple[str, ...], Tensor]
    nexts: dict[tuple[str, ...], Tensor]
    terminated: Tensor
    truncated: Tensor
    active: Tensor
    known: Tensor
    continues: bool
    priority: Tensor | None


class Changed(NamedTuple):
    """What a call did to the items that can be drawn.

    Attributes:
        gone: Rows that may have stopped being drawable, int64 `[L, G]`.
        went: Which of them did.
        come: Rows that may have become drawable, int64 `[L, C]`.
        came: Which of them did.
        dropped: How many items went, int64 `[L]`.
    """

    gone: Tensor
    went: Tensor
    come: Tensor
    came: Tensor
    dropped: Tensor


def storage(layout: Layout, rows: Tensor, lanes: Tensor) -> Tensor:
    """Where rows of lanes are in the tensors."""
    memory = rows % layout.depth
    return (memory // layout.block * layout.lanes + lanes) * layout.block + memory % layout.block


class _Call:
    """One call that writes. Counters are changed as columns, and come back into the tensor with `finish`."""

    def __init__(self, layout: Layout, state: State, runs: int) -> None:
        self.layout, self.state, self.runs = layout, state, runs
        self.lanes = torch.arange(layout.lanes, device=state.marks.device)
        self.c = list(state.counters.clone().unbind(1))
        self.oldest, self.ready = self.c[OLDEST], self.c[READY]
        self.dropped = torch.zeros_like(self.lanes)

    def at(self, rows: Tensor) -> Tensor:
        return storage(self.layout, rows, self.lanes)

    def add(self, counter: int, more: Tensor) -> None:
        self.c[counter] = self.c[counter] + more

    def put(self, counter: int, who: Tensor, value: Tensor | int) -> None:
        self.c[counter] = torch.where(who, value, self.c[counter])

    def mark(self, who: Tensor, memory: Tensor, value: Tensor | int) -> None:
        at = self.at(memory)
        self.state.marks.index_copy_(0, at, torch.where(who, value, self.state.marks[at]).to(torch.uint8))

    def mark_at(self, rows: Tensor) -> Tensor:
        return self.state.marks[self.at(rows)]

    def holds(self) -> Tensor:
        """Lanes in which the row after the newest step already holds its successor."""
        return (self.c[HELD] > 0) & (self.c[HELD] == self.c[HEAD])

    def open(self) -> Tensor:
        """Lanes whose newest row is a step that has not ended its episode and was not cut."""
        return (self.c[HEAD] > 0) & ((self.mark_at(self.c[MEMORY] - 1) & (STEP | END)) == STEP)

    def claim(self, who: Tensor) -> tuple[Tensor, Tensor]:
        """Take the next row of each lane; where it is in memory, and its number."""
        memory, rows = self.c[MEMORY], self.c[HEAD]
        gone = rows - self.layout.rows
        self.retire(who & (gone >= 0) & (gone >= self.c[GONE]), gone)
        self.make_room(who, rows - self.layout.depth)
        self.add(HEAD, who.long())
        self.put(MEMORY, who, (memory + 1) % self.layout.depth)
        return memory, rows

    def make_room(self, who: Tensor, gone: Tensor) -> None:
        """The rows up to `gone` are stored no longer, or written over."""
        self.put(GONE, who, torch.maximum(self.c[GONE], gone + 1))

    def retire(self, who: Tensor, rows: Tensor) -> None:
        """The first rows of lanes are stored no longer."""
        step = who & ((self.mark_at(rows) & STEP) > 0)
        self.add(STORED, -step.long())
        late = who & (self.c[READY] == rows)
        self.add(READY_STEPS, (late & step).long())
        self.add(READY, late.long())
        self.drop(who & (self.c[OLDEST] == rows))
        for _ in range(self.layout.lookback):  # rows whose own older rows are gone, up to where a stream begins
            oldest = self.c[OLDEST]
            self.drop(who & (oldest <= rows + self.layout.lookback) & ((self.mark_at(oldest) & FIRST) == 0))

    def drop(self, who: Tensor) -> None:
        """The oldest row of lanes can no longer be drawn."""
        oldest = self.c[OLDEST]
        counted = (who & ((self.mark_at(oldest) & ANCHOR) == ANCHOR) & (oldest < self.ready)).long()
        self.add(DRAWABLE, -counted)
        self.dropped = self.dropped + counted
        self.add(OLDEST, who.long())

    def give_up(self, who: Tensor) -> None:
        """Retire the first rows of lanes that have as many steps as they keep, up to the oldest step."""
        for _ in range(1 + self.runs):
            over = who & (self.c[STORED] >= self.layout.steps)
            first = torch.maximum(torch.maximum(self.c[HEAD] - self.layout.rows, self.c[CLEARED]), self.c[GONE])
            first = torch.minimum(first, self.c[HEAD])
            self.retire(over, first)
            self.make_room(over, first)

    def close(self, who: Tensor) -> None:
        """The streams of lanes were cut: the rows that hold their successors become boundary rows."""
        newest = self.c[MEMORY] - 1
        self.mark(who, newest, self.mark_at(newest) | CUT)
        self.claim(who)
        self.put(HELD, who, 0)
        self.all_ready(who)
        self.add(CUTS, who.long())

    def forget_newest(self, who: Tensor) -> None:
        """End streams whose newest step waits for a successor: its outcome is unknown, so the step is dropped."""
        newest = self.c[MEMORY] - 1
        self.mark(who, newest, (self.mark_at(newest) & FIRST) | LOST)
        seeking = who
        for behind in range(2, min(self.layout.rows, 3) + 1):
            seeking = seeking & (self.c[HEAD] >= behind)
            mark = self.mark_at(self.c[MEMORY] - behind)
            found = seeking & ((mark & STEP) > 0)
            self.mark(found, self.c[MEMORY] - behind, mark | CUT)
            seeking = seeking & ~found
        self.all_ready(who)
        self.add(CUTS, who.long())
        self.add(STORED, -who.long())

    def all_ready(self, who: Tensor) -> None:
        self.put(READY, who, self.c[HEAD])
        self.put(READY_STEPS, who, self.c[STEPS])

    def finish(self) -> Changed:
        """Count what became ready, and put the counters back."""
        layout, c = self.layout, self.c
        first = torch.maximum(self.ready, c[OLDEST])
        come = first[:, None] + torch.arange(layout.most_ready, device=self.lanes.device)
        marks = self.state.marks[storage(layout, come, self.lanes[:, None])]
        came = (come < c[READY][:, None]) & ((marks & ANCHOR) == ANCHOR)
        self.add(DRAWABLE, came.long().sum(1))
        if layout.starts > 1:
            come, came = _first_ones(come, came, layout.most_anchors)
        most_gone = min(4 + self.runs + layout.lookback, layout.rows)
        gone = self.oldest[:, None] + torch.arange(most_gone, device=self.lanes.device)
        went = gone < torch.minimum(c[OLDEST], self.ready)[:, None]
        self.state.counters.copy_(torch.stack(c, 1))
        return Changed(gone, went, come, came, self.dropped)


def add(layout: Layout, state: State, step: Step, runs: int) -> tuple[Tensor, Changed]:
    """Write one step of every active lane; its ids, -1 for the other lanes, and what can be drawn now.

    Args:
        layout: The sizes.
        state: The tensors.
        step: The values.
        runs: Rows without a step that may follow each other in a lane.
    """
    call = _Call(layout, state, runs)
    c, active = call.c, step.active
    ended, holds = step.terminated | step.truncated, call.holds()
    now, after = packed(layout, step.values, state.columns), packed(layout, step.nexts, state.rows)
    if not step.continues:
        call.close(active & holds & _differs(state, call.at(c[MEMORY]), now))
    begins = active & ~call.open()
    _look_back(call, begins, now)
    memory, rows = call.claim(active)
    at = call.at(memory)
    for array, data in state.rows.items():
        data.index_copy_(0, at, torch.where(active[:, None], now[array], data[at]))
    for part in layout.states:
        _keep(call, part, rows, active & (c[STEPS] % part.every == 0), now[part.array])
    if len(state.given):
        given = torch.zeros_like(state.given[at])
        if step.priority is not None:
            given = torch.where(fit(step.priority), -step.priority.abs(), given)
            state.flags[UNFIT] += (active & ~fit(step.priority)).sum()
            state.clock[1:].fill_(1)
        state.given.index_copy_(0, at, torch.where(active, given, state.given[at]))
    lost = active & ended & ~step.known
    flags = STEP + step.terminated * TERMINATED + step.truncated * TRUNCATED + lost * LOST + begins * FIRST
    call.mark(active, memory, flags + START * (c[STEPS] % layout.starts == 0))
    call.give_up(active)
    for counter in (STEPS, STORED):
        call.add(counter, active.long())
    call.add(UNBOOTSTRAPPED, (lost & step.truncated & ~step.terminated).long())
    call.put(HELD, active, 0)
    follows = active & ~lost
    where, going = c[MEMORY], follows & ~ended
    call.claim(follows & ended)
    call.make_room(going, c[HEAD] - layout.depth)
    at = call.at(where)
    for array, data in state.rows.items():
        mask = follows[:, None] & (state.observed[array] > 0)
        data.index_copy_(0, at, torch.where(mask, after[array], data[at]))
    call.mark(follows, where, 0)
    call.put(HELD, going, c[HEAD])
    complete = torch.maximum(c[READY], c[HEAD] - layout.span + call.holds().long())
    call.put(READY, active, torch.where(ended, c[HEAD], complete))
    return torch.where(active, rows * layout.lanes + call.lanes, -1), call.finish()


def fit(priority: Tensor) -> Tensor:
    """Which numbers are priorities."""
    return torch.isfinite(priority) & (priority >= 0)


def cut(layout: Layout, state: State, who: Tensor, runs: int) -> Changed:
    """End the streams of the lanes `who` that are open."""
    call = _Call(layout, state, runs)
    held = call.holds()
    call.forget_newest(who & ~held & call.open())
    call.close(who & held)
    return call.finish()


def clear(layout: Layout, state: State) -> None:
    """Empty all lanes; their next rows have the numbers that they would have had."""
    c = list(state.counters.unbind(1))
    for counter in (CLEARED, OLDEST, READY):
        c[counter].copy_(c[HEAD])
    for counter in (DRAWABLE, STORED, HELD):
        c[counter].zero_()
    c[READY_STEPS].copy_(c[STEPS])
    state.marks.zero_()


def packed(layout: Layout, values: dict[tuple[str, ...], Tensor], arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Values as rows of bytes `[L, width]` for each of `arrays`; what is not given is zero."""
    found = {}
    for array, data in arrays.items():
        rows = torch.zeros((layout.lanes, layout.widths[array]), dtype=torch.uint8, device=data.device)
        for part in layout.of_array(array):
            value = values.get(part.keys)
            if value is not None and part.nbytes:
                as_bytes = value.contiguous().view(layout.lanes, -1).view(torch.uint8)
                rows[:, part.offset : part.offset + part.nbytes] = as_bytes
        found[array] = rows
    return found


def _keep(call: _Call, part: Part, rows: Tensor, who: Tensor, values: Tensor) -> None:
    """Write a field that is kept at every so many steps, over the one that a lane had long before."""
    layout, data, unit = call.layout, call.state.states[part.array], rows // part.every
    call.make_room(who, (unit - layout.kept(part) + 1) * part.every - 1)
    at = unit_at(layout, part, rows, call.lanes)
    data.index_copy_(0, at, torch.where(who[:, None], values, data[at]))


def unit_at(layout: Layout, part: Part, rows: Tensor, lanes: Tensor) -> Tensor:
    """Where the tensor of a field that is kept at every so many steps has rows of lanes."""
    return rows // part.every % layout.kept(part) * layout.lanes + lanes


def _first_ones(rows: Tensor, mask: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The rows of `mask` first, in their order, and others behind them: `most` distinct ones of each lane."""
    here = mask.long()
    count = here.sum(1, keepdim=True)
    place = torch.where(mask, here.cumsum(1), count + (1 - here).cumsum(1)) - 1
    found = torch.empty_like(rows).scatter_(1, place, rows)[:, :most]
    return found, torch.arange(most, device=rows.device) < count


def _differs(state: State, at: Tensor, now: dict[str, Tensor]) -> Tensor:
    """Lanes in which the observation in the rows `at` is another one than `now`, byte by byte."""
    differs = torch.zeros(len(at), dtype=torch.bool, device=at.device)
    for array, data in state.rows.items():
        differs = differs | (((data[at] ^ now[array]) & state.observed[array]) != 0).any(1)
    return differs


def _look_back(call: _Call, begins: Tensor, now: dict[str, Tensor]) -> None:
    """Count episodes whose final observation is a new one, and those whose next stream begins with it."""
    final = call.c[MEMORY] - 1
    stands = begins & (call.c[HEAD] > 0) & ((call.mark_at(final) & (STEP | LOST)) == 0)
    last = torch.where((call.layout.rows > 1) & (call.c[HEAD] > 1) & stands, final - 1, final)
    stands = stands & ((call.mark_at(last) & (TERMINATED | TRUNCATED)) > 0)
    before = {array: data[call.at(last)] for array, data in call.state.rows.items()}
    moved = stands & _differs(call.state, call.at(final), before)
    call.add(ENDS, moved.long())
    call.add(REPEATS, (moved & ~_differs(call.state, call.at(final), now)).long())
