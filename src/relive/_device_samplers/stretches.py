"""Sums of whole numbers over stretches of a row's lanes, by which a draw finds its place in two steps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .rows import Rows

MOST = torch.iinfo(torch.int64).max
WIDTH = 32  # lanes of a stretch, at most


class Stretches:
    """Keeps the sum of each stretch; 0 where its row cannot start items.

    Sums of whole numbers are equal in any order.

    Args:
        ring: The rows.
        units: Returns the numbers of stretches, `[n, width]` int64.
        smallest: True if the smallest positive number of each stretch is kept, too.
    """

    def __init__(self, ring: Rows, units: Callable[[Tensor], Tensor], smallest: bool = False) -> None:
        self._ring, self._units = ring, units
        self.width = max(width for width in range(1, WIDTH + 1) if ring.lanes % width == 0)
        self._count, self._begins = ring.size // self.width, ring.numbers(ring.rows) * ring.lanes
        self._sums = torch.zeros(self._count + 1, dtype=torch.int64, device=ring.clock.device)  # one to spare
        self._least = torch.full_like(self._sums, MOST) if smallest else None

    def added(self, rows: Tensor) -> None:
        """Take in a call: one row can start items now, and some no longer."""
        ring = self._ring
        on = None if ring.starts == 1 else (ring.call - ring.span) % ring.starts == 0
        self.renew(rows[3, :: self.width] // self.width, on)
        self.drop()

    def drop(self) -> None:
        """Forget the rows in front of the bounds."""
        live = (self._ring.ids_at(self._begins) >= self._ring.bounds()[0])[:, None]
        self._sums[: self._count].view(self._ring.rows, -1).mul_(live)
        if self._least is not None:
            self._least[: self._count].view(self._ring.rows, -1).masked_fill_(~live, MOST)

    def renew(self, stretch: Tensor, on: Tensor | None = None) -> None:
        """Sum stretches anew, of rows that can start items where `on`."""
        units = self._units(stretch)
        sums = units.sum(1)
        self._sums.index_copy_(0, stretch, sums if on is None else sums * on)
        if self._least is not None:
            least = torch.where(units > 0, units, MOST).amin(1)
            self._least.index_copy_(0, stretch, least if on is None else torch.where(on, least, MOST))

    def rebuild(self) -> None:
        """Sum all stretches anew."""
        ring = self._ring
        every = torch.arange(self._count, device=ring.clock.device)
        ids, (first, end) = ring.ids_at(every * self.width), ring.bounds()
        starting = torch.div(ids, ring.lanes, rounding_mode="floor") % ring.starts == 0
        self.renew(every, (ids >= first) & (ids < end) & starting)

    def clear(self) -> None:
        """Forget all rows."""
        self._sums.zero_()
        if self._least is not None:
            self._least.fill_(MOST)

    def running(self, factors: Tensor | None = None) -> Tensor:
        """Return the running sums; with `factors`, one for each row, of their products."""
        sums = self._sums[:-1]
        if factors is not None:
            sums = (sums.view(self._ring.rows, -1) * factors[:, None]).view(-1)
        return sums.cumsum(0)

    def total(self) -> Tensor:
        """Return the sum of all, `[1]`."""
        return self._sums[:-1].sum()[None]

    def any(self) -> Tensor:
        """Return the rows that have a sum, bool."""
        return self._sums[:-1].view(self._ring.rows, -1).any(1)

    def least(self) -> Tensor:
        """Return the smallest positive number of all."""
        return self._least[:-1].amin() if self._least is not None else self._sums.new_tensor(MOST)

    def find(self, target: Tensor, running: Tensor, factors: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the places at which the running sums pass the targets, and their numbers; any if all are 0."""
        stretch = torch.searchsorted(running, target, right=True)
        units, rest, sums = self._units(stretch), target - running[stretch], self._sums[stretch]
        if factors is not None:
            each = factors[stretch * self.width // self._ring.lanes].clamp(min=1)
            rest = torch.div(rest, each, rounding_mode="floor")
        inside = (units.cumsum(1) <= (rest + sums)[:, None]).sum(1, keepdim=True)
        return torch.add(inside[:, 0], stretch, alpha=self.width), units.gather(1, inside)[:, 0]

    @property
    def nbytes(self) -> int:
        """The bytes of the sums."""
        return self._sums.nbytes + (0 if self._least is None else self._least.nbytes)
