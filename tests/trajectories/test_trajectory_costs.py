"""What adding and drawing cost: counted in bytes, calls and files, not in time."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import eventually, some
from made import files, filled
from rollouts import leaves, simple
from sizes import with_sizes
from system_calls import open_files, watched

from relive.errors import StorageError
from relive.trajectories import Trajectory, TrajectoryReplayBuffer, _open_files, _source
from relive.trajectories._index import TrajectoryIndex


def tiny(count: int) -> list[Trajectory]:
    return [Trajectory(rewards=np.full((2, 1), k, np.float32)) for k in range(count)]


def calls(job: Callable[[], Any]) -> int:
    """Count Python and C calls of all threads, which do not depend on the machine's load."""
    counted = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        job()
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.parametrize("options", some([{}, {"max_trajectories": 10**6}, {"max_bytes": 10**12}], 2))
def test_an_add_costs_the_same_at_any_size(options, folder, monkeypatch):
    """Count calls in the caller's thread, bytes, system calls, statements: at 100 trajectories as at 600."""
    monkeypatch.setattr(TrajectoryIndex, "search", lambda *_: pytest.fail("an add that searches"))
    with watched() as system, TrajectoryReplayBuffer(folder, enable_cache=False, **options) as buffer:
        statements: list[str] = []
        buffer._writer.catalog._db.set_trace_callback(statements.append)
        costs = []
        for before in (100, 500):
            buffer.add_trajectories(tiny(before))
            took = [calls(lambda: buffer.add_trajectories(tiny(1))) for _ in range(10)]
            buffer.sync()
            system.reset()
            statements.clear()
            for _ in range(10):
                buffer.add_trajectories(tiny(1))
                buffer.sync()
            told = [text.split("(")[0] for text in statements]
            costs.append((min(took), system.moved("write"), system.names(), told))
        (few, *others), (many, *others_later) = costs
        assert many == pytest.approx(few, rel=0.02)  # a caller that has to wait makes some calls more
        assert others == others_later


@pytest.mark.slow
def test_the_index_takes_little_memory(folder):
    """Check for 200 bytes a trajectory when its array has just grown, the worst moment; for 200 on disk, too."""
    with TrajectoryReplayBuffer(folder, enable_cache=False) as buffer:
        buffer.add_trajectories(tiny(50))
        buffer.sync()
        gc.collect()
        tracemalloc.start()
        for _ in range(41):
            buffer.add_trajectories(tiny(50))
            buffer.sync()
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(buffer) == 2100
        free_lists = 64 << 10  # what the interpreter keeps of small objects that are gone
        assert grown - free_lists < 200 * 2050
    others = [path for path in folder.iterdir() if not path.name.startswith("trajectory")]
    assert sum(path.stat().st_size for path in others) / 2100 < 200


def test_small_trajectories_take_little_memory():
    """Check for as much as their arrays, and not a page of megabytes each."""
    buffer = TrajectoryReplayBuffer()
    before = resident()
    buffer.add_trajectories([simple(k) for k in range(300)])
    assert resident() - before < 20 << 20


