"""Draws from the rows: all items alike, or in proportion to a power of their priority."""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias, cast

import torch
from torch import Tensor

from ..samplers import Anneal, Prioritized
from ._fields import taken
from ._ring import APPLIED, BETA, DRAWS, NOT_FINITE, UNFIT, UNKNOWN, UPDATED, LanesRing, Written
from ._step import STEP
from ._stretches import Stretches

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
        generator: Of the draws; None: PyTorch's default one.
    """

    def __init__(self, ring: LanesRing, generator: torch.Generator | None) -> None:
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
        ring = self._ring
        number = torch.randint(1 << 62, (n,), device=ring.clock.device, generator=self.generator)
        if self._counted is not None:
            running = self._counted.running()
            count = running[-1:]
            at, _ = self._counted.find(torch.minimum(number % count.clamp(min=1), count - 1), running)
            there = count > 0
            return Found(torch.where(there, ring.ids_at(at), ring.none), at, there.expand(n).float(), there)
        first, count = self._calls()
        there = count > 0
        number = number % count.clamp(min=1) + first
        if ring.starts > 1:
            number = number // ring.lanes * (ring.starts * ring.lanes) + number % ring.lanes
        ids = torch.where(there, number, ring.none)
        return Found(ids, ids % ring.size, there.expand(n).float(), there)

    def _calls(self) -> tuple[Tensor, Tensor]:
        """Return the first item's number, and how many there are; items start at every `starts`-th call."""
        ring = self._ring
        first, end = ring.bounds()
        if ring.starts > 1:
            unit = ring.starts * ring.lanes
            first, end = ((each + (unit - ring.lanes)) // unit * ring.lanes for each in (first, end))
        return first, end - first

    def items(self) -> Tensor:
        """Return the number of items that can be drawn, int64 `[1]`."""
        return self._calls()[1].clamp(min=0) if self._counted is None else self._counted.running()[-1:]

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
            flags = self._ring.flags
            made = Stretches(self._ring, lambda which: (taken(flags.view(-1, made.width), which) & STEP).long())
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
    """

    def __init__(self, ring: LanesRing, settings: Prioritized, generator: torch.Generator | None) -> None:
        self._ring, self._own, self.generator, device = ring, settings, generator, ring.clock.device
        self._scale = 2.0 ** min(24, 62 - 18 - math.ceil(math.log2(ring.size)))
        self._stretches = Stretches(ring, self._units, settings.weights == "buffer")
        self._leaves = torch.zeros(ring.size + self._stretches.width, device=device)  # a stretch to spare
        self._largest, self._zero = torch.zeros((), device=device), torch.zeros((), device=device)  # 0: none was set
        self._initial = self._mass(torch.full((), float(settings.initial), device=device))

    def _mass(self, raw: Tensor) -> Tensor:
        mass = (raw.float() ** self._own.alpha).clamp(1 / self._scale, LARGEST)
        return torch.where(raw > 0, mass, self._zero)

    def _units(self, stretch: Tensor) -> Tensor:
        return (taken(self._leaves.view(-1, self._stretches.width), stretch) * self._scale).long()

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
        at, units = self._stretches.find(torch.minimum((share * total).long(), total - 1), running)
        if own.weights == "none":
            chance = units / total.double() * self._starting()
        else:
            chance = units / (units.amin() if own.weights == "batch" else self._stretches.least())
        there = total > 0
        weights = torch.where(there, (chance ** -self._exponent(beta)).float(), self._zero)
        return Found(torch.where(there, ring.ids_at(at), ring.none), at, weights, there)

    def _exponent(self, beta: float | Tensor | None) -> float | Tensor:
        """Return the exponent of the weights; 0 for a tensor that is none."""
        if isinstance(beta, Tensor):
            fine = (beta >= 0) & (beta < math.inf)
            self._ring.counts[BETA].add_(~fine)
            return torch.where(fine, beta.float(), self._zero)
        if beta is not None:
            return beta
        own = self._own.beta
        first = self._own.beta_at(0)
        return first if first == own else annealed(cast(Anneal, own), self._ring.counts[DRAWS])

    def _starting(self) -> Tensor:
        """Return the number of rows that can start items, priorities aside."""
        ring = self._ring
        first, end = ring.bounds()
        if not ring.holes and ring.starts == 1:
            return end - first
        return ring.drawable(ring.ids_at(ring.numbers(ring.size))).sum()

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

    def put(self, at: Tensor, raw: Tensor, largest: float) -> None:
        """Take over priorities from another buffer."""
        self._leaves.index_copy_(0, at, self._mass(raw))
        self._largest.copy_(self._mass(torch.full_like(self._largest, largest)))
        self.restored()

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


Draws: TypeAlias = EvenDraws | WeightedDraws


def annealed(anneal: Anneal, draws: Tensor) -> Tensor:
    """Return the exponent after so many draws."""
    return anneal.start + (anneal.end - anneal.start) * (draws / anneal.over).clamp(max=1.0)
