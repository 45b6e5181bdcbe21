"""The one class: a replay buffer wired from four choices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from . import items
from . import storage as storages
from ._base import check
from ._base.arrays import Section
from ._base.memory import Arena, available_bytes
from ._base.types import Bool, Float64, Int64
from ._buffer.adding import Adding, shadow
from ._buffer.arguments import (
    choice,
    generator,
    identity,
    ids_of,
    no_priorities,
    shortage,
    stale,
    td_errors,
)
from ._buffer.divided import Divided
from ._buffer.notices import ALL, Notices
from ._buffer.persistent import Persistent
from ._buffer.shareable import Shareable, about_of, link_of, share
from ._buffer.stored import Stored
from ._buffer.turn import Turn
from ._flow.pacing import Flowing
from ._ring import kernels
from ._ring.lanes import BOUNDARIES, rows_of
from ._ring.plans import State
from ._ring.ring import Ring
from .batch import Batch
from .errors import ArgumentError, message
from .samplers import Index, Prioritizing, Sampler, Uniform
from .schema import Schema

if TYPE_CHECKING:
    from ._flow.limiter import RateLimiter


class ReplayBuffer(Stored, Flowing, Persistent, Shareable, Divided):
    """Store what agents experience; sample it back under an explicit distribution.

    Args:
        schema: What one step holds.
        capacity: Steps that are kept, over all lanes (>= `num_envs`): the newest `capacity // num_envs` of each lane.
        num_envs: Lanes: uninterrupted streams of steps, one per environment (or writer).
        item: What one draw expands to: `Transitions(...)`, `Sequences(...)` or `Hindsight(...)`.
        sampler: Which items are drawn: `Uniform()`, `Prioritized(...)` or `Ranked(...)`.
        storage: Where the bytes live: `Ram()`, `Shared(name)` or `Mapped(path)`.
        limiter: A `RateLimiter`, which makes adding and drawing wait for each other; None: nobody waits.
        seed: An integer, or a `numpy.random.Generator` that is used itself; None for fresh entropy.
        boundaries: Share of rows reserved for final observations, from 0 to 1, on top of a row for each step. The
            default is enough for episodes of 16 steps on average; 1 is enough for episodes of any length. Where rows
            run out, a lane keeps fewer steps, and a notice says so.

    Raises:
        ArgumentError: A choice of another kind, a value outside its limits, or a combination that makes no sense.

    All methods may be called from several threads.

    Why it is like this:

    * Ids name steps for ever, never slots: a late priority cannot land on a newer step.
    * An observation is stored once, and `next_obs` is the following row, checked by bytes when it comes.
    * Everything is checked before the first byte is written: a refused call changes nothing.

    >>> import numpy as np, relive
    >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000, seed=0)
    >>> step = dict(obs=np.zeros(3), action=0.5, reward=1.0, next_obs=np.ones(3), terminated=False, truncated=False)
    >>> ids = buffer.add(**step)
    >>> batch = buffer.sample(4)
    >>> batch.next_obs.shape, batch.ids.tolist()
    ((4, 3), [0, 0, 0, 0])
    """

    def __init__(
        self,
        schema: Schema,
        capacity: int,
        *,
        num_envs: int = 1,
        item: items.Item | None = None,
        sampler: Sampler | None = None,
        storage: storages.Storage | None = None,
        limiter: RateLimiter | None = None,
        seed: int | np.random.Generator | None = None,
        boundaries: float = BOUNDARIES,
    ) -> None:
        kernels.warn_once()
        if not isinstance(schema, Schema):
            raise ArgumentError(message("a `Schema`", f"`{type(schema).__name__}`", "ReplayBuffer(schema)"))
        self.schema = schema
        self.num_envs = check.integer(num_envs, "ReplayBuffer(num_envs)", minimum=1)
        steps = check.integer(capacity, "ReplayBuffer(capacity)", minimum=1) // self.num_envs
        if steps < 1:
            wanted = f"a capacity of at least one step for each of {num_envs} lanes"
            raise ArgumentError(message(wanted, f"`{capacity}`", "ReplayBuffer(capacity)"))
        self.boundaries = check.real(boundaries, "ReplayBuffer(boundaries)", low=0.0, high=1.0)
        rows = rows_of(steps, self.boundaries)
        self.item: items.Item = choice(item, items.Transitions(), ("window", "check", "bind"), "ReplayBuffer(item)")
        self.sampler: Sampler = choice(sampler, Uniform(), ("index", "replacement"), "ReplayBuffer(sampler)")
        self.storage: storages.Storage = choice(storage, storages.Ram(), ("open",), "ReplayBuffer(storage)")
        self.item.check(schema, steps)
        self.rng: Any = generator(seed)
        own = window = self.item.window(schema)
        keeps, limits = self.sampler.keeps, self._limited(limiter)
        about = about_of(self, rows, steps)
        if about is not None:
            window, keeps = about.window, about.keeps
        of_ring = Ring.spec(schema, window, self.num_envs, rows, keeps)
        spec = {f"ring/{name}": wanted for name, wanted in of_ring.items()}
        spec |= {f"sampler/{name}": wanted for name, wanted in self.sampler.spec(self.num_envs, rows).items()}
        spec |= limits | ({} if about is None else about.spec())
        self._nbytes = sum(wanted.nbytes for wanted in of_ring.values())
        memory = self.storage.open(spec, identity(schema, self.num_envs, rows, steps, own, self.sampler))
        self._link = None if about is None else link_of(memory, self.num_envs)
        self._notices = Notices()
        busy = () if self._link is None else self._link.busy
        ring = Ring(schema, window, rows, steps, Section(memory, "ring/"), keeps, self._notices.note, busy)
        ring.kernel.watched = ALL
        claims = None if self._link is None else self._link.bind(ring)
        self._ring = ring if self._link is None else self._link.seen_as(own, schema, ring)
        self._of_sampler = Section(memory, "sampler/", None if self._link is None else self._link.fresh_sampler)
        self._index: Index = self.sampler.index(self._ring, self._of_sampler)
        if self._link is not None:
            self._index = self._link.following(self._index)
        self._prioritizing = cast(Prioritizing, self._index) if self.sampler.prioritizes else None
        # What most updates are: plain arrays, and ids that can all still be drawn. Not every sampler has a short way.
        self._try_update = getattr(self._index, "try_update", None)
        self._expander = self.item.bind(schema, self._ring, Arena())
        self._turn = Turn()
        refresh = self._index.refresh if self._link is None else self._link.refreshing(self._index.refresh)
        self._adding = Adding(schema, ring, refresh, self.sampler, self._notices, self._turn, claims)
        self._calls = [self._adding.call(several) for several in (False, True)]
        self._add, self._extend = self._paced(memory)
        shadow(self, "add", self._add, ReplayBuffer.add)
        shadow(self, "extend", self._extend, ReplayBuffer.extend)
        if about is not None:
            self._bound = share(self, about)
        self._most = available_bytes() // schema.nbytes
        super().__init__()

    def add(
        self,
        *,
        obs: Any = None,
        action: Any = None,
        reward: Any = None,
        next_obs: Any = None,
        terminated: Any = None,
        truncated: Any = None,
        env_ids: Any = None,
        priority: Any = None,
        **extras: Any,
    ) -> Int64:
        """Add one step of every lane, or of the lanes `env_ids`.

        Every field has the leading axis `[L']`, one entry per lane, which may be left out where that is 1.

        Args:
            obs: Observations before the step, nested as in the schema.
            action: Actions taken.
            reward: Rewards that followed.
            next_obs: Observations after the step, where they are known; the final ones where the episode ended.
            terminated: Whether the episode ended in a terminal state.
            truncated: Whether it was ended from outside, such as by a time limit.
            env_ids: Distinct lane numbers, `[L']`; None for all lanes in order.
            priority: Raw priorities of the new steps, `[L']`, >= 0 (no eps, alpha not yet applied); 0 means never,
                until updated.
            **extras: Every further field of the schema.

        Returns:
            The steps' ids, int64 `[L']`.

        With `next_obs` the newest step can be drawn at once, and a stream whose next `obs` is not byte-equal to it is
        cut there. Without it the following step's `obs` is the successor.

        Raises:
            SchemaError: A field is missing, unknown, or of another shape or dtype. Nothing has changed.
            ArgumentError: `env_ids` are not distinct lanes, or the sampler has no priorities. Nothing has changed.
            PriorityError: A priority is not finite or negative. Nothing has changed.
            RateLimitTimeout: The limiter did not allow it in time. Nothing has changed.
        """
        return self._add(
            obs=obs,
            action=action,
            reward=reward,
            next_obs=next_obs,
            terminated=terminated,
            truncated=truncated,
            env_ids=env_ids,
            priority=priority,
            **extras,
        )

    def extend(
        self,
        *,
        obs: Any = None,
        action: Any = None,
        reward: Any = None,
        next_obs: Any = None,
        terminated: Any = None,
        truncated: Any = None,
        env_ids: Any = None,
        priority: Any = None,
        time_major: bool = False,
        **extras: Any,
    ) -> Int64:
        """Add several steps of every lane, or of the lanes `env_ids`, in time order.

        The arguments are those of `add` with a time axis: every field has the leading axes `[L', T]`; the lane axis
        may be left out where it is 1.

        Args:
            obs: Observations, `[L', T, ...]`.
            action: Actions.
            reward: Rewards.
            next_obs: Observations after each step, or None.
            terminated: Ends in a terminal state.
            truncated: Ends from outside.
            env_ids: Distinct lane numbers, `[L']`; None for all lanes in order.
            priority: Raw priorities, `[L', T]`.
            time_major: Whether the leading axes are `[T, L']` instead, those of `priority` and of the result, too.
            **extras: Every further field of the schema.

        Returns:
            The steps' ids, int64, shaped like the leading axes.

        Raises:
            SchemaError, ArgumentError, PriorityError, RateLimitTimeout: As in `add`; all or nothing is added.
        """
        return self._extend(
            obs=obs,
            action=action,
            reward=reward,
            next_obs=next_obs,
            terminated=terminated,
            truncated=truncated,
            env_ids=env_ids,
            priority=priority,
            time_major=time_major,
            **extras,
        )

    def cut(self, env_ids: Any = None) -> None:
        """End the streams of all lanes, or of `env_ids`, without an end of the episode: a reset in mid-episode.

        No item spans the cut; windows that it shortens keep `discount = gamma**m`. A newest step whose successor was
        never given cannot be drawn. Lanes that are not in mid-episode stay as they are.

        Raises:
            ArgumentError: `env_ids` are not distinct lanes.
        """
        lanes = self._adding.lanes(env_ids)
        self._adding.cut(lanes)

    def sample(self, batch_size: int, *, beta: float | None = None) -> Batch:
        """Draw items by the sampler's rule.

        Args:
            batch_size: Number of items, >= 1.
            beta: Exponent of the importance-sampling weights for this call, instead of the sampler's own.

        Returns:
            A batch whose arrays have the leading axis `[batch_size]` and belong to the caller.

        Raises:
            NotEnoughData: Nothing can be drawn yet, or, without replacement, fewer items than asked for.
            RateLimitTimeout: The limiter did not allow it in time.
            ArgumentError: `batch_size` is not a positive integer, or `beta` is negative or not finite.
        """
        if type(batch_size) is not int or batch_size < 1:
            batch_size = check.integer(batch_size, "ReplayBuffer.sample(batch_size)", minimum=1)
        if beta is not None:
            beta = check.real(beta, "ReplayBuffer.sample(beta)", low=0.0)
        if batch_size > self._most:
            raise self._too_many(batch_size, "ReplayBuffer.sample(batch_size)")
        if self._notices.due:
            self._notices.say(self._ring)
        if self._limit is not None:
            return self._sample_in_time(self._limit, batch_size, beta)
        with self._turn.alone():
            batch = self._draw(batch_size, beta)
            self._drawn += batch_size
            return batch

    def _draw(self, batch_size: int, beta: float | None) -> Batch:
        """Draw items, under the lock, without counting them."""
        least = 1 if self.sampler.replacement else batch_size
        if self._link is not None:
            self._link.look()
        drawable = self._index.refresh()
        if drawable < least:
            ring = self._ring
            raise shortage(least, ring.drawable, drawable, ring.waiting, ring.window.span)
        if beta is not None and self._prioritizing is None:
            raise no_priorities(self.sampler, "$.beta")
        if self._link is None:
            slots, weights = self._index.draw(batch_size, self.rng, beta)
            fields = self._expander.expand(slots, self.rng)
            fields["weights"] = weights
        else:
            fields = self._link.draw(batch_size, self._bound, self.rng, beta)
        self._last_ids, self._last_weights = fields["ids"].copy(), fields["weights"].copy()
        if not self._updates and self._prioritizing is not None:
            self._notices.drew_without_updates(self._index.report)
        return Batch(fields)

    def read(self, ids: Any) -> Batch:
        """Expand the items of given ids, without drawing; weights are 1 and no statistic moves.

        Args:
            ids: Integer ids, `[B]`.

        Raises:
            StaleId: An id cannot be drawn: overwritten, not complete yet, or never issued.
            ArgumentError: `ids` are not one-dimensional integers.
        """
        with self._turn.alone():
            return self._batch(self._drawable(ids, "ReplayBuffer.read"))

    def priorities(self, ids: Any) -> Float64:
        """The raw priorities (eps included, alpha not) of drawable ids, float64 `[B]`.

        Ones where the sampler keeps none: `Uniform`, and positive priorities under `alpha=0`.

        Raises:
            StaleId, ArgumentError: As in `read`.
        """
        checked = ids_of(ids, "ReplayBuffer.priorities")
        with self._turn.alone():
            slots = self._drawable(checked, "ReplayBuffer.priorities")
            if self._prioritizing is None:
                return np.ones(len(slots))
            self._prioritizing.refresh()
            found = self._prioritizing.priorities(slots)
            if self._link is not None:
                self._link.check(self._bound, checked)
            return found

    def update_priorities(self, ids: Any, td_error: Any) -> int:
        """Set priorities from TD errors: `|td_error| + eps`.

        Args:
            ids: Ids as a batch gave them, `[B]`. Ids that have been overwritten since are dropped and counted.
            td_error: One number per id, of either sign, `[B]` or `[B, 1]`; the last of duplicates wins. A tensor may
                require grad, and must be on the CPU.

        Returns:
            How many were applied.

        Raises:
            PriorityError: A TD error is NaN or infinite, or there are not as many as ids. Nothing has changed.
            StaleId: An id was never issued. Nothing has changed.
            ArgumentError: The sampler has no priorities.
        """
        if self._try_update is not None:
            with self._turn.alone():
                if self._link is not None:
                    self._link.take_in()
                if self._try_update(ids, td_error):
                    self._count_update(len(ids), 0)
                    return len(ids)
        checked = ids_of(ids, "ReplayBuffer.update_priorities")
        errors = td_errors(td_error, checked)
        with self._turn.alone():
            if self._link is not None:
                self._link.look()
            self._index.refresh()
            slots, states = self._ring.locate(checked)
            keep: Bool | None = None
            if states is not None:
                unknown = states == State.NEVER_ISSUED
                if unknown.any():
                    raise stale(checked, states, unknown, "ReplayBuffer.update_priorities")
                keep = states == State.DRAWABLE
            if self._link is not None:
                keep = self._link.known(self._ring, checked, keep)
            index = self._prioritizing
            if index is None:
                raise no_priorities(self.sampler, "ReplayBuffer.update_priorities")
            index.update(slots, errors, keep)
            dropped = 0 if keep is None else len(checked) - int(keep.sum())
            self._count_update(len(checked), dropped)
            return len(checked) - dropped

    def can_sample(self, batch_size: int) -> bool:
        """Whether `sample(batch_size)` would succeed; never raises. A signal handler may call it at any time."""
        try:
            wanted = check.integer(batch_size, "ReplayBuffer.can_sample", minimum=1)
        except ArgumentError:
            return False
        nested = self._turn.taken()
        with self._turn.lock:
            # The outer call may have changes half done, which a sampler must not take in.
            drawable = self._ring.drawable if nested else self._index.refresh()
            enough = wanted <= self._most and drawable >= (1 if self.sampler.replacement else wanted)
            return enough and (self._limit is None or self._limit.can_sample(wanted))
