"""Lanes of rows: counters, marks, and the arithmetic between ids, places and storage rows. Integers only.

Every lane is a ring of `rows` rows. A row holds one step, or, as a *boundary row*, the observation that followed the
last step of an episode, or, as a *history row*, an older frame of a stream's first observation. Beside the ring each
lane holds the successor of its newest step, so that it can be drawn at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _kernels
from ._types import Array, Int64
from .schema import Column, Schema

# Fields of up to two cache lines go into the record; longer ones gain nothing there and would keep the others apart.
_SMALL = 128
TALLIES = ("added", "cuts", "unbootstrapped", "stored", "drawable")


@dataclass(frozen=True, kw_only=True)
class Anchors:
    """Which steps an item can start at, and which rows around such an anchor it needs.

    Attributes:
        reach: Steps from the anchor on, itself included, that must be known with their successor, or an end among them.
        history: Older rows of the anchor's stream that are read as well, where the stream has them.
        starts: Anchors are the steps whose number in their lane is a multiple of this.
        across: Whether items run on behind an episode's end, so that only a cut ends them.
    """

    reach: int
    history: int = 0
    starts: int = 1
    across: bool = False


class Ring:
    """The rows of all lanes, in arrays that a storage has reserved.

    The kernel's methods are its own: `attach`, `push`, `write`, `cut`, `ids`, `locate`, `begin_since`,
    `stacks`, `windows`, `sequences`, `fold` and `fold_sequences` are documented in `_kernels_numpy/`.
    """

    def __init__(self, schema: Schema, lanes: int, rows: int, anchors: Anchors, arrays: Mapping[str, Array]) -> None:
        self.lanes, self.rows, self.capacity, self.anchors = lanes, rows, lanes * rows, anchors
        # A row of zeros behind all others: what stands where there is nothing.
        self.nothing = lanes * (rows + 1)
        records = arrays["records"]
        self.columns: list[Array] = [
            arrays[column.path] if column.path in arrays else records[column.path] for column in schema.columns
        ]
        self.counters: Int64 = arrays["counters"]
        self._tallies: Int64 = arrays["tallies"]
        self.nbytes = sum(array.nbytes for array in arrays.values())
        self._kernels: Any = _kernels.active()
        kernel = self._kernels.Ring(
            [_layout(column, array) for column, array in zip(schema.columns, self.columns, strict=True)],
            schema.num_obs,
            (arrays["marks"], self.counters, self._tallies),
            (anchors.reach, anchors.history, anchors.starts, anchors.across),
        )
        self.kernel = kernel
        self.attach, self.push, self.write, self.cut = kernel.attach, kernel.push, kernel.write, kernel.cut
        self.ids, self.locate, self.begin_since = kernel.ids, kernel.locate, kernel.begin_since
        self.stacks, self.windows, self.sequences = kernel.stacks, kernel.windows, kernel.sequences
        self.fold, self.fold_sequences = kernel.fold, kernel.fold_sequences

    @staticmethod
    def spec(schema: Schema, lanes: int, rows: int) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """The arrays that a ring needs, for `Storage.allocate`.

        Small fields of a step lie together in one record: what a random row costs is the cache lines it touches.
        """
        kept = [column for column in schema.columns if column.field.every is None]
        small = [column for column in kept if column.field.nbytes <= _SMALL]
        # The widest first, so that nothing has to be padded but the record's end.
        small.sort(key=lambda column: -column.field.dtype.alignment)
        record = np.dtype([(c.path, c.field.dtype, c.field.shape) for c in small], align=True)
        integers = np.dtype(np.int64)
        total = lanes * (rows + 1) + 1
        spec: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {
            "records": ((total,), record),
            "marks": ((lanes, rows), np.dtype(np.uint8)),
            "counters": ((lanes, 8), integers),
            "tallies": ((len(TALLIES),), integers),
        }
        large = {c.path: ((total, *c.field.shape), c.field.dtype) for c in kept if c not in small}
        states = {
            c.path: ((lanes * slots_of_state(rows, c.field.every), *c.field.shape), c.field.dtype)
            for c in schema.columns
            if c.field.every is not None
        }
        return {**large, **states, **spec}

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

    def state_rows(self, ids: Int64, every: int) -> Int64:
        """Where the fields that are kept at every `every`-th step stand for the steps `ids`."""
        rows, lanes = np.divmod(ids, self.lanes)
        slots = slots_of_state(self.rows, every)
        return np.asarray(lanes * slots + rows // every % slots)

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

    def ages(self, ids: Int64) -> Int64:
        """How many rows of the same lane are newer than each id."""
        return np.asarray(self.counters[ids % self.lanes, 0] - 1 - ids // self.lanes)


def slots_of_state(rows: int, every: int) -> int:
    """Rows per lane of a field that is kept at every `every`-th step.

    Steps that keep it are at least `every` rows apart, so `row // every` tells those of a lane's ring from each other.
    """
    return (rows - 1) // every + 2


def _layout(column: Column, array: Array) -> tuple[Array, tuple[str, ...], tuple[int, ...], int, str, int, bool]:
    """What a kernel must know of a column: array, keys, shape of a value, frames, padding, interval, whole or not."""
    field = column.field
    ready = field.stack is None or field.stack_axis == 0
    return array, column.keys, field.full_shape, field.frames, field.pad, field.every or 0, ready
