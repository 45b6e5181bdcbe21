"""Several draws over one ring, in given shares of every batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from .draws import EvenDraws, Found, WeightedDraws, exponent
from .recency import RecentDraws
from .rows import Rows, Written


class BlendDraws:
    """Draws each item of a batch by one of several members, with exact weights; `Recent` is a blend of one.

    Args:
        ring: The rows.
        settings: The sampler, with the exponent and the divisor of the weights.
        members: The members.
        shares: Of each.
        generator: Of the draws; None: PyTorch's default one.

    Attributes:
        weighted: The member with priorities; None: there is none.
    """

    def __init__(
        self,
        ring: Rows,
        settings: Any,
        members: Sequence[EvenDraws | WeightedDraws],
        shares: Sequence[float],
        generator: torch.Generator | None,
    ) -> None:
        self._ring, self._own, self._members, self.generator = ring, settings, members, generator
        self._shuffles = getattr(settings, "shuffle", False)
        self.weighted = next((member.weighted for member in members if member.weighted), None)
        self._plain = min(members, key=lambda member: member.weighted is not None)  # one without priorities, if any is
        self._shares = torch.stack([torch.full_like(ring.none, each, dtype=torch.float64) for each in shares])
        self._upto = torch.ones(len(shares), len(shares), device=ring.clock.device).tril()

    def draw(self, n: int, beta: float | Tensor | None) -> Found:
        """Draw `n` items with replacement."""
        ring, several = self._ring, self._shuffles or len(self._members) > 1
        numbers = n * (1 + self._shuffles) + 1 if several else n
        u = torch.rand(numbers, dtype=torch.float64, device=ring.clock.device, generator=self.generator)
        if several:
            law, some = self._law()
            ids = self._blended(n, u, law)
        else:
            law, (ids, some) = self._shares, self._picked(0, u, ring.numbers(n), n)
        there = some > 0
        ids = torch.where(there, ids, ring.none)
        return Found(ids, ids % ring.size, self._weights(ids, law, there, beta), there)

    def _blended(self, n: int, u: Tensor, law: Tensor) -> Tensor:
        """Return the ids of each member's part: as many as its share of the law says, rounded alike for all."""
        order = u[n + 1 :].argsort() if self._shuffles else self._ring.numbers(n)
        upto = (law * self._upto).sum(1)
        ends = ((upto + (upto > 1 - 1e-9)) * n + u[n]).long().clamp(max=n)  # the last share takes all that is left
        begins = torch.cat((ends[-1:] * 0, ends[:-1]))
        who, ids = (order[:, None] >= ends[:-1]).sum(1), self._ring.none
        for k in range(len(self._members)):
            found, _ = self._picked(k, u[:n], order - begins[k], ends[k] - begins[k])
            ids = torch.where(who == k, found, ids)
        return ids

    def _picked(self, k: int, u: Tensor, order: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
        """Return the items that a member picks; a stratified one by the places in its part of the batch."""
        member = self._members[k]
        if member.stratified:
            u = ((u + order) / count).clamp(0, 1 - 2.0**-53)
        return member.pick(u)

    def _weights(self, ids: Tensor, law: Tensor, there: Tensor, beta: float | Tensor | None) -> Tensor:
        own = self._own
        if own.weights is None or (beta is None and own.beta == 0.0):
            return there.expand(len(ids)).float()
        chance, first = self._chance(ids, law), self._members[0]
        if own.weights == "batch":
            reference = chance.amin()
        elif own.weights == "buffer" and isinstance(first, RecentDraws):
            reference = first.least()
        else:
            reference = 1 / self._plain.count().clamp(min=1).double()
        weights = (chance / reference) ** -exponent(self._ring, own, beta)
        return torch.where(there, weights.float(), self._ring.zero[torch.float32])

    def _law(self) -> tuple[Tensor, Tensor]:
        """Return the shares of the members that have items, and a positive number `[1]`; 0 if none has any."""
        plain = self._plain.mass()
        if self.weighted is None:
            return self._shares, plain
        some = torch.cat([member.mass() if member.weighted else plain for member in self._members])
        law = self._shares * (some > 0)
        return law / law.sum().clamp(min=1e-300), some.amax(0, keepdim=True)

    def chance(self, ids: Tensor) -> Tensor:
        """Return the probabilities of items in a draw of one, float64."""
        return self._chance(ids, self._law()[0])

    def _chance(self, ids: Tensor, law: Tensor) -> Tensor:
        each = [member.chance(ids) for member in self._members]
        return (torch.stack(each, 1) * law).sum(1)

    def items(self) -> Tensor:
        """Return the number of items that can be drawn, int64 `[1]`."""
        return torch.stack([member.items() for member in self._members]).amax(0)

    def added(self, written: Written, priority: Tensor | None) -> None:
        """Take in a call's steps."""
        for member in self._members:
            member.added(written, priority)

    def drop(self) -> None:
        """Forget the rows in front of the bounds."""
        for member in self._members:
            member.drop()

    def clear(self) -> None:
        """Forget all rows."""
        for member in self._members:
            member.clear()

    def restored(self) -> None:
        """Sum anew."""
        for member in self._members:
            member.restored()

    def tensors(self) -> dict[str, Tensor]:
        """Return the masses of priorities, and the largest so far."""
        return self.weighted.tensors() if self.weighted else {}

    @property
    def nbytes(self) -> int:
        """The bytes of the members."""
        return sum(member.nbytes for member in self._members)


Draws: TypeAlias = EvenDraws | WeightedDraws | BlendDraws
