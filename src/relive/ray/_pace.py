"""A `RateLimiter` over shards: draws wait until enough steps are there. Adding never waits for draws."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

from .._flow.limiter import RateLimiter
from ..errors import ArgumentError, RateLimitTimeout, event, message
from ._health import Health

_PAUSE, _STALL = 0.02, 5.0
_LOG = logging.getLogger("relive")


class Pace:
    """Counts what one handle draws against what was added to all shards since it was made.

    Args:
        limiter: The rules.
        health: What is known of the shards; asked anew while a draw waits.
        clock: Seconds.
        before: Steps that were there before, such as those of a save; they count as `min_size` at most.
    """

    def __init__(
        self, limiter: RateLimiter, health: Health, clock: Callable[[], float] = time.monotonic, before: int = 0
    ) -> None:
        self._limiter, self._health, self._clock = limiter, health, clock
        self._before = max(0, before - limiter.min_size)
        self.samples = 0

    @property
    def inserts(self) -> int:
        """Steps added. Those of a shard that died and began anew are not counted twice, nor forgotten."""
        return max(0, self._health.added - self._before)

    def may(self, items: int) -> bool:
        """Whether so many items may be drawn now."""
        balance = self.inserts * self._limiter.samples_per_insert - self.samples - items
        return self.inserts >= self._limiter.min_size and balance >= self._limiter.least

    def wait(self, items: int, at: str) -> None:
        """Wait until so many items may be drawn.

        Raises:
            RateLimitTimeout: It takes longer than the limiter's `timeout`.
            ArgumentError: It would never end, and there is no timeout.
        """
        limiter, begun, warned = self._limiter, self._clock(), False
        most = int(limiter.most - limiter.least)
        if limiter.timeout is None and items > most:
            remedy = "raise the limiter's `error_buffer`"
            raise ArgumentError(message(f"at most {most} items a call", f"{items}", at, remedy))
        while not self.may(items):
            waited = self._clock() - begun
            if limiter.timeout is not None and waited >= limiter.timeout:
                raise RateLimitTimeout(event(f"Waited for {limiter.timeout:g} s; {self._reason(items)}", at))
            if waited > _STALL and not warned:
                warned = True
                _LOG.warning("%s", event(f"A draw has waited for {waited:.0f} s; {self._reason(items)}", at))
            self._health.hear_all(_PAUSE)
            if not self.may(items):
                time.sleep(_PAUSE)

    def _reason(self, items: int) -> str:
        rate, inserts = self._limiter.samples_per_insert, self.inserts
        behind = (self._limiter.least + self.samples + items) / rate - inserts
        missing = max(1, self._limiter.min_size - inserts, math.ceil(behind))
        return f"{inserts} steps are added and {self.samples} items drawn, and {missing} more steps have to be added"
