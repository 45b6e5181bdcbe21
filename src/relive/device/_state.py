"""All that changes in a device buffer: relive's own arrays as tensors, by the names that they have in a storage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .._base.arrays import ArraySpec
from .._base.types import Array
from .._ring.lanes import COUNTERS
from ._layout import Layout

# What the entries of `flags` count, which the host reads later.
DRAWN, STALE, UNKNOWN, NOT_FINITE, UPDATED, EMPTY, UNFIT, UNWRITTEN, MISPLACED = range(9)
FLAGS = 9

MARKS, ROW_COUNTERS, CLOCK, GIVEN = "ring/marks", "ring/counters", "ring/clock", "ring/given"
TREE, TREE_STATE, DRAWS = "sampler/priorities", "sampler/priorities.state", "sampler/priorities.draws"
ANCHORS, ENDS_OF = "sampler/anchors", "sampler/anchors.ends"
SEEN = "sampler/priorities.seen"
ANCHORS_SEEN = "sampler/anchors.seen"

# Columns of `ends`: anchors of a lane that ever went, and that ever came.
GONE_ANCHORS, COME_ANCHORS = 0, 1


class State(NamedTuple):
    """The tensors of a buffer. They are made once and never move, so that a graph of calls can be replayed.

    Attributes:
        rows: For each array of fields uint8 `[depth * L + 1, bytes]`; the last row stays zero.
        states: For each field that is kept at every k-th step uint8 `[kept * L, bytes]`.
        marks: uint8 `[depth * L]`.
        counters: int64 `[L, 16]`.
        clock: int64 `[2]`; the second entry says whether a priority was ever given.
        given: float64 `[depth * L]`: minus the priority that a row was given, 0.0 for none. Without priorities: empty.
        tree: The levels of the sum tree, float64. Empty without priorities.
        sums: float64 `[5]`: the tree's sum, smallest and count of positive leaves, the largest priority, and items.
        draws: float64 `[2]`: draws so far, and the exponent of the last one's weights.
        places: `[L * R + 1]`: the row, modulo R, of the lane's k-th anchor, at `k % R`; the last entry is never read.
            With priorities: empty.
        ends: int64 `[L, 4]`: anchors that ever went, and that ever came.
        key: int64 `[2]`, of the random numbers.
        position: int64 `[1]`: random words used so far.
        flags: int64 `[9]`.
        observed: For each array of fields uint8 `[bytes]`: 255 for bytes of the observation.
        discounts: float32 `[n + 1]`: powers of gamma.
    """

    rows: dict[str, Tensor]
    states: dict[str, Tensor]
    marks: Tensor
    counters: Tensor
    clock: Tensor
    given: Tensor
    tree: Tensor
    sums: Tensor
    draws: Tensor
    places: Tensor
    ends: Tensor
    key: Tensor
    position: Tensor
    flags: Tensor
    observed: dict[str, Tensor]
    discounts: Tensor

    @classmethod
    def new(
        cls,
        layout: Layout,
        spec: Mapping[str, ArraySpec],
        discounts: Array,
        key: Tensor,
        position: Tensor,
        device: torch.device,
    ) -> State:
        """The tensors of an empty buffer. They are the only ones that are copied from the host."""

        def zeros(name: str, extra: int = 0) -> Tensor:
            wanted = spec.get(name)
            size = 0 if wanted is None else int(np.prod(wanted.shape)) + extra
            dtype = torch.float64 if wanted is None else getattr(torch, wanted.dtype.name)
            return torch.zeros(size, dtype=dtype, device=device)

        def bytes_of(array: str, count: int) -> Tensor:
            return torch.zeros((count, layout.widths[array]), dtype=torch.uint8, device=device)

        states = {part.array: bytes_of(part.array, layout.kept(part) * layout.lanes) for part in layout.states}
        in_rows = [array for array in layout.widths if array not in states]
        sums = zeros(TREE_STATE)
        if len(sums):
            sums[1] = torch.inf
        return cls(
            rows={array: bytes_of(array, layout.total + 1) for array in in_rows},
            states=states,
            marks=zeros(MARKS),
            counters=zeros(ROW_COUNTERS).view(layout.lanes, COUNTERS),
            clock=zeros(CLOCK),
            given=zeros(GIVEN),
            tree=zeros(TREE),
            sums=sums,
            draws=zeros(DRAWS),
            places=zeros(ANCHORS, extra=1),
            ends=zeros(ENDS_OF).view(-1, 4),
            key=key.to(device),
            position=position.to(device),
            flags=torch.zeros(FLAGS, dtype=torch.int64, device=device),
            observed={array: torch.from_numpy(layout.observed_bytes(array)).to(device) for array in in_rows},
            discounts=torch.from_numpy(discounts).to(device),
        )

    @property
    def columns(self) -> dict[str, Tensor]:
        """The tensors that have fields, by the names of their arrays."""
        return {**self.rows, **self.states}

    @property
    def prioritized(self) -> bool:
        """Whether items are drawn by priorities."""
        return len(self.tree) > 0

    def arrays(self) -> dict[str, Tensor]:
        """The tensors that are arrays of a storage, by their names there, flat but for the rows."""
        named = {
            **self.columns,
            MARKS: self.marks,
            ROW_COUNTERS: self.counters,
            CLOCK: self.clock,
            GIVEN: self.given,
            TREE: self.tree,
            TREE_STATE: self.sums,
            DRAWS: self.draws,
            ANCHORS: self.places[:-1],
            ENDS_OF: self.ends,
        }
        return {name: tensor for name, tensor in named.items() if tensor.numel()}
