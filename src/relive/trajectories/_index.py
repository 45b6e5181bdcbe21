"""Entries in arrays, some 100 bytes each, and the index in memory, which finds the rows of a draw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from .._base.types import Array, Bool, Int64
from .._disk.rows import sort_rows
from ._entry import FACTS, Entry, file_name
from ._layout import FieldLayout
from ._plan import FilePlan

# `filed`: whether the trajectory has a file, or is only in memory.
RECORD = np.dtype([*((name, fact.dtype) for name, fact in FACTS.items()), ("filed", "?")])


class Table:
    """Entries as records of an array.

    Attributes:
        records: One record per trajectory.
        layouts: What the records' layouts refer to; it only ever grows.
    """

    def __init__(self, records: Array, layouts: list[FieldLayout]) -> None:
        self.records, self.layouts = records, layouts

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Table:
        """Return a table of the given entries."""
        table = cls(np.zeros(0, RECORD), [])
        table.records = np.array([table.record(entry, filed=True) for entry in entries], RECORD)
        return table

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, position: int) -> Entry:
        return next(iter(self.take([position])))

    def __iter__(self) -> Iterator[Entry]:
        for *facts, _ in self.records.tolist():
            known = dict(zip(FACTS, facts, strict=True))
            known["layout"] = self.layouts[known["layout"]]
            known["model_weights_id"] = known["model_weights_id"].decode()
            yield Entry(**known)

    def take(self, positions: Any) -> Table:
        """Copy the entries at these positions."""
        records = self.records[positions]
        return Table(records.copy() if isinstance(positions, slice) else records, self.layouts)

    def share(self, rank: int, world: int) -> Table:
        """Return a rank's contiguous share; the first ranks may have one trajectory more."""
        each, rest = divmod(len(self), world)
        first = rank * each + min(rank, rest)
        return self.take(slice(first, first + each + (rank < rest)))

    def record(self, entry: Entry, *, filed: bool) -> tuple[Any, ...]:
        """Return an entry as a record of this table."""
        weights = entry.model_weights_id.encode()
        known = entry._asdict() | {"layout": self.number(entry.layout), "model_weights_id": weights}
        return (*known.values(), filed)

    def number(self, layout: FieldLayout) -> int:
        """Return the position of a layout in `layouts`, to which it is added if it is new."""
        if layout not in self.layouts:
            self.layouts.append(layout)
        return self.layouts.index(layout)

    @property
    def ids(self) -> list[int]:
        """The ids of all trajectories, in order."""
        ids: list[int] = self.records["id"].tolist()
        return ids

    @property
    def known(self) -> list[tuple[int, int]]:
        """The id and the checksum of each trajectory, in order: no two have both."""
        return list(zip(self.ids, self.records["checksum"].tolist(), strict=True))

    @property
    def rows(self) -> Int64:
        """Chunk-steps of each trajectory."""
        product: Int64 = self.records["length"].astype(np.int64) * self.records["width"]
        return product

    @property
    def memory(self) -> Int64:
        """Bytes of each trajectory in memory, as `Entry.memory`."""
        sizes: Int64 = self.records["bytes"].astype(np.int64)
        for number, layout in enumerate(self.layouts):
            if layout.compressed:
                here = self.records["layout"] == number
                plan = FilePlan(layout, *(self.records[name][here].astype(np.int64) for name in ("length", "width")))
                sizes[here] = plan.nbytes + plan.most
        return sizes

    def intact(self, sizes: Mapping[str, int]) -> Bool:
        """Return a mask of the trajectories whose file has the size that it should have."""
        found: Bool = np.array([sizes.get(file_name(id_), -1) for id_ in self.ids], np.int64) == self.records["bytes"]
        return found


