"""What stands between a caller and the ring: the buffer's lock, and `add` and `extend`."""

from __future__ import annotations

from _thread import RLock
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..._base.types import Array, Float64, Int64
from .ring import Ring


class Lock(RLock):  # type: ignore[misc]  # final to the type checker only
    """A re-entrant lock that knows whether this thread has it. Entered and left in C, where nothing interrupts it."""

    def __init__(self) -> None:
        super().__init__()
        self._holds = RLock()  # entered once for each hold, by the thread that is inside

    def taken(self) -> bool:
        """Return True inside a call of this thread."""
        return bool(self._is_owned()) and not (self.held() and _entries(self) == _entries(self._holds))  # type: ignore[attr-defined]

    def held(self) -> bool:
        """Return True where this thread holds the lock over several calls."""
        return bool(self._holds._is_owned())  # type: ignore[attr-defined]

    @contextmanager
    def hold(self) -> Iterator[bool]:
        """Enter for several calls, each of which is as one outside."""
        with self, self._holds:
            yield True

    def attempt(self) -> bool:
        """Enter if that is possible at once."""
        return bool(self.acquire(blocking=False))

    def still(self) -> bool:
        """Return True if no other thread is in a call, or about to resume one. The lock's owner asks."""
        return True

    def forked(self) -> None:
        """Forget threads that waited or held the lock, in a forked child, unless this thread holds it."""
        if not self._is_owned():  # type: ignore[attr-defined]
            self._at_fork_reinit()  # type: ignore[attr-defined]
            self._holds = RLock()


def _entries(lock: RLock) -> int:
    """Count how many times the thread that is inside has entered."""
    return int(repr(lock).partition("count=")[2].split()[0])  # which Python 3.11.0 tells nowhere else


def ending(begun: bool) -> None:
    """Let no other thread enter a lock, or work without the interpreter, since this thread ends the interpreter.

    NumPy's functions may be torn down with their thread, so here all goes on.
    """


def away() -> int:
    """Count the threads that work without the interpreter, and will want it back."""
    return 0


def adding(
    ring: Ring,
    lock: Any,
    coerce: Callable[..., Array],
    refresh: Callable[[], object] | None,
    fallback: Callable[..., Int64],
    several: bool,
    room: Int64 | None,
) -> Callable[..., Int64]:
    """`add`, or with `several` steps `extend`, as an object that is called with the method's keywords.

    The native one checks, converts and writes all that it can, and calls `coerce` for single values of types that only
    Python can read, `refresh` before priorities are written, and `fallback` where something is not legal or a notice
    has to be said first. `Ring.asked` counts the calls that needed `coerce`. Here it is `fallback` itself.

    Args:
        ring: Where the steps go.
        lock: The buffer's.
        coerce: `StepParser.column`.
        refresh: Makes the sampler take in earlier steps; None: it has no priorities, and calls that give some are left
            to `fallback`.
        fallback: The same call in Python.
        several: Whether it is `extend`.
        room: How many steps may be added before a limiter has to be asked, which `fallback` does, int64 `[1]`; the call
            takes its steps from it. None: there is no limiter.
    """
    return fallback


def copying(lanes: int) -> Callable[[Any], Any]:
    """Return a call that copies what an environment is given or returns; None where that takes more than bytes.

    It may make a copy in the memory of an earlier one that no one else refers to any more. Here all is left to others.

    Args:
        lanes: Environments: of what their `step` returns it copies the observation, where no flag is set. 0: it copies
            an array, and returns numbers as they are.
    """
    return lambda value: None


def blending(members: list[Any], shares: Float64, shuffle: bool, leader: int, draws: Float64, settings: Any) -> None:
    """Do nothing: only the native kernels have a fast path for draws inside `sample`."""


def listed(ring: Ring, ids: Int64, at: Int64, size: int) -> None:
    """Do nothing: natively a chooser of `size` items by their ids, from the place `at[0]` on, for `sampling`."""


def sampling(
    lock: Any,
    chooser: None,
    expansion: None,
    tally: Any,
    counts: Int64,
    notices: Int64,
    first_notice: int,
    most: int,
    batch: type[Any],
    fallback: Callable[..., Any],
    joint: Any,
    redraw: Callable[..., Any],
) -> Callable[..., Any]:
    """`sample` as an object that is called without a frame of Python's. Here it is `fallback`.

    The native one draws from NumPy's own generators, gets all memory before it does, and leaves to `fallback` what is
    not legal, and calls before which a notice has to be said.

    Args:
        lock: The buffer's.
        chooser: The sampler's part.
        expansion: The item's part.
        tally: Has `rng`, and is given the ids and weights as `last`.
        counts: Counts what is drawn in its first entry, and has updates in the second.
        notices: The kinds that are due, and the draws while nothing was updated.
        first_notice: The number of the draw after which a notice may be due.
        most: Items of the largest batch.
        batch: The class of the result, whose `_fields` is a mapping that makes arrays when they are looked at.
        fallback: The same call in Python.
        joint: Of a ring that other processes write: the ring, counts that they see, an object whose `forked` says that
            this process is a child which may not draw, and how many rows a call takes in; None: there are none.
        redraw: Makes the batch of a draw whose rows other processes wrote over: it is given slots, weights, masses or
            None, the exponent of the weights, and that of the call or None.
    """
    return fallback


def updating(lock: Any, chooser: None, counts: Int64, fallback: Callable[..., int], joint: Any) -> Callable[..., int]:
    """Return `update_priorities` as an object that is called without a Python frame. Here it is `fallback`.

    Args:
        lock: The buffer's.
        chooser: The sampler's part.
        counts: Counts the priorities in its second entry, those without an item in its third.
        fallback: The same call in Python, which takes all that needs a closer look, and has the errors.
        joint: As of `sampling`.
    """
    return fallback


def joined(parts: list[Any]) -> dict[str, Any] | None:
    """Join the fields of batches that the native `sample` made, if a copy does it. Here it does not: None."""
    return None
