"""Writes trajectories in the background, in the order in which they came, from a queue of bounded size."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from ..errors import StorageError, message
from ._block import Block, file_of
from ._catalog import Catalog, Entry, file_name
from ._files import Folder


class Writer:
    """One thread and its queue.

    A trajectory is flushed when its file is synced and has its name: from then on `open_directory` finds it, whatever
    becomes of this process. It is durable, and leaves the queue, when the name is synced and the index knows it. What
    could not be written stays in the queue: the error is raised by the next call, and the call after that tries again,
    with a new file.

    Args:
        folder: Where the files go.
        catalog: The index.
        limit: Bytes in the queue, above which `put` waits.
        flushed: Called with how many more are flushed.
        durable: Called with the entries of trajectories that are durable.
        removed: Called with the ids of trajectories that the index has forgotten.
    """

    def __init__(
        self,
        folder: Folder,
        catalog: Catalog,
        limit: int,
        flushed: Callable[[int], None],
        durable: Callable[[list[Entry]], None],
        removed: Callable[[Sequence[int]], None],
    ) -> None:
        self._folder, self._catalog, self._limit = folder, catalog, limit
        self._flushed, self._durable, self._removed = flushed, durable, removed
        self._queue: deque[tuple[int, Block]] = deque()
        self._removals: list[int] = []
        self._bytes = 0
        # Since the beginning, so that who waits for what there is now need not wait for what comes meanwhile.
        self._puts = self._flushes = self._syncs = self._asked = self._forgotten = 0
        self._change = threading.Condition()
        self._error: BaseException | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="relive-trajectories", daemon=True)
        self._thread.start()

    def put(self, id_: int, block: Block) -> None:
        """Take over a trajectory; waits while the queue is full, unless nothing can be written."""
        with self._change:
            while self._queue and self._bytes + block.nbytes > self._limit and self._error is None:
                self._change.wait()
            # It is taken in any case: the buffer knows it already, and the next call will tell of the error.
            self._queue.append((id_, block))
            self._puts += 1
            self._bytes += block.nbytes
            self._change.notify_all()

    def remove(self, ids: Sequence[int]) -> None:
        """Take trajectories out of the index; their files are then no longer needed."""
        with self._change:
            self._removals += ids
            self._asked += len(ids)
            self._change.notify_all()

    def flush(self) -> None:
        """Wait until everything that was put is flushed.

        Raises:
            StorageError: Something could not be written; it is still in the queue.
        """
        with self._change:
            puts = self._puts
            self._wait(lambda: self._flushes >= puts)

    def sync(self) -> None:
        """Wait until everything that was put is durable, and the index names no trajectory that was removed.

        Raises:
            StorageError: Something could not be written; it is still in the queue.
        """
        with self._change:
            puts = self._puts
            self._wait(lambda: self._syncs >= puts)
            asked = self._asked  # what was removed before it was written is asked for only now
            self._wait(lambda: self._forgotten >= asked)

    def _wait(self, reached: Callable[[], bool]) -> None:
        self._raise()
        while not reached() and self._error is None:
            self._change.wait()
        self._raise()

    def check(self) -> None:
        """Raise the error of a write that failed since the last call."""
        with self._change:
            self._raise()

    def close(self) -> None:
        """Write what is left, and end the thread.

        Raises:
            StorageError: Something could not be written, now either; the thread goes on.
        """
        with self._change:
            self._error = None  # whatever it was, it is tried once more
            self._change.notify_all()
        self.sync()
        with self._change:
            self._closing = True
            self._change.notify_all()
        self._thread.join()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is None:
            return
        self._change.notify_all()  # the thread tries again
        root = error.__cause__ or error
        reason = getattr(root, "strerror", None) or str(root)
        remedy = "free space or mend the directory, then call `flush()`: nothing has been lost"
        wanted = f"{len(self._queue)} trajectories to be written and {len(self._removals)} removed"
        raise StorageError(message(wanted, f"`{reason}`", self._folder.path, remedy)) from error

    def _run(self) -> None:
        while self._step():  # a call of its own, after which nothing keeps what was written in memory
            pass

    def _step(self) -> bool:
        with self._change:
            while (not (self._queue or self._removals) or self._error is not None) and not self._closing:
                self._change.wait()
            if self._closing:
                return False
            group, removals = list(self._queue), list(self._removals)
        try:
            if group:
                self._add(group)
            if removals:
                # First out of the index, so that no index ever names a file that is gone.
                self._catalog.remove(removals)
                self._removed(removals)
        except BaseException as error:
            with self._change:
                self._error = error
                self._change.notify_all()
            return True
        with self._change:
            del self._removals[: len(removals)]
            self._forgotten += len(removals)
            self._change.notify_all()
        return True

    def _add(self, group: list[tuple[int, Block]]) -> None:
        entries = []
        for id_, block in group:
            entries.append(self._write(id_, block))
            more = self._syncs + len(entries) - self._flushes  # none where it is written again
            if more > 0:
                self._flushed(more)
                with self._change:
                    self._flushes += more
                    self._change.notify_all()
        self._folder.sync()
        self._catalog.add(entries, {"counter": group[-1][0] + 1})
        self._durable(entries)
        with self._change:
            for _, block in group:
                self._queue.popleft()
                self._bytes -= block.nbytes
            self._syncs += len(group)
            self._change.notify_all()

    def _write(self, id_: int, block: Block) -> Entry:
        parts, entry = file_of(id_, block)
        self._folder.write(file_name(id_), parts)
        return entry