class TrajectoryIndex(Table):
    """Trajectories in the order in which they were added; the oldest are removed first."""

    def __init__(self) -> None:
        super().__init__(np.zeros(0, RECORD), [])
        # The records are a part of a larger array; `_before` has samples, bytes, and bytes in memory of all that were
        # before each trajectory that there ever was in it, and after the last. Contiguous, so searching reads little.
        self._all, self._before = self.records, np.zeros((3, 1), np.int64)
        self._first = self._last = 0

    @property
    def samples(self) -> int:
        """Chunk-steps of all trajectories."""
        return self.window(0)[2]

    @property
    def nbytes(self) -> int:
        """Bytes of all trajectories."""
        return self.window(0)[3]

    def append(self, entry: Entry) -> None:
        """Add a trajectory that is only in memory yet."""
        at = self._reserve(1)
        self._all[at] = self.record(entry, filed=False)
        self._before[:, at + 1] = self._before[:, at] + (entry.length * entry.width, entry.bytes, entry.memory)
        self._keep(self._first, at + 1)

    def extend(self, table: Table) -> None:
        """Add all trajectories of a table, which have files."""
        numbers = np.array([self.number(layout) for layout in table.layouts] or [0])
        at = self._reserve(len(table))
        end = at + len(table)
        new = self._all[at:end]
        new[:] = table.records
        new["layout"], new["filed"] = numbers[new["layout"]], True
        sums = np.cumsum([table.rows, new["bytes"], table.memory], axis=1)
        self._before[:, at + 1 : end + 1] = self._before[:, [at]] + sums
        self._keep(self._first, end)

    def written(self, position: int, entry: Entry) -> None:
        """Note that a trajectory has a file now; compressed ones are smaller than was known."""
        record = self.records[position]
        self._before[1, self._first + position + 1 : self._last + 1] += entry.bytes - int(record["bytes"])
        record["start"], record["bytes"], record["checksum"] = entry.start, entry.bytes, entry.checksum
        record["filed"] = True

    def remove_oldest(self, count: int) -> None:
        """Remove the `count` oldest trajectories."""
        self._keep(self._first + count, self._last)

    def _reserve(self, count: int) -> int:
        """Make room for more records; returns the position of the first."""
        if self._last + count > len(self._all):
            kept, before = self.records, self._before[:, self._first : self._last + 1]
            # Doubling: each record is moved a bounded number of times on average.
            room = max(64, 2 * (len(kept) + count))
            self._all, self._before = np.zeros(room, RECORD), np.zeros((3, room + 1), np.int64)
            self._all[: len(kept)], self._before[:, : len(kept) + 1] = kept, before
            self._keep(0, len(kept))
        return self._last

    def _keep(self, first: int, last: int) -> None:
        self._first, self._last = first, last
        self.records = self._all[first:last]

    def excess(self, most_bytes: int) -> int:
        """Count the oldest to remove for the others to have at most so many bytes; the newest one stays."""
        before = self._before[1, self._first : max(self._last - 1, self._first)]
        return int(np.searchsorted(before, self._before[1, self._last] - most_bytes))

    def window(self, count: int) -> tuple[int, int, int, int, int]:
        """Return the window of the newest `count` (0: all): first position, samples before it; samples, bytes in it.

        The last number are its bytes in memory.
        """
        first = self._last - min(count or len(self), len(self))
        before, after = self._before[:, first].tolist(), self._before[:, self._last].tolist()
        return first - self._first, before[0], *(end - begin for begin, end in zip(before, after, strict=True))

    def locate(self, samples: Int64, first: int) -> tuple[Int64, Int64, Int64, Int64]:
        """Return the rows of samples of trajectories from `first` on, sorted by trajectory and row.

        Their numbers among the samples; the positions of the trajectories, each once; the place of each row's one among
        these; and its row there.
        """
        order, files, which, rows = sort_rows(self._before[0, self._first + first : self._last + 1], samples)
        return order, files + first, which, rows

    def find(self, id_: int) -> int | None:
        """Find the position of a trajectory, None if its id is unknown. Ids are mostly consecutive: then no search."""
        records = self.records
        position = len(records) - 1 - (int(records["id"][-1]) - id_) if len(records) else -1
        if 0 <= position < len(records) and records["id"][position] == id_:
            return position
        return self.search(id_)

    def search(self, id_: int) -> int | None:
        """Look at all ids for one; None if it is unknown."""
        found = np.flatnonzero(self.records["id"] == id_)
        return int(found[0]) if len(found) else None
