"""Sequences read from the rows, in PyTorch's operations."""

from __future__ import annotations

import torch
from torch import Tensor

from .._ring.lanes import END, FIRST, LOST, STEP, TERMINATED, TRUNCATED
from ..items import Sequences
from ._layout import Layout, Part
from ._ops_call import storage
from ._ops_gather import Fields, powers_of, rows_at, states_at, successors, values_at
from ._state import State


def shown(item: Sequences, part: Part, values: Tensor) -> Fields:
    """Return the parts of a field in a batch, in memory of their own where there are several.

    Args:
        item: The item.
        part: The field.
        values: At all positions: of observations; of what else a step has, at the step before each position.
    """
    (name, *rest), n, length, values = part.keys, item.n_step, item.steps, part.shown(values)
    if name == "obs":
        parts = {"all_obs": (0, length + n), "obs": (0, length), "next_obs": (n, length)}
    else:
        parts = {name: (1, length)}
        if name in ("action", "reward"):
            parts |= {f"all_prev_{name}": (0, length + n), f"prev_{name}": (0, length)}
    time = 0 if item.time_major else 1
    found = {(part, *rest): values.narrow(time, begin, count) for part, (begin, count) in parts.items()}
    return {keys: value.clone() for keys, value in found.items()} if len(found) > 1 else found


def ids_of_steps(item: Sequences, layout: Layout, fields: Fields) -> Tensor:
    """The ids of all steps, shaped as the mask, -1 where there is no step: within an episode rows follow each other."""
    time = 0 if item.time_major else 1
    t = torch.arange(item.steps, device=fields["ids",].device).unsqueeze(1 - time)
    return torch.where(fields["mask",], fields["ids",].unsqueeze(time) + t * layout.lanes, -1)


def begins(layout: Layout, state: State, rows: Tensor, lanes: Tensor) -> Tensor:
    """Tell which rows begin a stream."""
    marks = [state.marks[storage(layout, each, lanes)] for each in (rows, rows - 1)]
    return ((marks[0] & FIRST) > 0) | ((marks[1] & STEP) == 0)


def firsts(layout: Layout, state: State, slots: Tensor, valid: Tensor) -> Fields:
    """Return the field `first`, where no field of the schema has its name."""
    if any(part.keys[0] == "first" for part in layout.parts):
        return {}
    lanes, rows = rows_at(layout, state, slots)
    return {("first",): begins(layout, state, rows, lanes) & valid}


class ReadSequences:
    """Reads sequences that end with their episode, all positions at once.

    Within an episode rows follow each other, so what an item has at each position follows from how many steps are
    there, and from the mark of the last of them.

    Args:
        layout: The sizes.
        state: The tensors.
        item: Says how long sequences are.
    """

    def __init__(self, layout: Layout, state: State, item: Sequences) -> None:
        self._layout, self._state, self._item = layout, state, item
        self._gammas = powers_of(item).tolist()
        self._time = 0 if item.time_major else 1

    def __call__(self, slots: Tensor, valid: Tensor) -> Fields:
        layout, state, length, n = self._layout, self._state, self._item.steps, self._item.n_step
        lanes, rows = rows_at(layout, state, slots)
        found, last = self._found(lanes, rows)
        here, before, has = self._rows(lanes, rows, found, last, valid)
        values = values_at(layout, state, here, self._wide(lanes), valid, observed=True)
        values |= values_at(layout, state, before, self._wide(lanes), has, observed=False)
        fields: Fields = {}
        for keys, value in values.items():
            fields |= shown(self._item, layout.part(*keys), value)
        t = torch.arange(length, device=slots.device).unsqueeze(1 - self._time)
        left = self._wide(found) - t
        mask = (left > 0) & valid
        steps = torch.where(mask, left.clamp(max=n), 0)
        if n > 1:
            fields["reward",] = self._fold(fields["all_prev_reward",], steps)
        fields |= states_at(layout, state, rows, lanes, valid)
        ends = mask & (left <= n)
        over = ends & self._wide((last & (TERMINATED | LOST)) > 0)
        fields["discount",] = torch.where(mask & ~over, state.discounts[steps], 0.0)
        fields["terminated",] = ends & self._wide((last & TERMINATED) > 0)
        fields["truncated",] = ends & self._wide((last & TRUNCATED) > 0)
        fields["steps",], fields["mask",] = steps.to(torch.int32), mask
        fields |= firsts(layout, state, slots, valid)
        fields["ids",] = torch.where(valid, rows * layout.lanes + lanes, -1)
        if self._item.step_ids:
            fields["step_ids",] = ids_of_steps(self._item, layout, fields)
        return fields

    def _wide(self, of_items: Tensor) -> Tensor:
        """`[B]` with an axis of time."""
        return of_items.unsqueeze(self._time)

    def _found(self, lanes: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """How many positions of an item have a step, all of them at most, and the mark of the last of these."""
        span = self._layout.span
        positions = torch.arange(span, device=rows.device)
        marks = self._state.marks[storage(self._layout, rows[:, None] + positions, lanes[:, None])]
        found = torch.where((marks & END) > 0, positions, span).amin(1) + 1
        return found, self._state.marks[storage(self._layout, rows + found - 1, lanes)]

    def _rows(
        self, lanes: Tensor, rows: Tensor, found: Tensor, last: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of each position's observation, the final one behind the end; of the step before; where there is one."""
        layout = self._layout
        i = torch.arange(layout.span + 1, device=rows.device).unsqueeze(1 - self._time)
        final = successors(layout, self._state, last, rows + found - ((last & LOST) > 0).long(), lanes)
        here = torch.where(i < self._wide(found), self._wide(rows) + i, self._wide(final))
        first = begins(layout, self._state, rows, lanes)
        has = valid & (i <= self._wide(found)) & ((i > 0) | ~self._wide(first))
        return here, self._wide(rows) + i - 1, has

    def _fold(self, rewards: Tensor, steps: Tensor) -> Tensor:
        """The discounted sums of `steps` rewards from each position on, in float64, in the rewards' dtype."""
        wide = (*steps.shape, *[1] * (rewards.ndim - 2))
        total = torch.zeros((), dtype=torch.float64, device=steps.device)
        for k, gamma in enumerate(self._gammas[:-1]):
            later = rewards.narrow(self._time, 1 + k, self._item.steps).double()
            total = total + torch.where((k < steps).view(wide), gamma * later, 0.0)
        return total.to(rewards.dtype)
