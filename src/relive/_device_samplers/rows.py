"""What draws know of a device buffer's rows: ids and bounds, no fields."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Written(NamedTuple):
    """The rows that a call wrote.

    Attributes:
        ids: int64 `[L]`.
        active: The lanes that took part, bool `[L]`.
        rows: The places of the row before, its own, the one after, and the row that can start items now, int64
            `[4, L]`.
    """

    ids: Tensor
    active: Tensor
    rows: Tensor


class Rows(Protocol):
    """The rows of all lanes; `relive.device` has them.

    Attributes:
        lanes: L.
        rows: R.
        size: `R * L`.
        span: Rows of an item.
        starts: Items start at calls whose number is a multiple of this.
        holes: True once any lane may have been left out.
        flags: uint8 `[R * L]`.
        clock: int64 `[3]`, of which `call` and `next` are parts: the numbers of the next call and of its first id.
        call: See above.
        next: See above.
        counts: What is counted, by `device_counts`.
        none: -1, as a tensor.
        spare: A place that takes what must not be written.
        zero: By dtype.
    """

    lanes: int
    rows: int
    size: int
    span: int
    starts: int
    holes: bool
    flags: Tensor
    clock: Tensor
    call: Tensor
    next: Tensor
    counts: Tensor
    none: Tensor
    spare: Tensor
    zero: dict[torch.dtype, Tensor]

    def numbers(self, n: int) -> Tensor: ...
    def bounds(self) -> tuple[Tensor, Tensor]: ...
    def ids_at(self, at: Tensor) -> Tensor: ...
    def drawable(self, ids: Tensor) -> Tensor: ...
    def last_of(self, at: Tensor) -> Tensor: ...
