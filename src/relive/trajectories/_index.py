"""What is known of every trajectory without looking at it: 96 bytes each, in arrays that grow."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._types import Array, Int64

_RECORD = np.dtype(
    [
        ("id", np.int64),
        ("end", np.int64),  # samples up to and with this trajectory
        ("bytes", np.int64),  # of its file; of its arrays where it has none
        ("length", np.int32),
        ("width", np.int32),
        ("start", np.int32),  # bytes of its file's header
        ("checksum", np.uint32),
        ("layout", np.int32),
        ("folder", np.int16),  # number of the directory that holds its file; NOWHERE where there is none
        ("episode", np.int32),
        ("weights", "S40"),
    ]
)
NOWHERE = -1


class Index:
    """Trajectories in the order in which they were added; the oldest go first."""

    def __init__(self) -> None:
        self._records = np.zeros(64, _RECORD)
        self._first = self._last = 0
        self._gone = 0  # samples of trajectories that were removed

    def __len__(self) -> int:
        return self._last - self._first

    @property
    def records(self) -> Array:
        """The records of all trajectories; writable, one row each."""
        return self._records[self._first : self._last]

    @property
    def samples(self) -> int:
        """Chunk-steps of all trajectories."""
        return int(self._records[self._last - 1]["end"]) - self._gone if len(self) else 0

    @property
    def nbytes(self) -> int:
        """Bytes of all trajectories."""
        return int(self.records["bytes"].sum())

    def append(self, **values: Any) -> None:
        """Add a trajectory; `end` follows by itself."""
        if self._last == len(self._records):
            kept = self.records
            # Room for as many again: so each record is moved a bounded number of times, however many there will be.
            self._records = np.zeros(max(64, 2 * len(kept)), _RECORD)
            self._records[: len(kept)] = kept
            self._first, self._last = 0, len(kept)
        record = self._records[self._last]
        before = int(self._records[self._last - 1]["end"]) if len(self) else self._gone
        for name, value in values.items():
            record[name] = value
        record["end"] = before + int(record["length"]) * int(record["width"])
        self._last += 1

    def remove_oldest(self, count: int) -> None:
        """Forget the `count` oldest trajectories."""
        if count:
            self._gone = int(self.records[count - 1]["end"])
            self._first += count

    def window(self, count: int) -> tuple[int, int, int]:
        """Where the newest `count` trajectories (0: all) begin, the samples before them, and theirs."""
        first = max(len(self) - count, 0) if count else 0
        before = int(self.records[first - 1]["end"]) if first else self._gone
        return first, before, self.samples + self._gone - before

    def locate(self, samples: Int64, first: int) -> tuple[Int64, Int64]:
        """The positions of the trajectories that hold the given samples, from position `first` on, and rows in them."""
        ends = self.records["end"]
        positions = first + np.searchsorted(ends[first:], samples, side="right")
        begins = np.where(positions > 0, ends[positions - 1], self._gone)
        return positions, samples - begins

    def find(self, id_: int) -> int | None:
        """The position of a trajectory, None if there is none of that id."""
        found = np.flatnonzero(self.records["id"] == id_)
        return int(found[0]) if len(found) else None
