"""Several samplers over one ring, in given shares of every batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, cast

import numpy as np

from .._base import check
from .._base.arrays import ArraySpec, Memory, Section
from .._base.capabilities import completed
from .._base.frozen import Frozen
from .._base.types import Array, Float64, Int64
from .._ring import kernels
from .._ring.ring import Ring
from ..errors import ArgumentError, message
from ._protocol import Carried, Draw, Index, Report, Sampler
from ._weighing import ImportanceWeights
from .uniform import queue_spec

_QUEUE = queue_spec(1, 1, episodes=True).keys()
Masses = Callable[[int, Mapping[str, Array]], Float64]


class Blend(Frozen, Sampler):
    """Draw given shares of every batch by different samplers: `Blend((Uniform(), 0.5), (Prioritized(), 0.5))`.

    Args:
        *members: Pairs of a sampler and its share, > 0; the shares' sum is 1.
        shuffle: Whether items come in random order; else member after member.

    Raises:
        ArgumentError: Shares outside these limits; two members with priorities; a `Blend` in a `Blend`; a member
            without replacement, unless it consumes its items as `Once` does; no other member than such ones; weights
            that are divided by the largest in the buffer, which no member knows.

    Of `n` items a member with share f draws `n * f`, rounded up or down at random so that the mean is exact. An item's
    probability is `P(i) = sum(f * P_member(i))`, and its weight `(N * P(i))**-beta`. Beta and what weights are divided
    by are those of the member with priorities, or else of the first `Recent`; without either, weights are 1.
    `update_priorities` and `priorities` are those of the member that has priorities.

    A member that has nothing to draw leaves its share to the others, in proportion to theirs. `Once` takes its share as
    far as there is something new, and its items weigh as if the others had drawn them; those that the others never draw
    weigh as the heaviest of the batch.

    A draw takes `2 * n + 2` numbers of the generator in one call, without `shuffle` `n + 2`. The memory is that of the
    members. Shards refuse it: no shard knows the sums of the members in the others.

    >>> from relive import Prioritized, Recent, Uniform
    >>> Blend((Uniform(), 0.5), (Prioritized(), 0.3), (Recent(share=0.1), 0.2)).prioritizes
    True
    """

    members: tuple[tuple[Sampler, float], ...]
    shuffle: bool = True

    def __init__(self, *members: tuple[Sampler, float], **given: Any) -> None:
        super().__init__(**({"members": members} if members else {}), **given)

    def __post_init__(self) -> None:
        check.flag(self.shuffle, "Blend(shuffle)")
        object.__setattr__(self, "members", tuple(map(_member, self.members)))
        shares = [share for _, share in self.members]
        if abs(sum(shares) - 1.0) > 1e-9:
            remedy = "divide by the sum"
            raise ArgumentError(message("shares whose sum is 1", f"a sum of `{sum(shares):g}`", "Blend", remedy))
        if sum(member.prioritizes for member, _ in self._each) > 1:
            remedy = "an update would not say which of them it is for"
            raise ArgumentError(message("at most one member with priorities", "two", "Blend", remedy))
        if all(member.consumes for member, _ in self._each):
            wanted = "a member that can draw an item again"
            raise ArgumentError(message(wanted, f"`{self!r}`", "Blend", "use the others alone"))
        if self.weights == "buffer":
            remedy = "no member knows the least probability of the blend; use `weights='batch'`"
            raise ArgumentError(message("weights of the batch, or undivided ones", '`"buffer"`', "Blend", remedy))

    def __repr__(self) -> str:
        return f"Blend({', '.join(map(repr, self.members))}{'' if self.shuffle else ', shuffle=False'})"

    @property
    def _each(self) -> list[tuple[Sampler, float]]:
        """The members, with all capabilities."""
        return [(completed(member, Sampler), share) for member, share in self.members]

    @property
    def _leader(self) -> Sampler | None:
        """The member whose beta and divisor count."""
        weighed = [member for member, _ in self._each if member.weights is not None]
        return next((member for member in weighed if member.prioritizes), weighed[0] if weighed else None)

    @property
    def _prioritized(self) -> int:
        """The number of the member with priorities; -1 if there is none."""
        return next((k for k, (member, _) in enumerate(self._each) if member.prioritizes), -1)

    @property
    def replacement(self) -> bool:
        """True."""
        return True

    @property
    def prioritizes(self) -> bool:
        """True if a member does."""
        return self._prioritized >= 0

    @property
    def eps(self) -> float:
        """That of the member with priorities."""
        return self._each[self._prioritized][0].eps if self.prioritizes else 0.0

    @property
    def beta(self) -> Any:
        """The beta of the member whose weights count."""
        return getattr(self._leader, "beta", 0.0)

    @property
    def weights(self) -> str | None:
        """The divisor of weights, by name; None: weights are 1."""
        return None if self._leader is None else self._leader.weights

    @property
    def indivisible(self) -> str:
        """The sums of the members."""
        return "no shard knows the sums of a blend's members in the others; give `Shards` one sampler"

    def beta_at(self, call: int) -> float:
        """Return the beta of the member whose weights count."""
        return 0.0 if self._leader is None else self._leader.beta_at(call)

    def spec(self, lanes: int, rows: int) -> dict[str, ArraySpec]:
        """Return the arrays of every member, under its number, and the clock of beta; a queue of anchors once."""
        asked, queues = {"blend.draws": ImportanceWeights.SPEC}, set[frozenset[str]]()
        for k, (member, _) in enumerate(self._each):
            arrays = member.spec(lanes, rows)
            queue = frozenset(arrays.keys() & _QUEUE)
            had = queue if queue in queues else ()
            asked |= {f"{k}.{name}": wanted for name, wanted in arrays.items() if name not in had}
            queues.add(queue)
        return asked

    @property
    def carried(self) -> Callable[[Mapping[str, Array], Mapping[str, Array]], Carried] | None:
        """The priorities of the member that has them."""
        k = self._prioritized
        given = None if k < 0 else self._each[k][0].carried
        return None if given is None else lambda slots, whole: given(_part(slots, k), _part(whole, k))

    @property
    def masses(self) -> Masses | None:
        """The probabilities of saved items; None where one member's do not follow from what is saved."""
        each = [(k, member.masses, share) for k, (member, share) in enumerate(self._each) if not member.consumes]
        known = [(k, masses, share) for k, masses, share in each if masses is not None]
        if len(known) < len(each):
            return None

        def mixed(n: int, slots: Mapping[str, Array]) -> Float64:
            parts = [(masses(n, _part(slots, k)), share) for k, masses, share in known]
            return np.asarray(np.sum([mass * (share / (mass.sum() or 1.0)) for mass, share in parts], axis=0))

        return mixed

    def sound(self, slots: Mapping[str, Array], whole: Mapping[str, Array], anchors: Int64) -> bool:
        """Check the arrays of every member."""
        parts = enumerate(member for member, _ in self._each)
        return all(member.sound(_part(slots, k), _part(whole, k), anchors) for k, member in parts)

    def index(self, ring: Ring, memory: Memory) -> Index:
        """Return an index over the slots of `ring`."""
        return cast(Index, _Blend(self, ring, memory))


