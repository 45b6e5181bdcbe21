"""Items drawn in proportion to a power of their priority."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

import numpy as np

from .. import sum_tree
from .._base import check
from .._base.arrays import ArraySpec, Memory, quantiles
from .._base.frozen import Frozen
from .._base.priorities import falling, unfit, valid
from .._base.types import Bool, Float64, Int64
from .._ring import kernels
from .._ring.ring import Ring
from ._protocol import Carried, Draw, Index, Report, Sampler, Share
from ._weighing import SCALES, ImportanceWeights, beta_at, check_weights
from .anneal import Anneal

# Leaves of which a report has exact quantiles. The places of a sample are multiples of the second number, which has no
# common factor with a number of lanes, and leaves gaps of nearly one size.
_ALL, _SPREAD = 1 << 14, 2_654_435_761


class Prioritized(Frozen, Sampler, kw_only=True):
    """Draw item i with probability `p_i**alpha / sum`, where `p_i = |td_error_i| + eps` (proportional prioritization).

    A new item gets the largest priority ever set (`initial` until there is one), or what `add(..., priority=...)` says.

    Args:
        alpha: How strongly priorities count, >= 0; 0 draws uniformly, and keeps of each priority only whether it is
            positive, which counts as 1, unless `newest="stored"`. Applied exactly once.
        beta: Exponent of the importance-sampling correction, >= 0: a number, or an `Anneal` that moves by one at every
            `sample`.
        eps: Added to `|td_error|`, >= 0, so that every item keeps a nonzero probability.
        weights: What the weights `(N * P(i))**-beta` are divided by: the largest in the batch (`"batch"`), the largest
            in the buffer (`"buffer"`), or nothing (`"none"`). Three scales of the learning rate. With batches of one,
            `"batch"` makes every weight 1.
        stratified: One draw in each of `batch` equal slices of the total, in the order of anchors; else independent
            draws. Draws without replacement are successive draws and never stratified.
        replacement: Whether a batch may hold an item twice.
        initial: Raw priority of new items until the first priority is set, >= 0.
        newest: Which priority new items get: the largest that was ever set or given (`"largest"`), or the largest that
            was stored when priorities were last updated, or was given since (`"stored"`), so that one outlier does not
            stand for the rest of the run. Not for `Shards` and `DeviceBuffer`.

    Raises:
        ArgumentError: An argument outside these limits.

    Source: Schaul et al., "Prioritized Experience Replay", ICLR 2016, section 3.3. Memory: 10.3 bytes per row of
    capacity (a float64 leaf, and its share of sums and minima), as much again with `newest="stored"`, 8 more once
    `priority=` has been used.

    >>> Prioritized(alpha=0.6, beta=Anneal(0.4, 1.0, over=200_000)).eps
    1e-06
    """

    alpha: float = 0.6
    beta: float | Anneal = 0.4
    eps: float = 1e-6
    weights: str = "batch"
    stratified: bool = True
    replacement: bool = True
    initial: float = 1.0
    newest: str = "largest"

    def __post_init__(self) -> None:
        for name in ("alpha", "eps", "initial"):
            object.__setattr__(self, name, check.real(getattr(self, name), f"Prioritized({name})", low=0.0))
        check_weights(self, "Prioritized")
        check.flag(self.stratified, "Prioritized(stratified)")
        check.flag(self.replacement, "Prioritized(replacement)")
        check.one_of(self.newest, ("largest", "stored"), "Prioritized(newest)")

    def __repr__(self) -> str:
        return super().__repr__().replace(", newest='largest'", "")

    @property
    def prioritizes(self) -> bool:
        """True."""
        return True

    def spec(self, lanes: int, rows: int) -> dict[str, ArraySpec]:
        """Return a sum tree over the slots, its state, and the ring's counters at the last look."""
        numbers = np.dtype(np.float64)
        tree = ArraySpec((sum_tree.size(lanes * rows),), numbers, "slots")
        return {
            "priorities": tree,
            **({"priorities.raw": tree} if self.newest == "stored" else {}),
            "priorities.state": ArraySpec((sum_tree.STATE,), numbers),
            "priorities.seen": ArraySpec((lanes, 3), np.dtype(np.int64), "seen"),
            "priorities.draws": ImportanceWeights.SPEC,
        }

    @property
    def indivisible(self) -> str | None:
        """Draws are divided, but that no shard knows what is stored in the others."""
        if self.newest == "stored":
            return "no shard knows the priorities that others store; use `newest='largest'`"
        return super().indivisible

    def beta_at(self, call: int) -> float:
        """Return `beta`, or that of the `Anneal`."""
        return beta_at(self.beta, call)

    def masses(self, n: int, slots: Mapping[str, Float64]) -> Float64:
        """Return the leaves of the tree."""
        return slots["priorities"]

    def carried(self, slots: Mapping[str, Float64], whole: Mapping[str, Float64]) -> Carried:
        """Return the raw priorities in what was saved of the arrays of `spec`."""
        kept = slots.get("priorities.raw")
        raw = _raw(slots["priorities"], self.alpha) if kept is None else falling(kept)
        return Carried(raw, float(whole["priorities.state"][3]))

    def sound(self, slots: Mapping[str, Float64], whole: Mapping[str, Float64], anchors: Int64) -> bool:
        """Return whether what was saved of the arrays of `spec` can be so; `anchors`: which slots can be drawn."""
        trees = [slots[name] for name in ("priorities", "priorities.raw") if name in slots]
        numbers = whole["priorities.state"][3:4], whole["priorities.draws"], *trees
        others = np.ones(len(trees[0]), bool)
        others[anchors] = False
        return all(valid(each).all() for each in numbers) and not any(tree[others].any() for tree in trees)

    def index(self, ring: Ring, memory: Memory) -> Index:
        """Return an index over the slots of `ring`."""
        return cast(Index, _Prioritized(self, ring, memory))


