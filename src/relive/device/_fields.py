"""The fields of a step, and their tensors' dtypes and shapes."""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from .._base.narrow import name_of
from ..errors import ArgumentError, message
from ..schema import Column, Schema

Keys: TypeAlias = tuple[str, ...]
Fields: TypeAlias = dict[Keys, Tensor]

_WITHOUT = ("uint16", "uint32", "uint64")  # PyTorch has hardly an operation for them


class TensorField(NamedTuple):
    """A field of a step.

    Attributes:
        keys: The keys that lead to it in a step.
        dtype: Its elements.
        shape: Of one value; of a single frame where values are stacks.
        stack: Frames of a value; 0: values are no stacks.
        repeats: True where a stream's first frame is the padding of its first stacks; else zeros are.
        behind: True where frames are the last axis of what is given and drawn; else the first one of a value.
        every: The field is kept at calls whose number is a multiple of this.
        writable: True where it may be written back.
    """

    keys: Keys
    dtype: torch.dtype
    shape: tuple[int, ...]
    stack: int
    repeats: bool
    behind: bool
    every: int
    writable: bool

    @property
    def observed(self) -> bool:
        """True for a part of the observation, which has a successor."""
        return self.keys[0] == "obs"

    @property
    def nbytes(self) -> int:
        """The bytes of one value, of a single frame where values are stacks."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def given(self) -> tuple[int, ...]:
        """The shape of one value as it is given and drawn."""
        if not self.stack:
            return self.shape
        return (*self.shape, self.stack) if self.behind else (self.stack, *self.shape)

    def framed(self, given: Tensor) -> Tensor:
        """Return given values `[L, ...]` with frames as their second axis."""
        return given.movedim(-1, 1) if self.behind else given

    def newest(self, given: Tensor) -> Tensor:
        """Return the part of given values `[L, ...]` that a row holds: of a stack the newest frame."""
        return self.framed(given)[:, -1] if self.stack else given

    def shown(self, values: Tensor) -> Tensor:
        """Return gathered values `[..., frames, *shape]` as a batch has them."""
        return values.movedim(-1 - len(self.shape), -1) if self.behind else values


def fields_of(schema: Schema) -> list[TensorField]:
    """List the fields of a schema.

    Raises:
        ArgumentError: A field of a dtype that PyTorch lacks.
    """
    found = []
    for column in schema.columns:
        field = column.field
        kind = (
            field.stack or 0,
            field.pad == "first",
            bool(field.stack and field.stack_axis),
            field.every or 1,
            field.writable,
        )
        found.append(TensorField(column.keys, _dtype_of(column), field.shape, *kind))
    return found


def _dtype_of(column: Column) -> torch.dtype:
    name = name_of(column.field.dtype)
    found = None if name in _WITHOUT else getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        wanted = "a dtype that PyTorch computes with"
        raise ArgumentError(message(wanted, f"`{name}`", column.path, "store it as another, such as `int64`"))
    return found


def taken(data: Tensor, at: Tensor) -> Tensor:
    """Return the rows of flat data at places of any shape."""
    return data.index_select(0, at.reshape(-1)).view(*at.shape, *data.shape[1:])


def widened(mask: Tensor, values: Tensor) -> Tensor:
    """Return a mask of the first axes in a shape that fits values with more of them."""
    return mask.reshape(*mask.shape, *[1] * (values.ndim - mask.ndim))


def unlike(one: Tensor, other: Tensor) -> Tensor:
    """Return which of the values `[L, ...]` differ in a byte, bool `[L]`."""
    one, other = (each.reshape(len(each), 1, -1).contiguous().view(torch.uint8) for each in (one, other))
    return (one != other).flatten(1).any(1)
