"""Draws that prefer new items: any lane, and an age by the law of `relive.Recent`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..samplers import Recent
from .draws import EvenDraws
from .rows import Rows


class RecentDraws(EvenDraws):
    """Picks items in proportion to `exp(-rate * age)`, where the age counts the calls at which newer items start.

    Without holes all lanes are alike, and the age is the inverse of the distribution function, by arithmetic on the
    first and last item. With holes a row has the mass of its age, in whole numbers, for each of its steps.

    Args:
        ring: The rows.
        settings: The sampler.
        generator: As of the others; a blend has its own.
    """

    def __init__(self, ring: Rows, settings: Recent, generator: torch.Generator | None) -> None:
        super().__init__(ring, settings, generator)
        self._relative, device = settings.share is not None, ring.clock.device
        self._slope = torch.full((1,), -settings.rate * math.log(2), dtype=torch.float64, device=device)
        self._scale = 2.0 ** (62 - math.ceil(math.log2(ring.size)))

    def pick(self, share: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ids of items by float64 numbers in [0, 1), and a positive number `[1]`; 0 if there are none."""
        ring = self._ring
        if self._counted is not None:
            masses = self._masses()
            running = self._counted.running(masses)
            total = running[-1:]
            at, _ = self._counted.find(torch.minimum((share * total).long(), total - 1), running, masses)
            return ring.ids_at(at), total
        end, count, slope = self._ages()
        share = share * ring.lanes
        lane, last = share.long(), (count - 1).clamp(min=0)
        age = torch.log1p((share - lane) * torch.expm1(slope * count)) / slope
        number = lane + (end - torch.minimum(age.long(), last)) * ring.lanes
        return self._anchor(number), count

    def chance(self, ids: Tensor) -> Tensor:
        """Return the probabilities of items in a draw of one, float64."""
        ring = self._ring
        if self._counted is not None:
            masses = self._masses()
            return masses[ids % ring.size // ring.lanes] / self._counted.running(masses)[-1:].clamp(min=1).double()
        end, count, slope = self._ages()
        decayed = torch.exp(slope * (end - ids // (ring.lanes * ring.starts)).clamp(min=0))
        return decayed * (torch.expm1(slope) / torch.expm1(slope * count)) / ring.lanes

    def least(self) -> Tensor:
        """Return the smallest probability of an item, `[1]`."""
        ring = self._ring
        if self._counted is None:
            return self.chance(self._anchor(self._calls()[0]))
        begins = ring.numbers(ring.rows) * ring.lanes
        return torch.where(self._counted.any(), self.chance(begins), math.inf).amin()[None]

    def _ages(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the last call at which an item starts, how many there are, and the law's exponent of an age of 1."""
        first, count = (number // self._ring.lanes for number in self._calls())
        return first + (count - 1), count, self._slope / count.clamp(min=1) if self._relative else self._slope

    def _masses(self) -> Tensor:
        """Return the masses of a step of each row, int64."""
        ring, (end, _, slope) = self._ring, self._ages()
        calls = ring.ids_at(ring.numbers(ring.rows) * ring.lanes) // (ring.lanes * ring.starts)
        return (torch.exp(slope * (end - calls).clamp(min=0)) * self._scale).long().clamp(min=1)
