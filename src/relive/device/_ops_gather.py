"""Items read from the rows, in PyTorch's operations: windows of steps, sums of rewards, every field of a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from .._ring.lanes import END, HEAD, LOST, TERMINATED, TRUNCATED
from ._layout import Layout, Part
from ._ops_write import storage
from ._state import State

# A batch's fields by the keys that lead to them.
Fields = dict[tuple[str, ...], Tensor]


def rows_at(layout: Layout, state: State, slots: Tensor) -> tuple[Tensor, Tensor]:
    """The lanes of slots, and the newest rows that have them."""
    lanes, heads = slots % layout.lanes, state.counters[:, HEAD][slots % layout.lanes]
    behind = heads % layout.rows - slots // layout.lanes
    return lanes, heads - torch.where(behind > 0, behind, behind + layout.rows)


def transitions(layout: Layout, state: State, slots: Tensor, gammas: tuple[float, ...], valid: Tensor) -> Fields:
    """The transitions that start at `slots`; all zeros, with the id -1, where they are not `valid`.

    Args:
        layout: The sizes.
        state: The tensors.
        slots: Of drawable items, int64 `[B]`.
        gammas: `gamma**0` to `gamma**n`.
        valid: Whether there are items at all, or which of these are, bool.
    """
    lanes, rows = rows_at(layout, state, slots)
    at = storage(layout, rows, lanes)
    steps, mark = torch.ones_like(lanes), state.marks[at]
    for _ in range(len(gammas) - 2):
        going = (mark & END) == 0
        steps = steps + going
        mark = torch.where(going, state.marks[storage(layout, rows + steps - 1, lanes)], mark)
    lost, terminated = (mark & LOST) > 0, (mark & TERMINATED) > 0
    after = storage(layout, rows + steps - lost.long(), lanes)
    fields = _columns(layout, state, at, after, valid)
    if len(gammas) > 2:
        fields["reward",] = _fold(layout, state, fields["reward",], rows, lanes, steps, gammas, valid)
    fields["discount",] = torch.where(terminated | lost | ~valid, 0.0, state.discounts[steps])
    fields["terminated",] = terminated & valid
    fields["truncated",] = ((mark & TRUNCATED) > 0) & valid
    fields["steps",] = torch.where(valid, steps, 0).to(torch.int32)
    fields["ids",] = torch.where(valid, rows * layout.lanes + lanes, -1)
    return fields


def _columns(layout: Layout, state: State, at: Tensor, after: Tensor, valid: Tensor) -> Fields:
    fields: Fields = {}
    nexts: Fields = {}
    zero = layout.total  # a row of zeros
    here, there = torch.where(valid, at, zero), torch.where(valid, after, zero)
    for array, data in state.rows.items():
        parts = layout.of_array(array)
        rows = data[here]
        fields |= {part.keys: value_of(part, rows) for part in parts}
        observed = [part for part in parts if part.observed]
        if observed:
            rows = data[there]
            nexts |= {("next_obs", *part.keys[1:]): value_of(part, rows) for part in observed}
    return fields | nexts


def value_of(part: Part, rows: Tensor) -> Tensor:
    """A field's values `[B, ...]` in rows of bytes `[B, width]`."""
    found = rows[:, part.offset : part.offset + part.nbytes].contiguous().view(part.dtype)
    return found.view(len(rows), *part.shape)


def _fold(
    layout: Layout,
    state: State,
    rewards: Tensor,
    rows: Tensor,
    lanes: Tensor,
    steps: Tensor,
    gammas: tuple[float, ...],
    valid: Tensor,
) -> Tensor:
    """The discounted sums of the rewards of `steps` steps, in float64, in the rewards' dtype."""
    part = layout.part("reward")
    wide = (-1,) + (1,) * len(part.shape)
    total = rewards.double()
    for k in range(1, len(gammas) - 1):
        more = value_of(part, state.rows[part.array][storage(layout, rows + k, lanes)]).double()
        # Nothing is added behind a window: -0.0 stays what it is.
        total = torch.where(((k < steps) & valid).view(wide), total + gammas[k] * more, total)
    return total.to(part.dtype)
