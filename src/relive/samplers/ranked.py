"""Items drawn in proportion to a power of the rank of their priority."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

import numpy as np

from .. import sum_tree
from .._base import memory as _memory
from .._base.arrays import ArraySpec, Memory
from .._base.frozen import Frozen
from .._base.priorities import unfit
from .._base.types import Array, Bool, Float64, Int64
from .._ring import kernels as _kernels
from .._ring.ring import Ring
from ..errors import ArgumentError, message
from ._priorities import ProportionalSampling, beta_at, check_settings, sound
from ._protocol import Carried, Index, Report, Sampler
from .anneal import Anneal


class Ranked(Frozen, Sampler, kw_only=True):
    """Draw item i with probability `(1 / rank(i))**alpha / sum`, where rank 1 has the largest `|td_error| + eps`.

    Ranks are exact at every draw. Of equal priorities the one that was set earlier ranks higher. A new item gets the
    largest priority ever set (`initial` until there is one), or what `add(..., priority=...)` says; an item whose
    priority is 0 has no rank and is not drawn until it is updated.

    Only the order of TD errors matters, not their size: an outlier takes the share of rank 1 and no more, and the
    shares stay as they are when all errors shrink. `Prioritized` needs no order and is the cheaper of the two.

    Args:
        alpha: How strongly ranks count, >= 0: 0 draws uniformly, and from about 60 on the first in rank is drawn
            practically every time. Applied exactly once.
        beta: Exponent of the importance-sampling correction, >= 0: a number, or an `Anneal` that moves by one at every
            `sample`.
        eps: Added to `|td_error|`, >= 0; with 0, an item whose error was 0 is not drawn again until it is updated.
        weights: What the weights `(N * P(i))**-beta` are divided by: the largest in the batch (`"batch"`), the largest
            in the buffer (`"buffer"`), or nothing (`"none"`). With batches of one, `"batch"` makes every weight 1.
        stratified: One draw in each of `batch` equal slices of the total, in the order of ranks; else independent
            draws. Draws without replacement are successive draws and never stratified.
        replacement: Whether a batch may hold an item twice.
        initial: Raw priority of new items until the first priority is set, >= 0.

    Raises:
        ArgumentError: An argument outside these limits.

    Source: Schaul et al., "Prioritized Experience Replay", ICLR 2016, section 3.3, second variant. There ranks are
    approximate: they are sorted anew only now and then.

    Cost: O(batch * log N) for a draw and O(m log N) for m changed priorities or added steps, with no call that takes
    many times longer than the others: steps are ranked while they are added, some thousand at once. With batches of
    256, a draw and its update take about four times as long as with `Prioritized`, at 10**4 and at 10**6 items.
    Memory: 56 to 64 bytes per row of capacity (priority 8, order of setting 8, arrival 8, order of ranks 22 to 29,
    tree 10.3), 8 more once `priority=` has been used. A buffer has fewer than 2**31 rows.

    >>> Ranked(alpha=0.7, beta=Anneal(0.5, 1.0, over=200_000)).alpha
    0.7
    """

    alpha: float = 0.7
    beta: float | Anneal = 0.4
    eps: float = 1e-6
    weights: str = "batch"
    stratified: bool = True
    replacement: bool = True
    initial: float = 1.0

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def prioritizes(self) -> bool:
        """True."""
        return True

    @property
    def keeps(self) -> tuple[str, ...]:
        """The priorities that steps are given, and when they became ready, which orders equal priorities."""
        return ("given", "arrival")

    def spec(self, lanes: int, rows: int) -> dict[str, ArraySpec]:
        """The priority of every slot and when it was set; the largest priority and a clock; the counters last seen.

        Raises:
            ArgumentError: 2**31 rows or more.
        """
        if lanes * rows >= 2**31:
            raise ArgumentError(message("fewer than 2**31 rows", f"`{lanes * rows}`", "Ranked.spec(lanes, rows)"))
        numbers, integers = np.dtype(np.float64), np.dtype(np.int64)
        return {
            "ranks": ArraySpec((lanes * rows,), numbers, "slots"),
            "ranks.stamps": ArraySpec((lanes * rows,), integers, "slots"),
            "ranks.state": ArraySpec((2,), numbers),
            "ranks.seen": ArraySpec((lanes, 3), integers, "seen"),
            "ranks.draws": ArraySpec((2,), numbers),
        }

    def beta_at(self, call: int) -> float:
        """`beta`, or that of the `Anneal`."""
        return beta_at(self.beta, call)

    @property
    def indivisible(self) -> str:
        """A rank depends on the items of all shards."""
        return "a rank is one among all items, which no shard knows; use `Prioritized()`"

    def masses(self, n: int, slots: Mapping[str, Array]) -> Float64:
        """`rank**-alpha`; 0 where there is no rank."""
        raw, found = slots["ranks"], np.empty(n)
        found[np.lexsort((slots["ranks.stamps"], -raw))] = np.arange(1.0, n + 1) ** -self.alpha
        return np.asarray(found * (raw > 0))

    def carried(self, slots: Mapping[str, Array], whole: Mapping[str, Float64]) -> Carried:
        """The raw priorities in what was saved of the arrays of `spec`."""
        return Carried(slots["ranks"], slots["ranks.stamps"], float(whole["ranks.state"][0]))

    def sound(self, slots: Mapping[str, Array], whole: Mapping[str, Float64], anchors: Int64) -> bool:
        """Whether what was saved of the arrays of `spec` can be so; `anchors`: which slots can be drawn."""
        times = (slots["ranks.stamps"], whole["ranks.state"][1:])
        timely = all(bool((each < 2**53).all()) for each in times)
        return timely and sound(slots["ranks"], anchors, *times, whole["ranks.state"], whole["ranks.draws"])

    def index(self, ring: Ring, memory: Memory) -> Index:
        """Return an index over the slots of `ring`."""
        return cast(Index, _Ranked(self, ring, memory))


class _Ranked:
    """Slots in the order of their ranks, and a sum tree over ranks, whose leaves `rank**-alpha` never change.

    The storage has the priority of every slot and when it was set; order and tree are built from these.
    """

    def __init__(self, settings: Ranked, ring: Ring, memory: Memory) -> None:
        self._settings, kernels = settings, _kernels.active()
        self._raw, self._state = memory.host("ranks"), memory.host("ranks.state")
        self._levels = _memory.zeros(sum_tree.size(ring.slots), np.float64)
        self._places = _memory.zeros(kernels.order_size(ring.slots), np.float64)
        tree_state = np.zeros(sum_tree.STATE)
        tree = kernels.Tree(*sum_tree.carve(self._levels, ring.slots), tree_state)
        kept = (self._raw, memory.host("ranks.stamps"), self._state)
        self._ranks = kernels.Ranks(tree, self._places, *kept, settings.alpha)
        if not memory.fresh:
            self._ranks.rebuild()
        seen, draws = memory.host("ranks.seen"), memory.host("ranks.draws")
        self._sampling = ProportionalSampling(settings, self._ranks, tree_state, draws)
        self.chooser = self._ranks.chooser(ring.kernel, seen, draws, settings)
        self.draw, self.priorities = self._sampling.draw, self._raw.__getitem__
        self.refresh = partial(self._ranks.refresh, ring.kernel, seen, settings.initial)

    def update(self, slots: Int64, td_error: Float64, keep: Bool | None) -> None:
        if not self._ranks.update(slots, td_error, keep, self._settings.eps):
            raise unfit(td_error, self._settings.eps)

    def masses_of(self, raw: Float64) -> Float64:
        raw, found = np.where(np.isnan(raw), self._state[0] or self._settings.initial, raw), np.empty(len(raw))
        found[np.argsort(-raw, kind="stable")] = np.arange(1.0, len(raw) + 1) ** -self._settings.alpha
        return np.asarray(found * (raw > 0))

    def adopt(self, slots: Int64, raw: Float64, largest: float) -> None:
        self._ranks.update(slots, raw, None, 0.0)
        self._state[0] = largest

    def report(self) -> Callable[[], Report]:
        return self._sampling.report(self._raw)
