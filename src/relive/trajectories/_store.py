"""The trajectories of a buffer, in memory, on disk, or both."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence

import numpy as np

from .._memory import Arena
from .._types import Int64
from ._block import Block, check_storable
from ._index import NO_FILE, Index, Table
from ._layout import Column, Entry, Fill, Layout, check_alike, columns_of, file_name, joined
from ._source import SafetensorsSource, Source
from .trajectory import Trajectory

# Memory of written trajectories is reused for the next ones: fresh pages would cost more than the copy.
_SPARE = 256 << 20


class Cache:
    """Which trajectories on disk are in memory, too: first in, first out, bounded in number and in bytes."""

    def __init__(self, size: int, nbytes: int) -> None:
        self.size, self.nbytes = size, nbytes
        self.ids: OrderedDict[int, int] = OrderedDict()
        self.used = 0

    def put(self, id_: int, nbytes: int) -> list[int]:
        """Keep a trajectory; returns the ids to drop for it, possibly its own. A known id keeps its position."""
        if id_ not in self.ids:
            self.ids[id_] = nbytes
            self.used += nbytes
        dropped = []
        while len(self.ids) > self.size or self.used > self.nbytes:
            oldest, count = self.ids.popitem(last=False)
            self.used -= count
            dropped.append(oldest)
        return dropped

    def drop(self, id_: int) -> None:
        """Remove a trajectory."""
        self.used -= self.ids.pop(id_, 0)

    def fits(self, count: int, nbytes: int) -> bool:
        """Whether so many trajectories of so many bytes in total fit at once."""
        return count <= self.size and nbytes <= self.nbytes


class Store:
    """The index, the blocks in memory, and the files. Call its methods with `lock` held unless they say otherwise.

    Attributes:
        own: What reads the buffer's own directory, where everything that is added gets a file; None without one.
        columns: The fields of the first trajectory, which all others must have; with `fill` those of all.
    """

    def __init__(self, cache: Cache, fill: Fill = None) -> None:
        self.lock = threading.RLock()
        self.index, self.cache, self.arena = Index(), cache, Arena(keep=64, keep_bytes=_SPARE)
        self.blocks: dict[int, Block] = {}
        self.sources: list[Source] = []
        self.own: SafetensorsSource | None = None
        self.counter = self.added = self.flushed = self.durable = 0
        # While files are exchanged by a load nobody reads them; a load that fails there leaves the store half loaded.
        self.loading = self.half_loaded = False
        self.loaded = threading.Condition(self.lock)
        self.columns: Sequence[Column] | None = None
        self.fill = fill
        self._alike: set[int] = set()  # layouts with these fields
        # Every read takes a ticket. A file that is to be deleted waits for all reads with an older ticket.
        self._gate, self._ticket = threading.Condition(), 0
        self._readers: set[int] = set()
        self._to_delete: deque[tuple[int, int]] = deque()

    @contextlib.contextmanager
    def settled(self) -> Iterator[None]:
        """The lock, once no load exchanges files."""
        with self.loaded:
            self.loaded.wait_for(lambda: not self.loading)
            yield

    @contextlib.contextmanager
    def exchanging(self) -> Iterator[None]:
        """Let draws and saves of other threads wait until the block is left. Needs no lock."""
        with self.lock:
            self.loading = True
        try:
            yield
        finally:
            with self.lock:
                self.loading = False
                self.loaded.notify_all()

    def close(self) -> None:
        """Close all directories."""
        for source in self.sources:
            source.close()
        self.sources = []

    # Adding and removing ---------------------------------------------------------------------------------------------

    def check(self, trajectories: Sequence[Trajectory]) -> None:
        """Refuse trajectories whose fields differ from those of the stored ones, or else of the first of them."""
        expected = self.columns
        for number, trajectory in enumerate(trajectories):
            at, columns = f"$.trajectories[{number}]", columns_of(trajectory)
            check_alike(expected, columns, at, "as in those before it", self.fill)
            check_storable(trajectory, at, fields=expected != columns)
            expected = joined(expected, columns)

    def add(self, block: Block) -> None:
        """Add a block, which has the next id."""
        entry = block.entry
        if self.own is not None:  # the size that its file will have counts, so that limits apply from the start
            entry = entry._replace(bytes=len(block.header) + entry.plan.nbytes)
        self._expect(entry.layout)
        self.index.append(entry, NO_FILE)
        self.counter += 1
        self.added += 1
        self.blocks[entry.id] = block

    def enter(self, table: Table, source: int = 0) -> None:
        """Add trajectories to the index; `source` is the position of the source that has their files."""
        for first in sorted(np.unique(table.records["layout"], return_index=True)[1].tolist()):
            self._expect(table.layouts[table.records["layout"][first]])
        self.index.extend(table, source)
        self.counter = max(self.counter, int(table.records["id"].max(initial=-1)) + 1)
        self.added = self.flushed = self.durable = len(self.index)

    def replace(self, table: Table) -> None:
        """Replace everything, in one step for other threads."""
        with self.lock:
            self.remove_oldest(len(self.index))
            self.counter = 0
            self.enter(table)

    def _expect(self, layout: Layout) -> None:
        if self.columns is None or self.fill is not None:
            self.columns = joined(self.columns, layout.columns)

    def follow(self, table: Table) -> bool:
        """Make the index that of a table in which old trajectories are gone and new ones have come; whether it was not.

        What is neither, as after another process has loaded a checkpoint there, replaces everything.
        """
        now, then = (part.records[["id", "checksum"]] for part in (table, self.index))
        gone = int(np.argmax(then == now[0])) if len(now) and now[0] in then else len(then)
        kept = len(then) - gone
        if kept > len(now) or not np.array_equal(then[gone:], now[:kept]):
            gone, kept = len(then), 0
        self.remove_oldest(gone)
        self.enter(table.take(slice(kept, None)))
        return gone + len(table) - kept > 0

    def written(self, entries: Sequence[Entry]) -> list[int]:
        """Note that trajectories are durable, so that they may leave memory; returns those that are gone already."""
        self.durable += len(entries)
        positions = [self.index.find(entry.id) for entry in entries]
        for entry, position in zip(entries, positions, strict=True):
            if position is not None:
                record = self.index.records[position]
                record["start"], record["checksum"] = entry.start, entry.checksum
                record["source"] = 0  # a buffer's own directory is its first source
                self.keep(self.blocks[entry.id])
        return [entry.id for entry, position in zip(entries, positions, strict=True) if position is None]

    def keep(self, block: Block) -> None:
        """Put a trajectory that has a file into the cache, unless it was removed meanwhile."""
        id_ = block.entry.id
        if self.index.find(id_) is not None:
            self.blocks[id_] = block
            for dropped in self.cache.put(id_, block.nbytes):
                self.blocks.pop(dropped, None)

    def remove_oldest(self, count: int) -> list[int]:
        """Remove trajectories from memory and index; returns those that have a file in the buffer's own directory."""
        records = self.index.records[:count]
        files = []
        for id_, source in zip(records["id"].tolist(), records["source"].tolist(), strict=True):
            self.blocks.pop(id_, None)
            self.cache.drop(id_)
            if source != NO_FILE:
                self.sources[source].forget(id_)
                files += [id_] * (self.sources[source] is self.own)
        self.index.remove_oldest(count)
        if not len(self.index):
            self.columns, self._alike = None, set()
        return files

    # Reading ---------------------------------------------------------------------------------------------------------

    def check_alike(self, positions: Int64) -> None:
        """Refuse a draw from trajectories whose fields differ from those of the first one."""
        layouts = self.index.records["layout"][positions]
        for number in np.unique(layouts).tolist():
            if number in self._alike:
                continue
            id_ = int(self.index.records["id"][positions[layouts == number][0]])
            remedy = "remove it, or load it into a separate buffer"
            columns = self.index.layouts[number].columns
            check_alike(self.columns, columns, f"trajectory {id_}, $", remedy, self.fill)
            self._alike.add(number)

    def begin_reading(self) -> int:
        """Keep all current files until `done_reading` is called with the returned ticket."""
        with self._gate:
            self._readers.add(self._ticket)
            self._ticket += 1
            return self._ticket - 1

    def done_reading(self, ticket: int) -> None:
        """End a read. Needs no lock."""
        with self._gate:
            self._readers.discard(ticket)
            self._unlink()
            self._gate.notify_all()

    def wait_for_readers(self) -> None:
        """Wait until current reads are over. Needs no lock."""
        with self._gate:
            now = self._ticket
            self._gate.wait_for(lambda: min(self._readers, default=now) >= now)

    def discard(self, ids: Sequence[int]) -> None:
        """Delete files of the buffer's own directory, once no read needs them. Needs no lock."""
        with self._gate:
            self._to_delete += [(self._ticket, id_) for id_ in ids]
            self._unlink()
            self._gate.wait_for(lambda: not self._to_delete, 0.05)  # what is written next may need the space

    def _unlink(self) -> None:
        oldest = min(self._readers, default=self._ticket)
        while self._to_delete and self._to_delete[0][0] <= oldest and self.own is not None:
            _, id_ = self._to_delete.popleft()
            self.own.forget(id_)
            self.own.folder.discard(file_name(id_))
