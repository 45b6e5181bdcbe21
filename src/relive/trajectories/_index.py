"""The index in memory: 96 bytes per trajectory, in arrays that grow."""

from __future__ import annotations

import numpy as np

from .._types import Array, Int64
from ._entry import Entry
from ._layout import Layout

_RECORD = np.dtype(
    [
        ("id", np.int64),
        ("end", np.int64),  # samples up to and including this trajectory
        ("bytes", np.int64),
        ("length", np.int32),
        ("width", np.int32),
        ("start", np.int32),
        ("checksum", np.uint32),
        ("layout", np.int32),  # position in `Index.layouts`
        ("source", np.int16),  # position in `Store.sources`; NO_FILE if the trajectory is only in memory
        ("max_episode_length", np.int32),
        ("model_weights_id", "S40"),
    ]
)
NO_FILE = -1


class Index:
    """Trajectories in the order in which they were added; the oldest are removed first."""

    def __init__(self) -> None:
        self.layouts: list[Layout] = []  # only ever grows
        self._records = np.zeros(64, _RECORD)
        self._first = self._last = 0
        self._gone = 0  # samples of trajectories that were removed

    def __len__(self) -> int:
        return self._last - self._first

    @property
    def records(self) -> Array:
        """One writable record per trajectory."""
        return self._records[self._first : self._last]

    @property
    def samples(self) -> int:
        """Chunk-steps of all trajectories."""
        return int(self._records[self._last - 1]["end"]) - self._gone if len(self) else 0

    @property
    def nbytes(self) -> int:
        """Bytes of all trajectories."""
        return int(self.records["bytes"].sum())

    def append(self, entry: Entry, source: int) -> None:
        """Add a trajectory whose file belongs to the given source."""
        if self._last == len(self._records):
            kept = self.records
            # Doubling: each record is moved a bounded number of times on average.
            self._records = np.zeros(max(64, 2 * len(kept)), _RECORD)
            self._records[: len(kept)] = kept
            self._first, self._last = 0, len(kept)
        if entry.layout not in self.layouts:
            self.layouts.append(entry.layout)
        end = self._gone + self.samples + entry.length * entry.width
        numbers = (entry.length, entry.width, entry.start, entry.checksum, self.layouts.index(entry.layout), source)
        given = (entry.max_episode_length, entry.model_weights_id.encode())
        self._records[self._last] = (entry.id, end, entry.bytes, *numbers, *given)
        self._last += 1

    def remove_oldest(self, count: int) -> None:
        """Remove the `count` oldest trajectories."""
        if count:
            self._gone = int(self.records[count - 1]["end"])
            self._first += count

    def window(self, count: int) -> tuple[int, int, int]:
        """The window of the newest `count` trajectories (0: all): first position, samples before it, samples in it."""
        first = max(len(self) - count, 0) if count else 0
        before = int(self.records[first - 1]["end"]) if first else self._gone
        return first, before, self.samples + self._gone - before

    def locate(self, samples: Int64, first: int) -> tuple[Int64, Int64]:
        """For each sample, the position of its trajectory (`first` or later) and its row in that trajectory."""
        ends = self.records["end"]
        positions = first + np.searchsorted(ends[first:], samples, side="right")
        begins = np.where(positions > 0, ends[positions - 1], self._gone)
        return positions, samples - begins

    def find(self, id_: int) -> int | None:
        """The position of a trajectory, None if its id is unknown. Ids are mostly consecutive: then no search."""
        records = self.records
        position = len(records) - 1 - (int(records["id"][-1]) - id_) if len(records) else -1
        if position >= 0 and records["id"][position] == id_:
            return position
        return self._search(id_)

    def _search(self, id_: int) -> int | None:
        found = np.flatnonzero(self.records["id"] == id_)
        return int(found[0]) if len(found) else None


def entries_of(records: Array, layouts: list[Layout]) -> list[Entry]:
    """Records of the index as entries."""
    return [
        Entry(id_, length, width, layouts[layout], start, nbytes, checksum, episode, weights.decode())
        for id_, _, nbytes, length, width, start, checksum, layout, _, episode, weights in records.tolist()
    ]
