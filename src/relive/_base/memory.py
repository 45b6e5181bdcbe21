"""Memory for arrays: fresh zeros that cost nothing until they are touched, and blocks that are used again.

Both are pages from the system, from 2 MiB on aligned to huge pages and advised to be backed by them: with ordinary
pages a random row of a large buffer misses the address cache as well, and a fresh output array pays a page fault for
every 4 KiB, which costs several times the copy itself.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import weakref
from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    Spec: TypeAlias = tuple[Sequence[int], DTypeLike]

HUGE_PAGE = 2 << 20
PAGE = 4 << 10
LINE = 64
# From here on an array gets a block of an arena. Below, the C library uses memory again by itself; should it not, the
# few pages to map cost no more than a lease does.
LEASED = 4 * PAGE
# Below this the C library's allocator recycles memory by itself, and a mapping would waste most of a huge page.
_SMALL = 1 << 20
# Bytes of free blocks that an arena may keep, however few are used, and after how many calls it looks which are.
_SPARE, _LATELY = 64 << 20, 64


def _pages(nbytes: int, huge: int | None = None) -> NDArray[np.uint8]:
    """Map `nbytes` of zeroed, lazily backed pages that start at a huge page's boundary.

    Args:
        nbytes: How many.
        huge: Bytes at the beginning that are to be backed by huge pages; None: all, the last page being shared with
            no other array.
    """
    if sys.platform != "linux":
        return np.zeros(nbytes, np.uint8)
    import mmap

    try:
        mapping = mmap.mmap(-1, nbytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"cannot reserve {nbytes} bytes") from error
    whole: NDArray[np.uint8] = np.frombuffer(mapping, np.uint8)  # keeps the mapping alive
    start = -whole.ctypes.data % HUGE_PAGE
    with contextlib.suppress(OSError):  # a kernel built without huge pages
        mapping.madvise(mmap.MADV_HUGEPAGE, start, nbytes + HUGE_PAGE - start if huge is None else huge)
    return whole[start : start + nbytes]


def zeros(shape: int | Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of zeros on a 64-byte boundary; the system supplies its pages only when they are first touched.

    Raises:
        MemoryError: If not even the addresses can be had.
    """
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    kind = np.dtype(dtype)
    nbytes = math.prod(sizes) * kind.itemsize
    if kind.hasobject:
        return np.zeros(sizes, kind)
    if nbytes < _SMALL:
        whole = np.zeros(nbytes + LINE, np.uint8)
        start = -whole.ctypes.data % LINE
        return whole[start : start + nbytes].view(kind).reshape(sizes)
    return _pages(nbytes).view(kind).reshape(sizes)


