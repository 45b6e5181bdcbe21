"""Writes trajectories in the background, in the order in which they were added, from a bounded queue."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from .._disk.files import TEMPORARY, Folder, at_once
from ..errors import StorageError, event
from ._block import TrajectoryBlock, file_of
from ._catalog import Catalog
from ._entry import Entry, file_name
from ._source import SafetensorsSource
from ._store import Store

_MOST_WAITING = 1 << 14  # small trajectories take more memory than their arrays
_THREADS = ("relive-trajectories", "relive-sync")  # of a writer, and of `Folder.stage`
_TOGETHER = 2  # threads of a writer
_APART = 4 << 20  # bytes that have to wait before a second thread writes, too: small files are better written at once
CLOSING: dict[threading.Thread, str] = {}  # threads that close a directory, whose callers did not wait


def lock(folder: Folder, remedy: str) -> None:
    """Become the only writer of a directory, once no buffer of this process closes it; `remedy`: if there is another.

    Raises:
        StorageError: There is.
    """
    for thread, path in list(CLOSING.items()):
        with contextlib.suppress(OSError, RuntimeError):  # it is gone, or has not begun
            if os.path.samefile(path, folder.path):
                thread.join()
    folder.lock(remedy)


class DirectoryWriter:
    """Threads and their queue, which keep a directory as the store is.

    A thread takes a bounded group of trajectories from the queue and stages their files. It goes on when all groups
    that were taken before are durable, so that only staging is done by several threads at a time. Trajectories are
    flushed once their files are synced and renamed: from then on `open_directory` finds them, even if this process
    dies. They are durable, and leave the queue, once the names are synced and the index lists them. After a failed
    write they stay in the queue, and so do those of groups that were taken later: the next call raises the error, and
    the write is then tried again, with new files.

    Args:
        store: What is written.
        source: The directory, of which the store has the trajectories.
        catalog: The index.
        limit: Bytes in the queue above which `put` waits.
    """

    def __init__(self, store: Store, source: SafetensorsSource, catalog: Catalog, limit: int) -> None:
        self._store, self.folder, self.catalog, self._limit = store, source.folder, catalog, limit
        store.source, store.owned = source, True
        self._queue: deque[TrajectoryBlock] = deque()
        self._removals: list[tuple[int, int]] = []  # how many additions come before it, and its id
        self._bytes = 0
        self._taken = self._taken_bytes = 0  # of the queue's first trajectories: they are in groups of threads
        self._groups = self._front = 0  # how many groups were taken, and which one is the first that is not durable
        self._writing = 0  # groups of threads
        self._failed: int | None = None  # the first group that could not be written; those after it are given back
        # Totals since the start: a caller that waits for the current total does not wait for later additions.
        self._puts = self._flushes = self._syncs = self._to_remove = self._removals_done = 0
        self._change = threading.Condition()
        self._error: BaseException | None = None
        self._reported = False  # a caller was given an error, and nothing has been written since
        self._full = False  # the disk was full once: what is removed makes room for what is added
        self._closing = False
        self._awaited = 0  # how many additions a caller has waited for
        self._threads = [threading.Thread(target=self._run, name=_THREADS[0], daemon=True) for _ in range(_TOGETHER)]
        for thread in self._threads:
            thread.start()

    def wait(self, nbytes: int) -> None:
        """Wait while the queue is too full for a trajectory of so many bytes, unless the last write failed."""
        with self._change:
            while self._error is None and self._queue:
                if self._bytes + nbytes <= self._limit and len(self._queue) < _MOST_WAITING:
                    break
                self._change.wait()

    def put(self, block: TrajectoryBlock) -> None:
        """Queue a trajectory, also after an error, which the next call raises.

        The caller holds the store's lock since the store has it: what it replaces goes no earlier than it is durable.
        """
        with self._change:
            self._queue.append(block)
            self._puts += 1
            self._bytes += block.nbytes
            self._change.notify_all()

    def remove(self, ids: Sequence[int]) -> None:
        """Remove trajectories from the index in the background, and their files once no read needs them."""
        with self._change:
            self._removals += [(self._puts, id_) for id_ in ids]
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
            self._awaited = max(self._awaited, puts)

    def sync(self) -> None:
        """Wait until everything queued so far is durable, and the index lists no removed trajectory.

        Raises:
            StorageError: Something could not be written; it is still in the queue.
        """
        with self._change:
            puts = self._puts
            self._wait(lambda: self._syncs >= puts)
            self._awaited = max(self._awaited, puts)
            removals = self._to_remove  # read now: trajectories removed while queued were added to it meanwhile
            self._wait(lambda: self._removals_done >= removals)

    def _wait(self, reached: Callable[[], bool]) -> None:
        if self._reported:  # what was tried in vain since then is old: try now
            self._error = None
            self._change.notify_all()
        while not reached() and self._error is None:
            self._change.wait()
        self._raise()

    def check(self) -> None:
        """Raise the error of a write that failed since the last call, if any."""
        with self._change:
            self._raise()

    def finish(self) -> None:
        """Write what is left; what was tried in vain is tried once more.

        Raises:
            StorageError: Something still could not be written.
        """
        with self._change:
            self._error = None
            self._change.notify_all()
        self.sync()

    def close(self) -> None:
        """Stop the threads, whatever is left, and close the directory."""
        with self._change:
            self._closing = True
            self._change.notify_all()
        for thread in self._threads:
            thread.join()
        self.catalog.close()
        self._store.close()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is None:
            return
        self._reported = True
        self._change.notify_all()  # a thread tries again
        root = error.__cause__ or error
        reason = getattr(root, "strerror", None) or str(root)
        remedy = "free space or repair the directory, then call `flush()`; nothing was lost"
        what = f"Could not write {len(self._queue)} trajectories and remove {len(self._removals)} ({reason})"
        raise StorageError(event(what, self.folder.path, remedy)) from error

    def _run(self) -> None:
        while self._step():  # a separate call, so that its local variables do not keep written blocks alive
            pass

    def _step(self) -> bool:
        with self._change:
            while not (self._closing or self._may_take()):
                self._change.wait()
            if self._closing:
                return False
            number, group = self._groups, self._group()
            size = sum(block.nbytes for block in group)
            self._groups, self._writing = self._groups + 1, self._writing + 1
            self._taken, self._taken_bytes = self._taken + len(group), self._taken_bytes + size
        try:
            if self._full:
                with contextlib.suppress(StorageError):
                    self.catalog.settle(restart=True)
                self._remove()
            self._write(number, group)
        except BaseException as error:
            root = error.__cause__ or error
            full = getattr(root, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "disk is full" in str(root)
            with self._change:
                self._full = self._full or full
                self._error = error
                self._failed = number if self._failed is None else min(self._failed, number)
        with self._change:
            self._writing -= 1
            if self._failed is not None and not self._writing:  # all that is still in the queue can be taken anew
                self._taken, self._taken_bytes, self._front, self._failed = 0, 0, self._groups, None
            self._change.notify_all()
        return True

    def _may_take(self) -> bool:
        """Return whether there is a group for one more thread."""
        if self._error is not None or self._failed is not None:
            return False
        if not self._writing:
            return bool(self._queue or self._removals)
        return not self._full and self._bytes - self._taken_bytes >= _APART  # else room is made before a write

    def _group(self) -> list[TrajectoryBlock]:
        """Choose the next trajectories to write together: they share a sync of the directory and a transaction."""
        most, left = at_once(), max(self._limit // 16, 1)
        group = []
        for block in islice(self._queue, self._taken, None):
            group.append(block)
            left -= block.nbytes
            if len(group) == most or left <= 0:
                break
        return group

    def _write(self, number: int, group: list[TrajectoryBlock]) -> None:
        """Stage the files of a group, and make it durable when its turn has come."""
        files = [file_of(block) for block in group]
        if group:  # else there are only removals
            self.folder.stage((file_name(entry.id), parts, entry.bytes) for parts, entry in files)
        with self._change:
            while self._front < number and (self._failed is None or self._failed > number):
                self._change.wait()
            if self._front < number:
                for _, entry in files:
                    self.folder.discard(TEMPORARY + file_name(entry.id))
                return
        if group:
            self._add(group, [entry for _, entry in files])
        self._remove()
        with self._change:
            self._front += 1
            self._reported = False

    def _remove(self) -> None:
        """Remove what was replaced by trajectories that are durable; after a full disk, before these are written."""
        with self._change:
            ids = [id_ for after, id_ in self._removals if self._full or after <= self._syncs]
        if not ids:
            return
        # Index first, so that it never lists a deleted file.
        self.catalog.remove(ids)
        self._store.discard(ids)
        with self._change:
            del self._removals[: len(ids)]
            self._removals_done += len(ids)
            self._change.notify_all()

    def _add(self, group: list[TrajectoryBlock], entries: list[Entry]) -> None:
        """Make staged files of trajectories durable."""
        for count, entry in enumerate(entries, 1):
            self.folder.publish(file_name(entry.id))
            more = self._syncs + count - self._flushes  # 0 when a write is repeated
            if more > 0:
                with self._store.lock:
                    self._store.flushed += more
                with self._change:
                    self._flushes += more
                    self._change.notify_all()
        self.folder.sync()
        self.catalog.add(entries, {"counter": entries[-1].id + 1})
        with self._store.lock:
            gone = self._store.written(entries)
        self.remove(gone)
        with self._change:
            for block in group:
                self._queue.popleft()
                self._bytes -= block.nbytes
                self._taken_bytes -= block.nbytes
            self._taken -= len(group)
            self._syncs += len(group)
            self._change.notify_all()

    def abandon(self, process: int) -> None:
        """Write what waits, and close the directory: the buffer was collected without `close`, or the process ends."""
        if self._closing or os.getpid() != process:
            return
        if threading.current_thread().name in _THREADS:  # garbage is collected there, and writing would wait for itself
            threading.Thread(target=self.abandon, args=(process,), daemon=False).start()
            return
        unawaited = self._puts - self._awaited
        try:
            self.finish()
        finally:
            self.close()
        if unawaited:
            what = f"A buffer was not closed: {unawaited} trajectories that no call had waited for were written now"
            remedy = "call `close()`, or use `with`"
            logging.getLogger("relive").warning("%s", event(what, self.folder.path, remedy))
