"""Sizes of a device buffer, and where the fields of a step lie in its tensors: plain numbers that never change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .._base.frozen import Frozen
from .._base.narrow import name_of
from .._buffer.choices import Choices
from .._ring.lanes import block_of, depth_of
from .._ring.ring import slots_of_state
from ..errors import ArgumentError, message
from ..schema import Column

RECORDS = "ring/records"
_WITHOUT = ("uint16", "uint32", "uint64")  # PyTorch has hardly an operation for them


class Part(NamedTuple):
    """A field of a step, and where it lies.

    Attributes:
        keys: The keys that lead to it in a step.
        array: The name of the tensor that has it.
        offset: Its first byte in a row of that tensor.
        nbytes: Its bytes.
        dtype: Its elements.
        shape: Of one value; of a single frame where the field is stacked.
        observed: Whether it is a part of the observation, which has a successor.
        every: Its steps, where it is kept at every so many steps, in rows of its own; 0: it is kept at each.
        stack: Frames that one value shows, each of which has a row; 0: values have no axis of frames.
        repeats: Whether a stream's first frame stands for those before it; else zeros do.
        behind: Whether frames are the last axis of what is given and drawn; else they are the first of a value.
        writable: Whether it may be written back. Then it has an array of its own.
    """

    keys: tuple[str, ...]
    array: str
    offset: int
    nbytes: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    observed: bool
    every: int
    stack: int
    repeats: bool
    behind: bool
    writable: bool

    @property
    def frames(self) -> int:
        """Frames that one value shows; 1 without a stack."""
        return max(self.stack, 1)

    @property
    def whole(self) -> tuple[int, ...]:
        """The shape of one value in here: the frames are its first axis."""
        return (self.stack, *self.shape) if self.stack else self.shape

    @property
    def given(self) -> tuple[int, ...]:
        """The shape of one value as it is given and drawn."""
        return (*self.shape, self.stack) if self.behind else self.whole

    def ordered(self, values: Tensor) -> Tensor:
        """Given values `[L, ...]`, with frames first."""
        return values.movedim(-1, 1) if self.behind else values

    def shown(self, values: Tensor) -> Tensor:
        """Values `[..., *whole]` as they are drawn."""
        return values.movedim(-1 - len(self.shape), -1) if self.behind else values


class Layout(Frozen):
    """The sizes of the lanes, and all fields.

    Attributes:
        lanes: L.
        rows: R, rows of a lane.
        steps: S, steps that a lane keeps.
        block: K, rows of a lane that lie together.
        depth: Rows of a lane in memory, more than R.
        span: Steps of an item that have to be there before it can be drawn.
        lookback: Rows before an item that have to be stored, too.
        starts: Items start at steps whose number in the lane is a multiple of this.
        history: Older frames that an observation may bring, each of which takes a row where a stream begins.
        parts: The fields, those of a tensor in the order of their bytes.
        widths: Bytes of a row of each tensor that has fields.
    """

    lanes: int
    rows: int
    steps: int
    block: int
    depth: int
    span: int
    lookback: int
    starts: int
    history: int
    parts: tuple[Part, ...]
    widths: dict[str, int]

    @classmethod
    def of(cls, choices: Choices) -> Layout:
        """The layout of a buffer that is built from these choices.

        Raises:
            ArgumentError: A field of a dtype that PyTorch lacks.
        """
        lanes, rows, window = choices.num_envs, choices.rows, choices.window
        spec = choices.ring_spec(window, ())
        record = spec[RECORDS].dtype
        small: Mapping[str, Any] = record.fields or {}
        parts, widths = [], {RECORDS: record.itemsize}
        for column in choices.schema.columns:
            array, offset = (RECORDS, small[column.path][1]) if column.path in small else (f"ring/{column.path}", 0)
            field = column.field
            widths.setdefault(array, field.nbytes)
            observed = column.keys[0] == "obs"
            dtype, every = _dtype_of(column), field.every or 0
            kind = dtype, field.shape, observed, every, field.stack or 0, field.pad == "first", bool(field.stack_axis)
            parts.append(Part(column.keys, array, offset, field.nbytes, *kind, field.writable))
        return cls(
            lanes=lanes,
            rows=rows,
            steps=choices.steps,
            block=block_of(lanes, rows),
            depth=depth_of(lanes, rows),
            span=window.span,
            lookback=window.lookback,
            starts=window.starts,
            history=max(part.frames for part in parts) - 1,
            parts=tuple(sorted(parts, key=lambda part: (part.array, part.offset))),
            widths={array: width for array, width in widths.items() if width},
        )

    @property
    def slots(self) -> int:
        """L * R, the numbers by which samplers know rows."""
        return self.lanes * self.rows

    @property
    def total(self) -> int:
        """Rows of all lanes in memory."""
        return self.depth * self.lanes

    @property
    def most_ready(self) -> int:
        """Rows that one call can make ready in a lane: all that waited, a step, and the rows of two observations."""
        return min(self.span + 3 + 2 * self.history, self.rows)

    @property
    def most_claimed(self) -> int:
        """Rows that one call can claim in a lane: those of a cut, a step and an end, older frames."""
        return 3 + 2 * self.history

    @property
    def most_anchors(self) -> int:
        """Items among these: they start at every `starts`-th step."""
        return -(-min(self.span + 3, self.rows) // self.starts)

    def most_gone(self, runs: int) -> int:
        """Rows that one call can make unfit for items, where up to `runs` rows without a step follow each other."""
        return min(4 + runs + self.lookback + self.history, self.rows)

    @property
    def states(self) -> list[Part]:
        """The fields that are kept at every so many steps."""
        return [part for part in self.parts if part.every]

    @property
    def writable(self) -> set[str]:
        """The arrays of fields that may be written back."""
        return {part.array for part in self.parts if part.writable}

    @property
    def actions(self) -> list[Part]:
        """The fields of an action."""
        return [part for part in self.parts if part.keys[0] == "action"]

    @property
    def stacked(self) -> list[Part]:
        """The fields whose values are stacks of frames."""
        return [part for part in self.parts if part.stack]

    def kept(self, part: Part) -> int:
        """Rows of a lane that such a field has."""
        return slots_of_state(self.rows, part.every)

    def of_array(self, array: str) -> list[Part]:
        """The fields that a tensor has."""
        return [part for part in self.parts if part.array == array]

    def part(self, *keys: str) -> Part:
        """The field that these keys lead to."""
        return next(part for part in self.parts if part.keys == keys)

    def observed_bytes(self, array: str) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """255 for the bytes of a row that belong to the observation, 0 for the others."""
        mask = np.zeros(self.widths[array], np.uint8)
        for part in self.of_array(array):
            mask[part.offset : part.offset + part.nbytes] = 255 * part.observed
        return mask


def _dtype_of(column: Column) -> torch.dtype:
    name = name_of(column.field.dtype)
    found = None if name in _WITHOUT else getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        wanted = "a dtype that PyTorch computes with"
        raise ArgumentError(message(wanted, f"`{name}`", column.path, "store it as another, such as `int64`"))
    return found
