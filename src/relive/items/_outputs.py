"""The arrays that items are copied into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._base.memory import Arena, leased
from .._base.types import Array, Int64

if TYPE_CHECKING:
    from .._ring.kernel_types import GatherKernel

# A batch of this size is left to the C library, which hands out memory it has used before; of more than that it may
# give back what is free at the end of its heap, and a fresh page costs ten times the copy into it.
_SMALL = 64 << 10
# Batches whose blocks the arena keeps when they are free: a learner may hold some and drop them together.
_BATCHES = 4


class Outputs:
    """Arrays for the copies of a fixed list of columns."""

    def __init__(self, columns: Sequence[Array], arena: Arena) -> None:
        self._specs = [(column.shape[1:], column.dtype) for column in columns]
        row_bytes = sum(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize for shape, dtype in self._specs)
        self._few = _SMALL // max(row_bytes, 1)
        self._arena = arena
        self._n = self._blocks = 0
        self._makers: list[Callable[..., Array]] = []

    def of(self, n: int) -> list[Array] | None:
        """Return one array `[n, ...]` for every column, in recycled memory, or None if fresh arrays are as good."""
        self._arena.next_call()
        if n <= self._few:
            return None
        if n != self._n:
            self._plan(n)
        return [make((n, *shape), dtype) for make, (shape, dtype) in zip(self._makers, self._specs)]  # noqa: B905

    def taken(self, gather: GatherKernel, rows: list[Int64]) -> list[Array]:
        """Copy the storage rows `rows`, lists of the same length, by `gather`."""
        outs = self.of(len(rows[0]))
        if outs is None:
            return gather.taken(rows)
        gather.take(rows, outs)
        return outs

    def _plan(self, n: int) -> None:
        """Decide which arrays of batches of `n` get blocks of the arena, and how many of these it keeps."""
        apart = [leased((n, *shape), dtype) for shape, dtype in self._specs]
        self._arena.keep += _BATCHES * (sum(apart) - self._blocks)
        self._blocks = sum(apart)
        self._makers = [self._arena.array if lease else np.empty for lease in apart]
        self._n = n
