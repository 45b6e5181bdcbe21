"""A `RateLimiter` over shards: draws wait until enough steps are there. Adding never waits for draws."""

from __future__ import annotations

import numpy as np

from .._flow.limit import NAME, SPEC, Limit
from .._flow.limiter import RateLimiter
from .._ring.lanes import COUNTERS, STEPS
from ..storage import Ram
from ._health import Health

_PAUSE = 0.02


class Pace:
    """Limits the draws of one handle by the steps that all shards were given since it was made.

    Args:
        limiter: The rules.
        health: What is known of the shards; asked anew while a draw waits. Steps that they have now, such as those of
            a save, count as `min_size` at most.
    """

    def __init__(self, limiter: RateLimiter, health: Health) -> None:
        self._health, self._counters = health, np.zeros((1, COUNTERS), np.int64)
        self._count()
        self._limit = Limit(limiter, self._counters, Ram().open({NAME: SPEC}, b""))

    def may(self, items: int) -> bool:
        """Return whether so many items may be drawn now."""
        self._count()
        return self._limit.can_sample(items)

    def wait(self, items: int, at: str) -> None:
        """Wait until so many items may be drawn.

        Raises:
            RateLimitTimeout: It takes longer than the limiter's `timeout`.
            ArgumentError: It would never end, and there is no timeout.
        """
        self._count()
        self._limit.wait_to_sample(items, stopped=self._hear, at=at)

    def drawn(self, items: int) -> None:
        """Count items as drawn."""
        self._limit.sampled(items)

    def _hear(self) -> bool:
        """Ask the shards; never a reason to stop waiting."""
        self._health.hear_all(_PAUSE)
        self._count()
        return False

    def _count(self) -> None:
        """Take over how many steps were added; those of a shard that died and began anew count once."""
        self._counters[0, STEPS] = self._health.added