def resident() -> int:
    """Return the resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_what_has_been_written_is_let_go(folder):
    """Check that without a cache nothing stays in memory, not even in the thread that wrote it."""
    gate = threading.Event()
    with watched() as system, TrajectoryReplayBuffer(folder, enable_cache=False) as buffer:
        system.before = lambda name, args: None if name != "fsync" else gate.wait(60)
        buffer.add_trajectories([simple(k) for k in range(5)])
        blocks = [weakref.ref(block) for block in buffer._store.blocks.values()]
        assert len(blocks) == 5
        gate.set()
        buffer.sync()
        eventually(lambda: (gc.collect(), [block() for block in blocks])[1] == [None] * 5)


def test_a_window_that_fits_is_read_once(folder):
    filled(folder, range(10)).close()
    with watched() as system, TrajectoryReplayBuffer(folder, cache_size=10, seed=0) as buffer:
        system.reset()
        for _ in range(20):
            buffer.sample(50)
        assert system.names().count("open") == 10
        total = sum(path.stat().st_size for path in files(folder))
        assert system.moved("pread", "preadv") <= total


@pytest.mark.parametrize("shared", [True, False])
def test_a_miss_reads_the_rows_it_needs(shared, folder):
    """Check that each file is opened at most once, and at most twice the returned bytes are read."""
    with TrajectoryReplayBuffer(folder) as buffer:
        buffer.add_trajectories([simple(k, length=30, width=4, cells=300, shared=shared) for k in range(40)])
    with watched() as system, TrajectoryReplayBuffer(folder, enable_cache=False, seed=0) as buffer:
        for n in (1, 16, 256):
            system.reset()
            batch = buffer.sample(n)
            distinct = len(np.unique(batch["code"][:, 0]))
            assert system.names().count("open") <= distinct
            returned = sum(array.nbytes for _, array in leaves(batch))
            assert system.moved("pread", "preadv", "read") <= 2 * returned
            whole = sum(path.stat().st_size for path in files(folder))
            assert n > 16 or system.moved("pread", "preadv") < whole / 20


@pytest.mark.parametrize(("length", "paged"), [(64, True), (3, False)])
def test_rows_of_whole_pages_begin_at_a_page(length, paged, folder):
    """Check that a draw reads no page for the end of another row; small files take no padding for it."""
    image = np.zeros((length, 4, 64, 64), np.uint8)
    with TrajectoryReplayBuffer(folder) as buffer:
        buffer.add_trajectories([Trajectory(images=image, rewards=np.zeros((length, 4), np.float32))])
    (path,) = files(folder)
    data = path.read_bytes()
    size = 8 + int.from_bytes(data[:8], "little")
    begin = size + json.loads(data[8:size])["images"]["data_offsets"][0]
    assert (begin % 4096 == 0) == paged
    assert paged or size < 1024


def varied(folder: Path, count: int, **options: Any) -> None:
    with TrajectoryReplayBuffer(folder) as buffer:
        buffer.add_trajectories([simple(k, length=3 + k, cells=700, **options) for k in range(count)])


@pytest.mark.parametrize(("shared", "descriptors"), [(True, 99), (False, 99), (True, 2)])
def test_of_files_that_are_drawn_from_often_only_wide_rows_are_read(shared, descriptors, folder, monkeypatch):
    """Narrow fields and checksums are in memory by then: two observations an item are read, and what opening reads."""
    monkeypatch.setattr(_source, "kept_open", lambda: descriptors)
    varied(folder, 6, shared=shared)
    with watched() as system, TrajectoryReplayBuffer(folder, enable_cache=False, seed=0) as buffer:
        for _ in range(40):
            system.reset()
            buffer.sample(8)
        opened = system.names().count("open")
        assert system.names().count("preadv") == 16 + opened
        assert (opened > 0) == (descriptors == 2)
        buffer.clear_cache()
        buffer.sample(8)
        assert system.names().count("open") > 1


def test_a_draw_during_another_one_loses_no_narrow_fields(folder):
    """Open the same files in both, of which one set is closed again: as with two threads."""
    varied(folder, 4)
    with watched() as system, TrajectoryReplayBuffer(folder, enable_cache=False, seed=0) as buffer:
        for _ in range(30):
            buffer.sample(32)

        def draw_inside(name: str, args: Any) -> None:
            if name == "preadv":
                system.before = lambda name, args: None
                buffer.sample(32)

        system.before = draw_inside
        buffer.sample(32)
        assert [file.rows is not None for file in _open_files.OPEN.values()] == [True] * 4


def test_narrow_fields_are_not_given_to_another_file_of_the_same_name(folder):
    """Load another checkpoint there while a draw still reads the old file."""
    varied(folder, 1)
    with watched() as system, TrajectoryReplayBuffer(folder, enable_cache=False, seed=0) as buffer:
        for _ in range(10):
            buffer.sample(8)
        ((key, old),) = _open_files.OPEN.items()
        assert old.rows is not None
        new = _open_files.OpenFile(os.open(os.devnull, os.O_RDONLY), old.checksum ^ 1)
        system.before = lambda name, args: _open_files.OPEN.setdefault(key, new)
        buffer.sample(8)
        assert (_open_files.OPEN[key], new.rows) == (new, None)


@pytest.mark.parametrize("most", [0, 4000, 10**6])
def test_narrow_fields_are_bounded_in_bytes(most, folder):
    """Check those of all files together, also if many are drawn from for the first time at once."""
    with with_sizes(narrow_bytes=most), TrajectoryReplayBuffer(folder, enable_cache=False, seed=0) as buffer:
        buffer.add_trajectories([simple(k, length=10, cells=700) for k in range(30)])
        buffer.sync()
        for _ in range(40):
            buffer.sample(60)
            kept = [file.rows.nbytes for file in _open_files.OPEN.values() if file.rows is not None]
            assert sum(kept) <= most
        assert (sum(kept) > most // 2) == (most == 4000)
        assert bool(kept) == bool(most)


def test_a_damaged_narrow_row_is_refused_whenever_it_is_drawn(folder):
    """Draw before and after narrow fields of its file would have been kept; no other draw is refused."""
    varied(folder / "sound", 4)
    shutil.copytree(folder / "sound", folder / "damaged")
    path = files(folder / "damaged")[3]
    data = bytearray(path.read_bytes())
    header = 8 + int.from_bytes(data[:8], "little")
    end = header + json.loads(data[8:header])["rewards"]["data_offsets"][1]
    last = bytes(data[end - 4 : end])
    data[end - 1] ^= 1
    path.write_bytes(data)
    sound, buffer = (TrajectoryReplayBuffer(folder / name, enable_cache=False, seed=0) for name in ("sound", "damaged"))
    refused = 0
    with sound, buffer:
        for _ in range(120):
            wanted = last in [row.tobytes() for row in sound.sample(2)["rewards"]]
            refused += wanted
            with pytest.raises(StorageError, match="`rewards` does not") if wanted else contextlib.nullcontext():
                buffer.sample(2)
    assert refused > 5


def test_files_are_no_larger_than_their_rows(folder):
    """Check that half of a repeating next observation is not on disk; else a header and four bytes a row."""
    with TrajectoryReplayBuffer(folder) as buffer:
        buffer.add_trajectories([simple(0, length=100, cells=5000), simple(1, length=100, cells=5000, shared=False)])
        given = sum(array.nbytes for array in Trajectory(**simple(0, length=100, cells=5000)).arrays.values())
    one, other = (path.stat().st_size for path in files(folder))
    assert one < 0.51 * given
    assert other < 1.01 * given


def test_a_large_trajectory_does_not_empty_the_descriptors(folder):
    """Check that files are always closed; threads end with their buffers."""
    before = open_files(), threading.active_count()
    for k in range(5):
        with filled(folder, [k], enable_cache=False, seed=0) as buffer:
            buffer.sample(10)
            buffer.save_checkpoint(folder / "saved")
    assert (open_files(), threading.active_count()) <= before
