"""Draws from the rows: all items alike, or in proportion to a power of their priority."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._disk.device_counts import APPLIED, BETA, DRAWS, NOT_FINITE, UNFIT, UNKNOWN, UPDATED
from .._disk.device_rows import STEP
from ..samplers import Anneal, Prioritized
from .rows import Rows, Written
from .stretches import Stretches

LARGEST = 2.0**18  # of masses


class Found(NamedTuple):
    """The items that a draw found.

    Attributes:
        ids: int64 `[n]`, -1 where there are no items.
        at: Their places.
        weights: float32 `[n]`.
        there: True if there are items, bool `[1]`.
    """

    ids: Tensor
    at: Tensor
    weights: Tensor
    there: Tensor


class EvenDraws:
    """Draws all items alike. Without holes a number is an item; with holes, steps are counted by stretches.

    Args:
        ring: The rows.
        settings: The sampler.
        generator: Of the draws; None: PyTorch's default one.

    Attributes:
        weighted: None: it has no priorities.
        stratified: False.
    """

    weighted: WeightedDraws | None = None
    stratified = False

    def __init__(self, ring: Rows, settings: object, generator: torch.Generator | None) -> None:
        self._ring, self.generator = ring, generator
        self._counted: Stretches | None = None

    def added(self, written: Written, priority: Tensor | None) -> None:
        """Count the steps of the call where lanes may be left out."""
        if self._counted is not None:
            self._counted.added(written.rows)
        elif self._ring.holes:
            self.restored()

    def draw(self, n: int, beta: float | Tensor | None) -> Found:
        """Draw `n` items with replacement."""
        number = torch.randint(1 << 62, (n,), device=self._ring.clock.device, generator=self.generator)
        ids, count = self._chosen(lambda count: number % count.clamp(min=1))
        there = count > 0
        ids = torch.where(there, ids, self._ring.none)
        return Found(ids, ids % self._ring.size, there.expand(n).float(), there)

    def pick(self, share: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ids of items by float64 numbers in [0, 1), and a positive number `[1]`; 0 if there are none."""
        return self._chosen(lambda count: torch.minimum((share * count).long(), count - 1))

    def chance(self, ids: Tensor) -> Tensor:
        """Return the probabilities of items in a draw of one, float64."""
        return (1 / self.count().clamp(min=1).double()).expand(len(ids))

    def _chosen(self, choose: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Return the ids of items whose numbers `choose` returns, and how many there are."""
        ring = self._ring
        if self._counted is not None:
            running = self._counted.running()
            count = running[-1:]
            at, _ = self._counted.find(torch.minimum(choose(count), count - 1), running)
            return ring.ids_at(at), count
        first, count = self._calls()
        return self._anchor(choose(count) + first), count

    def _anchor(self, number: Tensor) -> Tensor:
        """Return the ids at which items start, by their numbers."""
        ring = self._ring
        if ring.starts > 1:
            number = number // ring.lanes * (ring.starts * ring.lanes) + number % ring.lanes
        return number

    def _calls(self) -> tuple[Tensor, Tensor]:
        """Return the first item's number, and how many there are; items start at every `starts`-th call."""
        ring = self._ring
        first, end = ring.bounds()
        if ring.starts > 1:
            unit = ring.starts * ring.lanes
            first, end = ((each + (unit - ring.lanes)) // unit * ring.lanes for each in (first, end))
        return first, end - first

    def count(self) -> Tensor:
        """Return the number of items that can be drawn, int64 `[1]`; below 0 before there are any."""
        return self._calls()[1] if self._counted is None else self._counted.total()

    def items(self) -> Tensor:
        """Return the number of items that can be drawn, int64 `[1]`."""
        return self.count().clamp(min=0)

    mass = count

    def drop(self) -> None:
        """Forget the rows in front of the bounds."""
        if self._counted is not None:
            self._counted.drop()

    def clear(self) -> None:
        """Forget all rows."""
        if self._counted is not None:
            self._counted.clear()

    def restored(self) -> None:
        """Count the steps of all rows where lanes may be left out."""
        self._counted = None
        if self._ring.holes:
            made = Stretches(self._ring, lambda which: (flags.index_select(0, which) & STEP).long())
            flags = self._ring.flags.view(-1, made.width)
            made.rebuild()
            self._counted = made

    def tensors(self) -> dict[str, Tensor]:
        """Return nothing: steps are counted anew."""
        return {}

    @property
    def nbytes(self) -> int:
        """The bytes of the counts."""
        return 0 if self._counted is None else self._counted.nbytes


class WeightedDraws:
    """Draws in proportion to masses `p ** alpha`, float32, by whole numbers of `2**-k`.

    Of masses all up to the largest, `2**18`, add up in 63 bits; the smallest positive one is one unit.

    Args:
        ring: The rows.
        settings: The sampler.
        generator: Of the draws; None: PyTorch's default one.

    Attributes:
        weighted: Itself.
        stratified: Whether each item comes from a stretch of its own of the total.
    """

    def __init__(self, ring: Rows, settings: Prioritized, generator: torch.Generator | None) -> None:
        self._ring, self._own, self.generator, device = ring, settings, generator, ring.clock.device
        self.weighted, self.stratified = self, settings.stratified
        self._scale = 2.0 ** min(24, 62 - 18 - math.ceil(math.log2(ring.size)))
        self._stretches = Stretches(ring, self._units, settings.weights == "buffer")
        self._leaves = torch.zeros(ring.size + self._stretches.width, device=device)  # a stretch to spare
        self._largest, self._zero = torch.zeros((), device=device), torch.zeros((), device=device)  # 0: none was set
        self._initial = self._mass(torch.full((), float(settings.initial), device=device))

    def _mass(self, raw: Tensor) -> Tensor:
        mass = (raw.float() ** self._own.alpha).clamp(1 / self._scale, LARGEST)
        return torch.where(raw > 0, mass, self._zero)

    def _units(self, stretch: Tensor) -> Tensor:
        return (self._leaves.view(-1, self._stretches.width).index_select(0, stretch) * self._scale).long()

    def added(self, written: Written, priority: Tensor | None) -> None:
        """Give the call's steps their priorities: those given, else the largest so far."""
        ring, active, fit = self._ring, written.active, None
        if priority is not None:
            fit = (priority >= 0) & (priority < math.inf)
            ring.counts[UNFIT].add_((active & ~fit).sum())
            given = self._mass(priority)
            self._raise_largest(torch.where(fit & active, given, self._zero))
        mass = torch.where(self._largest > 0, self._largest, self._initial).expand(ring.lanes)
        if fit is not None:
            mass = torch.where(fit, given, mass)
        if ring.holes:
            mass = torch.where(active, mass, self._zero)
        self._leaves.index_copy_(0, written.rows[1], mass)
        self._stretches.added(written.rows)

    def _raise_largest(self, masses: Tensor) -> None:
        self._largest.copy_(torch.maximum(self._largest, masses.amax()))

    def draw(self, n: int, beta: float | Tensor | None) -> Found:
        """Draw `n` items with replacement."""
        ring, own = self._ring, self._own
        running = self._stretches.running()
        total = running[-1:]
        share = torch.rand(n, dtype=torch.float64, device=total.device, generator=self.generator)
        if own.stratified:
            share = (share + ring.numbers(n)) / n
        at, units = self._find(share, running)
        if own.weights == "none":
            chance = units / total.double() * self.count()
        else:
            chance = units / (units.amin() if own.weights == "batch" else self._stretches.least())
        there = total > 0
        weights = torch.where(there, (chance ** -exponent(ring, own, beta)).float(), self._zero)
        return Found(torch.where(there, ring.ids_at(at), ring.none), at, weights, there)

    def _find(self, share: Tensor, running: Tensor) -> tuple[Tensor, Tensor]:
        return self._stretches.find(torch.minimum((share * running[-1:]).long(), running[-1:] - 1), running)

    def pick(self, share: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ids of items by float64 numbers in [0, 1), and a positive number `[1]`; 0 if there are none."""
        running = self._stretches.running()
        return self._ring.ids_at(self._find(share, running)[0]), running[-1:]

    def chance(self, ids: Tensor) -> Tensor:
        """Return the probabilities of items in a draw of one, float64."""
        units = (self._leaves[ids % self._ring.size] * self._scale).long()
        return units / self.mass().clamp(min=1).double()

    def mass(self) -> Tensor:
        """Return the sum of the masses, int64 `[1]`."""
        return self._stretches.total()

    def count(self) -> Tensor:
        """Return the number of items that can be drawn, priorities aside, int64 `[1]`."""
        ring = self._ring
        first, end = ring.bounds()
        if not ring.holes and ring.starts == 1:
            return end - first
        return ring.drawable(ring.ids_at(ring.numbers(ring.size))).sum()[None]

    def items(self) -> Tensor:
        """Return the number of items with a positive priority, int64 `[1]`."""
        ids = self._ring.ids_at(self._ring.numbers(self._ring.size))
        return (self._ring.drawable(ids) & (self._leaves[: self._ring.size] > 0)).sum()[None]

    def update(self, ids: Tensor, td_error: Tensor) -> None:
        """Set priorities by id; the last one for an item counts. An error refuses all, late ids are left out."""
        if not len(ids):
            return
        ring, raw = self._ring, td_error.abs() + self._own.eps
        wrong = torch.stack(((ids < 0) | (ids >= ring.next), ~(raw < math.inf))).sum(1)
        ring.counts[UNKNOWN : NOT_FINITE + 1].add_(wrong)
        fine = wrong.sum() == 0
        known = ring.drawable(ids) & fine
        ring.counts[UPDATED : APPLIED + 1].add_(torch.stack((fine.expand(len(ids)), known)).sum(1))
        mass = self._mass(raw)
        at = torch.where(known, ids % ring.size, ring.spare)
        self._leaves.index_copy_(0, torch.where(ring.last_of(at), at, ring.spare), mass)
        self._stretches.renew(at // self._stretches.width)
        self._raise_largest(torch.where(known, mass, self._zero))

    def priorities(self, ids: Tensor) -> Tensor:
        """Return raw priorities, float32, NaN where an item cannot be drawn."""
        return torch.where(self._ring.drawable(ids), self.raw(ids % self._ring.size), torch.nan)

    def raw(self, at: Tensor) -> Tensor:
        """Return the raw priorities at places."""
        mass = self._leaves[at]
        return (mass > 0).float() if self._own.alpha == 0 else mass ** (1 / self._own.alpha)

    def drop(self) -> None:
        """Forget the rows in front of the bounds."""
        self._stretches.drop()

    def clear(self) -> None:
        """Forget all rows."""
        self._leaves.zero_()
        self._largest.zero_()
        self._stretches.clear()

    def restored(self) -> None:
        """Sum the masses anew."""
        self._stretches.rebuild()

    def tensors(self) -> dict[str, Tensor]:
        """Return the masses, and the largest so far."""
        return {"leaves": self._leaves, "largest": self._largest}

    @property
    def nbytes(self) -> int:
        """The bytes of the masses and their sums."""
        return self._leaves.nbytes + self._stretches.nbytes


def exponent(ring: Rows, own: Any, beta: float | Tensor | None) -> float | Tensor:
    """Return the exponent of the weights, the sampler's unless one is given; 0 for a tensor that is none."""
    if isinstance(beta, Tensor):
        fine = (beta >= 0) & (beta < math.inf)
        ring.counts[BETA].add_(~fine)
        return torch.where(fine, beta.float(), ring.zero[torch.float32])
    if beta is not None:
        return beta
    first: float = own.beta_at(0)
    if first == own.beta:
        return first
    anneal: Anneal = own.beta
    return anneal.start + (anneal.end - anneal.start) * (ring.counts[DRAWS] / anneal.over).clamp(max=1.0)
