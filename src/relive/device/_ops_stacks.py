"""Stacks of frames in PyTorch's operations: where the frames of an observation are, and what is new in a given one.

A row holds one frame. The frames before it are in the rows before it, up to the stream's first row; a given stack has
rows of its own where these and padding cannot show it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .._ring.lanes import FIRST, HISTORY, MEMORY
from ._layout import Layout, Part
from ._ops_call import Call, storage
from ._state import State

# Values of fields by the keys that lead to them, frames first.
Values = Mapping[tuple[str, ...], Tensor]


def older(layout: Layout, state: State, rows: Tensor, lanes: Tensor) -> Tensor:
    """How many of the rows before each of `rows` have frames of its stream, `history` at most."""
    found, going = torch.zeros_like(rows), torch.ones_like(rows, dtype=torch.bool)
    for age in range(layout.history):
        going = going & ((state.marks[storage(layout, rows - age, lanes)] & FIRST) == 0)
        found = found + going
    return found


def frames_at(
    layout: Layout, state: State, part: Part, rows: Tensor, lanes: Tensor, past: Tensor, valid: Tensor, count: int
) -> Tensor:
    """The `count` newest frames at rows of lanes, oldest first, as bytes `[..., count, nbytes]`.

    Args:
        layout: The sizes.
        state: The tensors.
        part: A stacked field.
        rows: Those of the newest frames.
        lanes: Their lanes.
        past: What `older` says of them.
        valid: Which of them count; the others have zeros.
        count: At most as many as the field shows.
    """
    ages, past = torch.arange(count - 1, -1, -1, device=rows.device), past.unsqueeze(-1)
    there = valid.unsqueeze(-1) if part.repeats else valid.unsqueeze(-1) & (ages <= past)
    at = storage(layout, rows.unsqueeze(-1) - torch.minimum(ages, past), lanes.unsqueeze(-1))
    found: Tensor = state.rows[part.array].narrow(1, part.offset, part.nbytes)[torch.where(there, at, layout.total)]
    return found


def bytes_of(part: Part, values: Tensor) -> Tensor:
    """Given stacks as bytes `[L, frames, nbytes]`."""
    lanes, frames = values.shape[:2]
    return values.contiguous().view(lanes, frames, part.nbytes // part.dtype.itemsize).view(torch.uint8)


def strays(call: Call, values: Values) -> Tensor:
    """Open lanes in which older frames of `values` are not those that the newest step shows, byte by byte."""
    layout, rows = call.layout, call.c[MEMORY] - 1
    past, found, everywhere = older(layout, call.state, rows, call.lanes), call.none, ~call.none
    for part in layout.stacked:
        count = part.stack - 1
        shown = frames_at(layout, call.state, part, rows, call.lanes, past, everywhere, count)
        found = found | (shown != bytes_of(part, values[part.keys])[:, :-1]).flatten(1).any(1)
    return found & call.open()


def apart(call: Call, values: Values, nexts: Values) -> Tensor:
    """Lanes in which the frames of `nexts` do not continue those of `values`."""
    found = call.none
    for part in call.layout.stacked:
        one, other = (bytes_of(part, each[part.keys]) for each in (values, nexts))
        found = found | (one[:, 1:] != other[:, :-1]).flatten(1).any(1)
    return found


def store_older(call: Call, who: Tensor, values: Values) -> Tensor:
    """Give older frames that padding cannot show rows of their own; which of the streams `who` need none of these."""
    layout, needed = call.layout, torch.zeros_like(call.lanes)
    stacks = {part: bytes_of(part, values[part.keys]) for part in layout.stacked}
    for part, stack in stacks.items():
        for age in range(1, part.stack):
            padding = stack[:, -age] if part.repeats else torch.zeros_like(stack[:, -age])
            needed = torch.maximum(needed, age * (stack[:, -1 - age] != padding).any(1))
    needed = torch.where(who, needed, 0)
    for age in range(layout.history, 0, -1):
        chosen = needed >= age
        memory, _ = call.claim(chosen)
        call.mark(chosen, memory, HISTORY + FIRST * (needed == age))
        at = call.at(memory)
        for part, stack in stacks.items():
            if age < part.stack:
                data = call.state.rows[part.array].narrow(1, part.offset, part.nbytes)
                data.index_copy_(0, at, torch.where(chosen[:, None], stack[:, -1 - age], data[at]))
    return who & (needed == 0)
