"""Lazily backed zeros, the arena's recycled blocks, and what the machine may give."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import numpy as np
import pytest

from relive import _memory
from relive._memory import HUGE_PAGE, LINE, Arena, zeros

SPECS = [((256, 17), "float32"), ((256,), "bool"), ((256, 3, 2), "int64"), ((0, 5), "float64"), ((), "uint8")]


def address(array: np.ndarray) -> int:
    return array.ctypes.data


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [(3, "int8"), ((4, 5), "float32"), ((0, 7), "float64"), (3 << 20, "uint8"), ((1 << 17, 3, 3), "float64"),
     ((2 << 20,), "bool"), ((1 << 19,), "datetime64[ns]"), ((1 << 18,), [("a", "i4"), ("b", "f8")])],
)  # fmt: skip
def test_zeros(shape, dtype):
    """Shape, dtype and contents of `np.zeros`; large ones start on a huge page, and all can be written."""
    array = zeros(shape, dtype)
    assert array.shape == np.zeros(shape, dtype).shape
    assert array.dtype == dtype
    assert not array.view(np.uint8).any() if array.size else True
    assert array.flags.c_contiguous
    assert array.flags.writeable
    if _memory._CAN_MAP and array.nbytes >= 1 << 20:
        assert address(array) % HUGE_PAGE == 0
    array[...] = np.ones((), dtype)
    assert (array == np.ones((), dtype)).all()


def test_objects_are_left_to_numpy():
    assert zeros(1 << 18, object)[5] == 0


def test_zeros_take_memory_only_when_touched():
    """8 GiB can be reserved; the peak resident size of a fresh process shows that they are not there."""
    code = (
        "import resource\nfrom relive._memory import zeros\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "array = zeros((1 << 10, 1 << 20), 'float64')\n"
        "array[0, 0] = 1.0; array[-1, -1] = 2.0\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 64 << 10  # KiB


def test_views_keep_the_memory_alive():
    array = zeros((1 << 20,), "float64")
    array[7] = 3.0
    view = array[5:10].reshape(5, 1)
    del array
    gc.collect()
    zeros((1 << 20,), "float64")[:] = 9.0
    assert view[2, 0] == 3.0


def test_more_than_there_are_addresses():
    with pytest.raises(MemoryError):
        zeros(1 << 60, "float64")
    with pytest.raises(MemoryError):
        Arena().arrays([((1 << 60,), "float64")])


def test_where_nothing_can_be_mapped(monkeypatch):
    """Systems without these calls get ordinary zeros."""
    monkeypatch.setattr(_memory, "_CAN_MAP", False)
    assert not zeros((1 << 20,), "float64").any()
    assert Arena().arrays(SPECS)[0].shape == (256, 17)


def test_available_bytes_is_the_lowest_limit(monkeypatch):
    """The machine's memory, or that of a control group around the process, whichever is lower; "max" is none."""
    files = {}
    monkeypatch.setattr(_memory, "_read", lambda path: files.get(path, ""))
    machine = _memory.available_bytes()
    assert 1 << 28 < machine < 1 << 50
    files["/proc/self/cgroup"] = "12:cpu:/other\n4:memory:/old/style\n0::/a/b.scope\n"
    files["/sys/fs/cgroup/a/b.scope/memory.max"] = "max\n"
    files["/sys/fs/cgroup/other/memory.max"] = "7\n"
    assert _memory.available_bytes() == machine
    files["/sys/fs/cgroup/a/memory.max"] = "3000000\n"
    assert _memory.available_bytes() == 3_000_000
    files["/sys/fs/cgroup/memory/old/style/memory.limit_in_bytes"] = "2000000\n"
    assert _memory.available_bytes() == 2_000_000


def test_arrays_of_an_arena():
    """As asked for, each on a cache line of its own, writable, not overlapping."""
    arrays = Arena().arrays(SPECS)
    assert [(a.shape, a.dtype) for a in arrays] == [(shape, np.dtype(dtype)) for shape, dtype in SPECS]
    for i, array in enumerate(arrays):
        assert address(array) % LINE == 0
        assert array.flags.c_contiguous
        array[...] = i + 1
    for i, array in enumerate(arrays):
        assert (array == np.full((), i + 1).astype(array.dtype)).all()
    assert Arena().arrays([]) == []


