"""Newer items more often."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import cast

import numpy as np

from .._base import check
from .._base.arrays import ArraySpec, Memory
from .._base.frozen import Frozen
from .._base.types import Array, Float64, Int64
from .._ring.kernels_numpy.power import covered, decay, reached
from .._ring.ring import Ring
from ..errors import ArgumentError, message
from ._protocol import Draw, Index, Report, Sampler, Share
from ._weighing import ImportanceWeights, beta_at, check_weights
from .anneal import Anneal
from .uniform import queue_of, queue_spec


class Recent(Frozen, Sampler, kw_only=True):
    """Draw an item with a probability in proportion to `q**age`: a geometric law that ends at the oldest stored item.

    The age counts the items of the same lane that are newer, in a `DeviceBuffer` the calls at which newer ones start.
    One of `mean_age` and `share` says what q is.

    Args:
        mean_age: Mean age of what is drawn, > 0, once much more than that is stored: `q = mean_age / (1 + mean_age)`.
        share: Mean age as a share of what the fullest lane has stored, above 0 and below 0.5, which would be uniform.
            The law then keeps its shape while the buffer fills.
        beta: Exponent of the weights `(N * P(i))**-beta`, >= 0: a number, or an `Anneal`; 0: weights are 1.
        weights: What weights are divided by, as in `Prioritized`: `"batch"`, `"buffer"` or `"none"`.

    Raises:
        ArgumentError: An argument outside these limits; both or none of `mean_age` and `share`.

    Cost: O(batch) for any size of buffer. Memory: 4 bytes per row of capacity (twice that from 2**31 rows on). What is
    drawn depends on the stored steps and the generator only.

    Source: "When Does Non-Uniform Replay Matter in Reinforcement Learning?", arXiv 2605.10236, 2026: it helps where few
    items are drawn per step, with high entropy, and does no harm where many are.

    >>> import numpy as np, relive
    >>> schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    >>> buffer = relive.ReplayBuffer(schema, 1000, sampler=Recent(share=0.25), seed=0)
    >>> time, no = np.arange(1000.0), np.zeros(1000, bool)
    >>> ids = buffer.extend(obs=time, action=time, reward=time, next_obs=time + 1, terminated=no, truncated=no)
    >>> ages = 999 - buffer.sample(100_000).ids
    >>> bool(abs(ages.mean() - 250) < 5)
    True
    >>> newest, oldest = buffer.probability([999, 0])
    >>> round(newest / oldest)
    36
    """

    mean_age: float | None = None
    share: float | None = None
    beta: float | Anneal = 0.0
    weights: str = "batch"

    def __post_init__(self) -> None:
        if (self.mean_age is None) == (self.share is None):
            got = "none of them" if self.share is None else "both"
            raise ArgumentError(message("one of `mean_age` and `share`", got, "Recent"))
        if self.mean_age is not None:
            object.__setattr__(self, "mean_age", check.real(self.mean_age, "Recent(mean_age)", above=0.0))
        else:
            object.__setattr__(self, "share", check.real(self.share, "Recent(share)", above=0.0, below=0.5))
        check_weights(self, "Recent")

    @property
    def replacement(self) -> bool:
        """True."""
        return True

    @property
    def rate(self) -> float:
        """The binary logarithm of `1 / q`; with a `share`, times the items of the fullest lane."""
        return _rate(self)

    def spec(self, lanes: int, rows: int) -> dict[str, ArraySpec]:
        """Specify a queue of anchors per lane, and the clock of `beta`."""
        return {**queue_spec(lanes, rows), "recency.draws": ImportanceWeights.SPEC}

    def masses(self, n: int, slots: Mapping[str, Array]) -> Float64:
        """Return the powers of q."""
        ages = slots["age"]
        rate = self.rate / (1 if self.share is None else int(ages.max(initial=0)) + 1)
        return decay(rate * ages)

    def beta_at(self, call: int) -> float:
        """Return `beta`, or that of the `Anneal`."""
        return beta_at(self.beta, call)

    def index(self, ring: Ring, memory: Memory) -> Index:
        """Return an index over the slots of `ring`."""
        return cast(Index, _Recent(self, ring, memory))

    def __repr__(self) -> str:
        given = {name: value for name, value in vars(self).items() if value != self._defaults[name]}
        return f"Recent({', '.join(f'{name}={value!r}' for name, value in given.items())})"


class _Recent:
    """A queue of anchors per lane, whose ends are drawn from by the inverse of the distribution function."""

    def __init__(self, settings: Recent, ring: Ring, memory: Memory) -> None:
        queue, self._ends = queue_of(ring, memory)
        self._law = law = queue.recency(settings.rate, settings.share is not None)
        self.refresh = law.refresh
        draws = memory.host("recency.draws")
        self._weighing = ImportanceWeights(settings.beta_at, settings.weights, draws)
        self.chooser = law.chooser(draws, settings)

    def draw(self, n: int, rng: np.random.Generator, beta: float | None) -> Draw:
        """Return `n` slots and their importance-sampling weights."""
        weighing, law = self._weighing, self._law
        beta = weighing.next(beta)
        slots, masses = self.draw_at(check.uniforms(rng, n))
        if weighing.scale == "batch":
            return Draw(slots, weighing.weights(masses, float(masses.min()), beta), masses, beta)
        reference = law.smallest() if weighing.scale == "buffer" else law.total() / self._items
        return Draw(slots, weighing.weights(masses, reference, beta), None, beta)

    def probability(self, slots: Int64) -> Float64:
        return self._law.masses(slots) / self._law.total()

    def share(self) -> Share:
        items = self._items
        return Share(self._law.total(), items, self._law.smallest() if items else math.inf, 0.0)

    def draw_at(self, fractions: Float64) -> tuple[Int64, Float64]:
        return self._law.draw(fractions)

    def report(self) -> Callable[[], Report]:
        beta = self._weighing.beta
        return lambda: Report(beta=beta)

    @property
    def _items(self) -> int:
        return int((self._ends[:, 1] - self._ends[:, 0]).sum())


def _rate(settings: Recent) -> float:
    """Return the binary logarithm of 1 / q; with a `share`, times the items of the fullest lane.

    By the kernels' own logarithms and powers: what is drawn does not depend on the C library.
    """
    if settings.mean_age is not None:
        return float(reached(np.array([1.0 / (1.0 + settings.mean_age)]))[0])
    # Of a density exp(-x * age) over ages from 0 to 1 the mean is 1 / x - 1 / (exp(x) - 1). Newton's method begins on
    # the left of its root, and stays there, since the mean is convex.
    share = float(settings.share or 0.0)
    x = 12.0 * (0.5 - share)
    for _ in range(60):
        t = np.array([x * math.log2(math.e)])
        left, gone = float(decay(t)[0]), float(covered(t)[0])
        mean, slope = 1 / x - left / gone, 1 / x**2 - left / gone**2
        if x < 0.05:
            mean, slope = 0.5 - x / 12 + x**3 / 720, 1 / 12 - x**2 / 240
        before, x = x, x + (mean - share) / slope
        if x == before:  # so would be all that follow
            break
    return x * math.log2(math.e)
