"""Writes trajectories in the background, in the order in which they were added, from a bounded queue."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from .._files import Folder
from ..errors import StorageError, event
from ._block import Block, file_of
from ._catalog import Catalog
from ._entry import Entry, file_name


class Writer:
    """One thread and its queue.

    A trajectory is flushed once its file is synced and renamed: from then on `open_directory` finds it, even if this
    process dies. It is durable, and leaves the queue, once the name is synced and the index lists it. After a failed
    write it stays in the queue: the next call raises the error, and the write is then tried again, with a new file.

    Args:
        folder: Where the files go.
        catalog: The index.
        limit: Bytes in the queue above which `put` waits.
        flushed: Called with the number of trajectories that were flushed.
        durable: Called with the entries of trajectories that became durable.
        removed: Called with the ids of trajectories that were removed from the index.
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
        # Totals since the start: a caller that waits for the current total does not wait for later additions.
        self._puts = self._flushes = self._syncs = self._to_remove = self._removals_done = 0
        self._change = threading.Condition()
        self._error: BaseException | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="relive-trajectories", daemon=True)
        self._thread.start()

    def put(self, id_: int, block: Block) -> None:
        """Queue a trajectory; waits while the queue is full, unless the last write failed."""
        with self._change:
            while self._queue and self._bytes + block.nbytes > self._limit and self._error is None:
                self._change.wait()
            # Queued even after an error: the buffer has it already, and the next call raises the error.
            self._queue.append((id_, block))
            self._puts += 1
            self._bytes += block.nbytes
            self._change.notify_all()

    def remove(self, ids: Sequence[int]) -> None:
        """Remove trajectories from the index; their files are then no longer needed."""
        with self._change:
            self._removals += ids
            self._to_remove += len(ids)
            self._change.notify_all()

    def flush(self) -> None:
        """Wait until everything queued so far is flushed.

        Raises:
            StorageError: Something could not be written; it is still in the queue.
        """
        with self._change:
            puts = self._puts
            self._wait(lambda: self._flushes >= puts)

    def sync(self) -> None:
        """Wait until everything queued so far is durable, and the index lists no removed trajectory.

        Raises:
            StorageError: Something could not be written; it is still in the queue.
        """
        with self._change:
            puts = self._puts
            self._wait(lambda: self._syncs >= puts)
            removals = self._to_remove  # read now: trajectories removed while queued were added to it meanwhile
            self._wait(lambda: self._removals_done >= removals)

    def _wait(self, reached: Callable[[], bool]) -> None:
        self._raise()
        while not reached() and self._error is None:
            self._change.wait()
        self._raise()

    def check(self) -> None:
        """Raise the error of a write that failed since the last call, if any."""
        with self._change:
            self._raise()

    def close(self) -> None:
        """Write what is left, and stop the thread.

        Raises:
            StorageError: Something still could not be written; the thread keeps running.
        """
        with self._change:
            self._error = None  # try once more
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
        remedy = "free space or repair the directory, then call `flush()`; nothing was lost"
        what = f"Could not write {len(self._queue)} trajectories and remove {len(self._removals)} ({reason})"
        raise StorageError(event(what, self._folder.path, remedy)) from error

    def _run(self) -> None:
        while self._step():  # a separate call, so that its local variables do not keep written blocks alive
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
                # Index first, so that it never lists a deleted file.
                self._catalog.remove(removals)
                self._removed(removals)
        except BaseException as error:
            with self._change:
                self._error = error
                self._change.notify_all()
            return True
        with self._change:
            del self._removals[: len(removals)]
            self._removals_done += len(removals)
            self._change.notify_all()
        return True

    def _add(self, group: list[tuple[int, Block]]) -> None:
        entries = []
        for id_, block in group:
            entries.append(self._write(id_, block))
            more = self._syncs + len(entries) - self._flushes  # 0 when a write is repeated
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
