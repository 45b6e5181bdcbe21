"""Rows of a mapped file that are not in memory come together, not one fault after the other."""

from __future__ import annotations

import mmap
import os
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import relive
from relive._ring import kernels

STEPS, PAGE_OF_FLOATS = 4000, 1024

pytestmark = pytest.mark.skipif(
    not kernels.is_native() or not hasattr(resource, "RUSAGE_THREAD"), reason="native kernels, on Linux"
)


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt


@pytest.fixture
def disk() -> Iterator[Path]:
    """A directory on the disk, where there is one."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as path:
        yield Path(path)


@pytest.mark.parametrize("item", [relive.Transitions(), relive.Sequences(4)], ids=lambda item: type(item).__name__)
def test_a_draw_asks_for_its_rows_at_once(item: relive.Transitions | relive.Sequences, disk: Path) -> None:
    path = disk / "ring"
    schema = relive.Schema(obs=relive.Field((PAGE_OF_FLOATS,)), action=relive.Field())
    with relive.ReplayBuffer(schema, STEPS, storage=relive.Mapped(path), item=item) as buffer:
        zeros, never = np.zeros(STEPS, np.float32), np.zeros(STEPS, bool)
        obs = np.zeros((STEPS, PAGE_OF_FLOATS), np.float32)
        buffer.extend(obs=obs, action=zeros, reward=zeros, terminated=never, truncated=never)
        buffer.sync()
    del buffer
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    with relive.open(path) as buffer:
        mapping = buffer._core.ring.columns[0]
        while not isinstance(mapping, mmap.mmap):
            mapping = mapping.base
        mapping.madvise(mmap.MADV_RANDOM)  # else the system reads the whole of a file so small
        waited = [faults()]
        for _ in range(3):
            buffer.sample(64)
            waited.append(faults())
    first, *later = np.diff(waited).tolist()
    if first < 32:
        pytest.skip("a file system in memory")
    assert sum(later) < first / 4
