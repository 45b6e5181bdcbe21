"""What a device buffer asks of its kernels."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from ._layout import Part
from ._ops_gather import Fields
from ._ops_write import Step


class Kernels(Protocol):
    """The calls of a buffer on its tensors; arguments are checked, and no call waits for the device."""

    def add(self, step: Step) -> Tensor:
        """Write a step; its ids, int64 `[L]`, -1 for lanes that take no part."""

    def cut(self, who: Tensor) -> None:
        """End the streams of lanes that are open."""

    def clear(self) -> None:
        """Empty all lanes."""

    def sample(self, n: int, beta: Tensor | None) -> Fields:
        """The fields of `n` items; `beta` None: the sampler's own. Without items zeros, and ids of -1."""

    def update(self, ids: Tensor, td_error: Tensor) -> None:
        """Set priorities, all or nothing."""

    def write(self, ids: Tensor, values: list[tuple[Part, Tensor]]) -> None:
        """Write values, bytes `[n, bytes]`, to the steps with these ids, all or nothing."""

    def priorities(self, ids: Tensor) -> Tensor:
        """Raw priorities, float64 `[B]`; NaN where an item cannot be drawn."""
