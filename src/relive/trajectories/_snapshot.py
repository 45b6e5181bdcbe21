"""The contents of a store at one moment, readable without the lock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .._memory import Arena
from ._block import Block
from ._entry import Entry
from ._index import NO_FILE, entries_of
from ._source import Source
from ._store import Store


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

    def block(self) -> Block:
        """The whole trajectory, from memory or from its file."""
        if self.memory is not None:
            return self.memory
        if self.source is None:
            raise KeyError(self.entry.id)
        return self.source.block(self.entry)


class Snapshot:
    """All trajectories of a store. Their files stay until `release`, whatever is added or removed meanwhile.

    Args:
        store: The store; the caller holds its lock.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.counter = store.counter
        self._records, self._layouts = store.index.records.copy(), store.index.layouts
        self._sources, self._blocks = list(store.sources), dict(store.blocks)
        self._ticket = store.begin_reading()

    def release(self) -> None:
        """Allow the files to be deleted."""
        self._store.done_reading(self._ticket)

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Stored]:
        return (self[position] for position in range(len(self)))

    def __getitem__(self, position: int) -> Stored:
        (entry,) = entries_of(self._records[[position]], self._layouts)
        number = int(self._records["source"][position])
        source = None if number == NO_FILE else self._sources[number]
        return Stored(entry, source, self._blocks.get(entry.id), self._store.arena)

    @property
    def ids(self) -> list[int]:
        """The ids of all trajectories, in order."""
        ids: list[int] = self._records["id"].tolist()
        return ids
