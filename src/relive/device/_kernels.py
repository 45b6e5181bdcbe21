"""What a device buffer asks of its kernels."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from ._ops_gather import Fields
from ._ops_write import Step


class Chosen(NamedTuple):
    """Items that a sampler chose.

    Attributes:
        slots: int64 `[B]`.
        weights: Importance-sampling weights, float32 `[B]`; 0 where there are no items.
        valid: Whether there are items, bool, of no axis.
    """

    slots: Tensor
    weights: Tensor
    valid: Tensor


class Kernels(Protocol):
    """The calls of a buffer on its tensors; arguments are checked, and no call waits for the device."""

    def add(self, step: Step) -> Tensor:
        """Write a step; its ids, int64 `[L]`, -1 for lanes that take no part."""

    def cut(self, who: Tensor) -> None:
        """End the streams of lanes that are open."""

    def clear(self) -> None:
        """Empty all lanes."""

    def choose(self, n: int, beta: Tensor | None) -> Chosen:
        """Choose `n` items; `beta` None: the sampler's own."""

    def gather(self, chosen: Chosen) -> Fields:
        """The fields of items, but for their weights."""

    def update(self, ids: Tensor, td_error: Tensor) -> None:
        """Set priorities, all or nothing."""

    def priorities(self, ids: Tensor) -> Tensor:
        """Raw priorities, float64 `[B]`; NaN where an item cannot be drawn."""
