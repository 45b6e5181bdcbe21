"""The arrays that a batch is copied into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._memory import Arena
from .._types import Array

# Up to here the C library hands out memory it has used before; above, it maps fresh pages, and a fresh page costs ten times
# the copy into it.
_SMALL = 64 << 10


class Outputs:
    """Uninitialised arrays of a fixed list of shapes and dtypes, with a leading axis that varies."""

    def __init__(self, specs: Sequence[tuple[tuple[int, ...], np.dtype[Any]]], arena: Arena) -> None:
        self._specs = list(specs)
        self._row_bytes = sum(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize for shape, dtype in specs)
        self._arena = arena

    def take(self, n: int) -> list[Array]:
        """Return one array of shape `[n, ...]` for every spec."""
        if self._row_bytes * n <= _SMALL:
            return [np.empty((n, *shape), dtype) for shape, dtype in self._specs]
        return self._arena.arrays([((n, *shape), dtype) for shape, dtype in self._specs])
