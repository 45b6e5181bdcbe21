"""What stands between a caller and the ring: the buffer's lock, and `add` and `extend`."""

from __future__ import annotations

from _thread import RLock
from collections.abc import Callable
from typing import Any

from ..._base.types import Array, Int64
from .ring import Ring


class Lock(RLock):  # type: ignore[misc]  # final to the type checker only
    """A re-entrant lock that knows whether this thread has it. Entered and left in C, where nothing interrupts it."""

    def __init__(self) -> None:
        super().__init__()

    def taken(self) -> bool:
        """Whether this thread is inside."""
        return bool(self._is_owned())  # type: ignore[attr-defined]

    def attempt(self) -> bool:
        """Enter if that is possible at once."""
        return bool(self.acquire(blocking=False))

    def still(self) -> bool:
        """Whether no other thread is in the middle of a call, nor about to go on; asked by the one that is inside."""
        return True

    def forked(self) -> None:
        """In a forked child: threads that waited are not there, nor one that was inside, unless it is this one."""
        if not self.taken():
            self._at_fork_reinit()  # type: ignore[attr-defined]


def ending(begun: bool) -> None:
    """This thread ends the interpreter: from now on no other one enters a lock, or works without the interpreter.

    NumPy's functions may be torn down with their thread, so here all goes on.
    """


def away() -> int:
    """How many threads work without the interpreter, which they will want back."""
    return 0


def adding(
    ring: Ring,
    lock: Any,
    coerce: Callable[..., Array],
    refresh: Callable[[], object] | None,
    fallback: Callable[..., Int64],
    several: bool,
) -> Callable[..., Int64]:
    """`add`, or with `several` steps `extend`, as an object that is called with the method's keywords.

    The native one checks, converts and writes all that it can, and calls `coerce` for single values of types that only
    Python can read, `refresh` before priorities are written, and `fallback` where something is not legal or a notice
    has to be said first. Its attribute `asked` counts the calls that needed `coerce`. Here it is `fallback` itself.

    Args:
        ring: Where the steps go.
        lock: The buffer's.
        coerce: `StepParser.column`.
        refresh: Makes the sampler take in earlier steps; None: it has no priorities, and calls that give some are left
            to `fallback`.
        fallback: The same call in Python.
        several: Whether it is `extend`.
    """
    return fallback
