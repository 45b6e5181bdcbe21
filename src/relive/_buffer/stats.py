"""What a buffer can say about itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .._base.arrays import QUARTERS, quantiles
from .._base.forks import importing
from .._base.frozen import Frozen
from .._base.types import Float32, Float64, Int64
from .._ring.ring import Ring
from ..errors import ArgumentError, message
from ..samplers import Report

if TYPE_CHECKING:
    from .._flow.limiter import LimiterStats

_POINTS = tuple(f"{100 * q:g}" for q in QUARTERS)


class AutosaveStats(Frozen, kw_only=True):
    """The record of an autosave so far.

    Attributes:
        path: The directory.
        number: The number of the last complete save.
        saves: Saves that came to their end.
        age: Seconds since the instant that the last complete save holds; what came later is lost with the process. 0
            where nothing has changed since.
        seconds: How long the last save took.
        stopped: Seconds for which calls of the buffer had to wait, in all saves together.
        bytes_written: By all saves together.
        errors: Saves that failed. Each was tried again.
        error: Why the last save failed; empty if it did not.
    """

    path: str
    number: int
    saves: int
    age: float
    seconds: float
    stopped: float
    bytes_written: int
    errors: int
    error: str


class Stats(Frozen, kw_only=True):
    """A snapshot of one buffer.

    Attributes:
        size: Steps stored now.
        capacity: The most steps that are stored.
        drawable: Items that can be drawn now.
        waiting: Steps that no item can start at yet: too few steps have followed them, or what followed the newest one
            was not given, or the draws of this process have not taken them in, since writers of others outran them.
        nbytes: Bytes of the ring's arrays when the buffer is full: columns, marks, counters, and what the sampler wants
            recorded for every row. The sampler's own arrays are not included; its documentation has their size.
        added: Steps ever added.
        drawn: Items ever drawn.
        replay_ratio: `drawn / added`, 0 before the first step.
        cuts: Streams cut: by an `obs` that differs from the `next_obs` before it, or by `cut`.
        unbootstrapped: Truncated steps that came without a final observation.
        ends: Episodes whose final observation differs from the observation before it, counted when the lane's next
            stream begins.
        repeated_finals: Those of them whose next stream begins with the same final observation. Nearly all do where
            steps that only reset are added, or where the next episode's first observation is given as the final one.
        updates: Priorities given by `update_priorities`, those that were dropped included.
        stale_updates: Priorities dropped because their item could not be drawn: overwritten, dropped by a cut, or not
            complete yet.
        slow_adds: Calls of `add` and `extend` by this process in which Python had to read a value, many times slower
            than the native kernels: an object with `__array__`, a `longdouble`, a cast to complex numbers. With the
            NumPy kernels, every call.
        beta: Exponent of the last draw's weights; 0 for uniform draws.
        effective_sample_size: `(sum w)**2 / sum w**2` of the last draw's weights: how many equally weighted items it
            is worth.
        priority_quantiles: Raw priorities at 0, 25, 50, 75 and 100 %, over the items with a positive one; empty for
            `Uniform`. Of more than 16,384 rows those between the ends come from a sample of 8,192, which moves a point
            by 2 % at most: from 25 to 27 %.
        age_quantiles: Rows of the same lane that are newer than the items of the last draw, at the same points.
        limiter: What the limiter counted; None without one.
        autosave: What the autosave did; None without one.
        unused: Items that were overwritten before `Once` had drawn them as often as it may.
        draw_age: Mean of the ages of `age_quantiles`, and the age below which 95 % of them are.
        draw_entropy: How evenly the sampler draws: the entropy of a draw of one item, less that of a uniform draw, from
            the last draw's items and their present probabilities; its exponential is the share of all items that draws
            are spread over. None before a draw, and where the sampler knows no probabilities.

    >>> import relive
    >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000)
    >>> buffer.stats().size, buffer.stats().capacity
    (0, 1000)
    """

    size: int
    capacity: int
    drawable: int
    waiting: int
    nbytes: int
    added: int
    drawn: int
    replay_ratio: float
    cuts: int
    unbootstrapped: int
    ends: int
    repeated_finals: int
    updates: int
    stale_updates: int
    slow_adds: int
    beta: float
    effective_sample_size: float
    priority_quantiles: tuple[float, ...]
    age_quantiles: tuple[float, ...]
    limiter: LimiterStats | None
    autosave: AutosaveStats | None = None
    unused: int = 0
    draw_age: tuple[float, ...] = ()
    draw_entropy: float | None = None

    def __str__(self) -> str:
        rows = [(name, _shown(value)) for name, value in self.flat().items()]
        wide, long = (max(len(row[i]) for row in rows) for i in (0, 1))
        return "\n".join(f"{name:<{wide}}  {value:>{long}}" for name, value in rows)

    def _repr_html_(self) -> str:
        with importing:
            from .._base.page import fragment

        return fragment("Stats", (), [(name, _shown(value)) for name, value in self.flat().items()])

    def flat(self, prefix: str = "") -> dict[str, float]:
        """Return the numbers by name, for a logger: quantiles as `age_quantiles/50`, parts as `autosave/age`.

        Args:
            prefix: What all names begin with, such as `"replay/"`.

        Raises:
            ArgumentError: `prefix` is no text.

        >>> import relive
        >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000)
        >>> buffer.stats().flat("replay/")["replay/capacity"]  # writer.add_scalar(name, value, step) of each
        1000
        """
        if not isinstance(prefix, str):
            raise ArgumentError(message("text", f"`{prefix!r}`", "Stats.flat(prefix)"))
        return {prefix + name: value for name, value in _numbers(self)}

    @property
    def replay_volume(self) -> float:
        """`replay_ratio`, by its name beside the age and the entropy of what is drawn."""
        return self.replay_ratio


def _numbers(stats: Frozen) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a record by name."""
    for name, value in vars(stats).items():
        if isinstance(value, tuple):
            points = ("mean", "95") if name == "draw_age" else _POINTS
            yield from ((f"{name}/{point}", number) for point, number in zip(points, value, strict=False))
        elif isinstance(value, Frozen):
            yield from ((f"{name}/{part}", number) for part, number in _numbers(value))
        elif isinstance(value, int | float):
            yield name, value


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def snapshot(
    ring: Ring,
    missing: int,
    report: Callable[[], Report],
    ids: Int64,
    weights: Float32,
    counts: Mapping[str, Any],
    limiter: LimiterStats | None = None,
    autosave: AutosaveStats | None = None,
    chances: Float64 | None = None,
) -> Callable[[], Stats]:
    """Take the statistics of a buffer whose last draw returned `ids` with `weights`.

    What can be computed later is left to the function that is returned, which looks at the buffer no more.

    Args:
        ring: The steps.
        missing: Items that wait, since the sampler has not taken them in yet.
        report: The sampler's part.
        ids: As above.
        weights: As above.
        counts: Sums that are in no array, and `nbytes`, as `Stats` names them.
        limiter: Its part.
        autosave: Its part.
        chances: The probabilities of those of the ids that can still be drawn.
    """
    tally, ages, wide = dict(ring.tally()), ring.ages(ids), weights.astype(np.float64)
    added, capacity = tally["added"], ring.lanes * ring.steps
    tally["drawable"] -= missing
    tally["waiting"] += missing

    def stats() -> Stats:
        points = quantiles(ages, (*QUARTERS, 0.95))
        return Stats(
            size=tally["stored"],
            drawable=tally["drawable"],
            waiting=tally["waiting"],
            added=added,
            replay_ratio=counts["drawn"] / added if added else 0.0,
            cuts=tally["cuts"],
            unbootstrapped=tally["unbootstrapped"],
            ends=tally["ends"],
            repeated_finals=tally["repeats"],
            age_quantiles=tuple(points[:-1]),
            capacity=capacity,
            **counts,
            effective_sample_size=float(wide.sum() ** 2 / (wide**2).sum()) if len(wide) else 0.0,
            limiter=limiter,
            autosave=autosave,
            draw_age=(float(ages.mean()), points[-1]) if points else (),
            draw_entropy=evenness(chances, tally["drawable"]),
            **vars(report()),
        )

    return stats


def evenness(chances: Float64 | None, items: int) -> float | None:
    """Estimate the entropy of a draw, less that of a uniform one of `items`, from the probabilities of drawn items."""
    if chances is None or not (chances > 0).any():
        return None
    return 0.0 - float(np.log(chances[chances > 0] * items).mean())
