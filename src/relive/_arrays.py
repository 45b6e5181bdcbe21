"""What a buffer asks a storage for, and what it gets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ._types import Array


@dataclass(frozen=True)
class ArraySpec:
    """An array that a buffer asks for: C-contiguous, on a 64-byte boundary, and zero when it is new.

    Attributes:
        shape: Sizes of its axes.
        dtype: Element type; a structured one for records of several fields.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return math.prod(self.shape) * self.dtype.itemsize


class Memory(Protocol):
    """Arrays that a storage opened: those of the ring and those of the sampler, all that a buffer knows."""

    @property
    def fresh(self) -> bool:
        """Whether the arrays are new and zero; else they are as an earlier buffer left them."""
        ...

    @property
    def lanes(self) -> range:
        """The lanes that this process may write to."""
        ...

    def host(self, name: str) -> Array:
        """The array that was asked for as `name`, in memory that this process can address."""
        ...

    def flush(self) -> None:
        """Hand what was written to the operating system, so that it survives the process."""
        ...

    def sync(self) -> None:
        """Wait until what was written survives a loss of power."""
        ...

    def close(self) -> None:
        """Let go of what the arrays lie in; the buffer must not be used any more."""
        ...
