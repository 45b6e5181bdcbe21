"""Lanes of rows: counters, marks, and the arithmetic between ids, slots and storage rows. Integers only.

Every lane is a ring of `rows` rows, and keeps its newest `steps` steps. A row holds a step; or only an observation, as
a *boundary row* (the observation after the last step of an episode) or a *history row* (an older frame of a stream's
first observation). The row after the newest step already holds its `next_obs`, so that the step can be drawn at once;
each lane has one more physical row for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from .._base.arrays import ArraySpec, Memory
from .._base.forks import importing
from .._base.journal import Journal
from .._base.types import Array, Bytes, Float64, Int64
from ..schema import Column, Schema
from . import kernels
from .lanes import (
    BEGUN,
    CLEARED,
    COUNTERS,
    CUTS,
    DRAWABLE,
    ENDED,
    ENDS,
    GROUP,
    HEAD,
    HELD,
    OLDEST,
    READY,
    READY_STEPS,
    REPEATS,
    STEPS,
    STORED,
    UNBOOTSTRAPPED,
    block_of,
    count_call,
    depth_of,
    place_of,
)
from .plans import ColumnLayout, Window

if TYPE_CHECKING:
    from .kernel_types import GatherKernel

# Fields of up to two cache lines go into the record; longer ones gain nothing there and would keep the others apart.
_SMALL = 128
# The priorities that steps are given, one a row, where the sampler has priorities.
GIVEN = "given"
# How many calls began to write to a lane of each group, and how many of them have ended: readers look at other lanes
# only. Mapped files of older versions lack it.
TOUCHED = "touched"


class Ring:
    """The rows of all lanes, in arrays that a storage has opened.

    Args:
        schema: The fields of a step.
        window: Which steps items start at, and which rows around them they need.
        rows: R, the rows of a lane.
        steps: S, the steps that a lane keeps, S <= R.
        memory: Has the arrays of `Ring.spec`.
        keeps: What is recorded besides: for every row the priority that was `"given"`; which lanes were `"touched"`.
        notify: Called with the bits of the notices that a write found a reason for.
        busy: Lanes that other processes are writing at this moment.

    Attributes:
        lanes: L, the lanes; `ids // lanes` are rows of a lane, `ids % lanes` its number.
        rows: R.
        steps: S.
        slots: L * R, the numbers by which samplers know rows.
        columns: An array `[storage rows, ...]` for each of `schema.columns`, in that order, observations first.
        observations: The columns of observations.
        reward: The column of rewards.

    What items and samplers call is the kernel's; `_ring/kernels_numpy/ring.py` has the rest:

    * `changes(seen)`: what became drawable, and what stopped being so, since the counters were `seen`: a `Changes`;
      with zeros, all that can be drawn.
    * `ids(slots)`: the ids of drawable slots, int64 `[B]`.
    * `windows(slots, discounts)`: the windows of `n` steps or fewer that start there, a `Windowed`; `discounts` is
      float32 `[n + 1]`, `gamma**0` to `gamma**n`. Index columns with its `at` and `after`.
    * `around(slots, offsets, repeat)`: the storage rows at `offsets` steps from there, int64 `[K]`, an `Around`. Beyond
      the ends of an episode its first or last step is repeated, or the row of zeros is given. `Item.window` has to
      reach as far.
    * `stacks(rows, frames, repeat)`: the storage rows of the `frames` newest frames at `rows`, `[B, frames]`.
    * `chunks(column, rows, steps, length)`: the first `steps` rows of a column from each of `rows` on, and zeros behind
      them, `[B, length, ...]`.
    """

    def __init__(
        self,
        schema: Schema,
        window: Window,
        rows: int,
        steps: int,
        memory: Memory,
        keeps: Sequence[str],
        notify: Callable[[int], object],
        busy: Sequence[int] = (),
    ) -> None:
        self.window = window
        self._mapped = not getattr(memory, "private", False)
        self.marks, self.counters, self.clock = memory.host("marks"), memory.host("counters"), memory.host("clock")
        self.rows, self.steps, self.lanes = rows, steps, self.marks.shape[1]
        self.slots: int = self.lanes * rows
        records = memory.host("records")
        small = set(records.dtype.names or ())  # as the window of the buffer that made them has it
        self.columns: list[Array] = [
            records[column.path] if column.path in small else memory.host(column.path) for column in schema.columns
        ]
        self.observations = self.columns[: schema.num_obs]
        self.reward = self.columns[next(i for i, column in enumerate(schema.columns) if column.keys == ("reward",))]
        self.given, self.touched = (memory.host(name) if name in keeps else None for name in (GIVEN, TOUCHED))
        if not memory.fresh:
            self.recover(np.delete(np.arange(self.lanes), busy))
            if self.touched is not None and not busy:
                self.touched[ENDED] = self.touched[BEGUN]  # calls that a kill ended
        self._kernels = kernels.active()
        self._layouts = [_layout(column, array) for column, array in zip(schema.columns, self.columns, strict=True)]
        self.stacked = [layout for layout in self._layouts if layout.frames > 1]
        self._bind(notify, np.isin(np.arange(self.lanes), list(busy)).astype(np.uint8) if busy else None)

    def under(self, window: Window, marks: Bytes | None = None) -> Ring:
        """Return the same steps as items with another window see them, to be read.

        It has counters of its own, zeros at first, which whoever asks for it keeps.

        Args:
            window: That of the items.
            marks: Instead of the ring's.
        """
        other = copy(self)
        other.window, other.counters = window, np.zeros_like(self.counters)
        other.marks, other.touched = self.marks if marks is None else marks, None
        other._bind(lambda found: None, None)
        return other

    def _bind(self, notify: Callable[[int], object], taken: Bytes | None) -> None:
        """Make a kernel that works on the arrays."""
        kernel = self.kernel = self._kernels.Ring(
            self._layouts,
            len(self.observations),
            self.rows,
            self.steps,
            self.marks,
            self.counters,
            self.clock,
            self.window,
            self.given,
            self.touched,
            notify,
            taken,
        )
        self.write, self.cut, self.changes = kernel.write, kernel.cut, kernel.changes
        self.ids, self.locate, self.stacks = kernel.ids, kernel.locate, kernel.stacks
        self.windows, self.around = kernel.windows, kernel.around
        self.fold, self.fold_sequences, self.chunks = kernel.fold, kernel.fold_sequences, kernel.chunks

    @staticmethod
    def spec(schema: Schema, window: Window, lanes: int, rows: int, keeps: Sequence[str]) -> dict[str, ArraySpec]:
        """Return the specs of the arrays that a ring needs, for `Storage.open`.

        Small fields of a step lie together in one record: what a random row costs is the cache lines it touches.
        """
        kept = [column for column in schema.columns if column.field.every is None]
        # The widest first, so that nothing has to be padded but the record's end.
        small = sorted(_recorded(schema, window), key=lambda column: -column.field.dtype.alignment)
        record = np.dtype([(c.path, c.field.dtype, c.field.shape) for c in small], align=True)
        integers = np.dtype(np.int64)
        depth, block = depth_of(lanes, rows), block_of(lanes, rows)
        total, blocks = depth * lanes + 1, (depth // block, lanes, block)
        large = {c.path: ArraySpec((total, *c.field.shape), c.field.dtype) for c in kept if c not in small}
        states = {
            c.path: ArraySpec((slots_of_state(rows, c.field.every) * lanes, *c.field.shape), c.field.dtype)
            for c in schema.columns
            if c.field.every is not None
        }
        return {
            **large,
            **states,
            "records": ArraySpec((total,), record),
            "marks": ArraySpec(blocks, np.dtype(np.uint8)),
            "counters": ArraySpec((lanes, COUNTERS), integers),
            "clock": ArraySpec((2,), integers),
            **({GIVEN: ArraySpec(blocks, np.dtype(np.float64))} if GIVEN in keeps else {}),
            **({TOUCHED: ArraySpec((2, -(-lanes // GROUP)), integers)} if TOUCHED in keeps else {}),
        }

    def recover(self, lanes: Int64) -> None:
        """Put right what a writer of `lanes` left that was killed in the middle of a call; no other writer has them.

        A lane's `head` is moved once all before it stands, so everything else follows from it and from the marks. Where
        the last call came to its end, nothing changes.
        """
        with importing:
            from .recount import recover  # a new buffer has nothing to recover

        recover(self.marks, self.counters, lanes, self.rows, self.steps, self.window)

    def gather(self, columns: Sequence[Array], picks: Sequence[int]) -> GatherKernel:
        """Make a kernel that copies rows of `columns`; see `Gather` in `_ring/kernels_numpy/gather.py`."""
        return self._kernels.Gather(list(columns), list(picks), self._mapped)

    def at(self, rows: Int64, lane: Int64 | int) -> tuple[Int64, Int64 | int, Int64]:
        """Return the index of rows of a lane in `marks` and `given`."""
        blocks, _, block = self.marks.shape
        return place_of(rows % (blocks * block), lane, block)

    def storage(self, rows: Int64, lane: Int64 | int) -> Int64:
        """Return the storage rows of rows of a lane."""
        blocks, _, within = self.at(rows, lane)
        return np.asarray((blocks * self.lanes + lane) * self.marks.shape[2] + within)

    def memory_rows(self, storage: Int64) -> Int64:
        """Return the rows in their lanes' memory of storage rows."""
        block = self.marks.shape[2]
        return np.asarray(storage // block // self.lanes * block + storage % block)

    def blocks(self, column: Array) -> Array:
        """Return a view of a column of one entry a row by blocks, lanes and rows of a block, as `marks` is."""
        return column[:-1].reshape(*self.marks.shape, *column.shape[1:])

    def units(self, rows: Int64, lanes: Int64 | int, every: int | None) -> Int64:
        """Return the entries for `rows` of `lanes` in a column kept every `every` steps: a unit is `every` rows."""
        if every is None:
            return self.storage(rows, lanes)
        return np.asarray(rows // every % slots_of_state(self.rows, every) * self.lanes + lanes)

    def tally(self) -> Mapping[str, int]:
        """Return sums over all lanes: steps, items, cuts, ends, and what was wrong with them."""
        names = ("added", "drawable", "stored", "cuts", "unbootstrapped", "ends", "repeats")
        columns = (STEPS, DRAWABLE, STORED, CUTS, UNBOOTSTRAPPED, ENDS, REPEATS)
        sums = self.kernel.sums().tolist()
        # Rows that wait are those of the newest stream, which all hold steps; across episodes other rows are between.
        waiting = sums[STEPS] - sums[READY_STEPS] if self.window.across else sums[HEAD] - sums[READY]
        return {name: sums[column] for name, column in zip(names, columns, strict=True)} | {"waiting": waiting}

    def state_rows(self, ids: Int64, every: int) -> Int64:
        """Return the entries for the steps `ids` in fields that are kept at every `every`-th step."""
        rows, lanes = np.divmod(ids, self.lanes)
        return self.units(rows, lanes, every)

    def largest_given(self, seen: Int64) -> float:
        """Return the largest priority given to rows since the counters were `seen`, or 0."""
        if self.given is None or not self.clock[1]:
            return 0.0
        with importing:
            from .kernels_numpy.rows import largest_given

        return largest_given(self.given, self.marks, self.rows, self.counters, seen)

    def priorities(self, rows: Int64, default: float) -> Float64:
        """Return the raw priorities given to the storage rows `rows`, or `default` for rows without one."""
        if self.given is None or not self.clock[1]:
            return np.full(len(rows), default)
        given = self.given.reshape(-1)[rows]
        return np.where(np.signbit(given), -given, default)

    def clear(self) -> None:
        """Empty all lanes; their next rows have the numbers that they would have had."""
        counters, all_lanes = self.counters, slice(None)
        try:
            with Journal() as journal:
                count_call(journal, self.touched, BEGUN, np.arange(self.lanes))
                journal.put(counters, (all_lanes, CLEARED), counters[:, HEAD])  # from here on the clear can be finished
                journal.put(counters, (all_lanes, OLDEST), counters[:, HEAD])
                journal.put(self.marks, all_lanes, 0)
                journal.put(counters, (all_lanes, [DRAWABLE, STORED, HELD]), 0)
                journal.put(counters, (all_lanes, READY_STEPS), counters[:, STEPS])
                journal.put(counters, (all_lanes, READY), counters[:, HEAD])
                count_call(journal, self.touched, ENDED, np.arange(self.lanes))
        finally:
            self.kernel.forget_sums()

    def cleared(self, seen: Int64) -> bool:
        """Return True if the lanes were emptied since the counters were `seen`: the sampler then starts afresh."""
        return bool((self.counters[:, CLEARED] > seen[:, 0]).any())

    @property
    def drawable(self) -> int:
        """Drawable items, those of probability 0 included."""
        return int(self.kernel.sums()[DRAWABLE])

    @property
    def waiting(self) -> int:
        """The largest number of rows that wait for their window in any lane."""
        return int((self.counters[:, HEAD] - self.counters[:, READY]).max())

    @property
    def stored(self) -> int:
        """Steps stored now; boundary rows do not count."""
        return int(self.kernel.sums()[STORED])

    def ages(self, ids: Int64) -> Int64:
        """Count the rows of the same lane that are newer than each id."""
        return np.asarray(self.counters[ids % self.lanes, HEAD] - 1 - ids // self.lanes)


def given_if(prioritizes: bool) -> tuple[str, ...]:
    """Return what a ring has to record for a sampler that has priorities, or has none."""
    return (GIVEN,) if prioritizes else ()


def slots_of_state(rows: int, every: int) -> int:
    """Return the rows per lane of a field that is kept at every `every`-th step.

    Steps that keep it are at least `every` rows apart, so `row // every` is different for each of them.
    """
    return (rows - 1) // every + 2


def _recorded(schema: Schema, window: Window) -> list[Column]:
    """List the columns in the record: small ones, except those that are read over several steps at once.

    Writable ones do not: a save copies them whole.
    """
    apart = {"reward": window.span > 1, "action": window.actions}
    fixed = [column for column in schema.columns if not (column.field.writable or column.field.every)]
    kept = [column for column in fixed if not apart.get(column.keys[0])]
    return [column for column in kept if column.field.nbytes <= _SMALL]


def _layout(column: Column, array: Array) -> ColumnLayout:
    field = column.field
    whole = field.stack is None or field.stack_axis == 0
    every = field.every or 0
    return ColumnLayout(array, column.keys, field.full_shape, field.frames, field.pad == "first", every, whole)
