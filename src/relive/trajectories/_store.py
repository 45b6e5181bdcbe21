"""The trajectories of a buffer, in memory, on disk, or both."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from .._base import narrow
from .._base.check import distinct
from .._base.memory import Arena
from .._base.nests import Path
from .._base.types import Array, Int64
from ._block import TrajectoryBlock, check_storable
from ._entry import Entry, file_name
from ._index import Table, TrajectoryIndex
from ._layout import FieldColumn, FieldLayout, Fill, check_alike, columns_of, joined
from ._metadata import Metadata
from ._rows import WantedRows, copy_held
from ._source import Source
from .trajectory import Trajectory

# Memory of written trajectories is reused for the next ones: fresh pages would cost more than the copy.
_SPARE = 256 << 20


class Cache:
    """The ids of trajectories on disk that are in memory, too: first in, first out, bounded in number and in bytes."""

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
        """Return whether so many trajectories of so many bytes in total fit at once."""
        return count <= self.size and nbytes <= self.nbytes


class Store:
    """The index, the blocks in memory, and the files. Call its methods with `lock` held unless they say otherwise.

    Attributes:
        source: What reads the files of trajectories that are not in memory; None if there are none.
        owned: Whether these files are in the buffer's own directory, where everything that is added gets one.
        columns: The fields of the first trajectory, which all others must have; with `fill` those of all.
        removals: How often trajectories were removed.

    Args:
        cache: What of the directory is in memory, too.
        fill: As of the buffer.
        most: Largest number of trajectories.
        most_bytes: Largest number of their bytes.
        compress: Whether new files have the fields compressed for which this pays.
    """

    def __init__(
        self,
        cache: Cache,
        fill: Fill = None,
        most: int | None = None,
        most_bytes: int | None = None,
        compress: bool = False,
    ) -> None:
        self._most, self._most_bytes, self.compress = most, most_bytes, compress
        self.lock = threading.RLock()
        self._loaded = threading.Condition(self.lock)
        self.index, self.cache, self.arena = TrajectoryIndex(), cache, Arena(keep=64, keep_bytes=_SPARE)
        self.blocks: dict[int, TrajectoryBlock] = {}
        self.source: Source | None = None
        self.owned = False
        self.counter = self.added = self.flushed = self.durable = 0
        # While a load exchanges files, no draw reads them; a load that fails there leaves the store half loaded.
        self.loading = self.half_loaded = False
        self.columns: Sequence[FieldColumn] | None = None
        self.fill = fill
        self._alike: set[int] = set()  # layouts with these fields
        self.removals = 0
        self._saves, self._doomed = 0, list[int]()  # saves that go on, and what is deleted when they are over
        self._reads: dict[int, list[int]] = {}  # reads that go on, and what was removed meanwhile

    @contextlib.contextmanager
    def settled(self) -> Iterator[None]:
        """Hold the lock, once no load exchanges files."""
        with self.lock:
            self._loaded.wait_for(lambda: not self.loading)
            yield

    @contextlib.contextmanager
    def exchanging(self) -> Iterator[None]:
        """Let draws and saves wait until the block is left. Needs no lock."""
        with self.lock:
            self.loading = True
        try:
            yield
        finally:
            with self.lock:
                self.loading = False
                self._loaded.notify_all()

    def removed_since(self, removals: int) -> bool:
        """Return whether trajectories were removed or replaced since `removals` was read, once no load goes on.

        What a call could not read then is no damage: it may be one of their files.
        """
        with self.settled():
            return self.removals != removals

    def begin_read(self) -> list[int]:
        """Note that a read begins; returns a list which gets what is removed until its end. Needs no lock."""
        removed = list[int]()
        self._reads[id(removed)] = removed
        return removed

    def end_read(self, removed: list[int]) -> None:
        """Close the files of what was removed during a read, which may have put them back. Needs no lock."""
        del self._reads[id(removed)]
        if removed and self.source is not None:
            for id_ in removed:
                self.source.forget(id_)

    def close(self) -> None:
        """Close the directory."""
        if self.source is not None:
            self.source.close()

    # Adding and removing ---------------------------------------------------------------------------------------------

    def check(self, trajectories: Sequence[Trajectory]) -> None:
        """Refuse trajectories whose fields differ from those of the stored ones, or else of the first of them."""
        expected = self.columns
        for number, trajectory in enumerate(trajectories):
            at, columns = f"$.trajectories[{number}]", columns_of(trajectory)
            check_alike(expected, columns, at, "as in those before it", self.fill)
            check_storable(trajectory, at, fields=expected != columns)
            expected = joined(expected, columns)

    def add(self, block: TrajectoryBlock) -> None:
        """Add a block, which has the next id."""
        entry = block.entry
        if self.owned:  # the size that its file will have, at most, counts, so that limits apply from the start
            entry = entry._replace(bytes=len(block.header) + entry.plan.nbytes + entry.plan.most)
        self._expect(entry.layout)
        self.index.append(entry)
        self.counter += 1
        self.added += 1
        self.blocks[entry.id] = block

    def enter(self, table: Table) -> None:
        """Add trajectories that have files to the index."""
        for first in sorted(np.unique(table.records["layout"], return_index=True)[1].tolist()):
            self._expect(table.layouts[table.records["layout"][first]])
        self.index.extend(table)
        self.counter = max(self.counter, int(table.records["id"].max(initial=-1)) + 1)
        self.added = self.flushed = self.durable = len(self.index)

    def replace(self, table: Table) -> None:
        """Replace everything, in one step for other threads."""
        with self.lock:
            self.remove_oldest(len(self.index))
            self.counter = 0
            self.enter(table)

    def _expect(self, layout: FieldLayout) -> None:
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
                self.index.written(position, entry)
                self.keep(self.blocks[entry.id])
        return [entry.id for entry, position in zip(entries, positions, strict=True) if position is None]

    def keep(self, block: TrajectoryBlock) -> None:
        """Put a trajectory that has a file into the cache, unless it was removed meanwhile."""
        id_ = block.entry.id
        if self.index.find(id_) is not None:
            self.blocks[id_] = block
            for dropped in self.cache.put(id_, block.nbytes):
                self.blocks.pop(dropped, None)

    def trim(self) -> list[int]:
        """Remove the oldest trajectories beyond the limits, as `remove_oldest` does."""
        extra = 0 if self._most is None else max(len(self.index) - self._most, 0)
        if self._most_bytes is not None:
            extra = max(extra, self.index.excess(self._most_bytes))
        return self.remove_oldest(extra)

    def remove_oldest(self, count: int) -> list[int]:
        """Remove trajectories from memory and index; returns those that have a file in the buffer's own directory."""
        self.removals += count > 0
        gone = self.index.records[:count]
        files: list[int] = gone["id"][gone["filed"]].tolist()
        for id_ in gone["id"].tolist():
            self.blocks.pop(id_, None)
            self.cache.drop(id_)
        for removed in list(self._reads.values()):
            removed.extend(files)
        for id_ in files:  # then: a read that has ended before has put it back
            if self.source is not None:
                self.source.forget(id_)
        self.index.remove_oldest(count)
        if not len(self.index):
            self.columns, self._alike = None, set()
        return files if self.owned else []

    # Reading ---------------------------------------------------------------------------------------------------------

    def check_alike(self, positions: Int64) -> None:
        """Refuse a draw from trajectories whose fields differ from those of the first one."""
        if len(self._alike) == len(self.index.layouts):
            return
        layouts = self.index.records["layout"][positions]
        for number in distinct(layouts).tolist():
            if number in self._alike:
                continue
            id_ = int(self.index.records["id"][positions[layouts == number][0]])
            remedy = "remove it, or load it into a separate buffer"
            columns = self.index.layouts[number].columns
            check_alike(self.columns, columns, f"trajectory {id_}, $", remedy, self.fill)
            self._alike.add(number)

    @contextlib.contextmanager
    def saving(self) -> Iterator[StoreSnapshot]:
        """Yield all trajectories as they are now; no file of them is deleted until the block is left. Needs no lock."""
        with self.settled():
            self._saves += 1
            snapshot = StoreSnapshot(self)
        try:
            yield snapshot
        finally:
            with self.lock:
                self._saves -= 1
                doomed, self._doomed = (self._doomed, []) if not self._saves else ([], self._doomed)
            self._delete(doomed)

    def discard(self, ids: Sequence[int]) -> None:
        """Delete files of the buffer's own directory, after current saves. Needs no lock.

        A draw that has opened one can still read it; one that has not is repeated.
        """
        with self.lock:
            if self._saves:
                self._doomed += ids
                return
        self._delete(ids)

    def _delete(self, ids: Sequence[int]) -> None:
        source = self.source
        if source is None:
            return
        for id_ in ids:
            source.forget(id_)  # Windows deletes no open file
            source.folder.discard(file_name(id_))


