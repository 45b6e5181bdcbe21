"""`Autosave`: a thread that saves what is new of a buffer, again and again."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Protocol

from .._base import check, forks
from .._buffer.stats import AutosaveStats
from .._buffer.tally import AutosaveOfBuffer
from .._flow.call_lock import before_the_end
from .._ring import kernels
from ..errors import ReliveError, event, message

if TYPE_CHECKING:
    from typing import Self

    from ._saved import Saved
    from ._saving import Saver

SHORTEST = 0.1  # seconds
_SHARE = 100  # of the clock, one part of which calls may be stopped
_PATIENCE = 30.0  # seconds for which the collection of a buffer waits for its last save
_MISSING = 10  # saves, after which a failure is an error
_QUIET = 3600.0  # seconds after which it is logged again at the latest

_running: set[Autosave] = set()
_process = 0  # which multiprocessing started, and whose end saves


class Saveable(Protocol):
    """A buffer, as its autosave needs it; not the caller's object, which may be collected meanwhile."""

    def save(self, path: str, *, keep: int, wait: bool) -> Saved:
        """Save as `ReplayBuffer.save` does."""

    def _saver(self) -> Saver:
        """Return the writer of these saves."""

    def _changes(self) -> object:
        """Return an object that differs after every call that changes the contents of a save."""

    def _inside(self) -> bool:
        """Tell if this thread is inside a call, so that no save can be waited for."""


class Autosave:
    """Saves a buffer's new steps and priorities again and again, until it is closed; `buffer.autosave(path)` makes it.

    `with` closes it, and closing writes a last save. So does the end of the program, wherever the buffer is held, and
    its collection where nothing holds it any more; a kill does not, and loses at most what came in the last interval
    and while the last save was written.

    The interval is longer than `every` where calls of the buffer would otherwise be stopped for more than 1 % of the
    time. Where nothing has changed, nothing is written. A save that fails is logged and tried again, and logged as an
    error where it fails for longer; no call of the buffer raises its error, and `stats()` has it.

    While it is open, no other buffer, of this process or another one, saves to its directory.

    Attributes:
        path: The directory, absolute; `relive.load` takes it.
        every: Seconds from one save to the next.

    >>> import relive, tempfile
    >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000)
    >>> with buffer.autosave(tempfile.mkdtemp(), every=1.0) as saving:
    ...     ids = buffer.add(obs=[1, 2, 3], action=0, reward=1, next_obs=[2, 3, 4], terminated=False, truncated=False)
    >>> len(relive.load(saving.path))
    1
    """

    def __init__(self, source: Saveable, path: str | os.PathLike[str], every: float, keep: int) -> None:
        self.path = os.path.abspath(check.path(path, "autosave(path)"))
        self.every = check.real(every, "autosave(every)", low=SHORTEST)
        self._keep = check.integer(keep, "autosave(keep)", minimum=1)
        self._source: Saveable | None = source  # None once it is closed, so that the memory is freed
        self._turn = kernels.active().Lock()
        self._wake, self._tried = threading.Event(), threading.Event()
        self._closed = self._last = False  # `_last`: the thread is to write the last save
        self._number = self._saves = self._errors = self._bytes = 0
        self._seconds = self._stopped = self._last_stop = self._loud = 0.0
        self._error = ""
        self._changes: object = None
        self._instant = time.monotonic()
        source._saver().claim(self.path)
        try:
            self._save(source)  # what is wrong with the directory is told at once
            self._thread = threading.Thread(target=self._run, name="relive-autosave", daemon=True)
            self._thread.start()
        except BaseException:
            source._saver().release()
            raise
        forks.tell(self)
        _running.add(self)
        _save_at_the_end()

    @property
    def closed(self) -> bool:
        """True once the autosave has ended."""
        return self._closed

    def stats(self) -> AutosaveStats:
        """Return the record of the autosave so far."""
        source = self._source
        current = source is None or source._changes() == self._changes
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
        """End it, with a last save if anything has changed. Once it is closed, a further call does nothing.

        A signal's handler may interrupt a call of the buffer, for whose end it cannot wait. Then this returns at once,
        and the thread writes the last save and ends as soon as that call has returned; the end of the `with` block and
        of the program wait for it.

        Raises:
            StorageError: The last save could not be written; the one before it is what `relive.load` finds. It stays
                open, and `close()` can be called again.
        """
        if not self._closed and not self._ends_later():
            with self._turn:
                self._end()
            self._wake.set()
            if self._thread is not threading.current_thread():
                self._thread.join()

    def _ends_later(self) -> bool:
        """Leave the end to the thread, if this one is inside a call whose end it would wait for."""
        source = self._source
        if not (self._turn.taken() or (source is not None and source._inside())):
            return False
        self._last = True
        self._wake.set()
        return True

    def _dropped(self) -> None:
        """Let the thread write the last save of a collected buffer, no matter what this thread was doing.

        It is waited for, unless it may need what this thread has. Where that cannot be seen, patience ends.
        """
        if not self._closed and not self._ends_later():
            self._tried.clear()
            self._last = True
            self._wake.set()
            if self._thread is not threading.current_thread():
                self._tried.wait(_PATIENCE)

    def _run(self) -> None:
        left = self.every
        while not self._closed:
            self._wake.wait(min(max(left, 0.0), threading.TIMEOUT_MAX))
            self._wake.clear()
            left = self._again()

    def _again(self) -> float:
        """Save what is new; seconds until the next save."""
        last, begun = self._last, time.monotonic()
        try:
            with self._turn:
                if last:
                    self._end()
                elif self._source is not None:
                    self._save(self._source)
        except Exception as error:
            self._failed(error)
        if last:
            self._tried.set()
        return max(self.every, _SHARE * self._last_stop) - (time.monotonic() - begun)

    def _save(self, source: Saveable) -> None:
        changes = source._changes()
        if self._saves and changes == self._changes and not self._error:
            return
        instant = time.monotonic()
        saved = source.save(self.path, keep=self._keep, wait=True)  # at the end of a program no thread can begin
        self._changes, self._instant, self._error, self._loud = changes, instant, "", 0.0
        self._number, self._saves, self._bytes = saved.number, self._saves + 1, self._bytes + saved.bytes_written
        self._seconds, self._last_stop = saved.seconds, saved.stopped
        self._stopped += saved.stopped

    def _end(self) -> None:
        """Write the last save and let go of the buffer; in its turn."""
        source = self._source
        if source is not None:
            self._save(source)
            self._closed, self._source = True, None
            source._saver().release()
            forks.forget(self)
            _running.discard(self)

    def _failed(self, error: Exception) -> None:
        """Log a failure: the first one, and as an error when ten saves are missing, and twice as many, and so on."""
        self._errors, self._error = self._errors + 1, str(error)
        age = time.monotonic() - self._instant
        if age >= self._loud:
            what = f"A save failed, and is tried again; the last one is {age:.0f} s old ({error})"
            level = logging.ERROR if self._loud else logging.WARNING
            logging.getLogger("relive").log(level, "%s", event(what, self.path))
            self._loud = max(_MISSING * self.every, min(2 * age, age + _QUIET))

    def _forked(self) -> None:
        """Close in a child, which has no thread that saves, and no part in its saves."""
        self._turn, self._closed, self._source = kernels.active().Lock(), True, None
        _running.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Autosave({self.path!r}, every={self.every}{', closed' * self._closed})"


