"""Every item equally likely."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

import numpy as np

from .._base import check
from .._base.arrays import ArraySpec, Memory
from .._base.frozen import Frozen
from .._base.types import Array, Float64, Int64
from .._ring import kernels
from .._ring.ring import Ring
from ..errors import ArgumentError, message
from ._protocol import Draw, Index, Report, Sampler, Share

if TYPE_CHECKING:
    from .._ring.kernel_types import QueueKernel


class Uniform(Frozen, Sampler, kw_only=True):
    """Draw every drawable item with the same probability, over all lanes together, or every episode.

    Args:
        replacement: Whether a batch may hold an item twice. Without replacement a batch needs as many items as it is
            large.
        over: What is equally likely: each item (`"steps"`), or each episode that has one, and in it each of its items
            (`"episodes"`), so that items of short episodes are drawn more often. Only with replacement.

    Raises:
        ArgumentError: An argument outside these limits.

    Weights are 1. Cost: O(batch) for any size of buffer. Memory: 4 bytes per row of capacity, 8 over episodes (twice
    that from 2**31 rows on). What is drawn depends on the stored steps and the generator only.

    >>> Uniform()
    Uniform()
    """

    replacement: bool = True
    over: str = "steps"

    def __post_init__(self) -> None:
        check.flag(self.replacement, "Uniform(replacement)")
        check.one_of(self.over, ("steps", "episodes"), "Uniform(over)")
        if self.over == "episodes" and not self.replacement:
            wanted = "`replacement=True` with `over='episodes'`"
            remedy = "without replacement, long episodes would be drawn more and more often within a batch"
            raise ArgumentError(message(wanted, "`False`", "Uniform(replacement)", remedy))

    @property
    def indivisible(self) -> None:
        """None: without replacement, too, the shards' parts of a batch follow from how many items each has."""

    @property
    def masses(self) -> Callable[[int, Mapping[str, Array]], Float64] | None:
        """One for each item; None over episodes, which a save does not have by item."""
        return _ones if self.over == "steps" else None

    def spec(self, lanes: int, rows: int) -> dict[str, ArraySpec]:
        """Specify a queue of anchors per lane, the begins of its episodes, and counters."""
        return queue_spec(lanes, rows, self.over == "episodes")

    def index(self, ring: Ring, memory: Memory) -> Index:
        """Return an index over the slots of `ring`."""
        return cast(Index, _Uniform(self, ring, memory))

    def __repr__(self) -> str:
        parts = ["replacement=False"] if not self.replacement else []
        return f"Uniform({', '.join([*parts, *(['over=' + repr(self.over)] if self.over != 'steps' else [])])})"


class _Uniform:
    """A queue of anchors per lane, so that a draw is a multiplication and a look-up; weights are 1."""

    def __init__(self, settings: Uniform, ring: Ring, memory: Memory) -> None:
        episodes = settings.over == "episodes"
        queue, self._ends = queue_of(ring, memory, episodes)
        self.refresh, self.probability = queue.refresh, queue.probability
        self._total = slice(2, 4) if episodes else slice(0, 2)
        draw = queue.draw if settings.replacement else queue.draw_distinct
        self.masses_of = None if episodes else np.ones_like
        self._draw = queue.draw_episodes if episodes else draw
        self._ones = np.ones(0, np.float32)
        self.chooser = queue.chooser(settings.replacement)

    def draw(self, n: int, rng: np.random.Generator, beta: float | None) -> Draw:
        if len(self._ones) != n:
            self._ones = np.ones(n, np.float32)
        return Draw(self._draw(check.uniforms(rng, n)), self._ones.copy())

    def share(self) -> Share:
        gone, come = self._ends[:, self._total].sum(axis=0).tolist()
        items = int((self._ends[:, 1] - self._ends[:, 0]).sum())
        return Share(float(come - gone), items, 1.0 if items else math.inf, 0.0)

    def draw_at(self, fractions: Float64) -> tuple[Int64, Float64]:
        return self._draw(fractions), np.ones(len(fractions))

    def report(self) -> Callable[[], Report]:
        return Report


def queue_spec(lanes: int, rows: int, episodes: bool = False) -> dict[str, ArraySpec]:
    """Specify a queue of anchors per lane, the begins of its episodes if they matter, and counters."""
    numbers = ArraySpec((lanes, rows), np.dtype(np.int32 if lanes * rows < 2**31 else np.int64), "rebuilt")
    integers = np.dtype(np.int64)
    return {
        "anchors": numbers,
        **({"anchors.episodes": numbers} if episodes else {}),
        "anchors.ends": ArraySpec((lanes, 4), integers, "rebuilt"),
        "anchors.seen": ArraySpec((lanes, 3), integers, "rebuilt"),
    }


def queue_of(ring: Ring, memory: Memory, episodes: bool = False) -> tuple[QueueKernel, Int64]:
    """Make the queue of a ring's anchors over arrays as `queue_spec` has them; return it and its `anchors.ends`.

    Draws depend on what is stored alone: the queue is built anew, which no kill in mid-call can have spoilt. Members of
    a blend have one queue together, which takes in changes once.
    """
    shared: dict[bool, tuple[QueueKernel, Int64]] = getattr(memory, "shared", {})
    if episodes not in shared:
        ends, seen = memory.host("anchors.ends"), memory.host("anchors.seen")
        ends[:], seen[:] = 0, 0
        firsts = memory.host("anchors.episodes") if episodes else None
        shared[episodes] = kernels.active().Queue(ring.kernel, memory.host("anchors"), firsts, ends, seen), ends
    return shared[episodes]


def _ones(n: int, slots: Mapping[str, Array]) -> Float64:
    return np.ones(n)