class StoredTrajectory(NamedTuple):
    """One trajectory, in memory or in a file.

    Attributes:
        entry: What the index says of it.
        source: What reads its file, None if it has none.
        memory: Its rows, if they are in memory.
        compress: Whether a file that is made of it has the fields compressed for which this pays.
    """

    entry: Entry
    source: Source | None
    memory: TrajectoryBlock | None = None
    compress: bool = False

    def metadata(self) -> Metadata:
        """Return the fields that the trajectory has once."""
        if self.memory is not None:
            return self.memory.metadata
        return {} if self.source is None else self.source.metadata(self.entry)

    def fields(self, names: Collection[str]) -> dict[Path, Array]:
        """Return those of the named fields that it has, `[T, B, ...]`; nothing else is read."""
        entry = self.entry
        if self.memory is not None:
            return {path: array for path, array in self.memory.fields().items() if path[0] in names}
        columns = [column for column in entry.layout.columns if column.path[0] in names]
        every = np.arange(entry.length * entry.width)
        outs = {column.path: np.empty((len(every), *column.shape), column.stored) for column in columns}
        if self.source is not None and outs:
            self.source.read(WantedRows(Table.of([entry]), np.zeros_like(every), every, every), outs)
        shape = entry.length, entry.width
        return {c.path: narrow.named(outs[c.path], c.dtype).reshape(*shape, *c.shape) for c in columns}

    def block(self) -> TrajectoryBlock:
        """Return the whole trajectory, from memory or from its file."""
        block = self.memory
        if block is None:
            if self.source is None:
                raise KeyError(self.entry.id)
            block = self.source.block(self.entry)
        return block.compressing() if self.compress else block


