"""The copies that a batch consists of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._memory import Arena
from .._ring import Ring
from .._types import Array, Int64

# Up to here the C library hands out memory it has used before; above, it maps fresh pages, and a fresh page costs ten
# times the copy into it.
_SMALL = 64 << 10


class Copies:
    """Copies rows of a fixed list of columns; `picks[i]` says which of the lists of rows column `i` takes."""

    def __init__(self, ring: Ring, columns: Sequence[Array], picks: Sequence[int], arena: Arena) -> None:
        self._specs = [(column.shape[2:], column.dtype) for column in columns]
        row_bytes = sum(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize for shape, dtype in self._specs)
        self._few = _SMALL // row_bytes
        self._arena = arena
        self._gather = ring.gather(columns, picks)

    def of(self, rows: tuple[Int64, ...]) -> list[Array]:
        """Return one array of shape `[n, ...]` for every column, `n` being the length of every list of rows."""
        n = len(rows[0])
        if n <= self._few:
            copies: list[Array] = self._gather.taken(rows)
            return copies
        copies = self._arena.arrays([((n, *shape), dtype) for shape, dtype in self._specs])
        self._gather.take(rows, copies)
        return copies
