"""Blocks of steps that a writer fills and sends, in arrays that are used again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._base.types import Array, Float64, Int64
from .._schema.step_parser import ParsedStep
from ..schema import Column, Schema
from ._wire import StepBlock

# Steps of a block, and its bytes: below 100 KB an argument travels with the call, far above it is worth no more.
STEPS, _MOST_BYTES = 32, 4 << 20


class Filling:
    """A block that is being filled: arrays `[T, L', ...]` of one shard's lanes.

    Args:
        schema: The fields of a step.
        lanes: Lanes of the whole.
        steps: T.

    Attributes:
        counts: How many steps each lane has, `[L']`.
        cut: Lanes of the whole to cut before the first step.
        begun: When the first step came; set by the writer.
        number: The block's number among those of its writer and shard.
    """

    def __init__(self, schema: Schema, lanes: Int64, steps: int) -> None:
        self._stacked, self.lanes, self.steps = stacks(schema), lanes, steps
        lead = (steps, len(lanes))

        def room(columns: tuple[Column, ...]) -> list[Array]:
            return [np.empty((*lead, *_inside(column)), column.field.dtype) for column in columns]

        self._values, self._later = room(schema.columns), room(schema.columns[: schema.num_obs])
        self._terminated, self._truncated = np.empty(lead, bool), np.empty(lead, bool)
        self._priority: Float64 = np.empty(lead)
        self.counts = np.zeros(len(lanes), np.int64)
        self.clear()

    def clear(self) -> None:
        """Empty it."""
        self.counts[:] = 0
        self.cut: set[int] = set()
        self.kind: tuple[bool, bool] | None = None
        self.begun, self.number, self._even = 0.0, 0, True

    @property
    def added(self) -> int:
        """Steps in it."""
        return int(self.counts.sum())

    @property
    def empty(self) -> bool:
        """Whether the block is empty."""
        return not self.cut and not self.counts.any()

    @property
    def full(self) -> bool:
        """Whether a lane has no room left."""
        return int(self.counts.max()) == self.steps

    def put(self, step: ParsedStep, priority: Float64 | None, of: Int64 | slice, at: Int64 | None) -> None:
        """Add one step of some lanes; all of these have room.

        Args:
            step: Canonical values, `[L'', ...]`.
            priority: Raw priorities, `[L'']`.
            of: Which of these lanes are this shard's.
            at: Which of the block's lanes they are; None: all, in order.
        """
        if at is None and self._even:
            index: Any = int(self.counts[0])
        else:
            lanes = np.arange(len(self.lanes)) if at is None else at
            self._even = False
            index = (self.counts[lanes], lanes)
        for array, value in zip(self._values, step.values, strict=True):
            array[index] = value[of]
        for array, value in zip(self._later, step.next_values or (), strict=False):
            array[index] = value[of]
        self._terminated[index] = step.terminated[of]
        self._truncated[index] = step.truncated[of]
        if priority is not None:
            self._priority[index] = priority[of]
        if at is None:
            self.counts += 1
        else:
            self.counts[at] += 1

    def block(self) -> StepBlock:
        """What is sent: views of the filled part, each contiguous, and copies of what is no step's of its own."""
        steps = int(self.counts.max(initial=0))
        later, given = self.kind or (False, False)
        values, successors = ([array[:steps] for array in arrays] for arrays in (self._values, self._later))
        apart = self._apart(values, successors) if later else None
        led, older = self._led(values), []
        for at in self._stacked:
            older.append(values[at].reshape(-1, *values[at].shape[2:])[led, :-1])
            values[at] = np.ascontiguousarray(values[at][:, :, -1])
        return StepBlock(
            self.lanes,
            self.counts.copy(),
            values,
            older,
            led,
            None if apart is None else [array.reshape(-1, *array.shape[2:])[apart] for array in successors],
            apart,
            self._terminated[:steps],
            self._truncated[:steps],
            self._priority[:steps] if given else None,
            np.array(sorted(self.cut), np.int64),
        )

    def _apart(self, values: list[Array], successors: list[Array]) -> Int64:
        """Which steps, as positions in `[T * L']`, have a next observation that is not the one of the next step."""
        times = np.arange(len(values[0]))[:, None]
        apart = times == self.counts - 1
        for array, after in zip(values, successors, strict=False):
            apart[:-1] |= (_words(after)[:-1] != _words(array)[1:]).any(axis=2)
        return np.flatnonzero(apart & (times < self.counts))

    def _led(self, values: list[Array]) -> Int64:
        """Which steps, likewise, have stacks whose older frames are not the newer ones of the step before."""
        if not self._stacked:
            return np.empty(0, np.int64)
        times = np.arange(len(values[0]))[:, None]
        led = np.broadcast_to(times == 0, (len(times), len(self.counts))).copy()
        for frames in (_words(values[at], 3) for at in self._stacked):
            led[1:] |= (frames[1:, :, :-1] != frames[:-1, :, 1:]).any(axis=(2, 3))
        return np.flatnonzero(led & (times < self.counts))


def restored(block: StepBlock, stacked: list[int]) -> StepBlock:
    """The block with whole stacks, of which it has the newest frames, and the older ones where they do not follow."""
    values = list(block.values)
    times, lanes = np.divmod(block.led, len(block.lanes))
    for at, older in zip(stacked, block.older, strict=True):
        newest = values[at]
        frames = older.shape[1] + 1
        whole = np.empty((*newest.shape[:2], frames, *newest.shape[2:]), newest.dtype)
        whole[:, :, -1] = newest
        for t in range(len(whole)):
            here = times == t
            if t:
                whole[t, :, :-1] = whole[t - 1, :, 1:]
            whole[t, lanes[here], :-1] = older[here]
        values[at] = whole
    return block._replace(values=values)


def stacks(schema: Schema) -> list[int]:
    """The columns that are stacks of several frames."""
    return [at for at, column in enumerate(schema.columns) if (column.field.stack or 1) > 1]


def followed(block: StepBlock) -> list[Array]:
    """The next observations of all steps of a block, `[T, L', ...]`: those that were sent, else the next step's."""
    found: list[Array] = []
    for array, sent in zip(block.values, block.next_values or (), strict=False):
        whole = np.empty_like(array)
        whole[:-1] = array[1:]
        whole.reshape(-1, *array.shape[2:])[block.apart] = sent
        found.append(whole)
    return found


def _words(array: Array, axes: int = 2) -> Array:
    """The bytes behind the first axes, as words: equal numbers can differ in them, and NaN is equal to none."""
    flat = array.reshape(*array.shape[:axes], math.prod(array.shape[axes:]))
    nbytes = flat.shape[axes] * flat.itemsize
    return flat.view(next(f"u{word}" for word in (8, 4, 2, 1) if nbytes % word == 0))


def _inside(column: Column) -> tuple[int, ...]:
    """The shape of a canonical value: the frames of a stack come first."""
    field = column.field
    return (field.stack, *field.shape) if field.stack and field.stack > 1 else field.shape


def steps_of(schema: Schema, lanes: int) -> int:
    """The number of steps in a block of so many lanes."""
    nbytes = sum(column.field.nbytes * column.field.frames for column in schema.columns)
    return max(1, min(STEPS, _MOST_BYTES // max(1, nbytes * lanes)))
