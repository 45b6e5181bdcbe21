"""How often is learned, and how far actors may be ahead: by counting steps, or as a `RateLimiter` has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import relive
from relive_lab.config import TrainerConfig
from relive_lab.crew.outbox import waiting


def limiter_of(config: TrainerConfig, item: Any) -> relive.RateLimiter | None:
    """Return the limiter that the settings ask for, if they do.

    Its band has room for a batch and for all steps that wait in actors, so that one side can always go on.

    Args:
        config: The settings.
        item: What a draw expands to.
    """
    rate = config.samples_per_insert
    if rate is None:
        return None
    least, held = max(1, config.start_steps), waiting(item)[1] if config.actors and config.use_per else 1
    width = max(0.1 * rate * least, config.batch_size + rate * config.lanes * (held + 1), 2.0)
    return relive.RateLimiter(samples_per_insert=rate, min_size=least, error_buffer=width)


class Pace:
    """The steps and updates that are due next; made when training begins, with all steps in the buffer.

    Args:
        config: The settings.
        buffer: The replay buffer, or shards.
        step: Steps done.
        updates: Updates done.
    """

    def __init__(self, config: TrainerConfig, buffer: Any, step: int, updates: int) -> None:
        self._config, self._buffer, self._limiter = config, buffer, buffer.limiter
        if self._limiter is not None:
            stats, limit = buffer.stats(), self._limiter
            counted: Any = getattr(stats, "limiter", None)  # shards count what was there as `min_size` at most
            behind = min(stats.added - limit.min_size, 0) * limit.samples_per_insert
            width = limit.most - limit.min_size * limit.samples_per_insert
            self._room = width - (behind if counted is None else counted.error)
            self._since = step, updates

    def updates(self, step: int, moved: int) -> int:
        """Return how many updates are due after the last `moved` steps, up to `step`."""
        c = self._config
        if self._limiter is not None:
            return int(self._buffer.can_sample(c.batch_size))
        if step <= c.start_steps or not self._buffer.can_sample(1):
            return 0
        return (step // c.update_every - (step - moved) // c.update_every) * c.updates_per_step

    @property
    def blocked(self) -> bool:
        """True if a limiter wants an update before the next step."""
        return self._limiter is not None and bool(self._buffer.can_sample(self._config.batch_size))

    def follow(self, step: int, updates: int, wait: Callable[[int, int | None], int]) -> int:
        """Wait for actors' steps up to the next update; return how many there are then.

        Args:
            step: Steps done.
            updates: Updates done.
            wait: Waits until there are so many, or for a moment, while actors may do so many; returns how many there
                are.
        """
        c = self._config
        if self._limiter is not None:
            wanted, allowed = step if self.blocked else step + 1, self._allowed(updates, self._limiter)
            return min(wait(wanted, allowed), c.total_steps)
        due = c.start_steps if step < c.start_steps else (step // c.update_every + 1) * c.update_every
        due = min(due, c.total_steps)
        return min(wait(due, None), due)

    def _allowed(self, updates: int, limiter: relive.RateLimiter) -> int:
        """Return up to which step the limiter lets actors add, whatever of it is still on its way."""
        begun, before = self._since
        return begun + int((self._room + (updates - before) * self._config.batch_size) / limiter.samples_per_insert)
