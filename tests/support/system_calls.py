"""A seam between the package and the system: every call on trajectory files is counted, and may fail or be cut short.

`relive._disk.files` makes these calls, or has `relive._base.system` make them, which the NumPy kernels read rows with
too; both name the module `os`, which this puts itself in place of.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import pytest

from relive._base import system as systems
from relive._disk import files
from relive._ring import kernels as _kernels

CALLS = ["open", "write", "fsync", "rename", "unlink", "link", "pread", "preadv", "read", "scandir", "close", "fstat"]


class Done(NamedTuple):
    """The call is made, and its answer is an error all the same: it was lost on its way, and the next try failed."""

    code: int


# What the k-th call may fail with. A server's file handles go stale, its quotas end, its answers are lost.
FAULTS: dict[str, list[int | Done]] = {
    "disk": [errno.ENOSPC, errno.EIO],
    "network": [errno.ESTALE, Done(errno.EIO), errno.EDQUOT, Done(errno.ESTALE), Done(errno.ETIMEDOUT)],
}
# In turn; in the long mode every call with every fault.
KINDS = [
    pytest.param(kind, first, marks=[pytest.mark.slow] if (kind, first) not in (("disk", 0), ("network", 1)) else [])
    for kind, faults in FAULTS.items()
    for first in range(len(faults))
]


def open_files() -> int:
    """Return the number of this process's descriptors, once garbage of earlier tests holds none."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def fault(kind: str, number: int) -> int | Done:
    """Return one of the faults of that kind."""
    return FAULTS[kind][number % len(FAULTS[kind])]


class System:
    """The module `os`, watched.

    Attributes:
        trace: Name, arguments and result of every call, in order; of a sync, whether it was that of a directory.
        decide: Told a call's name and number before it is made; may return an error number, or a number of bytes in a
            list, which is all that a write then takes, or `Done`. Reads of rows, which are many, do not count.
        before: Called with a call's name and arguments before it is made; may wait.
    """

    def __init__(self) -> None:
        self.trace: list[tuple[str, tuple[Any, ...], Any]] = []
        self.decide: Callable[[str, int], int | Done | list[int] | None] = lambda name, number: None
        self.before: Callable[[str, tuple[Any, ...]], None] = lambda name, args: None
        self._lock, self._count = threading.Lock(), 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CALLS:
            return real

        def call(*args: Any, **options: Any) -> Any:
            self.before(name, args)
            with self._lock:
                self._count += name != "preadv"
                verdict = self.decide(name, self._count)
            if isinstance(verdict, list) and name == "write":
                args = (args[0], memoryview(args[1])[: verdict[0]])
            noted = (args[0], stat.S_ISDIR(os.fstat(args[0]).st_mode)) if name == "fsync" else args
            if isinstance(verdict, int | Done):
                code = verdict.code if isinstance(verdict, Done) else verdict
                # The descriptor is gone even if the call fails.
                if name == "close" or isinstance(verdict, Done):
                    result = real(*args, **options)
                    if name in ("open", "scandir"):
                        os.close(result) if name == "open" else result.close()
                self._note(name, noted, OSError(code, os.strerror(code)))
                raise OSError(code, os.strerror(code))
            result = real(*args, **options)
            self._note(name, noted, result)
            return result

        return call

    def _note(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        with self._lock:
            self.trace.append((name, args, result))

    def reset(self) -> None:
        """Forget what was called."""
        with self._lock:
            self.trace, self._count = [], 0

    def names(self) -> list[str]:
        """List the calls that were made."""
        return [name for name, _, _ in self.trace]

    def moved(self, *names: str) -> int:
        """Count the bytes that these calls read or wrote."""
        results = [result for name, _, result in self.trace if name in names]
        return sum(len(result) if isinstance(result, bytes) else result for result in results)


@contextlib.contextmanager
def watched(back_end: str = "numpy") -> Iterator[System]:
    """Watch all calls, those of reading rows among them: native kernels make these by themselves."""
    system = System()
    with _kernels.use(back_end), mock.patch.object(files, "os", system), mock.patch.object(systems, "os", system):
        yield system


def counted(job: Callable[[System], object], back_end: str = "numpy") -> list[str]:
    """List the calls that might fail in a job, from its last reset on until it decides otherwise itself."""
    with watched(back_end) as system:
        names: list[str] = []
        reset = system.reset
        system.reset = lambda: (names.clear(), reset())  # type: ignore[method-assign, assignment, return-value]
        system.decide = lambda name, number: names.append(name) if name != "preadv" else None  # type: ignore[func-returns-value]
        job(system)
    return names


def kind_of(names: list[str]) -> Callable[[int], object]:
    """Return a function that gives the kind of the k-th call; every sync and every rename is one of its own."""
    return lambda k: (names[k - 1], k if names[k - 1] in ("fsync", "rename") else None)


def no_failed_sync_is_repeated(system: System) -> None:
    """Check that a file whose sync failed is given up: the next sync on that descriptor is another file's.

    A directory is synced again only after names in it have changed again.
    """
    bad: dict[int, bool] = {}
    for name, args, result in system.trace:
        if name in ("open", "close"):
            bad.pop(args[0] if name == "close" else result, None)
        elif name == "rename":
            bad = {fd: directory for fd, directory in bad.items() if not directory}
        elif name == "fsync":
            assert args[0] not in bad, "a failed sync was repeated"
            if isinstance(result, OSError):
                bad[args[0]] = args[1]
