"""The samplers on the device, in PyTorch's operations: they follow what a call changed, and choose slots."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from .._ring.lanes import DRAWABLE
from ..samplers import Prioritized
from . import _draw, _update
from ._layout import Layout
from ._ops_call import Changed, storage
from ._power import power
from ._state import COME_ANCHORS, GONE_ANCHORS, STALE, UPDATED, State
from ._tree import ITEMS, LARGEST, SMALLEST, Tree, put_distinct, rebuild


class Follower(Protocol):
    """A sampler over the tensors of a buffer."""

    def follow(self, changed: Changed) -> None:
        """Take in what a call changed."""

    def clear(self) -> None:
        """There are no items any more."""

    def draw(self, n: int, beta: Tensor | None) -> tuple[Tensor, Tensor]:
        """Slots of `n` items, and their weights; of a buffer without items any slots."""

    def update(self, ids: Tensor, td_error: Tensor) -> None:
        """Set priorities."""

    def priorities(self, slots: Tensor) -> Tensor:
        """Raw priorities of drawable slots."""

    def valid(self) -> Tensor:
        """Whether there is anything to draw."""


class Anchors:
    """`Uniform`: a queue of anchors for each lane, so that a draw is a multiplication and a look-up."""

    def __init__(self, layout: Layout, state: State) -> None:
        self._layout, self._state = layout, state
        self._places = state.places[:-1].view(layout.lanes, layout.rows)

    def follow(self, changed: Changed) -> None:
        layout, state = self._layout, self._state
        lanes = torch.arange(layout.lanes, device=changed.come.device)[:, None]
        came = changed.came.long()
        number = state.ends[:, COME_ANCHORS, None] + came.cumsum(1) - 1
        # Others go to the last entry, which nobody reads.
        places = torch.where(changed.came, lanes * layout.rows + number % layout.rows, layout.slots)
        rows = (changed.come % layout.rows).to(state.places.dtype)
        state.places.index_put_((places.view(-1),), rows.view(-1))
        state.ends[:, GONE_ANCHORS] += changed.dropped
        state.ends[:, COME_ANCHORS] += came.sum(1)

    def clear(self) -> None:
        self._state.ends[:, GONE_ANCHORS].copy_(self._state.ends[:, COME_ANCHORS])

    def draw(self, n: int, beta: Tensor | None) -> tuple[Tensor, Tensor]:
        state = self._state
        slots = _draw.uniform(self._places, state.ends, _draw.running(state.ends), state.key, state.position, n)
        return slots, torch.ones(n, dtype=torch.float32, device=slots.device)

    def update(self, ids: Tensor, td_error: Tensor) -> None:
        raise NotImplementedError  # a buffer refuses the call

    def priorities(self, slots: Tensor) -> Tensor:
        return torch.ones(len(slots), dtype=torch.float64, device=slots.device)

    def valid(self) -> Tensor:
        return self._state.counters[:, DRAWABLE].sum() > 0


class Proportions:
    """`Prioritized`: a sum tree whose leaves are powers of the priorities of items, and 0 elsewhere."""

    def __init__(self, layout: Layout, state: State, settings: Prioritized) -> None:
        self._layout, self._state, self._settings = layout, state, settings
        self._tree = Tree.of(layout.slots, state.tree, state.sums)
        self._marks = state.marks.view(-1, layout.lanes, layout.block)

    def follow(self, changed: Changed) -> None:
        layout, state, tree = self._layout, self._state, self._tree
        lanes = torch.arange(layout.lanes, device=changed.come.device)[:, None]
        gone, come = ((rows % layout.rows * layout.lanes + lanes).view(-1) for rows in (changed.gone, changed.come))
        # First out, then in: with one step an item can go from a slot that another one comes to.
        put_distinct(tree, gone, torch.zeros_like(gone, dtype=torch.float64), changed.went.view(-1))
        given = state.given[storage(layout, changed.come, lanes)].view(-1)
        largest = torch.where(tree.state[LARGEST] > 0.0, tree.state[LARGEST], self._settings.initial)
        raw = torch.where(torch.signbit(given), -given, largest)
        put_distinct(tree, come, power(raw, self._settings.alpha), changed.came.view(-1))
        rebuild(tree, torch.cat((gone, come)))
        tree.state[ITEMS].copy_(state.counters[:, DRAWABLE].sum())

    def clear(self) -> None:
        self._tree.nodes.zero_()
        self._tree.state.zero_()
        self._tree.state[SMALLEST].fill_(torch.inf)

    def raise_largest(self, priority: Tensor, who: Tensor) -> None:
        """New steps without a priority get the largest that any was given."""
        largest = torch.where(who, priority, 0.0).amax()
        self._tree.state[LARGEST].copy_(torch.maximum(self._tree.state[LARGEST], largest))

    def draw(self, n: int, beta: Tensor | None) -> tuple[Tensor, Tensor]:
        state = self._state
        return _draw.prioritized(self._tree, state.draws, state.key, state.position, n, self._settings, beta)

    def update(self, ids: Tensor, td_error: Tensor) -> None:
        state, settings = self._state, self._settings
        late = state.flags[STALE : UPDATED + 1]
        _update.update(
            self._tree,
            self._marks,
            state.counters,
            self._layout.rows,
            ids,
            td_error,
            late,
            settings.eps,
            settings.alpha,
        )

    def priorities(self, slots: Tensor) -> Tensor:
        values, alpha = self._tree.nodes[slots], self._settings.alpha
        return values ** (1 / alpha) if alpha > 0 else (values > 0).double()

    def valid(self) -> Tensor:
        return self._tree.state[2] > 0
