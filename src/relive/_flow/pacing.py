"""How adding and drawing keep pace: a limiter makes them wait for each other, and prefetching draws ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._base import check
from .._base.arrays import ArraySpec, Memory
from .._base.types import Int64
from .._buffer.adding import Adding
from .._buffer.arguments import no_priorities
from .._buffer.turn import Turn
from .._ring.ring import Ring
from ..batch import Batch
from ..errors import ArgumentError, message
from ..samplers import Sampler

if TYPE_CHECKING:
    from ..processes._link import Link
    from .limit import Limit
    from .limiter import RateLimiter
    from .prefetch import Prefetched

_AT = "ReplayBuffer.prefetch"


class Flowing:
    """The part of `ReplayBuffer` that waits, and that draws ahead."""

    limiter: RateLimiter | None
    sampler: Sampler
    _ring: Ring
    _adding: Adding
    _calls: list[Callable[..., Int64]]
    _turn: Turn
    _limit: Limit | None
    _link: Link | None
    _drawn: int
    _updates: int
    _stale: int
    _most: int
    _draw: Callable[[int, float | None], Batch]

    def prefetch(
        self,
        batch_size: int,
        *,
        depth: int = 2,
        to: str | None = None,
        device: Any = None,
        beta: float | None = None,
    ) -> Prefetched:
        """Draw in a background thread, so that the next batches are there when the learner asks for them.

        The batches are those that `sample` would draw at the moments at which the thread draws them. They move the
        generator and the clock of an `Anneal` like any draw; those that are not handed out count as drawn neither in
        `stats()` nor for a limiter. Priorities that are updated after a batch change those that are drawn later: of the
        next `depth` batches, which wait already, or one of which is just being drawn, nothing changes.

        Args:
            batch_size: Number of items of a batch, >= 1.
            depth: How many batches wait at most, >= 1.
            to: `"torch"` or `"jax"`: what the thread makes the batches into, as `Batch.torch` and `Batch.jax` do; None
                or `"numpy"`: they stay as they are.
            device: Where tensors or JAX's arrays go.
            beta: As in `sample`.

        Returns:
            An iterator of batches, which belong to the caller, and a context manager, whose end stops the thread. What
            a draw raises, such as `NotEnoughData`, is raised in place of its batch, and ends the iteration. With a
            limiter the thread waits as `sample` would; leaving the `with` block ends that.

        Raises:
            ArgumentError: An argument outside these limits, `beta` without priorities, or a `device` without tensors.
            MissingExtra: The package that `to` names is not installed.

        >>> import numpy as np, relive
        >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000, seed=0)
        >>> obs, flags = np.zeros((8, 3)), np.zeros(8, bool)
        >>> ids = buffer.extend(
        ...     obs=obs, action=flags, reward=np.ones(8), next_obs=obs, terminated=flags, truncated=flags
        ... )
        >>> with buffer.prefetch(4) as batches:
        ...     for step, batch in zip(range(3), batches):
        ...         assert batch.reward.tolist() == [1.0, 1.0, 1.0, 1.0]
        >>> buffer.stats().drawn
        12
        """
        from .prefetch import Prefetched, converter

        size = check.integer(batch_size, f"{_AT}(batch_size)", minimum=1)
        ahead = check.integer(depth, f"{_AT}(depth)", minimum=1)
        if size > self._most:
            raise self._too_many(size, f"{_AT}(batch_size)")
        if beta is not None:
            beta = check.real(beta, f"{_AT}(beta)", low=0.0)
            if not self.sampler.prioritizes:
                raise no_priorities(self.sampler, f"{_AT}(beta)")
        convert = converter(to, device)
        turn, limit = self._turn, self._limit
        account = None if limit is None else limit.drawing_ahead()

        def draw(stopped: Callable[[], bool]) -> Batch:
            since = None
            while True:
                with turn.alone():
                    if limit is None or limit.can_sample(size):
                        batch = self._draw(size, beta)
                        if account is not None:
                            account.items += size
                        break
                since = limit.wait_to_sample(size, since, stopped)
            return convert(batch)

        def handed_out() -> None:
            with turn.lock:
                self._count(size)
                if account is not None:
                    account.items -= size

        def dropped() -> None:
            if account is not None:
                account.over = True

        return Prefetched(draw, ahead, handed_out=handed_out, dropped=dropped, at=_AT)

    def _limited(self, limiter: Any) -> dict[str, ArraySpec]:
        """Take the argument `limiter`; the array that it needs."""
        if limiter is None:
            self.limiter = None
            return {}
        from .limit import NAME, SPEC
        from .limiter import checked

        self.limiter = checked(limiter)
        return {NAME: SPEC}

    def _paced(self, memory: Memory) -> list[Callable[..., Int64]]:
        """`add` and `extend`, which wait if there is a limiter."""
        self._limit = None
        if self.limiter is None:
            return self._calls
        from .limit import Limit

        self._limit = Limit(self.limiter, self._ring.counters, memory)
        return [self._limit.before(call, several) for call, several in zip(self._calls, (False, True), strict=True)]

    def _slow_adds(self) -> int:
        """Calls in which Python had to read a value."""
        return self._adding.parsed + sum(getattr(call, "asked", 0) for call in self._calls)

    def _sample_in_time(self, limit: Limit, items: int, beta: float | None) -> Batch:
        """Draw as soon as the limiter allows it."""
        since = None
        while True:
            with self._turn.alone():
                if limit.can_sample(items):
                    batch = self._draw(items, beta)
                    self._count(items)
                    return batch
            since = limit.wait_to_sample(items, since)

    def _count(self, items: int) -> None:
        """Count items as drawn, under the lock."""
        self._drawn += items
        if self._limit is not None:
            self._limit.sampled(items)

    def _count_update(self, given: int, dropped: int) -> None:
        """Count an update of `given` priorities of which `dropped` had no item, under the lock."""
        self._updates += given
        self._stale += dropped
        if self._link is not None:
            self._link.count(given, dropped)

    def _too_many(self, items: int, at: str) -> ArgumentError:
        """The error of a draw of `items` items."""
        return ArgumentError(message(f"at most {self._most} items, as many as fit in memory", f"`{items}`", at))
