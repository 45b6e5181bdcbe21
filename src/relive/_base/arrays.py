"""What a buffer asks a storage for, and what it gets."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from .frozen import Frozen
from .types import Array

QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)


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

    One whose attribute `private` is True says that no other process sees them, and no file has them; then some
    counts can be kept, and no row has to be waited for.
    """

    @property
    def fresh(self) -> bool:
        """True if the arrays are new and zero, False if an earlier buffer left them."""

    def host(self, name: str) -> Array:
        """Return the array that was asked for as `name`, in memory that this process can address."""


class Locks(Protocol):
    """One lock a byte of a file, whose holder may be any process; they end with it. Byte k + 1 is lane k's."""

    def take(self, byte: int) -> bool:
        """Take a lock; False where another process has it."""

    def drop(self, byte: int) -> None:
        """Give a lock back."""

    def taken(self, byte: int) -> bool:
        """Return True if another process holds the lock."""


class JointMemory(Memory, Protocol):
    """Arrays that other processes may open while this one has them.

    The buffer adds arrays of its own, under `about/`: its description, the writer of each lane, and what it knows.
    """

    @property
    def locks(self) -> Locks:
        """The locks of the lanes, by which processes see who writes."""

    @property
    def may_add(self) -> bool:
        """True if this process may claim lanes, False if it only reads."""

    @property
    def fresh_sampler(self) -> bool:
        """True if the sampler's arrays are new, even if the others are not."""

    def announce(self, name: str, value: bytes) -> None:
        """Fill the bytes of the array `name`, and let other processes open the arrays."""

    def sync(self) -> None:
        """Write the contents to where they survive a crash of the machine."""

    def close(self) -> None:
        """Let go of locks and names; the memory itself goes with the last array."""


class Section:
    """The arrays of a memory whose names begin with `prefix`.

    Attributes:
        memory: All arrays.
        fresh, private: See `Memory`.
        shared: What those who were given it share.
    """

    def __init__(
        self, memory: Memory, prefix: str, fresh: bool | None = None, shared: dict[Any, Any] | None = None
    ) -> None:
        self.memory, self._prefix, self.shared = memory, prefix, {} if shared is None else shared
        self.private: bool = getattr(memory, "private", False)
        self.fresh = memory.fresh if fresh is None else fresh

    def host(self, name: str) -> Array:
        return self.memory.host(self._prefix + name)


def quantiles(values: Array, points: tuple[float, ...] = QUARTERS) -> list[float]:
    """Compute quantiles, none of no values, as `numpy.quantile` does, which takes several times as long."""
    if not len(values):
        return []
    ordered, at = np.sort(values), np.multiply(points, len(values) - 1)
    low = at.astype(np.int64)
    share, first, last = at - low, ordered[low], ordered[np.minimum(low + 1, len(values) - 1)]
    gap = last - first
    found: list[float] = np.where(share < 0.5, first + gap * share, last - gap * (1 - share)).tolist()
    return found