class _Prioritized:
    """A sum tree whose leaves are `p**alpha` at the slots that can be drawn and 0 elsewhere.

    `priorities.draws` is float64 `[2]`: how many draws there were, and the last one's beta.
    """

    def __init__(self, settings: Prioritized, ring: Ring, memory: Memory) -> None:
        self._settings = settings
        self._state = state = memory.host("priorities.state")
        if memory.fresh:
            state[1] = math.inf
        sums, mins = sum_tree.carve(memory.host("priorities"), ring.slots)
        self._leaves, self._mins = sums[0][: ring.slots], mins
        self._tree = kernels.active().Tree(sums, mins, state)
        self._raws = self._kept_raws(ring, memory) if settings.newest == "stored" else None
        if not memory.fresh:
            # Sums, minima and counts may be those of a call that a kill ended halfway; a leaf that was drawn is then
            # negative, where nothing is drawn twice.
            self._tree.restore()
        seen, draws = memory.host("priorities.seen"), memory.host("priorities.draws")
        self._weighing = ImportanceWeights(settings.beta_at, settings.weights, draws)
        self._scale = SCALES.index(settings.weights)
        self.chooser = self._tree.chooser(ring.kernel, seen, draws, settings)
        self.refresh = partial(self._tree.refresh, ring.kernel, seen, settings.initial, settings.alpha)
        self._try_update, self._seen, self._kernel = self._tree.try_update, seen, ring.kernel

    def _kept_raws(self, ring: Ring, memory: Memory) -> Float64:
        """Open a further tree, whose smallest leaf is the largest raw priority; see `falling`."""
        sums, mins = sum_tree.carve(memory.host("priorities.raw"), ring.slots)
        state = np.zeros(sum_tree.STATE)
        state[1] = math.inf
        raws = kernels.active().Tree(sums, mins, state)
        if not memory.fresh:
            raws.restore()
        self._tree.keep_raws(raws)
        self._raw_mins = mins
        return sums[0][: ring.slots]

    def draw(self, n: int, rng: np.random.Generator, beta: float | None) -> Draw:
        """Return `n` slots and their importance-sampling weights."""
        settings, beta = self._settings, self._weighing.next(beta)
        items = self._state.item(4) if self._scale == 2 else 1.0
        u = check.uniforms(rng, n)
        found = self._tree.sample(u, settings.stratified, settings.replacement, self._scale, items, beta)
        return Draw(found.leaves, found.weights, None if self._scale else found.values, beta)

    def try_update(self, ids: object, td_error: object) -> bool:
        """`update` for ids that can all be drawn, where arguments are plain arrays; False, and no change, otherwise."""
        own = self._settings
        return self._try_update(self._kernel, self._seen, ids, td_error, own.initial, own.eps, own.alpha)

    def update(self, slots: Int64, td_error: Float64, keep: Bool | None) -> None:
        if not self._tree.update(slots, td_error, keep, self._settings.eps, self._settings.alpha):
            raise unfit(td_error, self._settings.eps)

    def probability(self, slots: Int64) -> Float64:
        return np.asarray(self._tree.get(slots) / (self._state.item(0) or 1.0))  # all are 0 where the sum is

    def priorities(self, slots: Int64) -> Float64:
        if self._raws is not None:
            return falling(self._raws[slots])
        return _raw(self._tree.get(slots), self._settings.alpha)

    def masses_of(self, raw: Float64) -> Float64:
        raw = np.where(np.isnan(raw), self._state[3] or self._settings.initial, raw)
        return np.asarray(raw**self._settings.alpha * (raw > 0))

    def share(self) -> Share:
        total, smallest, _, largest, items = self._state.tolist()
        return Share(total, int(items), smallest, largest)

    def draw_at(self, fractions: Float64) -> tuple[Int64, Float64]:
        if self._settings.replacement:
            return self._tree.draw(fractions, False)
        return self._tree.draw_distinct(fractions)

    def raise_priority(self, raw: float) -> None:
        self._state[3] = max(self._state[3], raw)

    def adopt(self, slots: Int64, raw: Float64, largest: float) -> None:
        self._tree.update(slots, raw, None, 0.0, self._settings.alpha)
        if self._raws is None:
            self._state[3] = largest

    def report(self) -> Callable[[], Report]:
        alpha, beta = self._settings.alpha, self._weighing.beta
        used = int(self._seen[:, 1].max()) * len(self._seen)  # slots that have had a drawable item
        if self._raws is not None:
            return partial(_report, falling(_some(self._raws[:used], self._raw_mins)), 1.0, beta)
        return partial(_report, _some(self._leaves[:used], self._mins), 1 / alpha if alpha > 0 else 1.0, beta)


def _some(leaves: Float64, mins: list[Float64]) -> Float64:
    """Copy leaves: of many the least positive one, the largest one, and a sample from all over."""
    if len(leaves) <= _ALL:
        return leaves.copy()
    places = np.arange(_ALL // 2) * _SPREAD % len(leaves)
    # At the top of the tree stand at most eight minima, 0 where there is none.
    return np.append(leaves[places], [min(filter(None, mins[-1].tolist()), default=0.0), leaves.max()])


def _report(leaves: Float64, exponent: float, beta: float) -> Report:
    """Return quantiles of the positive `leaves` raised to `exponent`."""
    return Report(tuple((np.array(quantiles(leaves[leaves > 0])) ** exponent).tolist()), beta)


def _raw(values: Float64, alpha: float) -> Float64:
    """Return the raw priorities of leaves."""
    return values ** (1 / alpha) if alpha > 0 else (values > 0).astype(np.float64)
