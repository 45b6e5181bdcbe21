"""The one class: a replay buffer wired from four choices."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from . import _check, _kernels
from ._arguments import choice, generator, given, ids_of, lanes_of, raw_priorities, shortage, stale, td_errors
from ._memory import Arena
from ._notices import Notices
from ._ring import Ring
from ._step_parser import Step, StepParser
from ._types import Array, Bool, Float64, Int64
from .batch import Batch
from .errors import ArgumentError, SchemaError, message
from .items import Item, Transitions
from .samplers import Index, Sampler, Uniform
from .schema import Schema
from .stats import Stats
from .storage import Ram, Storage

_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


class ReplayBuffer:
    """Keep what agents lived through, and draw it back by a stated rule.

    Args:
        schema: What one step holds.
        capacity: Rows over all lanes (>= `num_envs`); each lane has `capacity // num_envs` and overwrites only its own
            oldest. A row holds a step, or the final observation of an episode.
        num_envs: Lanes: uninterrupted streams of steps, one per environment (or writer).
        item: What one draw expands to: `Transitions(...)`.
        sampler: Which items are drawn: `Uniform()` or `Prioritized(...)`.
        storage: Where the bytes live: `Ram()`.
        seed: An integer, or a `numpy.random.Generator` that is used itself; None for fresh entropy.

    Raises:
        ArgumentError: A choice of another kind, a value outside its limits, or a combination that makes no sense.

    `add`, `sample` and `update_priorities` may be called from several threads.

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
        item: Item | None = None,
        sampler: Sampler | None = None,
        storage: Storage | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        _kernels.warn_once()
        if not isinstance(schema, Schema):
            raise ArgumentError(message("a `Schema`", f"`{type(schema).__name__}`", "ReplayBuffer(schema)"))
        self.schema = schema
        self.num_envs = _check.integer(num_envs, "ReplayBuffer(num_envs)", minimum=1)
        rows = _check.integer(capacity, "ReplayBuffer(capacity)", minimum=1) // self.num_envs
        if rows < 1:
            wanted = f"a capacity of at least one row for each of {num_envs} lanes"
            raise ArgumentError(message(wanted, f"`{capacity}`", "ReplayBuffer(capacity)"))
        self.item: Item = choice(item, Transitions(), ("anchors", "check", "bind"), "ReplayBuffer(item)")
        self.sampler: Sampler = choice(sampler, Uniform(), ("index", "replacement"), "ReplayBuffer(sampler)")
        self.storage: Storage = choice(storage, Ram(), ("allocate",), "ReplayBuffer(storage)")
        self.item.check(schema, rows)
        self.rng: Any = generator(seed)
        arrays = self.storage.allocate(Ring.spec(schema, self.num_envs, rows))
        self._ring = Ring(schema, self.num_envs, rows, self.item.anchors(schema), arrays)
        self._index: Index = self.sampler.index(self._ring)
        self._expander = self.item.bind(schema, self._ring, Arena())
        self._parser = StepParser(schema)
        self._push = self._ring.push
        self._all_lanes = np.arange(self.num_envs)
        self._lock = threading.Lock()
        self._drawn = 0
        self._stale = 0
        self._last: Int64 = np.empty(0, np.int64)
        self._remembers = False
        self._notices = Notices()
        self._ring.attach(self._index.listener, self._notices.look)

    @property
    def capacity(self) -> int:
        """Rows over all lanes: `num_envs * (capacity // num_envs)`."""
        return self._ring.capacity

    def __len__(self) -> int:
        """Steps stored now; boundary rows do not count."""
        return self._ring.stored

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
            ArgumentError: `env_ids` are no distinct lanes, or the sampler knows no priorities. Nothing has changed.
            PriorityError: A priority is not finite or negative. Nothing has changed.
        """
        with self._lock:
            if env_ids is None and priority is None:
                ids: Int64 | None = self._push(obs, action, reward, next_obs, terminated, truncated, extras)
                if ids is not None:
                    return ids
            step = given(obs, action, reward, next_obs, terminated, truncated, extras)
            lanes = self._all_lanes if env_ids is None else lanes_of(env_ids, self.num_envs)
            canonical = self._parser.step(step, (len(lanes),), 1).mapped(lambda array: array[:, None])
            priorities = raw_priorities(priority, (len(lanes),), self._index)
            return self._write(canonical, lanes, None if priorities is None else priorities[:, None])[:, 0]

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
            SchemaError, ArgumentError, PriorityError: As in `add`; all or nothing is added.
        """
        with self._lock:
            lanes = self._all_lanes if env_ids is None else lanes_of(env_ids, self.num_envs)
            steps = given(obs, action, reward, next_obs, terminated, truncated, extras)
            _check.flag(time_major, "ReplayBuffer.extend(time_major)")
            lead = self._parser.leading_axes(steps)
            flat = len(lead) == 1 and len(lanes) == 1
            swap = time_major and not flat
            length = lead[0] if flat or (swap and lead) else lead[1] if len(lead) == 2 else 0
            if not length:
                wanted = f"leading axes {'`[T, L]`' if time_major else '`[L, T]`'} with T >= 1"
                raise SchemaError(message(wanted, f"shape `{lead}`", "$.reward"))
            shape = (length, len(lanes)) if swap else (len(lanes), length)
            canonical = self._parser.step(steps, shape, 1 if flat else 0)
            priorities = raw_priorities(priority, shape, self._index)
            if swap:
                canonical = canonical.mapped(lambda array: np.ascontiguousarray(array.swapaxes(0, 1)))
                priorities = None if priorities is None else priorities.T
            ids = self._write(canonical, lanes, priorities)
            return ids[0] if flat else ids.T if time_major else ids

    def cut(self, env_ids: Any = None) -> None:
        """End the streams of all lanes, or of `env_ids`, without an end of the episode: a reset in mid-episode.

        No item spans the cut; windows that it shortens keep `discount = gamma**m`. A newest step whose successor was
        never given cannot be drawn. Lanes that are not in mid-episode stay as they are.

        Raises:
            ArgumentError: `env_ids` are no distinct lanes.
        """
        with self._lock:
            lanes = self._all_lanes if env_ids is None else lanes_of(env_ids, self.num_envs)
            added, removed, _ = self._ring.cut(lanes)
            self._index.change(removed, added)

    def sample(self, batch_size: int, *, beta: float | None = None) -> Batch:
        """Draw items by the sampler's rule.

        Args:
            batch_size: Number of items, >= 1.
            beta: Exponent of the importance-sampling weights for this call, instead of the sampler's own.

        Returns:
            A batch whose arrays have the leading axis `[batch_size]` and belong to the caller.

        Raises:
            NotEnoughData: Nothing can be drawn yet, or, without replacement, fewer items than asked for.
            ArgumentError: `batch_size` is no positive integer, or `beta` is negative or not finite.
        """
        if type(batch_size) is not int or batch_size < 1:
            batch_size = _check.integer(batch_size, "ReplayBuffer.sample(batch_size)", minimum=1)
        if beta is not None:
            beta = _check.real(beta, "ReplayBuffer.sample(beta)", low=0.0)
        with self._lock:
            if self._index.drawable < (1 if self.sampler.replacement else batch_size):
                least = 1 if self.sampler.replacement else batch_size
                ring = self._ring
                raise shortage(least, ring.drawable, self._index.drawable, ring.waiting, ring.anchors.reach)
            places, weights = self._index.draw(batch_size, self.rng, beta, self._ring.drawable)
            self._drawn += batch_size
            batch = self._batch(places, weights)
            self._last = batch.ids
            return batch

    def read(self, ids: Any) -> Batch:
        """Expand the items of given ids, without drawing; weights are 1 and no statistic moves.

        Args:
            ids: Integer ids, `[B]`.

        Raises:
            StaleId: An id cannot be drawn: overwritten, not complete yet, or never issued.
            ArgumentError: `ids` are no one-dimensional integers.
        """
        with self._lock:
            places = self._drawable(ids, "ReplayBuffer.read")
            return self._batch(places, np.ones(len(places), np.float32))

    def priorities(self, ids: Any) -> Float64:
        """The raw priorities (eps included, alpha not) of drawable ids, float64 `[B]`.

        Ones where the sampler keeps none: `Uniform`, and positive priorities under `alpha=0`.

        Raises:
            StaleId, ArgumentError: As in `read`.
        """
        with self._lock:
            places = self._drawable(ids, "ReplayBuffer.priorities")
            return self._index.priorities(places)

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
            ArgumentError: The sampler knows no priorities.
        """
        with self._lock:
            checked = ids_of(ids, "ReplayBuffer.update_priorities")
            errors = td_errors(td_error, checked)
            places, codes = self._ring.locate(checked)
            keep: Bool | None = None
            if codes is not None:
                if (codes == 3).any():
                    raise stale(checked, codes, codes == 3, "ReplayBuffer.update_priorities")
                keep = codes == 0
            self._index.update(places, errors, keep)
            applied = len(checked) if keep is None else int(keep.sum())
            self._stale += len(checked) - applied
            return applied

    def can_sample(self, batch_size: int) -> bool:
        """Whether `sample(batch_size)` would succeed; never raises."""
        try:
            wanted = _check.integer(batch_size, "ReplayBuffer.can_sample", minimum=1)
        except ArgumentError:
            return False
        return self._index.drawable >= (1 if self.sampler.replacement else wanted)

    def stats(self) -> Stats:
        """Return a snapshot of counts, priorities and ages. Cost: O(capacity) for `Prioritized`."""
        with self._lock:
            tally = self._ring.tally()
            ages = self._ring.ages(self._last)
            return Stats(
                size=tally["stored"],
                capacity=self._ring.capacity,
                drawable=tally["drawable"],
                nbytes=self._ring.nbytes,
                added=tally["added"],
                drawn=self._drawn,
                replay_ratio=self._drawn / tally["added"] if tally["added"] else 0.0,
                cuts=tally["cuts"],
                unbootstrapped=tally["unbootstrapped"],
                stale_updates=self._stale,
                age_quantiles=tuple(np.quantile(ages, _QUANTILES).tolist()) if len(ages) else (),
                **self._index.report(),
            )

    def __repr__(self) -> str:
        size = float(self._ring.nbytes)
        for unit in ("B", "KB", "MB", "GB", "TB"):
            if size < 1000 or unit == "TB":
                break
            size /= 1000
        choices = f"{self.item!r}, {self.sampler!r}, {self.storage!r}"
        steps = f"{len(self)} of {self.capacity} steps, num_envs={self.num_envs}"
        return f"ReplayBuffer({steps}, {choices}, {size:.1f} {unit} when full)"

    def _batch(self, places: Int64, weights: Array) -> Batch:
        fields = self._expander.expand(places)
        fields["weights"] = weights
        return Batch(fields)

    def _write(self, step: Step, lanes: Int64, priority: Float64 | None) -> Int64:
        ids: Int64
        ids, added, removed, notices = self._ring.write(
            step.values, step.next_values, step.terminated, step.truncated, lanes
        )
        if priority is not None or self._remembers:
            self._remembers = True
            self._index.offer(ids % self._ring.capacity, priority)
            self._ring.attach(self._index.listener, self._notices.look)
        self._index.change(removed, added)
        if notices:
            self._notices.look(**self._ring.notable(), stacklevel=5)
        return ids

    def _drawable(self, ids: Any, at: str) -> Int64:
        checked = ids_of(ids, at)
        places: Int64
        places, codes = self._ring.locate(checked)
        if codes is not None:
            raise stale(checked, codes, codes > 0, at)
        return places