def zeros_together(specs: Sequence[Spec]) -> list[NDArray[Any]]:
    """Return arrays as `zeros` does, kept and freed together: small ones share huge pages with large ones.

    The last page, which they do not fill, is no huge one.

    Raises:
        MemoryError: If not even the addresses can be had.
    """
    order = sorted(range(len(specs)), key=lambda number: _nbytes(*specs[number]))
    ordered, end = _places([specs[number] for number in order])
    places = [ordered[order.index(number)] for number in range(len(specs))]
    block = zeros(end, np.uint8) if end < HUGE_PAGE else _pages(end, end // HUGE_PAGE * HUGE_PAGE)
    return _carved(block, specs, places)


def _nbytes(shape: Sequence[int], dtype: DTypeLike) -> int:
    return math.prod(shape) * np.dtype(dtype).itemsize


def _places(specs: Sequence[Spec]) -> tuple[list[int], int]:
    """Return the offset of each array, on a 64-byte boundary, and the end of the last one."""
    places, end = [], 0
    for shape, dtype in specs:
        places.append(end)
        end += -(-_nbytes(shape, dtype) // LINE) * LINE
    return places, end


def _carved(block: NDArray[np.uint8], specs: Sequence[Spec], places: list[int]) -> list[NDArray[Any]]:
    return [np.ndarray(shape, dtype, block, place) for (shape, dtype), place in zip(specs, places, strict=True)]


def _read(path: str) -> str:
    """Read a small file; return an empty string if it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


@cache  # some twenty files, two fifths of the time that a small buffer takes
def _group_limits(root: str) -> list[int]:
    """List the memory limits of this process's control groups, outer ones included."""
    groups = f"{root}/sys/fs/cgroup"
    folders = [groups, f"{groups}/memory"]
    for line in _read(f"{root}/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            outer, parts = f"{groups}/{controllers}".rstrip("/"), path.strip("/").split("/")
            folders += ["/".join([outer, *parts[:depth]]) for depth in range(1, len(parts) + 1)]
    texts = [_read(f"{folder}/{name}") for folder in folders for name in ("memory.max", "memory.limit_in_bytes")]
    return [int(text) for text in texts if text.strip().isdigit()]  # the word "max" means unlimited


def available_bytes(root: str = "") -> int:
    """Return the memory that this process may use at most: the lowest of machine, control group and own limits.

    Control groups are read once, from files below `root`.
    """
    limits = [*_group_limits(root)]
    with contextlib.suppress(ImportError):  # not on this system
        import resource

        own = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
        limits += [limit for limit in own if limit != resource.RLIM_INFINITY]
    try:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):  # no sysconf on this system: nothing is known
        limits.append(sys.maxsize)
    return min(limits)


class Arena:
    """Uninitialised arrays in memory that is used again when nothing refers to it any more.

    An array is carved out of a block that is lent for it as one array of bytes, the lease; whatever is made from the
    array (a view, a tensor, a memoryview) keeps the lease alive, so when the lease ends, nothing refers to the block.
    Small arrays are left to the C library, which uses their memory again by itself.
    Safe to use from several threads without a lock: the list of free blocks is a deque, whose operations are atomic
    (a lease may end while any line of this class runs, so a lock held here could be asked for twice).

    Args:
        keep: Free blocks kept for later; further ones go back to the system.
        keep_bytes: Bytes of free blocks kept for later; None: as many as make up what was lent at once
            lately, or 64 MiB.

    Attributes:
        keep: As above; may be changed.
    """

    def __init__(self, keep: int = 4, keep_bytes: int | None = None) -> None:
        self.keep, self._keep_bytes = keep, keep_bytes
        self._free: deque[tuple[memoryview, int]] = deque()  # and since which turn
        self._leases: set[_Lease] = set()
        self._calls = self._turn = 0
        # Bytes; threads that count at once may miscount, which each turn puts right.
        self._lent = self._idle = self._peak = self._peak_before = 0

    @property
    def free_bytes(self) -> int:
        """Bytes held for later use."""
        return sum(len(block) for block, _ in self._free.copy())  # all at once, whatever other threads do

    def next_call(self) -> None:
        """Count a call that may need arrays; free blocks that the last few hundred calls did not use go back."""
        self._calls += 1
        if self._calls % _LATELY == 0:
            self._turn += 1
            self._lent, self._idle = sum(len(lease.block) for lease in self._leases.copy()), self.free_bytes
            self._peak_before, self._peak = self._peak, self._lent
            self._release()

    def arrays(self, specs: Sequence[Spec]) -> list[NDArray[Any]]:
        """Return arrays of the given shapes and dtypes with arbitrary contents; keeping one of them keeps no other."""
        return [self.array(*spec) if leased(*spec) else np.empty(*spec) for spec in specs]

    def array(self, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        """Return one array with arbitrary contents in a block of its own, on a 64-byte boundary."""
        kind = np.dtype(dtype)
        return np.ndarray(shape, kind, self._lend(math.prod(shape) * kind.itemsize))

    def together(self, specs: Sequence[Spec]) -> list[NDArray[Any]]:
        """Return arrays that are kept and freed together, cut from one block, each on a 64-byte boundary."""
        places, end = _places(specs)
        return _carved(self._lend(end), specs, places)

    def _lend(self, nbytes: int) -> NDArray[np.uint8]:
        """Lend the bytes of a free block, or of a new one, until nothing refers to them."""
        block = self._take(max(nbytes, 1))
        # Its base is a memoryview, no array: NumPy shortens chains of array bases, and would step over the lease.
        lent: NDArray[np.uint8] = np.frombuffer(block, np.uint8)
        lease = _Lease(lent, self._end)
        lease.block = block
        self._leases.add(lease)
        self._lent += len(block)
        self._peak = max(self._peak, self._lent)
        self._release()
        return lent

    def _take(self, nbytes: int) -> memoryview:
        """Take a free block of at least `nbytes`, but not much more, or a new one."""
        for _ in range(len(self._free)):
            try:
                block, since = self._free.popleft()
            except IndexError:  # another thread was faster
                break
            if nbytes <= len(block) <= nbytes + nbytes // 4 + PAGE:
                self._idle -= len(block)
                return block
            self._free.append((block, since))
        return _block(-(-nbytes // PAGE) * PAGE)

    def _end(self, lease: _Lease) -> None:
        self._leases.discard(lease)
        self._free.append((lease.block, self._turn))
        self._lent -= len(lease.block)
        self._idle += len(lease.block)
        self._release()

    def _release(self) -> None:
        """Give back the free blocks that are not to be kept."""
        lately = max(self._peak, self._peak_before) - self._lent
        most = max(_SPARE, lately) if self._keep_bytes is None else self._keep_bytes
        with contextlib.suppress(IndexError):  # there is none, or another thread was faster
            while len(self._free) > self.keep or self._idle > most or self._free[0][1] + 1 < self._turn:
                self._idle -= len(self._free.popleft()[0])


class _Lease(weakref.ref["NDArray[np.uint8]"]):
    """Tells when the bytes lent out of `block` are not used any more."""

    __slots__ = ("block",)
    block: memoryview
    # As objects: weak references compare what they refer to, and arrays have no hash.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def leased(shape: Sequence[int], dtype: DTypeLike) -> bool:
    """Return True if an array gets a block of its arena: from 16 KiB on."""
    return math.prod(shape) * np.dtype(dtype).itemsize >= LEASED


def _block(nbytes: int) -> memoryview:
    """Return `nbytes` of new memory that starts at a page, in as many huge pages as it fills.

    All arrays of a batch then reach the end of a cache line at the same row, which makes copying to many of them at
    once a quarter faster.
    """
    if nbytes >= HUGE_PAGE:
        return _pages(nbytes, nbytes // HUGE_PAGE * HUGE_PAGE).data
    whole = np.empty(nbytes + PAGE, np.uint8)
    start = -whole.ctypes.data % PAGE
    return whole[start : start + nbytes].data