class _Blend:
    """The indexes of all members, over the same ring."""

    def __init__(self, settings: Blend, ring: Ring, memory: Memory) -> None:
        self._settings = settings
        self._shares = [share for _, share in settings.members]
        self._lawful = [not member.consumes for member, _ in settings._each]
        shared: dict[Any, Any] = {}
        self._members = members = [
            completed(member.index(ring, Section(memory, f"{k}.", memory.fresh, shared)), Index)
            for k, (member, _) in enumerate(settings._each)
        ]
        for (member, _), index, lawful in zip(settings._each, members, self._lawful, strict=True):
            if lawful and index.probability is None:
                wanted = "members whose indexes have `probability`"
                raise ArgumentError(message(wanted, f"`{member!r}`", "Blend"))
        self._items = [0] * len(members)
        self._taken: list[tuple[Callable[[Int64], None], Int64]] = []  # of the last draw, what members consumed
        draws, leader = memory.host("blend.draws"), settings._prioritized
        self._weighing = ImportanceWeights(settings.beta_at, settings.weights, draws)
        first = members[leader]
        self.update, self.try_update = first.update, first.try_update
        self.priorities, self.adopt = first.priorities, first.adopt
        choosers = [index.chooser for index in members if index.chooser is not None]
        self.chooser = None
        if len(choosers) == len(members):
            make = kernels.active().blending
            self.chooser = make(choosers, np.array(self._shares), settings.shuffle, leader, draws, settings)

    def refresh(self) -> int:
        """Take in changes; return how many items can be drawn again and again."""
        self._items = [index.refresh() for index in self._members]
        return self._most

    @property
    def _most(self) -> int:
        return max(items for items, lawful in zip(self._items, self._lawful, strict=True) if lawful)

    def draw(self, n: int, rng: np.random.Generator, beta: float | None) -> Draw:
        """Return `n` slots and their importance-sampling weights."""
        weighing, shuffle = self._weighing, self._settings.shuffle
        beta = weighing.next(beta)
        u = check.uniforms(rng, n + 2 + n * shuffle)
        wanted = zip(_allotted(n, self._shares, u[n]), self._items, self._lawful, strict=True)
        first = [count if items and lawful else min(count, items) for count, items, lawful in wanted]
        rest = _allotted(n - sum(first), self._law(), u[n + 1])
        slots, begin = np.empty(n, np.int64), 0
        self._taken.clear()
        for index, *counts in zip(self._members, first, rest, strict=True):
            if count := sum(counts):
                found = index.draw(count, _Numbers(u[begin : begin + count]), 0.0).slots  # type: ignore[arg-type]
                slots[begin : begin + count] = found
                if index.give_back is not None:
                    self._taken.append((index.give_back, found))
                begin += count
        if shuffle:
            _shuffle(slots, u[n + 2 :])
        if weighing.scale is None or beta == 0.0:
            return Draw(slots, np.ones(n, np.float32), np.ones(n) if weighing.scale == "batch" else None, beta)
        chances, even = self.probability(slots), 1.0 / self._most
        least = chances.min(initial=np.inf, where=chances > 0)
        chances[chances == 0] = least if least < np.inf else even  # of a queue, of priority 0
        if weighing.scale == "batch":
            return Draw(slots, weighing.weights(chances, float(chances.min()), beta), chances, beta)
        return Draw(slots, weighing.weights(chances, even, beta), None, beta)

    def probability(self, slots: Int64) -> Float64:
        chances = np.zeros(len(slots))
        for index, share in zip(self._members, self._law(), strict=True):
            if share and index.probability is not None:
                chances += share * index.probability(slots)
        return chances

    def _law(self) -> list[float]:
        """Return the shares among the members that can draw items again and again, and have any."""
        each = zip(self._shares, self._items, self._lawful, strict=True)
        shares = [share if items and lawful else 0.0 for share, items, lawful in each]
        *_, total = accumulate(shares)  # newer Pythons' `sum` has other bits
        return [share / total for share in shares]

    def give_back(self, slots: Int64) -> None:
        for give_back, taken in self._taken:
            give_back(np.intersect1d(slots, taken))

    def report(self) -> Callable[[], Report]:
        reports, beta = [index.report() for index in self._members], self._weighing.beta

        def merged() -> Report:
            each = [report() for report in reports]
            quantiles = next((one.priority_quantiles for one in each if one.priority_quantiles), ())
            return Report(quantiles, beta, sum(one.unused for one in each))

        return merged


