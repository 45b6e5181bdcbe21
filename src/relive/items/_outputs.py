"""The arrays that items are copied into."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._kernel_types import GatherKernel
from .._memory import Arena
from .._types import Array, Int64

# Up to here the C library hands out memory it has used before; above, it maps fresh pages, and a fresh page costs ten
# times the copy into it.
_SMALL = 64 << 10


class Outputs:
    """Where the copies of a fixed list of columns go."""

    def __init__(self, columns: Sequence[Array], arena: Arena) -> None:
        self._specs = [(column.shape[1:], column.dtype) for column in columns]
        row_bytes = sum(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize for shape, dtype in self._specs)
        self._few = _SMALL // max(row_bytes, 1)
        self._arena = arena

    def of(self, n: int) -> list[Array] | None:
        """One array `[n, ...]` for every column, in recycled memory; None where fresh arrays are as good."""
        if n <= self._few:
            return None
        return self._arena.arrays([((n, *shape), dtype) for shape, dtype in self._specs])

    def taken(self, gather: GatherKernel, rows: list[Int64]) -> list[Array]:
        """What `gather` copies from the storage rows `rows`, lists of the same length."""
        outs = self.of(len(rows[0]))
        if outs is None:
            return gather.taken(rows)
        gather.take(rows, outs)
        return outs
