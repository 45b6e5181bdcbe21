"""Sizes of a device buffer, and where the fields of a step lie in its tensors: plain numbers that never change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

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
        shape: Of one value.
        observed: Whether it is a part of the observation, which has a successor.
        every: Its steps, where it is kept at every so many steps, in rows of its own; 0: it is kept at each.
    """

    keys: tuple[str, ...]
    array: str
    offset: int
    nbytes: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    observed: bool
    every: int


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
            parts.append(Part(column.keys, array, offset, field.nbytes, dtype, field.shape, observed, every))
        return cls(
            lanes=lanes,
            rows=rows,
            steps=choices.steps,
            block=block_of(lanes, rows),
            depth=depth_of(lanes, rows),
            span=window.span,
            lookback=window.lookback,
            starts=window.starts,
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
        return min(self.span + 3, self.rows)

    @property
    def most_claimed(self) -> int:
        """Rows that one call can claim in a lane: of a stream that is closed, a step, an episode's end."""
        return 3

    @property
    def most_anchors(self) -> int:
        """Items among these: they start at every `starts`-th step."""
        return -(-self.most_ready // self.starts)

    @property
    def states(self) -> list[Part]:
        """The fields that are kept at every so many steps."""
        return [part for part in self.parts if part.every]

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
