"""Transitions of n steps, read from rows."""

from __future__ import annotations

import torch
from torch import Tensor

from .._disk.device_rows import LOST, OVER, STOP, TERMINATED, TRUNCATED
from ..items import Transitions
from ._fields import Fields, taken, widened
from ._ring import LanesRing


class TransitionReader:
    """Expands places of first steps to transitions.

    Args:
        ring: The rows.
        item: The windows.
    """

    def __init__(self, ring: LanesRing, item: Transitions) -> None:
        self._ring, self._item, device = ring, item, ring.clock.device
        self._k = torch.arange(item.n_step, device=device)
        self._powers = torch.tensor([item.gamma**k for k in range(item.n_step + 1)]).to(device)
        bits = [[TERMINATED], [TRUNCATED], [OVER], [TERMINATED | LOST]]
        self._bits = torch.tensor(bits, dtype=torch.uint8).to(device)
        self._wanted = torch.tensor([[TERMINATED], [TRUNCATED], [0], [0]], dtype=torch.uint8).to(device)

    def read(self, ids: Tensor, at: Tensor) -> Fields:
        """Return the fields of the items at `at`, whose ids are not needed."""
        ring, item = self._ring, self._item
        last, steps = at, None
        if item.n_step > 1 or item.chunk:
            rows = (at[:, None] + self._k * ring.lanes) % ring.size
            window = ring.flags[rows]
            k = torch.where((window & STOP) > 0, self._k, self._k[-1]).amin(1, keepdim=True)
            inside, steps = self._k <= k, k[:, 0] + 1
            last, flags = rows.gather(1, k)[:, 0], window.gather(1, k)[:, 0]
        else:
            flags = ring.flags[at]
        terminated, truncated, free, live = (flags & self._bits) == self._wanted
        after = ring.successor(last, free)
        fields: Fields = {}
        for field in ring.fields:
            data, name, places = ring.data[field], field.keys[0], ring.stacks.places
            if field.observed:
                fields[field.keys] = field.shown(taken(data, places(field, at, at, 0)))
                fields["next_obs", *field.keys[1:]] = field.shown(taken(data, places(field, last, after, 1)))
            elif steps is not None and (name == "reward" or (item.chunk and name == "action")):
                values = taken(data, rows)
                if name == "reward":
                    values = values * widened(self._powers[:-1], values[0])
                values = torch.where(widened(inside, values), values, ring.zero[field.dtype])
                fields[field.keys] = values.sum(1, dtype=field.dtype) if name == "reward" else values
            else:
                fields[field.keys] = taken(data, ring.kept(field, at))
        fields["discount",] = live * (self._powers[1] if steps is None else self._powers[steps])
        fields["terminated",], fields["truncated",] = terminated, truncated
        fields["steps",] = ring.one_step.expand(len(at)).clone() if steps is None else steps.int()
        return fields | ({("mask",): inside} if item.chunk else {})