class StoreSnapshot:
    """Trajectories of a store at one moment, readable without the lock as long as their files are there.

    Args:
        store: The store; the caller holds its lock.
        positions: Which of its trajectories.
    """

    def __init__(self, store: Store, positions: Sequence[int] | Int64 | slice = slice(None)) -> None:
        self._store, self._source, self.table = store, store.source, store.index.take(positions)
        self._blocks = [store.blocks.get(id_) for id_ in self.table.ids]

    def __iter__(self) -> Iterator[StoredTrajectory]:
        return map(self._stored, self.table, self.table.records["filed"].tolist(), self._blocks)

    def __getitem__(self, position: int) -> StoredTrajectory:
        return self._stored(self.table[position], self.table.records["filed"][position], self._blocks[position])

    def _stored(self, entry: Entry, filed: bool, memory: TrajectoryBlock | None) -> StoredTrajectory:
        return StoredTrajectory(entry, self._source if filed else None, memory, self._store.compress)

    def read(self, which: Int64, rows: Int64, targets: Int64, *, keep: bool) -> dict[Path, Array]:
        """Read rows of trajectories that all have the same fields: every field, `[n, ...]`.

        Args:
            which: The position of each row's trajectory in the snapshot.
            rows: Each row's number in its trajectory.
            targets: Each row's position in the result.
            keep: Read whole trajectories, for the cache.

        Raises:
            StorageError: A file is damaged or missing.
        """
        table, blocks = self.table, self._blocks
        columns = table.layouts[table.records["layout"][0]].columns
        arrays = self._store.arena.arrays([((len(rows), *column.shape), column.stored) for column in columns])
        outs = dict(zip((column.path for column in columns), arrays, strict=True))
        every, missing = WantedRows(table, which, rows, targets), list[int]()
        alike: dict[frozenset[Path], dict[int, TrajectoryBlock]] = {}  # in memory, by which fields are shared
        for k, block in enumerate(blocks):
            if block is None and keep:
                block = self[k].block()
                with self._store.lock:
                    self._store.keep(block)
            if block is None:
                missing.append(k)
            else:
                alike.setdefault(block.entry.layout.shared, {})[k] = block
        for here in alike.values():
            copy_held(every.of(list(here)), list(here.values()), outs)
        if missing and self._source is not None:
            files = every.of(missing)
            layouts = files.table.records["layout"].tolist()
            for number in set(layouts):
                self._source.read(files.of([k for k, other in enumerate(layouts) if other == number]), outs)
        return {column.path: narrow.named(outs[column.path], column.dtype) for column in columns}
