"""The trajectories of a buffer, in memory, on disk, or both."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Sequence
from functools import partial

import numpy as np

from .._files import Folder
from .._memory import Arena
from .._types import Int64
from ..errors import SchemaError, StorageError, message
from ._batch_read import BatchRead, Missing
from ._block import Block, check_storable, file_size
from ._cache import Cache
from ._catalog import Catalog
from ._entry import Entry, file_name
from ._index import NO_FILE, Index, entries_of
from ._layout import Column, Difference, columns_of, difference
from ._source import SafetensorsSource, Source
from ._writer import Writer
from .trajectory import Trajectory

# Memory of written trajectories is reused for the next ones: fresh pages would cost more than the copy.
_SPARE = 256 << 20


class Store:
    """The index, the blocks in memory, and the files. Call its methods with `lock` held unless they say otherwise."""

    def __init__(self, cache: Cache) -> None:
        self.lock = threading.RLock()
        self.index, self.cache, self.arena = Index(), cache, Arena(keep=64, keep_bytes=_SPARE)
        self.blocks: dict[int, Block] = {}
        self.sources: list[Source] = []
        self.counter = self.added = self.flushed = self.durable = self.nbytes = 0
        self.own: Folder | None = None
        self.catalog: Catalog | None = None
        self.writer: Writer | None = None
        self.half_loaded = False
        self._columns: Sequence[Column] | None = None  # those of the first trajectory, which all others must have
        self._differences: dict[int, Difference | None] = {}
        self._removed_unwritten: set[int] = set()
        # Every read takes a ticket. A file that is to be deleted waits for all reads with an older ticket.
        self._gate, self._ticket = threading.Lock(), 0
        self._readers: set[int] = set()
        self._to_delete: deque[tuple[int, int]] = deque()

    # Adding and removing ---------------------------------------------------------------------------------------------

    def open(self, folder: Folder, catalog: Catalog, queue_bytes: int) -> None:
        """Write everything that is added from now on to `folder`."""
        self.own, self.catalog = folder, catalog
        self.sources.append(SafetensorsSource(folder, self.arena))
        self.writer = Writer(folder, catalog, queue_bytes, self._flushed, self._durable, self._delete_unread)

    def check(self, trajectories: Sequence[Trajectory]) -> None:
        """Refuse trajectories whose fields differ from those of the stored ones, or else of the first of them."""
        expected = self._columns
        for number, trajectory in enumerate(trajectories):
            at, columns = f"$.trajectories[{number}]", columns_of(trajectory)
            found = difference(expected, columns)
            if found is not None:
                raise SchemaError(message(found.expected, found.got, at + found.path[1:], "as in those before it"))
            check_storable(trajectory, at, fields=expected is None)
            expected = columns if expected is None else expected

    def add(self, block: Block) -> int:
        """Add a block; returns its id. The caller then passes it to the writer, without the lock."""
        # Without a file yet, the size it will have counts, so that limits apply from the start.
        nbytes = block.nbytes if self.writer is None else file_size(block)
        shape, given = (block.length, block.width, block.layout), (block.max_episode_length, block.model_weights_id)
        entry = Entry(self.counter, *shape, 0, nbytes, 0, *given)
        self.enter(entry, NO_FILE)
        self.added += 1
        self.blocks[entry.id] = block
        return entry.id

    def enter(self, entry: Entry, source: int) -> None:
        """Add a trajectory to the index; `source` is the position of the source that has its file, or `NO_FILE`."""
        if self._columns is None:
            self._columns = entry.layout.columns
        self.nbytes += entry.bytes
        self.index.append(entry, source)
        self.counter = max(self.counter, entry.id + 1)

    def _flushed(self, more: int) -> None:
        with self.lock:
            self.flushed += more

    def _durable(self, entries: list[Entry]) -> None:
        """Called by the writer: these trajectories may leave memory."""
        with self.lock:
            self.durable += len(entries)
            for entry in entries:
                position = self.index.find(entry.id)
                if position is None:
                    continue
                record = self.index.records[position]
                self.nbytes += entry.bytes - int(record["bytes"])
                record["bytes"], record["start"], record["checksum"] = entry.bytes, entry.start, entry.checksum
                record["source"] = 0  # a buffer's own directory is its first source
                self._keep(entry.id, self.blocks[entry.id])
            late = self._removed_unwritten & {entry.id for entry in entries}
            self._removed_unwritten -= late
        if late:
            self.delete(sorted(late))

    def _keep(self, id_: int, block: Block) -> None:
        self.blocks[id_] = block
        for dropped in self.cache.put(id_, block.nbytes):
            self.blocks.pop(dropped, None)

    def remove_oldest(self, count: int) -> list[int]:
        """Remove trajectories from memory and index; returns the ids for `delete`, to be called without the lock."""
        records = self.index.records[:count]
        files = []
        for id_, source in zip(records["id"].tolist(), records["source"].tolist(), strict=True):
            self.blocks.pop(id_, None)
            self.cache.drop(id_)
            if source == NO_FILE and self.writer is not None:
                self._removed_unwritten.add(id_)
            elif source != NO_FILE and self.sources[source].folder is self.own:
                files.append(id_)
        self.nbytes -= int(records["bytes"].sum())
        self.index.remove_oldest(count)
        if not len(self.index):
            self._columns, self._differences = None, {}
        return files

    def delete(self, ids: Sequence[int]) -> None:
        """Delete files of the buffer's own directory in the background, once no read needs them. Needs no lock."""
        if self.writer is not None and ids:
            self.writer.remove(ids)

    def _delete_unread(self, ids: Sequence[int]) -> None:
        """Called by the writer: the index no longer lists these, so their files may go."""
        with self._gate:
            self._to_delete += [(self._ticket, id_) for id_ in ids]
            self._unlink()

    def settle(self) -> None:
        """Wait until everything is written, current reads are over and removed files are deleted. Needs no lock."""
        if self.writer is not None:
            self.writer.sync()
        with self._gate:
            now = self._ticket
        while True:
            with self._gate:
                if min(self._readers, default=now) >= now:
                    return self._unlink()
            time.sleep(0.001)

    def _unlink(self) -> None:
        oldest = min(self._readers, default=self._ticket)
        while self._to_delete and self._to_delete[0][0] <= oldest and self.own is not None:
            self.own.remove(file_name(self._to_delete[0][1]))
            self._to_delete.popleft()

    # Reading ---------------------------------------------------------------------------------------------------------

    def read(self, positions: Int64, rows: Int64, window: int) -> BatchRead:
        """Prepare to read rows of the trajectories at the given positions; `run` it without the lock."""
        for number in np.unique(self.index.records["layout"][positions]).tolist():
            self._check_layout(int(number), positions)
        drawn, which = np.unique(positions, return_inverse=True)
        records = self.index.records[drawn]
        blocks = [self.blocks.get(id_) for id_ in records["id"].tolist()]
        missing = [k for k, block in enumerate(blocks) if block is None]
        entries = entries_of(records[missing], self.index.layouts)
        sources = [self.sources[number] for number in records["source"][missing].tolist()]
        return BatchRead(
            columns=self.index.layouts[int(records["layout"][0])].columns,
            blocks=blocks,
            missing=dict(zip(missing, map(Missing, entries, sources), strict=True)),
            which=which,
            rows=rows,
            arena=self.arena,
            # A window that fits in the cache is read whole, once.
            keep=self.keep if self._window_fits(window) else None,
            done=partial(self.done_reading, self.begin_reading()),
        )

    def begin_reading(self) -> int:
        """Keep all current files until `done_reading` is called with the returned ticket."""
        with self._gate:
            self._readers.add(self._ticket)
            self._ticket += 1
            return self._ticket - 1

    def done_reading(self, ticket: int) -> None:
        """End a read. Needs no lock."""
        # A deletion that fails is tried again later, and does not concern the reader.
        with self._gate, contextlib.suppress(StorageError):
            self._readers.discard(ticket)
            self._unlink()

    def keep(self, id_: int, block: Block) -> None:
        """Put a trajectory that was read into the cache, unless it was removed meanwhile. Needs no lock."""
        with self.lock:
            if self.index.find(id_) is not None:
                self._keep(id_, block)

    def _window_fits(self, window: int) -> bool:
        first, _, _ = self.index.window(window)
        records = self.index.records[first:]
        return self.cache.fits(len(records), 0) and self.cache.fits(len(records), int(records["bytes"].sum()))

    def _check_layout(self, number: int, positions: Int64) -> None:
        """Refuse a draw from trajectories whose fields differ from those of the first one."""
        if number not in self._differences:
            self._differences[number] = difference(self._columns, self.index.layouts[number].columns)
        found = self._differences[number]
        if found is not None:
            first = positions[self.index.records["layout"][positions] == number][0]
            at = f"trajectory {int(self.index.records['id'][first])}, {found.path}"
            raise SchemaError(message(found.expected, found.got, at, "remove it, or load it into a separate buffer"))

    def close(self) -> None:
        """Close all directories."""
        if self.catalog is not None:
            self.catalog.close()
        for source in self.sources:
            source.folder.close()
        self.sources = []
