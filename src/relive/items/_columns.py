"""What items share: finding columns, checking schemas, nesting results, copying stacks of frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._base.memory import Arena
from .._base.nests import nested
from .._base.types import Array, Int64
from .._ring.plans import Stacked
from .._ring.ring import Ring
from ..errors import ArgumentError, message
from ..schema import Column, Schema
from ._outputs import Outputs

if TYPE_CHECKING:
    from ._protocol import Fields


def lookback_of(schema: Schema) -> int:
    """Return the number of older frames in an observation of `schema`, besides its newest."""
    return max((column.field.frames - 1 for column in schema.columns), default=0)


def check_steps(needed: int, steps: int, what: str, at: str) -> None:
    """Refuse items that need more steps than a lane keeps."""
    if needed > steps:
        remedy = f"raise `capacity` or lower `{at.split('(')[1][:-1]}`"
        raise ArgumentError(message(f"at most {steps} steps, as many as a lane keeps", f"`{needed}`{what}", at, remedy))


def check_reward(schema: Schema, n_step: int) -> None:
    """Refuse integer rewards that would have to be discounted."""
    dtype = schema.reward.dtype
    if n_step > 1 and dtype not in (np.float32, np.float64):
        wanted = "a `float32` or `float64` reward to discount over steps"
        raise ArgumentError(message(wanted, f"`{dtype.name}`", "$.reward", "state `reward=Field(...)` in the schema"))


class Frames:
    """Copies observations whose columns are stacked; each frame is a row of its own."""

    def __init__(
        self, columns: Sequence[Column], arrays: Sequence[Array], ring: Ring, arena: Arena, places: int = 1
    ) -> None:
        self._ring = ring
        self._columns = columns
        self._fields = [column.field for column in columns]
        self._outputs = [Outputs([array] * places, arena) for array in arrays]
        self._gathers = [ring.gather([array] * places, list(range(places))) for array in arrays]

    def compiled(self) -> list[Stacked]:
        """Describe the columns for the native `sample`, which copies them to `obs` and to `next_obs`."""
        return [
            Stacked(
                gather=gather,
                obs=column.keys,
                next_obs=("next_obs", *column.keys[1:]),
                frames=column.field.frames,
                repeat=column.field.pad == "first",
                behind=bool(column.field.stack_axis),
            )
            for column, gather in zip(self._columns, self._gathers, strict=True)
        ]

    def of(self, *newest: Int64) -> list[list[Array]]:
        """Return the stacks with the newest frames at the storage rows `newest`, one array `[*newest.shape, ...]` each.

        As many lists of rows are given as there are `places`, alike in shape, and as many lists of arrays returned.
        They are copied side by side: frames that an item shows twice come from the caches the second time.
        """
        stacks: list[list[Array]] = [[] for _ in newest]
        rows: dict[tuple[int, str], list[Int64]] = {}
        for field, outputs, gather in zip(self._fields, self._outputs, self._gathers, strict=True):
            kind = field.frames, field.pad
            if kind not in rows:
                first = field.pad == "first"
                rows[kind] = [self._ring.stacks(each, field.frames, first).reshape(-1) for each in newest]
            for found, frames in zip(stacks, outputs.taken(gather, rows[kind]), strict=True):
                stack = frames.reshape(*newest[0].shape, field.frames, *field.shape)
                found.append(np.moveaxis(stack, newest[0].ndim, -1) if field.stack_axis else stack)
        return stacks


class Successors:
    """Copies whole observations, as `next_obs`."""

    def __init__(self, schema: Schema, ring: Ring, arena: Arena) -> None:
        columns = list(zip(schema.columns[: schema.num_obs], ring.observations, strict=True))
        plain, stacked = ([pair for pair in columns if bool(pair[0].field.stack) is stacks] for stacks in (False, True))
        self._keys = [("next_obs", *column.keys[1:]) for column, _ in plain + stacked]
        self._gather = ring.gather([array for _, array in plain], [0] * len(plain))
        self._frames = Frames([column for column, _ in stacked], [array for _, array in stacked], ring, arena)

    def of(self, rows: Int64) -> Fields:
        """Copy the observations at the storage rows `rows`, `{"next_obs": [M, ...]}`."""
        arrays = self._gather.taken([rows]) + self._frames.of(rows)[0]
        return nested(zip(self._keys, arrays, strict=True))
