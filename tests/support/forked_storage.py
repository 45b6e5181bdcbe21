"""A storage of one's own: memory that a process shares with those that it forks."""

from __future__ import annotations

import mmap
from collections.abc import Mapping

import numpy as np

from relive.errors import ArgumentError, StorageError, message
from relive.storage import ArraySpec


class Forked:
    """Share the ring with forked processes: each may add to lanes of its own, and whoever draws has its own sampler."""

    def __init__(self) -> None:
        self._identity = b""
        self._arrays: dict[str, np.ndarray] = {}

    def open(self, spec: Mapping[str, ArraySpec], identity: bytes) -> ForkedMemory:
        """Return anonymous mappings, those of an earlier buffer if there was one."""
        fresh = not self._arrays
        if not fresh and identity != self._identity:
            raise StorageError(message("the arrays of this buffer", "those of another one", "$.storage"))
        if fresh:
            try:
                self._arrays = {name: _mapped(wanted, name.startswith("ring/")) for name, wanted in spec.items()}
            except (OSError, OverflowError, ValueError) as error:
                raise ArgumentError(f"Could not map memory ({error}) - at `capacity`: lower `capacity`") from error
            self._identity = identity
        return ForkedMemory(self._arrays, fresh)


class ForkedMemory:
    """Arrays that a `Forked` storage keeps."""

    def __init__(self, arrays: Mapping[str, np.ndarray], fresh: bool) -> None:
        self.fresh = fresh
        self._arrays = arrays

    def host(self, name: str) -> np.ndarray:
        """Return the array that was asked for as `name`."""
        return self._arrays[name]


def _mapped(wanted: ArraySpec, shared: bool) -> np.ndarray:
    """Map the ring's arrays for all processes; a sampler's belong to the one that draws."""
    mapping = mmap.mmap(-1, max(wanted.nbytes, 1), mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE)
    return np.ndarray(wanted.shape, wanted.dtype, mapping)
