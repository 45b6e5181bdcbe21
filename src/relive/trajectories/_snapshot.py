"""What a store held at one moment: it can be read, without the lock, for as long as that takes."""

from __future__ import annotations

from ._block import Block
from ._catalog import Entry
from ._index import NOWHERE
from ._layout import Layout
from ._source import Source
from ._store import Store


class Held:
    """All trajectories of a store. Nothing of it goes before `release`, whatever is removed or added meanwhile.

    Args:
        store: Whose lock the caller holds.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.records = store.index.records.copy()
        self.counter, self.arena = store.counter, store.arena
        self._layouts, self._sources, self._blocks = list(store.layouts), list(store.sources), dict(store.blocks)
        self._ticket = store.begin_reading()

    def release(self) -> None:
        """Let go."""
        self._store.done_reading(self._ticket)

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __len__(self) -> int:
        return len(self.records)

    def layout(self, position: int) -> Layout:
        """The fields of a trajectory."""
        return self._layouts[int(self.records[position]["layout"])]

    def source(self, position: int) -> Source | None:
        """What reads a trajectory's file, None if it has none."""
        folder = int(self.records[position]["folder"])
        return None if folder == NOWHERE else self._sources[folder]

    def block(self, position: int) -> Block:
        """A whole trajectory, from memory or from its file."""
        record, source = self.records[position], self.source(position)
        id_ = int(record["id"])
        return self._blocks[id_] if id_ in self._blocks or source is None else source.block(record)

    def entry(self, position: int) -> Entry:
        """A trajectory as an index knows it."""
        record = self.records[position]
        shape = int(record["length"]), int(record["width"]), self.layout(position)
        file = int(record["start"]), int(record["bytes"]), int(record["checksum"])
        return Entry(int(record["id"]), *shape, *file, int(record["episode"]), bytes(record["weights"]).decode())
