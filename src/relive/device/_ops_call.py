"""What calls that write do to the lanes, in PyTorch's operations: rows are taken, given up, and become ready.

Every call looks at all lanes; which of them change is a mask, never an index, so no call waits for the device. Each
lane writes to rows of its own, so no two entries of an index are equal.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .._ring.lanes import (
    CLEARED,
    CUT,
    CUTS,
    DRAWABLE,
    END,
    FIRST,
    GONE,
    HEAD,
    HELD,
    LOST,
    MEMORY,
    OLDEST,
    READY,
    READY_STEPS,
    START,
    STEP,
    STEPS,
    STORED,
)
from ._layout import Layout
from ._state import State

ANCHOR = STEP | START


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


class Call:
    """One call that writes. Counters are changed as columns, and come back into the tensor with `finish`."""

    def __init__(self, layout: Layout, state: State, runs: int) -> None:
        self.layout, self.state, self.runs = layout, state, runs
        self.lanes = torch.arange(layout.lanes, device=state.marks.device)
        self.c = list(state.counters.clone().unbind(1))
        self.oldest, self.ready = self.c[OLDEST], self.c[READY]
        self.dropped, self.none = torch.zeros_like(self.lanes), torch.zeros_like(self.lanes, dtype=torch.bool)

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
        for behind in range(2, min(self.layout.rows, 2 * self.layout.history + 3) + 1):
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
        if layout.most_anchors < layout.most_ready:
            come, came = _first_ones(come, came, layout.most_anchors)
        gone = self.oldest[:, None] + torch.arange(layout.most_gone(self.runs), device=self.lanes.device)
        went = gone < torch.minimum(c[OLDEST], self.ready)[:, None]
        self.state.counters.copy_(torch.stack(c, 1))
        return Changed(gone, went, come, came, self.dropped)


def _first_ones(rows: Tensor, mask: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The rows of `mask` first, in their order, and others behind them: `most` distinct ones of each lane."""
    here = mask.long()
    count = here.sum(1, keepdim=True)
    place = torch.where(mask, here.cumsum(1), count + (1 - here).cumsum(1)) - 1
    found = torch.empty_like(rows).scatter_(1, place, rows)[:, :most]
    return found, torch.arange(most, device=rows.device) < count
