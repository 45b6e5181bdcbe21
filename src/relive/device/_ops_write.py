"""Adding steps, cutting and clearing, in PyTorch's operations: what the kernels in Triton must agree with."""

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
    ENDS,
    FIRST,
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
from . import _ops_stacks as stacks
from ._layout import Layout, Part
from ._ops_call import Call, Changed
from ._state import UNFIT, State


class Step(NamedTuple):
    """One step of every lane.

    Attributes:
        values: For each field its values `[L, ...]`, by its keys; of stacks `[L, frames, ...]`, the oldest first.
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


def add(layout: Layout, state: State, step: Step, runs: int) -> tuple[Tensor, Changed]:
    """Write one step of every active lane; its ids, -1 for the other lanes, and what can be drawn now.

    Args:
        layout: The sizes.
        state: The tensors.
        step: The values.
        runs: Rows without a step that may follow each other in a lane.
    """
    call = Call(layout, state, runs)
    c, active = call.c, step.active
    ended, holds = step.terminated | step.truncated, call.holds()
    now, after = packed(layout, step.values, state.columns), packed(layout, step.nexts, state.rows)
    if not step.continues:
        strays = stacks.strays(call, step.values) if layout.history else call.none
        call.close(active & holds & (_differs(state, call.at(c[MEMORY]), now) | strays))
        if layout.history:
            call.forget_newest(active & ~holds & strays)
    begins = active & ~call.open()
    _look_back(call, begins, now)
    if layout.history:
        begins = stacks.store_older(call, begins, step.values)
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
    follows, over, first = active & ~lost, ended, call.none
    if layout.history:
        apart = follows & stacks.apart(call, step.values, step.nexts)
        call.mark(apart & ~ended, memory, call.mark_at(memory) | CUT)
        call.add(CUTS, (apart & ~ended).long())
        over, first = ended | apart, stacks.store_older(call, apart, step.nexts)
    where, going = c[MEMORY], follows & ~over
    call.claim(follows & over)
    call.make_room(going, c[HEAD] - layout.depth)
    at = call.at(where)
    for array, data in state.rows.items():
        mask = follows[:, None] & (state.observed[array] > 0)
        data.index_copy_(0, at, torch.where(mask, after[array], data[at]))
    call.mark(follows, where, FIRST * first)
    call.put(HELD, going, c[HEAD])
    complete = torch.maximum(c[READY], c[HEAD] - layout.span + call.holds().long())
    call.put(READY, active, torch.where(over, c[HEAD], complete))
    return torch.where(active, rows * layout.lanes + call.lanes, -1), call.finish()


def fit(priority: Tensor) -> Tensor:
    """Which numbers are priorities."""
    return torch.isfinite(priority) & (priority >= 0)


def cut(layout: Layout, state: State, who: Tensor, runs: int) -> Changed:
    """End the streams of the lanes `who` that are open."""
    call = Call(layout, state, runs)
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
    """Values, of stacks the newest frames, as rows of bytes `[L, width]` for each of `arrays`; the others are zero."""
    found = {}
    for array, data in arrays.items():
        rows = torch.zeros((layout.lanes, layout.widths[array]), dtype=torch.uint8, device=data.device)
        for part in layout.of_array(array):
            value = values.get(part.keys)
            if value is not None and part.nbytes:
                newest = value[:, -1] if part.stack else value
                as_bytes = newest.contiguous().view(layout.lanes, -1).view(torch.uint8)
                rows[:, part.offset : part.offset + part.nbytes] = as_bytes
        found[array] = rows
    return found


def _keep(call: Call, part: Part, rows: Tensor, who: Tensor, values: Tensor) -> None:
    """Write a field that is kept at every so many steps, over the one that a lane had long before."""
    layout, data, unit = call.layout, call.state.states[part.array], rows // part.every
    call.make_room(who, (unit - layout.kept(part) + 1) * part.every - 1)
    at = unit_at(layout, part, rows, call.lanes)
    data.index_copy_(0, at, torch.where(who[:, None], values, data[at]))


def unit_at(layout: Layout, part: Part, rows: Tensor, lanes: Tensor) -> Tensor:
    """Where the tensor of a field that is kept at every so many steps has rows of lanes."""
    return rows // part.every % layout.kept(part) * layout.lanes + lanes


def _differs(state: State, at: Tensor, now: dict[str, Tensor]) -> Tensor:
    """Lanes in which the observation in the rows `at` is another one than `now`, byte by byte."""
    differs = torch.zeros(len(at), dtype=torch.bool, device=at.device)
    for array, data in state.rows.items():
        differs = differs | (((data[at] ^ now[array]) & state.observed[array]) != 0).any(1)
    return differs


def _look_back(call: Call, begins: Tensor, now: dict[str, Tensor]) -> None:
    """Count episodes whose final observation is a new one, and those whose next stream begins with it."""
    final = call.c[MEMORY] - 1
    stands = begins & (call.c[HEAD] > 0) & ((call.mark_at(final) & (STEP | LOST)) == 0)
    last = torch.where((call.layout.rows > 1) & (call.c[HEAD] > 1) & stands, final - 1, final)
    for age in range(2, min(call.layout.rows, call.layout.history + 2)):  # frames that the final one brought along
        last = torch.where(((call.mark_at(last) & STEP) == 0) & (call.c[HEAD] > age), last - 1, last)
    stands = stands & ((call.mark_at(last) & (TERMINATED | TRUNCATED)) > 0)
    before = {array: data[call.at(last)] for array, data in call.state.rows.items()}
    moved = stands & _differs(call.state, call.at(final), before)
    call.add(ENDS, moved.long())
    call.add(REPEATS, (moved & ~_differs(call.state, call.at(final), now)).long())
