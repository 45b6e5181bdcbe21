"""Every item equally likely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _check, _kernels, _memory
from .._ring import Ring
from .._types import Bool, Float32, Float64, Int64
from ..errors import ArgumentError, message
from ._episodes import Episodes


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """Draw every drawable item with the same probability, over all lanes together, or every episode.

    Args:
        replacement: Whether a batch may hold an item twice. Without replacement a batch needs as many items as it is
            large.
        over: What is equally likely: each item (`"steps"`), or each episode that has one, and in it each of its items
            (`"episodes"`), so that items of short episodes are drawn more often. Only with replacement.

    Raises:
        ArgumentError: An argument outside these limits.

    Weights are 1. Cost: O(batch), whatever the buffer's size; 8 bytes per step of capacity, or 4 and 20 per episode.

    >>> Uniform()
    Uniform()
    """

    replacement: bool = True
    over: str = "steps"

    def __post_init__(self) -> None:
        _check.flag(self.replacement, "Uniform(replacement)")
        _check.one_of(self.over, ("steps", "episodes"), "Uniform(over)")
        if self.over == "episodes" and not self.replacement:
            wanted = "`replacement=True` with `over='episodes'`"
            remedy = "without replacement, long episodes would be drawn more and more often within a batch"
            raise ArgumentError(message(wanted, "`False`", "Uniform(replacement)", remedy))

    @property
    def prioritizes(self) -> bool:
        """False: there are no priorities to update."""
        return False

    def index(self, ring: Ring) -> _Uniform:
        """Return an empty index over the places of `ring`."""
        return _Uniform(Episodes(ring) if self.over == "episodes" else _Steps(self.replacement, ring.capacity))

    def __repr__(self) -> str:
        told = ["replacement=False"] if not self.replacement else []
        return f"Uniform({', '.join([*told, *(['over=' + repr(self.over)] if self.over != 'steps' else [])])})"


class _Steps:
    """The drawable places packed into the front of one array, so that a draw is a multiplication and a look-up."""

    def __init__(self, replacement: bool, capacity: int) -> None:
        dtype = np.dtype(np.int32 if capacity < 2**31 else np.int64)
        self._order, self._where = (_memory.zeros((capacity,), dtype) for _ in range(2))
        self._count = np.zeros(1, np.int64)
        self.listener = _kernels.active().Dense(self._order, self._where, self._count)
        self.change = self.listener.change
        self.draw = self.listener.draw if replacement else self.listener.draw_distinct

    @property
    def drawable(self) -> int:
        return self._count.item()


class _Uniform:
    """There are no priorities, and weights are 1; which places a draw returns is up to `places`."""

    def __init__(self, places: _Steps | Episodes) -> None:
        self._places = places
        self.listener = places.listener
        self.change = places.change
        self._drawn = 0

    @property
    def drawable(self) -> int:
        return self._places.drawable

    def check(self, priority: Float64) -> None:
        raise ArgumentError(message("a sampler with priorities", "`Uniform()`", "$.priority", "use `Prioritized()`"))

    def offer(self, places: Int64, priority: Float64 | None) -> None:
        """Nothing to note: `check` lets no priority through."""

    def draw(self, n: int, rng: Any, beta: float | None, items: int) -> tuple[Int64, Float32]:
        if beta is not None:
            raise ArgumentError(message("a sampler with priorities", "`Uniform()`", "$.beta", "use `Prioritized()`"))
        self._drawn = n
        return self._places.draw(np.ascontiguousarray(rng.random(n), np.float64)), np.ones(n, np.float32)

    def update(self, places: Int64, td_error: Float64, keep: Bool | None) -> None:
        remedy = "use `Prioritized()`"
        raise ArgumentError(
            message("a sampler with priorities", "`Uniform()`", "ReplayBuffer.update_priorities", remedy)
        )

    def priorities(self, places: Int64) -> Float64:
        return np.ones(len(places))

    def report(self) -> dict[str, Any]:
        return {"priority_quantiles": (), "effective_sample_size": float(self._drawn), "beta": 0.0}
