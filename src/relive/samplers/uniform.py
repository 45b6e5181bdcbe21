"""Every item equally likely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _check, _kernels, _memory
from .._types import Bool, Float32, Float64, Int64
from ..errors import ArgumentError, message


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """Draw every drawable item with the same probability, over all lanes together.

    Args:
        replacement: Whether a batch may hold an item twice. Without replacement a batch needs as many items as it is
            large.

    Weights are 1. Cost: O(batch), whatever the buffer's size; 8 bytes per step of capacity.

    >>> Uniform()
    Uniform()
    """

    replacement: bool = True

    def __post_init__(self) -> None:
        _check.flag(self.replacement, "Uniform(replacement)")

    @property
    def prioritizes(self) -> bool:
        """False: there are no priorities to update."""
        return False

    def index(self, capacity: int) -> _Uniform:
        """Return an empty index over `capacity` places."""
        return _Uniform(self, capacity)

    def __repr__(self) -> str:
        return "Uniform()" if self.replacement else "Uniform(replacement=False)"


class _Uniform:
    """The drawable places packed into the front of one array, so that a draw is a multiplication and a look-up."""

    def __init__(self, settings: Uniform, capacity: int) -> None:
        self._replacement = settings.replacement
        dtype = np.int32 if capacity < 2**31 else np.int64
        self._order = _memory.zeros((capacity,), np.dtype(dtype))
        self._where = _memory.zeros((capacity,), np.dtype(dtype))
        self._count = np.zeros(1, np.int64)
        self._dense = _kernels.active().Dense(self._order, self._where, self._count)
        self.change = self._dense.change
        self._drawn = 0

    @property
    def drawable(self) -> int:
        return self._count.item()

    @property
    def listener(self) -> Any:
        return self._dense

    def check(self, priority: Float64) -> None:
        raise ArgumentError(message("a sampler with priorities", "`Uniform()`", "$.priority", "use `Prioritized()`"))

    def offer(self, places: Int64, priority: Float64 | None) -> None:
        """Nothing to note: `check` lets no priority through."""

    def draw(self, n: int, rng: Any, beta: float | None, items: int) -> tuple[Int64, Float32]:
        if beta is not None:
            raise ArgumentError(message("a sampler with priorities", "`Uniform()`", "$.beta", "use `Prioritized()`"))
        uniforms = np.ascontiguousarray(rng.random(n), np.float64)
        self._drawn = n
        places = self._dense.draw(uniforms) if self._replacement else self._dense.draw_distinct(uniforms)
        return places, np.ones(n, np.float32)

    def update(self, places: Int64, td_error: Float64, keep: Bool | None) -> None:
        remedy = "use `Prioritized()`"
        raise ArgumentError(
            message("a sampler with priorities", "`Uniform()`", "ReplayBuffer.update_priorities", remedy)
        )

    def priorities(self, places: Int64) -> Float64:
        return np.ones(len(places))

    def report(self) -> dict[str, Any]:
        return {"priority_quantiles": (), "effective_sample_size": float(self._drawn), "beta": 0.0}
