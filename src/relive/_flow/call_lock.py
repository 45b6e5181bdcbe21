"""The lock of a buffer: one thread at a time is inside a call, and none when the process ends or forks."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from .._base import forks
from .._ring import kernels as _kernels
from ..errors import ReliveError, message

_PATIENCE, _LOOK = 10.0, 200e-6  # seconds that the end waits for calls, and from one look to the next
_first: list[Callable[[], None]] = []


class CallLock:
    """One thread at a time, and no call inside another one of the same thread.

    A signal handler may call the buffer in the middle of a call of its own thread. Waiting would never end, and going
    on would change what the outer call works on, so such calls are refused: they enter by `alone()`. Calls that
    only look enter `reentrant`.

    Nothing says that a call is being made but the lock itself, which C code takes and gives back: between an entry and
    its exit, wherever a KeyboardInterrupt is raised, nothing can be left behind.

    No thread is inside when this process forks, so that a child finds whole what it has a copy of.

    Attributes:
        reentrant: The lock itself, which a thread may enter again.
        taken: Whether this thread is inside a call.
    """

    __slots__ = ("__weakref__", "reentrant", "taken")

    def __init__(self) -> None:
        self.reentrant = _kernels.active().Lock()
        self.taken = self.reentrant.taken
        self._hold()

    def _hold(self) -> None:
        forks.halt(self)

    def alone(self) -> AbstractContextManager[bool]:
        """The lock, for a `with` block that refuses to be entered twice.

        Raises:
            ReliveError: This thread is inside a call.
        """
        if self.taken():
            raise self.refusal()
        return self.reentrant

    def hold(self) -> AbstractContextManager[bool]:
        """Return the lock for a `with` block of several calls, while those of other threads wait.

        Raises:
            ReliveError: This thread is inside a call.
        """
        self.alone()
        return self.reentrant.hold()

    def check_not_held(self, at: str) -> None:
        """Check that this thread does not hold the lock over several calls: this one may need other threads' calls.

        Raises:
            ReliveError: It does.
        """
        if self.reentrant.held():
            raise held_back(at)

    @staticmethod
    def refusal() -> ReliveError:
        """Compose the error of a call inside another one."""
        got = "one inside another call of the same thread"
        remedy = "set a flag in the signal handler, and call when that call has returned; only `stats()`, "
        remedy += "`can_sample()` and `len()` may be called at any time"
        return ReliveError(message("a call of its own", got, "ReplayBuffer", remedy))


class AdapterLock(CallLock):
    """The lock of an adapter, each of whose calls may make several of its buffer; a copy of it is a new one."""

    __slots__ = ()

    def _hold(self) -> None:
        forks.halt(self, outer=True)

    def __reduce__(self) -> tuple[type[AdapterLock], tuple[()]]:
        return AdapterLock, ()


def held_back(at: str) -> ReliveError:
    """Compose the error of a call that may wait for other threads, while this one keeps them out of all calls."""
    got, remedy = "one inside a `with buffer.hold():` block", "leave the block first"
    return ReliveError(message("a call that may wait for other threads", got, at, remedy))


class Adapter(Protocol):
    """Whose calls are made one at a time."""

    _outer: AdapterLock


_Self = TypeVar("_Self", bound=Adapter)
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def one_at_a_time(
    method: Callable[Concatenate[_Self, _Given], _Result],
) -> Callable[Concatenate[_Self, _Given], _Result]:
    """Let a thread make this call of an adapter only while no other one is inside a call that has this, too."""

    @wraps(method)
    def call(self: _Self, /, *arguments: _Given.args, **choices: _Given.kwargs) -> _Result:
        with self._outer.reentrant:
            return method(self, *arguments, **choices)

    return call


def before_the_end(call: Callable[[], None]) -> Callable[[], None]:
    """Have `call` made at the end of the program, after all that the program itself has for its end.

    What the program registered with `atexit` since it imported relive comes first, whenever `call` was given.
    """
    _first.append(call)
    return call


def _end() -> None:
    """Let the calls of daemon threads come to their end, and begin no more: native code cannot be torn down.

    Such a thread ends at its next call. One that does not come back in time is left alone.
    """
    for call in _first:
        call()
    if not _kernels.is_native():
        return
    kernels, patience = _kernels.active(), time.monotonic() + _PATIENCE
    kernels.ending(True)
    for lock in forks.locks():
        while not (lock.reentrant.attempt() and lock.reentrant.still()) and time.monotonic() < patience:
            time.sleep(_LOOK)
    while kernels.away() and time.monotonic() < patience:
        time.sleep(_LOOK)


atexit.register(_end)
