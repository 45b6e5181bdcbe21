"""The rules by which adding and drawing wait for each other, as a user gives them, and what was counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .._base import check
from .._base.frozen import Frozen
from ..errors import ArgumentError, message

_WIDTH = "RateLimiter(error_buffer)"


class RateLimiter(Frozen):
    """Let adding and drawing wait for each other, so that items are drawn at a steady rate per added step.

    The rules are those of Reverb's `SampleToInsertRatio`: with `i` steps added and `s` items drawn, `sample(n)` goes on
    when `i >= min_size` and `i * samples_per_insert - s - n >= min_size * samples_per_insert - error_buffer`. Adding
    `k` steps goes on when `i + k <= min_size` or `(i + k) * samples_per_insert - s <= min_size * samples_per_insert +
    error_buffer`. Every step of every lane counts, final observations do not.

    Args:
        samples_per_insert: Items drawn per step added, in the long run, > 0.
        min_size: Steps that have to be added before the first draw, >= 1.
        error_buffer: How many items the draws may be ahead or behind, >= `max(1, samples_per_insert)`. Where one call
            draws n items and another one adds k steps, `2 * error_buffer >= n + k * samples_per_insert` makes sure that
            one of them can always go on. None: `max(2 * max(1, samples_per_insert), 0.1 * samples_per_insert *
            min_size)`. Or the two limits of `i * samples_per_insert - s` themselves, `(least, most)`, at least
            `2 * max(1, samples_per_insert)` apart: draws leave `least`, which is at most `samples_per_insert *
            min_size`, adding stops at `most`.

    Attributes:
        least: `i * samples_per_insert - s`, as draws leave it at least.
        most: Up to which steps are added.
        timeout: Seconds after which a wait ends with `RateLimitTimeout`, >= 0; None: never.

    Raises:
        ArgumentError: A value outside these limits.

    Adding and drawing belong in different threads or processes: one thread that does both waits for itself, and only
    `timeout` ends that.

    >>> import relive
    >>> limiter = relive.RateLimiter(samples_per_insert=4, min_size=2, timeout=0.1)
    >>> schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    >>> buffer = relive.ReplayBuffer(schema, 100, limiter=limiter)
    >>> step = dict(obs=0.0, action=0.0, reward=0.0, next_obs=0.0, terminated=False, truncated=False)
    >>> ids = [buffer.add(**step) for _ in range(4)]
    >>> buffer.add(**step)
    Traceback (most recent call last):
        ...
    relive.errors.RateLimitTimeout: Waited for 0.1 s; 4 steps are added and 0 items drawn, and 4 more items have to ...
    >>> batch = buffer.sample(8)
    >>> buffer.add(**step).tolist(), buffer.stats().limiter.samples_per_insert
    ([4], 1.6)
    """

    samples_per_insert: float
    min_size: int
    error_buffer: float | tuple[float, float] = None  # type: ignore[assignment]  # no None from `__post_init__` on
    timeout: float | None = None

    def __post_init__(self) -> None:
        """Check the fields, and put the default in."""
        rate = check.real(self.samples_per_insert, "RateLimiter(samples_per_insert)", above=0.0)
        size = check.integer(self.min_size, "RateLimiter(min_size)", minimum=1)
        least = max(1.0, rate)
        width = max(2 * least, 0.1 * rate * size) if self.error_buffer is None else self.error_buffer
        width = _limits(width, rate, size) if isinstance(width, tuple | list) else check.real(width, _WIDTH, low=least)
        limit = None if self.timeout is None else check.real(self.timeout, "RateLimiter(timeout)", low=0.0)
        vars(self).update(samples_per_insert=rate, min_size=size, error_buffer=width, timeout=limit)

    @property
    def least(self) -> float:
        """The balance, items due for the steps that were added less those that were drawn, that draws leave."""
        if isinstance(self.error_buffer, tuple):
            return self.error_buffer[0]
        return self.samples_per_insert * self.min_size - self.error_buffer

    @property
    def most(self) -> float:
        """The balance up to which steps are added."""
        if isinstance(self.error_buffer, tuple):
            return self.error_buffer[1]
        return self.samples_per_insert * self.min_size + self.error_buffer


def _limits(given: Sequence[Any], rate: float, size: int) -> tuple[float, float]:
    """Return the argument `error_buffer` as a pair: wide enough, and not above the balance at which draws begin."""
    if len(given) != 2:
        wanted = "a number, or the limits `(least, most)`"
        raise ArgumentError(message(wanted, f"`{given!r}`", _WIDTH))
    least, most = (check.real(limit, f"{_WIDTH}[{i}]") for i, limit in enumerate(given))
    width = 2 * max(1.0, rate)
    if most - least < width:
        raise ArgumentError(message(f"limits that are at least {width:g} apart", f"`{given!r}`", _WIDTH))
    if least > rate * size:
        wanted = f"a lower limit <= `samples_per_insert * min_size`, {rate * size:g}"
        remedy = f"draws would wait for `min_size={_steps_to(least, rate)}`"
        raise ArgumentError(message(wanted, f"`{given!r}`", _WIDTH, remedy))
    return least, most


def _steps_to(balance: float, rate: float) -> int:
    """Count the steps to a balance of at least this."""
    from fractions import Fraction  # slow to load

    return math.ceil(Fraction(balance) / Fraction(rate))


def as_it_waited(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the saved fields of a limiter with the `min_size` at which it let the first draw pass.

    Earlier versions took limits above the balance at `min_size` steps.
    """
    limits, rate = facts["error_buffer"], facts["samples_per_insert"]
    if not isinstance(limits, list) or not limits[0] > rate * facts["min_size"] > 0:
        return facts
    return facts | {"min_size": _steps_to(limits[0], rate)}


class LimiterStats(Frozen, kw_only=True):
    """A limiter's counts over all processes; only finished waits are counted.

    Attributes:
        inserts: Steps added, as the limiter counts them: since the buffer was cleared.
        samples: Items drawn.
        samples_per_insert: `samples / inserts`, 0 before the first step.
        error: How many items the draws are behind (> 0) or ahead (< 0): `(inserts - min_size) * samples_per_insert -
            samples`, with the limiter's own rate.
        insert_waits: Calls that waited before they added.
        insert_seconds: How long all of them waited.
        sample_waits: Draws that waited.
        sample_seconds: How long all of them waited.
    """

    inserts: int
    samples: int
    samples_per_insert: float
    error: float
    insert_waits: int
    insert_seconds: float
    sample_waits: int
    sample_seconds: float


def checked(limiter: Any) -> RateLimiter | None:
    """Check the argument `limiter` of a buffer."""
    if limiter is not None and not isinstance(limiter, RateLimiter):
        raise ArgumentError(message("a `RateLimiter`", f"`{limiter!r}`", "ReplayBuffer(limiter)"))
    return limiter
