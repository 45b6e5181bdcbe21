"""How often is learned, and how far actors may be ahead: by counting steps, or as a `RateLimiter` has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import relive
from relive.lab._config import TrainerConfig
from relive.lab._outbox import waiting

if TYPE_CHECKING:
    from relive.lab._algorithm import Algorithm


def limiter_of(config: TrainerConfig, item: Any) -> relive.RateLimiter | None:
    """The limiter that the settings ask for, if they do.

    Its band has room for a batch and for all steps that wait in actors, so that one side can always go on.

    Args:
        config: The settings.
        item: What a draw expands to.
    """
    rate = config.samples_per_insert
    if rate is None:
        return None
    least, held = max(1, config.start_steps), waiting(item)[1] if config.actors and config.use_per else 1
    lanes = config.num_envs * max(1, config.actors)
    width = max(0.1 * rate * least, config.batch_size + rate * lanes * (held + 1), 2.0)
    return relive.RateLimiter(samples_per_insert=rate, min_size=least, error_buffer=width)


class Pace:
    """What is due next; made when training begins, with all steps in the buffer.

    Args:
        trainer: The learner.
    """

    def __init__(self, trainer: Algorithm[Any]) -> None:
        self._trainer, self._limiter = trainer, trainer.buffer.limiter
        if self._limiter is not None:
            stats, limit = trainer.buffer.stats(), self._limiter
            counted: Any = getattr(stats, "limiter", None)  # shards count what was there as `min_size` at most
            behind = min(stats.added - limit.min_size, 0) * limit.samples_per_insert
            width = limit.most - limit.min_size * limit.samples_per_insert
            self._room = width - (behind if counted is None else counted.error)
            self._since = trainer.step, trainer.updates

    def updates(self) -> int:
        """How many updates are due after the last steps."""
        trainer = self._trainer
        c: TrainerConfig = trainer.config
        if self._limiter is not None:
            return int(trainer.buffer.can_sample(c.batch_size))
        if trainer.step <= c.start_steps or not trainer.buffer.can_sample(1):
            return 0
        rounds = trainer.step // c.update_every - (trainer.step - trainer._moved) // c.update_every
        return rounds * c.updates_per_step

    def follow(self, wait: Callable[[int, int | None], int]) -> int:
        """Have actors bring steps; return how many there are then: up to where the next update is due, with a count.

        Args:
            wait: Waits until there are so many, or for a moment, while actors may do so many; returns how many there
                are.
        """
        step = self._trainer.step
        c: TrainerConfig = self._trainer.config
        if self._limiter is not None:
            ready = self._trainer.buffer.can_sample(c.batch_size)
            return min(wait(step if ready else step + 1, self._allowed(self._limiter)), c.total_steps)
        due = c.start_steps if step < c.start_steps else (step // c.update_every + 1) * c.update_every
        due = min(due, c.total_steps)
        return min(wait(due, None), due)

    def _allowed(self, limiter: relive.RateLimiter) -> int:
        """Up to which step the limiter lets actors add, whatever of it is still on its way."""
        step, updates = self._since
        drawn: int = (self._trainer.updates - updates) * self._trainer.config.batch_size
        return step + int((self._room + drawn) / limiter.samples_per_insert)
