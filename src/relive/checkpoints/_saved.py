"""`Saved`: a save that is being written, or was."""

from __future__ import annotations

import threading

from .._base import forks
from ..errors import ReliveError, event


class Saved:
    """A save: its number, its files, and how it ended.

    Attributes:
        path: The directory.
        number: The save's number in it, from 1 on; `relive.load(path, number=...)` takes it.
        stopped: Seconds for which other calls of the buffer had to wait.

    `bytes_written`, `bytes_total` and `seconds` wait for the save's end.

    >>> import relive, tempfile
    >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000)
    >>> saved = buffer.save(tempfile.mkdtemp(), wait=False)
    >>> saved.wait().number
    1
    """

    def __init__(self, path: str, number: int) -> None:
        self.path, self.number = path, number
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._told = False
        self._written, self._total, self._seconds = 0, 0, 0.0
        self.stopped = 0.0
        forks.tell(self)

    def wait(self, timeout: float | None = None) -> Saved:
        """Wait until the save is complete; returns it.

        Args:
            timeout: Seconds after which to give up; None: never.

        Raises:
            StorageError: It could not be written; the save before it is what `load` finds.
            TimeoutError: It goes on longer than `timeout`.
        """
        if not self._ended.wait(None if timeout is None else min(timeout, threading.TIMEOUT_MAX)):
            raise TimeoutError(f"the save is not complete after {timeout} s")
        if self._error is not None:
            self._told = True
            raise self._error
        return self

    def _end(self, error: BaseException | None = None) -> None:
        self._error = error
        self._ended.set()

    def _forked(self) -> None:
        """End with an error in a child of the process that saves, where the wait would never end."""
        if not self.done:
            self._ended = threading.Event()
            what = "The thread that saves stayed in the process that this one was forked from"
            self._end(ReliveError(event(what, self.path, "wait for the save there")))

    @property
    def done(self) -> bool:
        """True once the save has ended."""
        return self._ended.is_set()

    @property
    def bytes_written(self) -> int:
        """Bytes that this save wrote."""
        return self.wait()._written

    @property
    def bytes_total(self) -> int:
        """Bytes of all files that it consists of, those of earlier saves among them."""
        return self.wait()._total

    @property
    def seconds(self) -> float:
        """The seconds that the save took."""
        return self.wait()._seconds

    def __repr__(self) -> str:
        if not self.done:
            return f"Saved({self.path!r}, number={self.number}, not complete yet)"
        sizes = f"bytes_written={self._written}, bytes_total={self._total}, seconds={self._seconds:.3f}"
        return f"Saved({self.path!r}, number={self.number}, {sizes})"