def test_memory_is_used_again_when_the_last_array_is_gone():
    arena = Arena()
    first = arena.arrays(SPECS)
    where = [address(array) for array in first[:3]]
    kept = first[1]
    del first
    assert arena.free_bytes == 0
    other = arena.arrays(SPECS)
    assert address(other[0]) != where[0]
    kept[...] = True
    other[1][...] = False
    assert kept.all()
    del kept
    assert arena.free_bytes == HUGE_PAGE
    again = arena.arrays(SPECS)
    assert [address(array) for array in again[:3]] == where
    assert arena.free_bytes == 0


HOLDERS = {
    "slice": lambda array: array[3:9, ::2],
    "reshape": lambda array: array.reshape(-1),
    "transpose": lambda array: array.T[1:].T,
    "another dtype": lambda array: array.view(np.uint32)[5:],
    "subclass": lambda array: array.view(np.recarray),
    "memoryview": lambda array: memoryview(array),
    "memoryview of a slice": lambda array: memoryview(array[2:])[1:],
    "frombuffer": lambda array: np.frombuffer(array, np.uint8),
    "slice of a slice of a view": lambda array: array.view(np.int32)[1:].view(np.float32)[:, 1:][::-1],
    "broadcast": lambda array: np.broadcast_to(array, (2, *array.shape)),
    "DLPack": lambda array: np.from_dlpack(array),
    "torch": lambda array: pytest.importorskip("torch").from_numpy(array),
    "view of torch": lambda array: pytest.importorskip("torch").from_numpy(array)[3:].t(),
}


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS.keys())
def test_whatever_shares_the_memory_keeps_it(holder):
    """No block is handed out twice while anything made from its arrays can still be read."""
    arena = Arena()
    arrays = arena.arrays(SPECS)
    where = address(arrays[0])
    shared = holder(arrays[0])
    del arrays
    gc.collect()
    assert arena.free_bytes == 0
    assert address(arena.arrays(SPECS)[0]) != where
    arena._free.clear()
    del shared
    gc.collect()
    assert arena.free_bytes == HUGE_PAGE
    assert address(arena.arrays(SPECS)[0]) == where


def test_free_blocks_are_bounded_and_fit():
    """Four are kept; a small request does not take a block many times too large, a large one none too small."""
    arena = Arena(keep=4)
    many = [arena.arrays([((100,), "float64")]) for _ in range(9)]
    del many
    assert arena.free_bytes == 4 * HUGE_PAGE
    large = arena.arrays([((HUGE_PAGE * 20,), "uint8")])
    assert arena.free_bytes == 4 * HUGE_PAGE
    where = address(large[0])
    del large
    assert arena.free_bytes == 3 * HUGE_PAGE + 20 * HUGE_PAGE
    small = arena.arrays([((100,), "float64")])
    assert address(small[0]) != where
    assert address(arena.arrays([((HUGE_PAGE * 20,), "uint8")])[0]) == where


def test_arrays_may_outlive_their_arena():
    arena = Arena()
    (array,) = arena.arrays([((1000,), "float64")])
    array[:] = 5.0
    del arena
    gc.collect()
    zeros((1 << 20,), "float64")[:] = 9.0
    assert (array == 5.0).all()


def test_threads_never_share_a_block():
    """Four threads take, fill, check and drop; a block lent twice would show another thread's number."""
    arena, wrong = Arena(), []

    def work(number: int) -> None:
        held = []
        for turn in range(300):
            arrays = arena.arrays(SPECS)
            arrays[0][...] = number * 1000 + turn
            held.append((number * 1000 + turn, arrays[0]))
            wrong.extend(value for value, array in held if not (array == value).all())
            del held[: len(held) - turn % 4]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert arena.free_bytes <= 4 * HUGE_PAGE
