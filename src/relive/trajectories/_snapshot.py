"""Trajectories of a store at one moment, readable without the lock."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .. import _kernels, _narrow
from .._memory import Arena
from .._types import Array, Int64
from ..errors import StorageError, event
from ._block import Block
from ._index import NO_FILE, Table
from ._layout import Entry
from ._metadata import Metadata
from ._source import Rows, Source
from ._store import Store
from .trajectory import Path


@dataclass(frozen=True)
class Stored:
    """One trajectory of a snapshot.

    Attributes:
        entry: What the index says of it.
        source: What reads its file, None if it has none.
        memory: Its rows, if they are in memory.
        arena: Where memory for its rows comes from.
    """

    entry: Entry
    source: Source | None
    memory: Block | None
    arena: Arena

    def metadata(self) -> Metadata:
        """What the trajectory has once."""
        if self.memory is not None:
            return self.memory.metadata
        return {} if self.source is None else self.source.metadata(self.entry)

    def fields(self, names: Collection[str]) -> dict[Path, Array]:
        """Those of the named fields that it has, `[T, B, ...]`; nothing else is read."""
        entry = self.entry
        if self.memory is not None:
            return {path: array for path, array in self.memory.fields().items() if path[0] in names}
        columns = [column for column in entry.layout.columns if column.path[0] in names]
        every = np.arange(entry.length * entry.width)
        outs = {column.path: np.empty((len(every), *column.shape), column.stored) for column in columns}
        if self.source is not None and outs:
            self.source.read(Rows(Table.of([entry]), np.zeros_like(every), every, every), outs)
        shape = entry.length, entry.width
        return {c.path: _narrow.named(outs[c.path], c.dtype).reshape(*shape, *c.shape) for c in columns}

    def block(self) -> Block:
        """The whole trajectory, from memory or from its file."""
        if self.memory is not None:
            return self.memory
        if self.source is None:
            raise KeyError(self.entry.id)
        return self.source.block(self.entry)


class Snapshot:
    """Trajectories of a store. Their files stay until `release`, whatever is added or removed meanwhile.

    Args:
        store: The store; the caller holds its lock.
        positions: Which of its trajectories; None: all.
    """

    def __init__(self, store: Store, positions: Sequence[int] | Int64 | None = None) -> None:
        self._store = store
        self.counter = store.counter
        self.table = store.index.take(np.arange(len(store.index)) if positions is None else positions)
        self._blocks = [store.blocks.get(id_) for id_ in self.table.ids]
        self._sources = list(store.sources)
        self._ticket = store.begin_reading()

    def release(self) -> None:
        """Allow the files to be deleted."""
        self._store.done_reading(self._ticket)

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Stored]:
        return map(self._stored, self.table, self._blocks, self.table.records["source"].tolist())

    def __getitem__(self, position: int) -> Stored:
        source = int(self.table.records["source"][position])
        return self._stored(self.table[position], self._blocks[position], source)

    def _stored(self, entry: Entry, memory: Block | None, number: int) -> Stored:
        return Stored(entry, None if number == NO_FILE else self._sources[number], memory, self._store.arena)

    def read(self, which: Int64, rows: Int64, *, keep: bool) -> dict[Path, Array]:
        """Rows of trajectories that all have the same fields: every field, `[n, ...]`.

        Args:
            which: The position of each row's trajectory in the snapshot.
            rows: Each row's number in its trajectory.
            keep: Read whole trajectories, for the cache.

        Raises:
            StorageError: A file is damaged or missing.
        """
        table, blocks = self.table, self._blocks
        columns = table.layouts[table.records["layout"][0]].columns
        arrays = self._store.arena.arrays([((len(rows), *column.shape), column.stored) for column in columns])
        outs = dict(zip((column.path for column in columns), arrays, strict=True))
        missing = [k for k, block in enumerate(blocks) if block is None]
        if keep:
            for k in missing:
                blocks[k] = self._whole(k)
        elif missing:
            wanted = Rows(table, which, rows, np.arange(len(rows))).of(np.array(missing))
            for number in np.unique(wanted.table.records["source"]).tolist():
                chosen = np.flatnonzero(wanted.table.records["source"] == number)
                self._sources[number].read(wanted.of(chosen), outs)
        here = [block for block in blocks if block is not None]
        if here:
            numbers = np.cumsum([block is not None for block in blocks]) - 1
            numbers[[block is None for block in blocks]] = -1
            from_here = numbers[which]
            for path, out in outs.items():
                _kernels.active().scatter_rows([block.rows(path) for block in here], from_here, rows, out)
        return {column.path: _narrow.named(outs[column.path], column.dtype) for column in columns}

    def _whole(self, k: int) -> Block:
        stored = self[k]
        block, entry = stored.block(), stored.entry
        # Refuse a file that disagrees with the index: rows are located by what the index says.
        found = block.entry
        if (found.layout.columns, found.length, found.width) != (entry.layout.columns, entry.length, entry.width):
            what = f"`trajectory_{entry.id}` has other fields or another shape than its index entry"
            raise StorageError(event(what, self._sources[int(self.table.records["source"][k])].folder.path))
        with self._store.lock:
            self._store.keep(block)
        return block
