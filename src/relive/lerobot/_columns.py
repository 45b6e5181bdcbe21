"""Stored steps by their place, as LeRobot's arrays have them: read-only, and made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import index as whole
from typing import NoReturn

import numpy as np
from torch import Tensor

from .._adapters.copies import no_assignment
from .._base.types import Int64
from ..errors import StaleId, message
from ._batches import BatchTransition

Read = Callable[[Int64], BatchTransition]
_PART = 256  # steps that a loop reads at once


class StoredColumn:
    """A part of all stored steps: `column[place]` or `column[first:last]` is a tensor on the CPU.

    The step that was added as the n-th, from 0, is at the place `n % capacity`. A tensor is a copy: writing to it
    changes nothing.

    Args:
        size: How many steps are stored.
        read: Steps of given places.
        pick: The part of them that this is.
    """

    def __init__(self, size: Callable[[], int], read: Read, pick: Callable[[BatchTransition], Tensor]) -> None:
        self._size, self._read, self._pick = size, read, pick

    def __len__(self) -> int:
        return self._size()

    def __getitem__(self, place: int | slice) -> Tensor:
        if isinstance(place, slice):
            return self._pick(self._read(np.arange(len(self))[place]))
        number, size = whole(place), len(self)
        if not -size <= number < size:
            raise StaleId(message(f"a place below {size}", f"{number}", "ReplayBuffer"))
        return self._pick(self._read(np.array([number % size])))[0]

    def __setitem__(self, place: int | slice, value: object) -> NoReturn:
        raise no_assignment("ReplayBuffer", None)

    def __iter__(self) -> Iterator[Tensor]:
        return (value for first in range(0, len(self), _PART) for value in self[first : first + _PART])


class StoredColumns(Mapping[str, StoredColumn]):
    """Columns by key."""

    def __init__(self, columns: dict[str, StoredColumn]) -> None:
        self._columns = columns

    def __getitem__(self, key: str) -> StoredColumn:
        return self._columns[key]

    def __setitem__(self, key: str, value: object) -> NoReturn:
        raise no_assignment(f"ReplayBuffer: {key}", None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)
