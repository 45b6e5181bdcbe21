"""Weights in shared memory: a learner publishes them, its actors read them, and nobody waits for anybody."""

from __future__ import annotations

import multiprocessing
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Floats = npt.NDArray[np.float32]

# The header: the newest version, then the version and the checksum of each of two slots.
_NEWEST, _HEADER = 0, 8
_ATTEMPTS = 8


class SharedWeights:
    """Two slots for `size` float32 numbers, of which one is whole at any time. Versions count from 1.

    The publisher writes the slot that is not the newest one, and then says that it is. A reader whose slot was
    overwritten while it copied sees that by the version or by the checksum, which also holds on processors that order
    the writes of others freely. The memory has no name: it is gone with the last process that has it.

    Args:
        size: How many numbers.
        memory: What another process made; None makes it.
    """

    def __init__(self, size: int, memory: Any = None) -> None:
        self._size = size
        if memory is None:
            memory = multiprocessing.get_context("spawn").RawArray("b", 8 * _HEADER + 2 * 4 * size)
        self._memory = memory
        self._header = np.frombuffer(memory, np.int64, _HEADER)
        slots = np.frombuffer(memory, np.float32, 2 * size, offset=8 * _HEADER)
        self._slots: list[Floats] = [slots[:size], slots[size:]]
        self._copy: Floats = np.empty(size, np.float32)

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> SharedWeights:
        """Make room for the tensors, and publish them."""
        made = cls(sum(tensor.numel() for tensor in tensors))
        made.publish(tensors)
        return made

    def __reduce__(self) -> Any:
        return SharedWeights, (self._size, self._memory)

    @property
    def version(self) -> int:
        """The newest version; 0 before the first."""
        return int(self._header[_NEWEST])

    def publish(self, tensors: Sequence[Tensor]) -> None:
        """Write a new version; for one process alone."""
        flat = flattened(tensors)
        version = self.version + 1
        slot = version % 2
        self._header[1 + 2 * slot] = 0
        self._slots[slot][:] = flat
        self._header[2 + 2 * slot] = _checksum(flat)
        self._header[1 + 2 * slot] = version
        self._header[_NEWEST] = version

    def read(self, tensors: Sequence[Tensor], seen: int) -> int:
        """Copy the newest version into tensors of the CPU, in place, unless it is `seen`; return which they have now.

        Where the publisher is faster for several attempts, the tensors stay as they are.
        """
        for _ in range(_ATTEMPTS):
            version = self.version
            if version == seen:
                break
            if self._take(version):
                restore(tensors, self._copy)
                return version
        return seen

    def _take(self, version: int) -> bool:
        """Copy `version`; return True if it was copied whole."""
        slot = version % 2
        np.copyto(self._copy, self._slots[slot])
        its_version, checksum = self._header[1 + 2 * slot], self._header[2 + 2 * slot]
        return bool(its_version == version and checksum == _checksum(self._copy))


def flattened(tensors: Sequence[Tensor]) -> Floats:
    """Copy all numbers of the tensors, one after the other, into new memory."""
    flat: Floats = torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).cpu().numpy()
    return flat


@torch.no_grad()
def restore(tensors: Sequence[Tensor], flat: Floats) -> None:
    """Copy what `flattened` returned into tensors of the CPU, in place."""
    at = 0
    for tensor in tensors:
        part = flat[at : at + tensor.numel()]
        tensor.copy_(torch.from_numpy(np.array(part)).reshape(tensor.shape))
        at += tensor.numel()


def _checksum(numbers: Floats) -> int:
    return zlib.crc32(numbers.data)
