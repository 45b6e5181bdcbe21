"""Memory for arrays: fresh zeros that cost nothing until they are touched, and blocks that are used again.

Both are pages from the system, aligned to huge pages and advised to be backed by them: with ordinary pages a random
row of a large buffer misses the address cache as well, and a fresh output array pays a page fault for every 4 KiB,
which costs several times the copy itself.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import sys
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

HUGE_PAGE = 2 << 20
LINE = 64
# Below this the C library's allocator recycles memory by itself, and a mapping would waste most of a huge page.
_SMALL = 1 << 20
_CAN_MAP = hasattr(mmap, "MAP_ANONYMOUS") and hasattr(mmap, "MADV_HUGEPAGE")


def _pages(nbytes: int) -> NDArray[np.uint8]:
    """`nbytes` of zeroed, lazily backed pages that start on a huge page's boundary."""
    if not _CAN_MAP:
        return np.zeros(nbytes, np.uint8)
    try:
        mapping = mmap.mmap(-1, nbytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"cannot reserve {nbytes} bytes") from error
    with contextlib.suppress(OSError):  # a kernel built without huge pages
        mapping.madvise(mmap.MADV_HUGEPAGE)
    whole: NDArray[np.uint8] = np.frombuffer(mapping, np.uint8)  # keeps the mapping alive
    start = -whole.ctypes.data % HUGE_PAGE
    return whole[start : start + nbytes]


def zeros(shape: int | Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
    """An array of zeros on a 64-byte boundary, whose pages are taken from the system only when they are first touched.

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


def _read(path: str) -> str:
    """The contents of a small file, nothing if it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _group_limits() -> list[int]:
    """Memory limits of the control groups that this process is in, outer ones included."""
    root = "/sys/fs/cgroup"
    folders = [root, f"{root}/memory"]
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            parts = path.strip("/").split("/")
            folders += [
                "/".join([root, *filter(None, [controllers]), *parts[:depth]]) for depth in range(1, len(parts) + 1)
            ]
    texts = [_read(f"{folder}/{name}") for folder in folders for name in ("memory.max", "memory.limit_in_bytes")]
    return [int(text) for text in texts if text.strip().isdigit()]  # the word "max" means unlimited


def available_bytes() -> int:
    """Physical memory that this process may use at most: the machine's, or its control group's limit if lower."""
    limits = _group_limits()
    try:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):  # no sysconf on this system: nothing is known
        limits.append(sys.maxsize)
    return min(limits)


class Arena:
    """Uninitialised arrays out of blocks of memory that are used again when their last array is gone.

    A block is lent as one array, the lease; everything carved out of it (and each view, tensor or memoryview made
    from that) keeps the lease alive, so when the lease ends, nothing refers to the block any more.
    Safe to use from several threads without a lock: the list of free blocks is a deque, whose operations are atomic
    (a lease may end while any line of this class runs, so a lock held here could be asked for twice).

    Args:
        keep: Free blocks kept for later; further ones go back to the system.
        keep_bytes: Bytes of free blocks kept for later; None: no matter how large they are.
    """

    def __init__(self, keep: int = 4, keep_bytes: int | None = None) -> None:
        self._keep, self._keep_bytes = keep, keep_bytes
        self._free: deque[NDArray[np.uint8]] = deque()
        self._leases: dict[int, weakref.ref[Any]] = {}

    @property
    def free_bytes(self) -> int:
        """Bytes held for later use."""
        return sum(len(block) for block in tuple(self._free))

    def arrays(self, specs: Sequence[tuple[Sequence[int], DTypeLike]]) -> list[NDArray[Any]]:
        """Carve arrays of the given shapes and dtypes out of one block, each on a 64-byte boundary.

        Their contents are arbitrary.
        """
        plan = []
        end = 0
        for shape, dtype in specs:
            kind = np.dtype(dtype)
            plan.append((tuple(shape), kind, end))
            end += -(-math.prod(shape) * kind.itemsize // LINE) * LINE
        lease = self._lend(self._take(end))
        return [np.ndarray(shape, kind, lease, start) for shape, kind, start in plan]

    def _take(self, nbytes: int) -> NDArray[np.uint8]:
        """A free block of at least `nbytes`, but not many times more, or a new one."""
        for _ in range(len(self._free)):
            try:
                block = self._free.popleft()
            except IndexError:  # another thread was faster
                break
            if nbytes <= len(block) <= 4 * max(nbytes, HUGE_PAGE):
                return block
            self._free.append(block)
        return _pages(-(-max(nbytes, 1) // HUGE_PAGE) * HUGE_PAGE)

    def _lend(self, block: NDArray[np.uint8]) -> NDArray[np.uint8]:
        # Its base is a memoryview, no array: NumPy shortens chains of array bases, and would step over the lease.
        lease: NDArray[np.uint8] = np.frombuffer(block.data, np.uint8)
        key = id(lease)

        def give_back(_: object) -> None:
            self._leases.pop(key, None)
            self._free.append(block)
            while len(self._free) > self._keep or (
                self._keep_bytes is not None and self._free and self.free_bytes > self._keep_bytes
            ):
                self._free.popleft()

        self._leases[key] = weakref.ref(lease, give_back)
        return lease