def begun(
    buffer: object,
    source: Saveable,
    before: AutosaveOfBuffer | None,
    path: str | os.PathLike[str],
    every: float,
    keep: int,
) -> Autosave:
    """Start the autosave of a buffer that has none.

    Args:
        buffer: The caller's object, whose collection ends the autosave.
        source: The same buffer, without that object.
        before: Its autosave before.
        path: As in `ReplayBuffer.autosave`.
        every: Likewise.
        keep: Likewise.

    Raises:
        ReliveError: The buffer has one that goes on.
    """
    if before is not None and not before.closed:
        remedy = "close it first"
        raise ReliveError(message("a buffer without an autosave", f"one to {before.path}", "autosave", remedy))
    made = Autosave(source, path, every, keep)
    weakref.finalize(buffer, made._dropped).atexit = False  # then all that are open are closed
    return made


def _save_at_the_end() -> None:
    """Save at the end of a child that multiprocessing started, too, which does not end as an interpreter does."""
    global _process
    if "multiprocessing.util" in sys.modules and _process != os.getpid():
        from multiprocessing import process, util

        if process.parent_process() is not None:
            util.Finalize(None, _end, exitpriority=0)
        _process = os.getpid()


@before_the_end
def _end() -> None:
    for autosave in list(_running):
        try:
            autosave.close()
        except Exception as error:
            what = f"The last save failed: what came later than the save before is lost ({error})"
            logging.getLogger("relive").error("%s", event(what, autosave.path))