class _Numbers:
    """A generator that gives these numbers."""

    def __init__(self, numbers: Float64) -> None:
        self.random = lambda size: numbers


def _member(pair: Any) -> tuple[Sampler, float]:
    """Check a member and its share.

    Raises:
        ArgumentError: It cannot be a member.
    """
    at = "Blend(*members)"
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not hasattr(pair[0], "index"):
        raise ArgumentError(message("pairs of a sampler and its share", f"`{pair!r}`", at))
    member, share = completed(pair[0], Sampler), check.real(pair[1], at, above=0.0)
    if hasattr(member, "members"):
        raise ArgumentError(message("members that are no blends", f"`{member!r}`", at, "list all of them in one"))
    if not (member.replacement or member.consumes):
        raise ArgumentError(message("members with replacement", f"`{member!r}`", at, "use `replacement=True`"))
    return pair[0], share


def _part(arrays: Mapping[str, Array], k: int) -> dict[str, Array]:
    """Return the arrays of member `k`, by its own names, and what has no member."""
    prefix = f"{k}."
    return {name.removeprefix(prefix): each for name, each in arrays.items() if name.startswith((prefix, "age"))}


def _allotted(n: int, shares: Sequence[float], u: float) -> list[int]:
    """Give each member the whole items of its share of `n`; one uniform rounds all of them."""
    last = max(k for k, share in enumerate(shares) if share)
    sums = enumerate(accumulate(shares))
    ends = (n if k >= last else min(n, math.floor(n * part + u)) for k, part in sums)
    return [end - begin for begin, end in pairwise((0, *ends))]


def _shuffle(slots: Int64, u: Float64) -> None:
    """Put slots in random order, in place: the swaps of Fisher and Yates, from the last place on."""
    order, last = slots.tolist(), np.arange(len(slots))
    others = np.minimum((u * (last + 1)).astype(np.int64), last).tolist()
    for i in range(len(order) - 1, 0, -1):
        j = others[i]
        order[i], order[j] = order[j], order[i]
    slots[:] = order
