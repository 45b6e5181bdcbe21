"""A storage of one's own: arrays in a file, which outlive the process."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from relive.errors import ArgumentError, StorageError, message
from relive.storage import ArraySpec

_LINE, _HEADER = 64, 4096  # the identity stands in the header


@dataclass(frozen=True)
class Mapped:
    """Keep a buffer's arrays in the file `path`, where a later buffer of the same choices finds them."""

    path: Path

    def open(self, spec: Mapping[str, ArraySpec], identity: bytes) -> MappedMemory:
        """Map the file's arrays, those of an earlier buffer if there are any."""
        offsets, end = {}, _HEADER
        for name, wanted in spec.items():
            offsets[name] = end
            end += -(-wanted.nbytes // _LINE) * _LINE
        with open(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            left = file.read(len(identity))
            fresh = not left.strip(b"\0")
            if not fresh and (left != identity or os.fstat(file.fileno()).st_size != end):
                raise StorageError(message("the arrays of this buffer", "those of another one", str(self.path)))
            try:
                os.posix_fallocate(file.fileno(), 0, end)  # reserves the disk's space: no write can fail later
            except (OSError, OverflowError) as error:
                os.ftruncate(file.fileno(), 0)
                raise ArgumentError(f"Could not reserve {end:,} bytes ({error}) - at `{self.path}`") from error
            mapping = mmap.mmap(file.fileno(), end)
        mapping[: len(identity)] = identity
        return MappedMemory(spec, offsets, mapping, fresh)


class MappedMemory:
    """Views of one mapping."""

    def __init__(
        self, spec: Mapping[str, ArraySpec], offsets: Mapping[str, int], mapping: mmap.mmap, fresh: bool
    ) -> None:
        self.fresh = fresh
        self._arrays = {
            name: np.ndarray(wanted.shape, wanted.dtype, mapping, offsets[name]) for name, wanted in spec.items()
        }

    def host(self, name: str) -> np.ndarray:
        """Return the array that was asked for as `name`."""
        return self._arrays[name]
