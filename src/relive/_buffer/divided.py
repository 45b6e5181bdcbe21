"""What lets several buffers be drawn from as if they were one: how much each has, and draws by the caller's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._base import check
from .._base.types import Float64, Int64
from .._ring.lanes import HEAD, STEPS
from .._ring.ring import Ring
from ..batch import Batch
from ..errors import ArgumentError, ReliveError, event, message
from ..samplers import Divisible, Index, Prioritizing, Sampler, Share
from .arguments import no_priorities, shortage
from .turn import Turn

if TYPE_CHECKING:
    from ..items import Expander
    from ..processes._link import Bound, Link

# How often items are drawn again that a writer in another process overwrote before they were copied.
_ATTEMPTS = 100


class Divided:
    """The part of `ReplayBuffer` for whoever draws from several buffers by one rule, as `relive.ray.Shards` does.

    Its draws use no generator, move no clock of an `Anneal`, and count neither in `stats()` nor for a limiter: all that
    belongs to whoever chooses the numbers.
    """

    sampler: Sampler
    rng: Any
    _ring: Ring
    _index: Index
    _prioritizing: Prioritizing | None
    _expander: Expander
    _turn: Turn
    _link: Link | None
    _bound: Bound

    def share(self) -> Share:
        """What this buffer's part is in a draw over several: `Share(total, count, smallest, largest)`.

        Raises:
            ArgumentError: The sampler's draws cannot be divided: `Ranked`, as a rank is among all items.

        >>> import relive
        >>> schema = relive.Schema(obs=relive.Field(), action=relive.Field())
        >>> buffer = relive.ReplayBuffer(schema, 100, sampler=relive.Prioritized(alpha=0.5))
        >>> step = dict(obs=0.0, action=0.0, reward=0.0, next_obs=1.0, terminated=False, truncated=False)
        >>> ids = buffer.add(**step, priority=4.0), buffer.add(**step, priority=0.0)
        >>> buffer.share()
        Share(total=2.0, count=2, smallest=2.0, largest=4.0)
        """
        with self._turn.alone():
            index = self._divisible("ReplayBuffer.share")
            index.refresh()
            return index.share()

    def draw_at(self, fractions: Any) -> tuple[Batch, Float64, Share]:
        """Draw the items at given fractions of the total, as `sample` does at the numbers of its generator.

        Items lie in the order in which a stratified draw goes through them, each as wide as its `priority**alpha`. With
        `Uniform(over="episodes")` a fraction names an episode and an item in it; without replacement the numbers choose
        one item after the other among those that are left.

        Args:
            fractions: Numbers in [0, 1), `[B]`, B >= 1.

        Returns:
            The batch, whose weights are 1; what each of its items is drawn in proportion to, float64 `[B]`; and the
            buffer's share at the same moment. With these, `masses / share.total` are the items' probabilities.

        Raises:
            NotEnoughData: Nothing can be drawn, or, without replacement, fewer items than asked for.
            ArgumentError: Numbers outside [0, 1), or a sampler whose draws cannot be divided.

        >>> import relive
        >>> schema = relive.Schema(obs=relive.Field(), action=relive.Field())
        >>> buffer = relive.ReplayBuffer(schema, 100, sampler=relive.Prioritized(alpha=1.0))
        >>> step = dict(obs=0.0, action=0.0, reward=0.0, next_obs=0.0, terminated=False, truncated=False)
        >>> ids = buffer.add(**step, priority=1.0), buffer.add(**step, priority=3.0)
        >>> batch, masses, share = buffer.draw_at([0.2, 0.3, 0.9])
        >>> batch.ids.tolist(), masses.tolist(), share.total
        ([0, 1, 1], [1.0, 3.0, 3.0], 4.0)
        """
        at = "ReplayBuffer.draw_at"
        try:
            numbers = np.asarray(fractions, np.float64, order="C")
        except (TypeError, ValueError) as error:
            got = f"`{type(fractions).__name__}`"
            raise ArgumentError(message("numbers in [0, 1), `[B]`", got, f"{at}(fractions)")) from error
        inside = (numbers >= 0) & (numbers < 1)
        if numbers.ndim != 1 or not len(numbers) or not inside.all():
            got = f"shape `{numbers.shape}`" if np.all(inside) else f"`{numbers[~inside][0]}`"
            raise ArgumentError(message("numbers in [0, 1), `[B]`", got, f"{at}(fractions)"))
        least = 1 if self.sampler.replacement else len(numbers)
        with self._turn.alone():
            index, ring = self._divisible(at), self._ring
            for _ in range(_ATTEMPTS):
                if self._link is not None:
                    self._link.look()
                drawable = index.refresh()
                if drawable < least:
                    raise shortage(least, ring.drawable, drawable, ring.waiting, ring.window.span, at)
                share = index.share()
                slots, masses = index.draw_at(numbers)
                fields = self._expander.expand(slots, self.rng)
                if self._link is None or self._link.whole(self._bound, fields["ids"]):
                    fields["weights"] = np.ones(len(slots), np.float32)
                    return Batch(fields), masses, share
        what = f"Writers overwrote items of {_ATTEMPTS} draws before they were copied"
        raise ReliveError(event(what, at, "give lanes more rows"))

    def raise_priority(self, raw: float) -> None:
        """Give new items at least this raw priority from now on: the largest that was set in another buffer.

        Args:
            raw: A priority as `add(priority=)` takes it, finite and >= 0.

        Raises:
            ArgumentError: It is none, or the sampler has no priorities, or its draws cannot be divided.
        """
        at = "ReplayBuffer.raise_priority"
        checked = check.real(raw, f"{at}(raw)", low=0.0)
        with self._turn.alone():
            if self._prioritizing is None:
                raise no_priorities(self.sampler, at)
            index = self._divisible(at)
            index.refresh()  # steps that were added before have the largest priority of then
            index.raise_priority(checked)

    @property
    def next_rows(self) -> Int64:
        """The row that each lane writes next, int64 `[L]`: ids of lane l, now and later, are `row * num_envs + l`."""
        with self._turn.lock:
            return self._ring.counters[:, HEAD].copy()

    def lane_steps(self) -> Int64:
        """Steps ever added to each lane, int64 `[L]`: `Sequences(starts=k)` start at those of a multiple of k."""
        with self._turn.lock:
            return self._ring.counters[:, STEPS].copy()

    def _divisible(self, at: str) -> Divisible:
        if isinstance(self._index, Divisible):
            return self._index
        wanted = "a sampler whose draws can be divided among several buffers"
        remedy = "a rank is one among all items, which no part knows; use `Prioritized()`"
        raise ArgumentError(message(wanted, f"`{type(self.sampler).__name__}()`", at, remedy))
