"""Values that are written back to stored steps, in PyTorch's operations, whichever kernels the other calls have."""

from __future__ import annotations

import torch
from torch import Tensor

from .._ring.lanes import CLEARED, GONE, HEAD, LOST, OLDEST, START, STEP
from ._layout import Layout, Part
from ._ops_call import storage
from ._ops_write import unit_at
from ._state import MISPLACED, UNWRITTEN, State


def write(layout: Layout, state: State, ids: Tensor, values: list[tuple[Part, Tensor]]) -> None:
    """Write values to the steps with these ids; the last of several for one step wins. Late ids and -1 are left out.

    All or nothing: where no step ever had an id, or a field is not kept at a step, only `flags` change.

    Args:
        layout: The sizes.
        state: The tensors.
        ids: int64 `[n]`, any.
        values: Of fields, bytes `[n, bytes]` each.
    """
    issued = ids.clamp(min=0)
    rows, lanes = issued // layout.lanes, issued % layout.lanes
    at, c = storage(layout, rows, lanes), state.counters[lanes].unbind(1)
    mark = state.marks[at]
    first = torch.minimum(torch.maximum(torch.maximum(c[HEAD] - layout.rows, c[CLEARED]), c[GONE]), c[HEAD])
    inside, step = (ids >= 0) & (rows < c[HEAD]), (mark & STEP) > 0
    keep = inside & (rows >= first) & step
    unknown = (ids != -1) & (~inside | ((rows >= c[OLDEST]) & ((mark & (STEP | LOST)) == 0)))
    misplaced = keep & ((mark & START) == 0) & any(part.every for part, _ in values)
    state.flags[UNWRITTEN] += unknown.sum()
    state.flags[MISPLACED] += misplaced.sum()
    keep = keep & ~(unknown | misplaced).any()
    last = _last(torch.where(keep, issued, -1))
    # Entries that write nothing repeat what one of the others writes, or what stands there: equal bits in any order.
    last = torch.where(keep, last, last[keep.to(torch.uint8).argmax(0, keepdim=True)])
    for part, given in values:
        data = state.columns[part.array]
        to = (unit_at(layout, part, rows, lanes) if part.every else at)[last]
        data.index_put_((to,), torch.where(keep.any(), given[last], data[to]))


def _last(keys: Tensor) -> Tensor:
    """For each key the place of the last one that equals it."""
    order = torch.argsort(keys, stable=True)
    ordered, places = keys[order], torch.arange(len(keys), device=keys.device)
    ends = torch.ones_like(keys, dtype=torch.bool)
    ends[:-1] = ordered[1:] != ordered[:-1]
    end = torch.where(ends, places, len(keys)).flip(0).cummin(0).values.flip(0)
    return torch.empty_like(order).scatter_(0, order, order[end])
