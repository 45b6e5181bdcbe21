"""Lanes of rows: counters, marks, and the arithmetic between ids, places and storage rows. Integers only.

Every lane is a ring of `rows` rows. A row holds one step, or, as a *boundary row*, the observation that followed the
last step of an episode. Beside the ring each lane holds the successor of its newest step, so that it can be drawn at
once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import _kernels
from ._types import Array, Int64
from .schema import Schema

# Fields of up to two cache lines go into the record; longer ones gain nothing there and would keep the others apart.
_SMALL = 128
TALLIES = ("added", "cuts", "unbootstrapped", "stored", "drawable")


class Ring:
    """The rows of all lanes, in arrays that a storage has reserved.

    The kernel's methods are its own: `attach`, `push`, `write`, `cut`, `ids`, `locate`, `windows` and `fold` are
    documented in `_kernels_numpy/ring.py`.
    """

    def __init__(self, schema: Schema, lanes: int, rows: int, reach: int, arrays: Mapping[str, Array]) -> None:
        self.lanes, self.rows, self.capacity = lanes, rows, lanes * rows
        records = arrays["records"]
        self.columns: list[Array] = [
            arrays[column.path] if column.path in arrays else records[column.path] for column in schema.columns
        ]
        self.counters: Int64 = arrays["counters"]
        self._tallies: Int64 = arrays["tallies"]
        self.nbytes = sum(array.nbytes for array in arrays.values())
        keys = [column.keys for column in schema.columns]
        self._kernels: Any = _kernels.active()
        kernel = self._kernels.Ring(
            self.columns, schema.num_obs, keys, arrays["marks"], self.counters, self._tallies, reach
        )
        self.kernel = kernel
        self.attach, self.push, self.write, self.cut = kernel.attach, kernel.push, kernel.write, kernel.cut
        self.ids, self.locate, self.windows, self.fold = kernel.ids, kernel.locate, kernel.windows, kernel.fold

    @staticmethod
    def spec(schema: Schema, lanes: int, rows: int) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """The arrays that a ring needs, for `Storage.allocate`.

        Small fields of a step lie together in one record: what a random row costs is the cache lines it touches.
        """
        small = [column for column in schema.columns if column.field.nbytes <= _SMALL]
        # The widest first, so that nothing has to be padded but the record's end.
        small.sort(key=lambda column: -column.field.dtype.alignment)
        record = np.dtype([(c.path, c.field.dtype, c.field.shape) for c in small], align=True)
        integers = np.dtype(np.int64)
        spec: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {
            "records": ((lanes * (rows + 1),), record),
            "marks": ((lanes, rows), np.dtype(np.uint8)),
            "counters": ((lanes, 4), integers),
            "tallies": ((len(TALLIES),), integers),
        }
        large = [column for column in schema.columns if column not in small]
        return {**{c.path: ((lanes * (rows + 1), *c.field.shape), c.field.dtype) for c in large}, **spec}

    def gather(self, columns: Sequence[Array], picks: Sequence[int]) -> Any:
        """A kernel that copies rows of `columns`; see `Gather` in `_kernels_numpy/ring.py`."""
        return self._kernels.Gather(list(columns), list(picks))

    def tally(self) -> dict[str, int]:
        """How many steps were added and are stored, and how many streams were cut or lack a final observation."""
        return dict(zip(TALLIES, self._tallies.tolist(), strict=True))

    def notable(self) -> dict[str, int]:
        """The tallies that `Notices` looks at."""
        tally = self.tally()
        return {name: tally[name] for name in ("added", "cuts", "unbootstrapped")}

    @property
    def drawable(self) -> int:
        """Places that hold a drawable item, whatever its probability."""
        return self._tallies.item(4)

    @property
    def waiting(self) -> int:
        """Most steps of any lane that wait for their window to be complete."""
        return int((self.counters[:, 0] - self.counters[:, 2]).max())

    @property
    def stored(self) -> int:
        """Steps stored now; boundary rows do not count."""
        return self._tallies.item(3)

    def newest(self, lanes: Int64) -> Int64:
        """The places of the newest rows of `lanes`."""
        return np.asarray((self.counters[lanes, 1] - 1) % self.rows * self.lanes + lanes)

    def ages(self, ids: Int64) -> Int64:
        """How many rows of the same lane are newer than each id."""
        return np.asarray(self.counters[ids % self.lanes, 0] - 1 - ids // self.lanes)
