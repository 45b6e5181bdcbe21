"""Small files that claim much, and names by which files outside the directory would be written to."""

from __future__ import annotations

import json
import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from make_attacks import FILE, FRESH, INDEX

from relive.errors import ReliveWarning, StorageError
from relive.trajectories import TrajectoryReplayBuffer, inspect, verify


@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("size", [0, 93_000])
def test_nothing_outside_is_written_to(end: str, size: int, good: Path, folder: Path) -> None:
    """Check a file of others that has one of the index's names, too: reading leaves it, writing refuses it."""
    outside = folder / "outside"
    outside.write_bytes(os.urandom(size))
    before, name = outside.read_bytes(), good / (INDEX + end)
    name.unlink(missing_ok=True)
    os.link(outside, name)
    jobs = [lambda: inspect(good), lambda: verify(good), lambda: TrajectoryReplayBuffer().load_checkpoint(good)]
    for job in jobs:
        try:
            job()
        except StorageError:
            assert end != "-shm", "which nobody needs"
    with pytest.raises(StorageError, match="two names"):
        TrajectoryReplayBuffer(good)
    assert outside.read_bytes() == before


def table(good: Path) -> tuple[bytes, int]:
    """Return a header that claims 7 GB of checksums, and the size that it gives its file."""
    with TrajectoryReplayBuffer() as buffer:
        buffer.add_trajectories([{"rewards": np.zeros((1000, 10))}])
        buffer.save_checkpoint(good.parent / "saved")
    data = (good.parent / "saved" / "trajectory_000000000000.safetensors").read_bytes()
    count = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + count])
    t = 10**8
    header["rewards"] |= {"shape": [t, 10], "data_offsets": [0, 80 * t]}
    header["relive/crc32"] |= {"shape": [10 * t, 1], "data_offsets": [80 * t, 120 * t]}
    header["relive/checksum"]["data_offsets"] = [120 * t, 120 * t + 4]
    text = json.dumps(header).encode().ljust(count + 64)
    return len(text).to_bytes(8, "little") + text, 8 + len(text) + 120 * t + 4


@pytest.mark.parametrize("hole", [table, lambda good: ((200 << 20).to_bytes(8, "little"), 300 << 20)])
@pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
def test_a_hole_is_not_read(hole: Callable[[Path], tuple[bytes, int]], good: Path) -> None:
    """Claim a table or a header as large as the file, which takes no space: nor does it take time or memory."""
    head, size = hole(good)
    (good / FRESH).write_bytes(head)
    os.truncate(good / FRESH, size)
    begin = time.process_time()
    tracemalloc.start()
    try:
        with TrajectoryReplayBuffer(good) as buffer:
            assert len(buffer) == 3
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert time.process_time() - begin < 2


@pytest.mark.parametrize(
    "change", [lambda text: b"\xef\xbb\xbf" + text, lambda text: text.replace(b"{", b'{"rewards":{},', 1)]
)
def test_headers_that_can_be_read_in_two_ways(change: Callable[[bytes], bytes], good: Path) -> None:
    """Write a byte order mark, and a duplicate key."""
    data = (good / FILE).read_bytes()
    count = int.from_bytes(data[:8], "little")
    text = change(data[8 : 8 + count].rstrip())
    (good / FILE).write_bytes(len(text).to_bytes(8, "little") + text + data[8 + count :])
    with pytest.raises(StorageError):
        TrajectoryReplayBuffer().load_checkpoint(good)
    assert [name for name, _ in verify(good)] == [FILE]


def test_a_damaged_index_says_what_helps(good: Path) -> None:
    """Check that the remedy helps, too."""
    data = bytearray((good / INDEX).read_bytes())
    data[100:] = bytes(len(data) - 100)
    (good / INDEX).write_bytes(data)
    with pytest.raises(StorageError, match=r"relive salvage.*opening the directory without this file"):
        TrajectoryReplayBuffer(good)
    (good / INDEX).unlink()
    with pytest.warns(ReliveWarning, match="indexed 3 complete files"):
        TrajectoryReplayBuffer(good).close()
