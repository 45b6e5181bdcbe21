"""Items read from the rows, in PyTorch's operations: what all of them share, and transitions."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from .._base.types import Float64
from .._ring.lanes import END, HEAD, HISTORY, LOST, TERMINATED, TRUNCATED
from ..items import Sequences, Transitions
from ._layout import Layout, Part
from ._ops_call import storage
from ._ops_stacks import frames_at, older
from ._ops_write import unit_at
from ._state import State

# A batch's fields by the keys that lead to them.
Fields = dict[tuple[str, ...], Tensor]
# The items that a device buffer has.
Readable = Transitions | Sequences


class Reader(Protocol):
    """An item bound to the tensors of a buffer."""

    def __call__(self, slots: Tensor, valid: Tensor) -> Fields:
        """The items that start at `slots`, int64 `[B]`; all zeros, with the id -1, unless there are items: `valid`."""


def powers_of(item: Readable) -> Float64:
    """`gamma**0` to `gamma**n`."""
    return np.asarray(item.gamma ** np.arange(item.n_step + 1, dtype=np.float64))


def rows_at(layout: Layout, state: State, slots: Tensor) -> tuple[Tensor, Tensor]:
    """The lanes of slots, and the newest rows that have them."""
    lanes, heads = slots % layout.lanes, state.counters[:, HEAD][slots % layout.lanes]
    behind = heads % layout.rows - slots // layout.lanes
    return lanes, heads - torch.where(behind > 0, behind, behind + layout.rows)


def value_of(part: Part, rows: Tensor) -> Tensor:
    """A field's values `[..., *shape]` in rows of bytes `[..., width]`."""
    return typed(part, rows[..., part.offset : part.offset + part.nbytes])


def typed(part: Part, found: Tensor) -> Tensor:
    """A field's values `[..., *shape]` from their bytes `[..., nbytes]`."""
    return found.contiguous().view(part.dtype).view(*found.shape[:-1], *part.shape)


def values_at(
    layout: Layout, state: State, rows: Tensor, lanes: Tensor, valid: Tensor, observed: bool | None = None
) -> Fields:
    """The fields of rows of lanes, of any shape: all, or those of the observation, or the others.

    Zeros where not `valid`; of stacks the frames are the first axis of a value.
    """
    found: Fields = {}
    at = torch.where(valid, storage(layout, rows, lanes), layout.total)
    for array, data in state.rows.items():
        chosen = [part for part in layout.of_array(array) if observed is None or part.observed is observed]
        if parts := [part for part in chosen if not part.stack]:
            of_array = data[at]
            found |= {part.keys: value_of(part, of_array) for part in parts}
    if layout.stacked and observed is not False:
        past = older(layout, state, rows, lanes)
        for part in layout.stacked:
            frames = frames_at(layout, state, part, rows, lanes, past, valid, part.stack)
            found[part.keys] = typed(part, frames)
    return found


def successors(layout: Layout, state: State, ends: Tensor, rows: Tensor, lanes: Tensor) -> Tensor:
    """The rows of the observations that come after steps, where `rows` follow these, and `ends` are their marks."""
    passing = ((ends & END) > 0) & ((ends & LOST) == 0)
    for _ in range(layout.history):  # a final observation may have brought older frames of its own
        passing = passing & ((state.marks[storage(layout, rows, lanes)] & HISTORY) > 0)
        rows = rows + passing
    return rows


def states_at(layout: Layout, state: State, rows: Tensor, lanes: Tensor, valid: Tensor) -> Fields:
    """The fields that are kept at every so many steps, as they were at the rows of lanes; zeros without items."""
    found: Fields = {}
    for part in layout.states:
        kept = state.states[part.array][torch.where(valid, unit_at(layout, part, rows, lanes), 0)]
        found[part.keys] = value_of(part, torch.where(valid, kept, 0))
    return found


class ReadTransitions:
    """Reads windows of steps, with sums of their rewards.

    Args:
        layout: The sizes.
        state: The tensors.
        item: Says how long windows are.
    """

    def __init__(self, layout: Layout, state: State, item: Transitions) -> None:
        self._layout, self._state, self._gammas = layout, state, powers_of(item).tolist()
        self._chunk = item.chunk

    def __call__(self, slots: Tensor, valid: Tensor) -> Fields:
        layout, state = self._layout, self._state
        lanes, rows = rows_at(layout, state, slots)
        steps, mark = torch.ones_like(lanes), state.marks[storage(layout, rows, lanes)]
        for _ in range(len(self._gammas) - 2):
            going = (mark & END) == 0
            steps = steps + going
            mark = torch.where(going, state.marks[storage(layout, rows + steps - 1, lanes)], mark)
        lost, terminated = (mark & LOST) > 0, (mark & TERMINATED) > 0
        after = successors(layout, state, mark, rows + steps - lost.long(), lanes)
        fields = values_at(layout, state, rows, lanes, valid)
        nexts = values_at(layout, state, after, lanes, valid, observed=True)
        fields |= {("next_obs", *keys[1:]): value for keys, value in nexts.items()}
        fields |= states_at(layout, state, rows, lanes, valid)
        if len(self._gammas) > 2:
            fields["reward",] = self._fold(fields["reward",], rows, lanes, steps, valid)
        fields["discount",] = torch.where(terminated | lost | ~valid, 0.0, state.discounts[steps])
        fields["terminated",] = terminated & valid
        fields["truncated",] = ((mark & TRUNCATED) > 0) & valid
        fields["steps",] = torch.where(valid, steps, 0).to(torch.int32)
        if self._chunk:
            ahead = torch.arange(len(self._gammas) - 1, device=slots.device)
            fields["mask",] = there = (ahead < steps[:, None]) & valid
            at = torch.where(there, storage(layout, rows[:, None] + ahead, lanes[:, None]), layout.total)
            for part in layout.actions:
                fields[part.keys] = value_of(part, state.rows[part.array][at])
        fields["ids",] = torch.where(valid, rows * layout.lanes + lanes, -1)
        for part in layout.stacked:
            for name in ("obs", "next_obs"):
                keys = (name, *part.keys[1:])
                fields[keys] = part.shown(fields[keys])
        return fields

    def _fold(self, rewards: Tensor, rows: Tensor, lanes: Tensor, steps: Tensor, valid: Tensor) -> Tensor:
        """The discounted sums of the rewards of `steps` steps, in float64, in the rewards' dtype."""
        layout, part = self._layout, self._layout.part("reward")
        wide = (-1,) + (1,) * len(part.shape)
        total = rewards.double()
        for k in range(1, len(self._gammas) - 1):
            more = value_of(part, self._state.rows[part.array][storage(layout, rows + k, lanes)]).double()
            # Nothing is added behind a window: -0.0 stays what it is.
            total = torch.where(((k < steps) & valid).view(wide), total + self._gammas[k] * more, total)
        return total.to(part.dtype)
