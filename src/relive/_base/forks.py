"""What a fork means for what is here: no other thread is inside a call at that moment, and a child forgets the threads.

A child has the memory of its parent, but of its threads only the one that forked. It would wait for ever for a lock
that another one has, or for work that another one does.
"""

from __future__ import annotations

import os
import time
from _thread import RLock  # `threading` takes long to import
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol
from weakref import WeakSet

_LOOK = 50e-6  # seconds from one look to the next at threads that copy outside of their lock


class Forked(Protocol):
    """An object that is notified in a forked child."""

    def _forked(self) -> None:
        """Forget the threads of the parent, and give up what stays the parent's. Nothing else may be asked for."""


class ForkLock(AbstractContextManager[Any], Protocol):
    """See `Lock` in `_ring/kernels_numpy/calls.py`."""

    def attempt(self) -> bool: ...
    def still(self) -> bool: ...
    def forked(self) -> None: ...


class HeldOverForks(Protocol):
    """A section that no other thread is inside when this process forks."""

    @property
    def reentrant(self) -> ForkLock:
        """Re-entrant."""


_parts: WeakSet[Forked] = WeakSet()
_locks: WeakSet[HeldOverForks] = WeakSet()
_outer: WeakSet[HeldOverForks] = WeakSet()
_list = RLock()  # over the three of them, whose elements other threads would change while they are listed
_one = RLock()  # two threads that fork at the same time would wait for each other's locks
_held = ExitStack()
importing = RLock()
"""Held over a fork, and by each import that a function makes: a child would wait for ever for a module that another
thread was importing. Inside it only the lists here are locked."""


def tell(part: Forked) -> None:
    """Call `part._forked()` in every child that is forked from now on."""
    with _list:
        _parts.add(part)


def forget(part: Forked) -> None:
    """Do so no more."""
    with _list:
        _parts.discard(part)


def halt(lock: HeldOverForks, *, outer: bool = False) -> None:
    """Hold the lock `lock` over every fork from now on; `outer`: inside it other ones are taken."""
    with _list:
        (_outer if outer else _locks).add(lock)


def inside() -> bool:
    """Tell if this thread was interrupted while it had one of the locks here, which other threads may need."""
    return any(lock._is_owned() for lock in (_list, _one, importing))  # type: ignore[attr-defined]


def locks() -> list[HeldOverForks]:
    """Return all locks that are held during a fork, in the order in which threads take them."""
    with _list:
        return [*_outer, *_locks]


def _before() -> None:
    _one.acquire()
    for lock in locks():
        _held.enter_context(lock.reentrant)
        while not lock.reentrant.still():
            time.sleep(_LOOK)
    importing.acquire()
    _list.acquire()


def _in_parent() -> None:
    _list.release()
    importing.release()
    _held.close()
    _one.release()


def _in_child() -> None:
    _list.release()
    importing.release()
    for lock in locks():
        lock.reentrant.forked()
    _held.close()
    _one.release()
    for part in list(_parts):
        part._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
