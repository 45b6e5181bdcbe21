"""Lazily backed zeros, the arena's recycled blocks, and what the machine may give."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import threading

import numpy as np
import pytest

from relive._base import memory
from relive._base.memory import HUGE_PAGE, LEASED, LINE, PAGE, Arena, zeros, zeros_together

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
    if sys.platform == "linux" and array.nbytes >= 1 << 20:
        assert address(array) % HUGE_PAGE == 0
    array[...] = np.ones((), dtype)
    assert (array == np.ones((), dtype)).all()


def test_zeros_together():
    """Check that a small array is in the pages of a large one, and none in another."""
    specs = [((1 << 20,), "float64"), *SPECS, ((5,), "int64")]
    arrays = zeros_together(specs)
    for number, (array, (shape, dtype)) in enumerate(zip(arrays, specs, strict=True)):
        assert (array.shape, array.dtype, address(array) % LINE) == (shape, dtype, 0)
        array[...] = number % 2
    assert all((array == number % 2).all() for number, array in enumerate(arrays))
    assert 0 < address(arrays[0]) - address(arrays[-1]) < HUGE_PAGE


def test_objects_are_left_to_numpy():
    assert zeros(1 << 18, object)[5] == 0


def test_zeros_take_memory_only_when_touched():
    """Reserve 8 GiB; the peak resident size of a fresh process shows that they are not there."""
    code = (
        "import resource\nfrom relive._base.memory import zeros\n"
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
    for make in (Arena().arrays, Arena().together):
        with pytest.raises(MemoryError):
            make([((1 << 60,), "float64")])


def test_where_nothing_can_be_mapped(monkeypatch):
    """Check that systems without these calls get ordinary zeros."""
    monkeypatch.setattr(sys, "platform", "another")
    assert not zeros((1 << 20,), "float64").any()
    assert Arena().array((2 << 20,), "uint16").shape == (2 << 20,)


def test_available_bytes_is_the_lowest_limit(tmp_path, monkeypatch):
    """Check for the machine's memory, or that of a control group around the process if lower; "max" is none."""

    def write(name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def found():
        memory._group_limits.cache_clear()  # they are read once
        return memory.available_bytes(str(tmp_path))

    assert 1 << 28 < (machine := found()) < 1 << 50
    write("proc/self/cgroup", "12:cpu:/other\n4:memory:/old/style\n0::/a/b.scope\n")
    write("sys/fs/cgroup/a/b.scope/memory.max", "max\n")
    write("sys/fs/cgroup/other/memory.max", "7\n")
    assert found() == machine
    write("sys/fs/cgroup/a/memory.max", "3000000\n")
    assert found() == 3_000_000
    write("sys/fs/cgroup/memory/old/style/memory.limit_in_bytes", "2000000\n")
    assert found() == 2_000_000
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1_000_000 if kind == resource.RLIMIT_AS else -1, -1))
    assert found() == 1_000_000, "what `ulimit -v` says"


@pytest.mark.parametrize("how", ["arrays", "together"])
def test_arrays_of_an_arena(how):
    """Check shapes, that they can be written and do not overlap; lent ones each on a cache line of its own."""
    arrays = getattr(Arena(), how)(SPECS)
    assert [(a.shape, a.dtype) for a in arrays] == [(shape, np.dtype(dtype)) for shape, dtype in SPECS]
    for i, array in enumerate(arrays):
        assert address(array) % LINE == 0 or (how == "arrays" and array.nbytes < LEASED)
        assert array.flags.c_contiguous
        array[...] = i + 1
    for i, array in enumerate(arrays):
        assert (array == np.full((), i + 1).astype(array.dtype)).all()
    assert getattr(Arena(), how)([]) == []


def test_memory_is_used_again_when_the_last_array_is_gone():
    arena = Arena()
    first = arena.together(SPECS)
    where = [address(array) for array in first[:3]]
    kept = first[1]
    del first
    assert arena.free_bytes == 0
    other = arena.together(SPECS)
    assert address(other[0]) != where[0]
    kept[...] = True
    other[1][...] = False
    assert kept.all()
    del kept
    nbytes = arena.free_bytes
    assert sum(array.nbytes for array in other) <= nbytes <= 2 * PAGE + sum(array.nbytes for array in other)
    again = arena.together(SPECS)
    assert [address(array) for array in again[:3]] == where
    assert arena.free_bytes == 0


@pytest.mark.parametrize("kept", range(4))
def test_one_array_keeps_no_other(kept):
    """Check that arrays of a batch have blocks of their own, of about their size; small ones are not the arena's."""
    arena = Arena()
    sizes = [LEASED - 1, LEASED, 100_000, 5_000_000]
    arrays = arena.arrays([((size,), "uint8") for size in sizes])
    one = arrays[kept]
    del arrays
    others = sum(sizes[1:]) - (one.nbytes if kept else 0)
    assert others <= arena.free_bytes < others + 3 * PAGE
    del one
    assert sum(sizes[1:]) <= arena.free_bytes < sum(sizes[1:]) + 3 * PAGE


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
    """Check that no block is reused while anything made from its array can still be read."""
    arena = Arena()
    array = arena.array(*SPECS[0])
    where, nbytes = address(array), array.nbytes
    shared = holder(array)
    del array
    gc.collect()
    assert arena.free_bytes == 0
    assert address(arena.array(*SPECS[0])) != where
    arena._free.clear()
    del shared
    gc.collect()
    assert nbytes <= arena.free_bytes < nbytes + PAGE
    assert address(arena.array(*SPECS[0])) == where


def test_free_blocks_are_bounded_and_fit():
    """Check that four are kept; a request takes no block much too large, nor one too small."""
    arena = Arena(keep=4)
    many = [arena.array((LEASED,), "uint8") for _ in range(9)]
    del many
    assert arena.free_bytes == 4 * LEASED
    large = arena.array((HUGE_PAGE * 20,), "uint8")
    assert arena.free_bytes == 4 * LEASED
    where = address(large)
    del large
    assert arena.free_bytes == 3 * LEASED + 20 * HUGE_PAGE
    small = arena.array((HUGE_PAGE * 15,), "uint8")
    assert address(small) != where
    assert address(arena.array((HUGE_PAGE * 17,), "uint8")) == where


def test_arrays_may_outlive_their_arena():
    arena = Arena()
    array = arena.array((1000,), "float64")
    array[:] = 5.0
    del arena
    gc.collect()
    zeros((1 << 20,), "float64")[:] = 9.0
    assert (array == 5.0).all()


def test_threads_never_share_a_block():
    """Let four threads take, fill, check and drop; a block lent twice would show another thread's number."""
    arena, wrong = Arena(keep=4), []

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
    assert arena.free_bytes <= 4 * 5 * PAGE
