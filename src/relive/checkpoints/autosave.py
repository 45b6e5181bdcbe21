"""`Autosave`: a thread that saves what is new of a buffer, again and again."""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Protocol
from weakref import ReferenceType, WeakSet, ref

from .._base import check, forks
from .._base.frozen import Frozen
from ..errors import ReliveError, event, message

if TYPE_CHECKING:
    from typing import Self

    from ._saving import Saved

SHORTEST = 0.1  # seconds
_SHARE = 100  # of the clock, one part of which calls may be stopped

_running: WeakSet[Autosave] = WeakSet()


class Saveable(Protocol):
    """A buffer, as its autosave needs it."""

    def save(self, path: str, *, keep: int, wait: bool) -> Saved:
        """`ReplayBuffer.save`."""
        ...

    def _changes(self) -> object:
        """Something that is another one after every call that changes what a save holds."""
        ...


class AutosaveStats(Frozen, kw_only=True):
    """What an autosave did so far.

    Attributes:
        path: The directory.
        number: The number of the last complete save.
        saves: Saves that came to their end.
        age: Seconds since the instant that the last complete save holds; what came later is lost with the process. 0
            where nothing has changed since.
        seconds: How long the last save took.
        stopped: Seconds for which calls of the buffer had to wait, in all saves together.
        bytes_written: By all saves together.
        errors: Saves that failed. Each was tried again.
        error: Why the last save failed; empty if it did not.
    """

    path: str
    number: int
    saves: int
    age: float
    seconds: float
    stopped: float
    bytes_written: int
    errors: int
    error: str


class Autosave:
    """Saves a buffer's new steps and priorities again and again, until it is closed; `buffer.autosave(path)` makes it.

    `with` closes it, and closing writes a last save. So does the end of the program; a kill does not, and loses at most
    what came in the last interval and while the last save was written.

    The interval is longer than `every` where calls of the buffer would otherwise be stopped for more than 1 % of the
    time. Where nothing has changed, nothing is written. A save that fails is logged and tried again; no call of the
    buffer raises its error, and `stats()` has it.

    Attributes:
        path: The directory; `relive.load` takes it.
        every: Seconds from one save to the next.

    >>> import relive, tempfile
    >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000)
    >>> with buffer.autosave(tempfile.mkdtemp(), every=1.0) as saving:
    ...     ids = buffer.add(obs=[1, 2, 3], action=0, reward=1, next_obs=[2, 3, 4], terminated=False, truncated=False)
    >>> len(relive.load(saving.path))
    1
    """

    def __init__(self, buffer: Saveable, path: str, every: float, keep: int) -> None:
        self.path = check.path(path, "autosave(path)")
        self.every = check.real(every, "autosave(every)", low=SHORTEST)
        self._keep = check.integer(keep, "autosave(keep)", minimum=1)
        self._buffer = ref(buffer)
        self._turn, self._pause, self._closed = threading.Lock(), threading.Event(), False
        self._number = self._saves = self._errors = self._bytes = 0
        self._seconds = self._stopped = self._last_stop = 0.0
        self._error = ""
        self._changes: object = None
        self._instant = time.monotonic()
        self._save(buffer)  # what is wrong with the directory is told at once
        self._thread: threading.Thread | None = threading.Thread(
            target=_run, args=(ref(self), self._pause), name="relive-autosave", daemon=True
        )
        self._thread.start()
        forks.tell(self)
        _running.add(self)

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self._closed

    def stats(self) -> AutosaveStats:
        """What it did so far."""
        buffer = self._buffer()
        current = self._closed or buffer is None or buffer._changes() == self._changes
        return AutosaveStats(
            path=self.path,
            number=self._number,
            saves=self._saves,
            age=0.0 if current else time.monotonic() - self._instant,
            seconds=self._seconds,
            stopped=self._stopped,
            bytes_written=self._bytes,
            errors=self._errors,
            error=self._error,
        )

    def close(self) -> None:
        """End it, with a last save if anything has changed. A second call does nothing.

        Raises:
            StorageError: The last save could not be written; the one before it is what `relive.load` finds.
        """
        self._pause.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._turn:
            buffer, closed, self._closed = self._buffer(), self._closed, True
            if buffer is not None and not closed:
                self._save(buffer)
        forks.forget(self)

    def _again(self) -> float | None:
        """Save what is new; seconds until the next save, None: there is nothing to save any more."""
        with self._turn:
            buffer, begun = self._buffer(), time.monotonic()
            if buffer is None or self._closed:
                return None
            try:
                self._save(buffer)
            except Exception as error:
                self._errors, before, self._error = self._errors + 1, self._error, str(error)
                if not before:
                    what = event(f"A save failed, and is tried again ({error})", self.path)
                    logging.getLogger("relive").warning("%s", what)
            return max(self.every, _SHARE * self._last_stop) - (time.monotonic() - begun)

    def _save(self, buffer: Saveable) -> None:
        changes = buffer._changes()
        if self._saves and changes == self._changes and not self._error:
            return
        instant = time.monotonic()
        saved = buffer.save(self.path, keep=self._keep, wait=True)  # at the end of a program no thread can begin
        self._changes, self._instant, self._error = changes, instant, ""
        self._number, self._saves, self._bytes = saved.number, self._saves + 1, self._bytes + saved.bytes_written
        self._seconds, self._last_stop = saved.seconds, saved.stopped
        self._stopped += saved.stopped

    def _forked(self) -> None:
        """In a child, where the thread is not, and what it saves is not the child's."""
        self._turn, self._closed, self._thread = threading.Lock(), True, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Autosave({self.path!r}, every={self.every}{', closed' * self._closed})"


def begun(buffer: Saveable, before: Autosave | None, path: str, every: float, keep: int) -> Autosave:
    """The autosave of a buffer, beside none.

    Raises:
        ReliveError: The buffer has one that goes on.
    """
    if before is not None and not before.closed:
        remedy = "close it first"
        raise ReliveError(message("a buffer without an autosave", f"one to {before.path}", "autosave", remedy))
    return Autosave(buffer, path, every, keep)


def _run(of: ReferenceType[Autosave], pause: threading.Event) -> None:
    """Save until `pause` is set, or the buffer is gone: the thread holds neither."""
    autosave, left = of(), 0.0
    if autosave is not None:
        left = autosave.every
    del autosave
    while not pause.wait(max(left, 0.0)):
        autosave = of()
        wait = None if autosave is None else autosave._again()
        del autosave
        if wait is None:
            return
        left = wait


@atexit.register
def _end() -> None:
    for autosave in list(_running):
        with contextlib.suppress(ReliveError):
            autosave.close()
