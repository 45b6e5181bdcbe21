"""A device buffer's calls in PyTorch's operations, on any device: the oracle of the kernels in Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..items import Sequences
from ._layout import Layout, Part
from ._ops_gather import Fields, Readable, Reader, ReadTransitions
from ._ops_sampler import Anchors, Follower, Proportions
from ._ops_sequences import ReadSequences
from ._ops_values import write
from ._ops_write import Step, add, clear, cut, fit
from ._state import DRAWN, EMPTY, State
from ._update import locate

if TYPE_CHECKING:
    from ..samplers import Prioritized


def _reader(layout: Layout, state: State, item: Readable) -> Reader:
    if isinstance(item, Sequences):
        return ReadSequences(layout, state, item)
    return ReadTransitions(layout, state, item)


class Ops:
    """See `Kernels`.

    Args:
        layout: The sizes.
        state: The tensors.
        item: What one draw expands to.
        settings: Of `Prioritized`; None: items are drawn uniformly.
        runs: Rows without a step that may follow each other in a lane.
    """

    def __init__(
        self, layout: Layout, state: State, item: Readable, settings: Prioritized | None, runs: int = 1
    ) -> None:
        self._layout, self._state, self._runs = layout, state, runs
        self._read = _reader(layout, state, item)
        self._sampler: Follower = Anchors(layout, state) if settings is None else Proportions(layout, state, settings)

    def add(self, step: Step) -> Tensor:
        self.raise_largest(step)
        ids, changed = add(self._layout, self._state, step, self._runs)
        self._sampler.follow(changed)
        return ids

    def raise_largest(self, step: Step) -> None:
        """New steps without a priority get the largest that any was given."""
        if step.priority is not None and isinstance(self._sampler, Proportions):
            self._sampler.raise_largest(step.priority, step.active & fit(step.priority))

    def cut(self, who: Tensor) -> None:
        self._sampler.follow(cut(self._layout, self._state, who, self._runs))

    def clear(self) -> None:
        clear(self._layout, self._state)
        self._sampler.clear()

    def sample(self, n: int, beta: Tensor | None) -> Fields:
        state = self._state
        valid = self._sampler.valid()
        slots, weights = self._sampler.draw(n, beta)
        state.flags[DRAWN] += n
        state.flags[EMPTY] += (~valid).long()
        fields = self._read(slots, valid)
        fields["weights",] = torch.where(valid, weights, 0.0)
        return fields

    def update(self, ids: Tensor, td_error: Tensor) -> None:
        self._sampler.update(ids, td_error)

    def write(self, ids: Tensor, values: list[tuple[Part, Tensor]]) -> None:
        if len(ids):
            write(self._layout, self._state, ids, values)

    def priorities(self, ids: Tensor) -> Tensor:
        marks = self._state.marks.view(-1, self._layout.lanes, self._layout.block)
        located = locate(marks, self._state.counters, self._layout.rows, ids)
        return torch.where(located.drawable, self._sampler.priorities(located.slots), torch.nan)
