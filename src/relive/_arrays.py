"""What a buffer asks a storage for, and what it gets."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from ._frozen import Frozen
from ._types import Array


class ArraySpec(Frozen):
    """An array that a buffer asks for: C-contiguous, on a 64-byte boundary, and zero when it is new.

    Attributes:
        shape: Sizes of its axes.
        dtype: Element type; a structured one for records of several fields.
        saved: What a save keeps of it: all (`"whole"`); its first `lanes * rows` entries, one for each slot, from which
            the rest can be made again (`"slots"`); or nothing, since all of it can be made again (`"rebuilt"`), or it
            has the ring's counters at the last `refresh`, `[L, 3]` (`"seen"`).
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    saved: str = "whole"

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return math.prod(self.shape) * self.dtype.itemsize


class Memory(Protocol):
    """Arrays that a storage opened: those of the ring and those of the sampler, all that a buffer knows.

    One whose attribute `private` is True says that no other process sees them; then some counts can be kept.
    """

    @property
    def fresh(self) -> bool:
        """Whether the arrays are new and zero; else they are as an earlier buffer left them."""
        ...

    def host(self, name: str) -> Array:
        """The array that was asked for as `name`, in memory that this process can address."""
        ...


class Section:
    """The arrays of a memory whose names begin with `prefix`."""

    def __init__(self, memory: Memory, prefix: str) -> None:
        self._memory, self._prefix = memory, prefix

    @property
    def fresh(self) -> bool:
        """As in `Memory`."""
        return self._memory.fresh

    def host(self, name: str) -> Array:
        """As in `Memory`."""
        return self._memory.host(self._prefix + name)
