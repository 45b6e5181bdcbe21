"""Until when, and in which process, a buffer of trajectories may be used."""

from __future__ import annotations

import os
import threading

from ..errors import ArgumentError, ReliveError, StorageError, event, message
from ._store import Store
from ._writer import CLOSING, DirectoryWriter

_NAME = "TrajectoryReplayBuffer"


class Lifetime:
    """A buffer from its construction until it is closed, in the process that made it.

    Args:
        store: What it stores.
        writer: What writes to its directory, None if it has none.

    Attributes:
        closed: Whether it is closed, or about to be.
    """

    def __init__(self, store: Store, writer: DirectoryWriter | None) -> None:
        self._store, self._writer, self._process = store, writer, os.getpid()
        self.closed, self._ended, self._closing = False, False, threading.Lock()

    def check(self) -> None:
        """Refuse to work in a forked child: locks may be held and threads are missing there, and draws would repeat.

        Raises:
            ReliveError: This is another process.
        """
        if os.getpid() != self._process:
            wanted, got = f"a call in process {self._process}, which made the buffer", f"its child {os.getpid()}"
            remedy = "make a buffer in the child and `load_checkpoint` the directory, or start processes by `spawn`"
            raise ReliveError(message(wanted, got, _NAME, remedy))

    def check_open(self, *, loading: bool = False) -> None:
        """Refuse to work after `close`, and after an interrupted load, unless this call is `loading` anew.

        Raises:
            ReliveError: This is another process.
            ArgumentError: The buffer is closed.
            StorageError: The last load was interrupted.
        """
        self.check()
        if self.closed:
            raise ArgumentError(message("an open buffer", "a closed one", _NAME))
        if self._store.half_loaded and not loading:
            with self._store.settled():  # a load that is going on will be over
                if self._store.half_loaded:
                    remedy = "load again, or close the buffer and open the directory again"
                    at = _NAME if self._writer is None else self._writer.folder.path
                    raise StorageError(event("The last load was interrupted", at, remedy))

    def close(self, wait: bool) -> None:
        """Write what is left, and close the directory, now or in a thread.

        Raises:
            StorageError: Something could not be written; the buffer stays open.
        """
        if os.getpid() != self._process or not wait:
            self.closed = True
            if os.getpid() == self._process:
                thread = threading.Thread(target=self._close_later, name="relive-closing")
                if self._writer is not None:
                    CLOSING[thread] = self._writer.folder.path
                thread.start()
            return
        with self._closing:
            if self._ended:
                return
            self.closed = True
            try:
                if self._writer is not None:
                    self._writer.finish()
            except BaseException:
                self.closed = False
                raise
            (self._writer or self._store).close()
            self._ended = True

    def _close_later(self) -> None:
        try:
            self.close(True)
        finally:
            CLOSING.pop(threading.current_thread(), None)
