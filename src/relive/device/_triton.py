"""A device buffer's calls as Triton kernels, a few launches each; what is rare is left to the operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from ..items import Sequences
from . import _triton_draw, _triton_update
from ._layout import Layout
from ._ops import Ops
from ._ops_gather import Fields, Readable
from ._ops_write import Step
from ._state import STALE, UPDATED, State
from ._tree import COUNT, Tree
from ._triton_gather import GatherTransitions, Reader
from ._triton_sequences import GatherSequences
from ._triton_write import Write

if TYPE_CHECKING:
    from ..samplers import Prioritized


def _reader(layout: Layout, state: State, item: Readable) -> Reader:
    if isinstance(item, Sequences):
        return GatherSequences(layout, state, item)
    return GatherTransitions(layout, state, item)


class Triton:
    """See `Kernels`; arguments as those of `Ops`."""

    def __init__(
        self, layout: Layout, state: State, item: Readable, settings: Prioritized | None, runs: int = 1
    ) -> None:
        self._layout, self._state, self._settings = layout, state, settings
        self._ops = Ops(layout, state, item, settings, runs)
        self.cut, self.clear, self.priorities = self._ops.cut, self._ops.clear, self._ops.priorities
        self.write = self._ops.write
        alpha, initial = (None, 1.0) if settings is None else (settings.alpha, settings.initial)
        self._write, self._read = Write(layout, state, alpha, initial, runs), _reader(layout, state, item)
        self._tree = None if settings is None else Tree.of(layout.slots, state.tree, state.sums)
        self._places = state.places[:-1].view(-1, layout.rows)
        self._marks = state.marks.view(-1, layout.lanes, layout.block)
        self._late = state.flags[STALE : UPDATED + 1]

    def add(self, step: Step) -> Tensor:
        state = self._state
        if step.priority is not None:
            self._ops.raise_largest(step)
            state.clock[1:].fill_(1)
        ids, slots = self._write(step)
        if self._tree is not None:
            _triton_update.rebuild(self._tree, slots)
        return ids

    def sample(self, n: int, beta: Tensor | None) -> Fields:
        state = self._state
        if self._tree is None or self._settings is None:
            counts = _triton_draw.running(state.ends)
            slots = _triton_draw.uniform(self._places, state.ends, counts, state.key, state.position, n)
            return self._read(slots, None, counts[-1:])
        drawn = _triton_draw.prioritized(self._tree, state.draws, state.key, state.position, n, self._settings, beta)
        return self._read(drawn.slots, drawn.weights, state.sums[COUNT : COUNT + 1])

    def update(self, ids: Tensor, td_error: Tensor) -> None:
        settings, state = self._settings, self._state
        if settings is None or self._tree is None:
            raise NotImplementedError  # a buffer refuses the call
        _triton_update.update(
            self._tree, self._marks, state.counters, self._layout.rows, ids, td_error, self._late, settings.eps,
            settings.alpha,
        )  # fmt: skip
