"""Stacks of frames: each row has the newest frame of its stack, and earlier rows of the stream have the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .._disk.device_rows import FIRST
from ._fields import Fields, TensorField, taken, unlike, widened
from ._step import LanesStep


class Stacks:
    """The frames of a ring's observations.

    Args:
        fields: All fields of a step.
        data: The values of each.
        flags: Those of the rows.
        lanes: L.
    """

    def __init__(
        self, fields: Sequence[TensorField], data: Mapping[TensorField, Tensor], flags: Tensor, lanes: int
    ) -> None:
        self._fields, self._data, self._flags, self._lanes = fields, data, flags, lanes
        deepest = max([field.stack for field in fields] + [1])
        self._ages = torch.arange(deepest, device=flags.device)
        self._all = torch.ones(lanes, dtype=torch.bool, device=flags.device)

    def places(self, field: TensorField, base: Tensor, newest: Tensor, shift: Tensor | int) -> Tensor:
        """Return the places of an observation's frames, `[..., frames]`, oldest first; without frames `newest`.

        Args:
            field: The field.
            base: The step whose row, and those before it in its stream, have the older frames.
            newest: The place of the newest frame: the same one, or that of the step's successor.
            shift: 0 or 1 for these two.
        """
        if not field.stack:
            return newest
        lanes, size, base = self._lanes, len(self._flags), base[..., None]
        shift = shift if isinstance(shift, int) else shift[..., None]
        first = (self._flags[(base - self._ages[: field.stack - 1] * lanes) % size] & FIRST) > 0
        past = (~first).to(torch.uint8).cumprod(-1).sum(-1, keepdim=True)  # older rows of the stream
        back = self._ages[: field.stack].flip(0) - shift
        at = (base - torch.minimum(back, past) * lanes) % size
        if not field.repeats:
            at = torch.where(back <= past, at, len(self._data[field]) - 1)
        return torch.cat((at[..., :-1], newest[..., None]), -1)

    def strays(self, before: Tensor, held: Fields, values: Fields) -> Tensor:
        """Return the lanes whose observation is not the successor that was stored, byte by byte."""
        found = ~self._all
        for field in self._fields:
            if field.observed:
                found = found | unlike(field.newest(values[field.keys]), held[field.keys])
                if field.stack:
                    shown = taken(self._data[field], self.places(field, before, before, 1))
                    found = found | unlike(field.framed(values[field.keys])[:, :-1], shown[:, :-1])
        return found

    def fit(self, open_: Tensor, step: LanesStep) -> Tensor:
        """Return the lanes whose stacks the stored frames can show: padded at a stream's begin, else shifted by one."""
        found, ended = self._all, step.terminated | step.truncated
        for field in self._fields:
            if field.stack:
                now, after, final = (field.framed(each[field.keys]) for each in (step.values, step.nexts, step.finals))
                padding = now[:, -1:] if field.repeats else torch.zeros_like(now[:, -1:])
                found = found & (open_ | ~unlike(now[:, :-1], padding.expand_as(now[:, :-1])))
                after = torch.where(widened(ended, after), final, after)
                found = found & ~unlike(now[:, 1:], after[:, :-1])
        return found
