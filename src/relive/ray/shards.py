"""A replay memory in parts, one actor of a Ray cluster each, drawn from as if it were one buffer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._base import check
from .._base.capabilities import completed
from .._base.check import generator, integers, lanes_of, no_priorities, source
from .._base.narrow import as_array
from .._base.priorities import check_errors
from .._buffer.arguments import ids_of, td_errors
from .._buffer.writing import parsed
from .._flow.limiter import RateLimiter, checked
from .._flow.prefetch import converter
from .._flow.transform import Change, Transform
from .._ring.lanes import BOUNDARIES, resized
from ..batch import Batch
from ..errors import ArgumentError, BufferClosed, ReliveError, message
from ..items import Item
from ..samplers import Sampler
from ..schema import Schema
from ._cluster import Actors, KeyValues, started
from ._counting import snapshot
from ._drawing import Drawer, ShardBatches
from ._pace import Pace
from ._planning import planned
from ._saving import SavedShards, loading, save
from ._wire import ShardPlan, Transport
from ._writer import Writer
from .stats import ShardsStats

Options = Mapping[str, Any] | Sequence[Mapping[str, Any]]


class Shards:
    """A replay buffer whose lanes are spread over actors of a Ray cluster, under one law.

    Lane `l` lives in shard `l % shards`; a shard is an actor with an ordinary `ReplayBuffer`. An item's probability is
    `p**alpha` over the sum of all shards, and weights use the probability with which it was in fact drawn, so that
    estimates are unbiased while others add and update. Ids mean what they mean everywhere: `id % num_envs` is the lane.

    A handle can be sent to other actors. Each draws with a generator (`rng`) and a clock of beta of its own; steps and
    priorities are the shards'.

    Args:
        schema: The fields of a step.
        capacity: Steps that are kept, over all lanes: the newest `capacity // num_envs` of each lane.
        num_envs: Lanes.
        shards: Actors, at most as many as lanes.
        item: What one draw expands to.
        sampler: `Uniform(...)`, `Prioritized(...)` with replacement, or one whose index has `share` and `draw_at`.
        limiter: A `RateLimiter`: draws of this handle wait for added steps. Adding never waits for draws.
        seed: An integer, or a `numpy.random.Generator` that is used itself; None for fresh entropy.
        actor_options: Ray's own options for the actors (`num_cpus`, `memory`, `resources`, `scheduling_strategy`,
            `name`, `lifetime`, `runtime_env`, ...): a dict for all, or a list with one for each. By default an actor
            reserves its memory, is spread over nodes, and is started again when it dies.
        save_dir: An absolute path that every shard can write: where a shard that was started again finds its last save.
        save_every: Seconds between two saves there, if anything changed; None: only `save(save_dir)` saves.
        timeout: Seconds in which all actors have to run.
        boundaries: Share of rows reserved for final observations, as in `ReplayBuffer`.

    Raises:
        ArgumentError: A choice of another kind, a value outside its limits, or a combination that makes no sense.
        StorageError: A shard cannot write `save_dir`, or finds other saves there.
        ReliveError: Ray did not start all actors in time; the message names what they need.
        MissingExtra: Ray is not installed.

    Ray is initialized if it was not. `close`, or the end of a `with` block, ends the actors.

    >>> import relive
    >>> from relive.ray import Shards
    >>> schema = relive.Schema(obs=relive.Field((3,)), action=relive.Field())
    >>> with Shards(schema, 100_000, num_envs=8, shards=2, seed=0) as replay:  # doctest: +SKIP
    ...     writer = replay.writer()
    ...     writer.add(**step)
    ...     writer.flush()
    ...     batch = replay.sample(256)
    """

    def __init__(
        self,
        schema: Schema,
        capacity: int,
        *,
        num_envs: int = 1,
        shards: int = 1,
        item: Item | None = None,
        sampler: Sampler | None = None,
        limiter: RateLimiter | None = None,
        seed: int | np.random.Generator | None = None,
        actor_options: Options | None = None,
        save_dir: str | os.PathLike[str] | None = None,
        save_every: float | None = None,
        timeout: float = 120.0,
        boundaries: float = BOUNDARIES,
    ) -> None:
        rng = generator(seed)
        plan = planned(schema, capacity, num_envs, shards, item, sampler, rng, save_dir, save_every, boundaries)
        self._open(plan, rng, limiter, actor_options, timeout)

    def _open(self, plan: ShardPlan, rng: Any, limiter: Any, options: Any, timeout: float) -> None:
        """Start the shards."""
        limit = checked(limiter)
        self._attach(plan, started(plan, options, check.real(timeout, "Shards(timeout)", above=0.0)), rng, limit)
        self._owner = True
        try:
            self._drawer.health.hear_all(timeout)
            self._limit_from_now()
            if plan.save_dir is not None:
                save(plan, self._transport, self._drawer, plan.save_dir, rows=False)
        except BaseException:
            self.close()
            raise

    def _attach(self, plan: ShardPlan, transport: Transport, rng: Any, limiter: RateLimiter | None) -> None:
        """Be a handle to shards that run already."""
        self._plan, self._transport, self.limiter = plan, transport, limiter
        self._drawer = Drawer(plan, transport, rng)
        self._owner = self._closed = False

    def _limit_from_now(self) -> None:
        if self.limiter is not None:
            self._drawer.pace = Pace(self.limiter, self._drawer.health)

    # What it was built from.

    @property
    def schema(self) -> Schema:
        """The fields of a step."""
        return self._plan.schema

    @property
    def num_envs(self) -> int:
        """Lanes."""
        return self._plan.num_envs

    @property
    def shards(self) -> int:
        """The number of actors."""
        return self._plan.shards

    @property
    def capacity(self) -> int:
        """The most steps that are stored, `num_envs * (capacity // num_envs)`."""
        return self._plan.num_envs * self._plan.steps

    @property
    def item(self) -> Item:
        """The item that one draw expands to."""
        return self._plan.item

    @property
    def sampler(self) -> Sampler:
        """The sampler, which chooses items."""
        return self._plan.sampler

    @property
    def rng(self) -> np.random.Generator:
        """This handle's generator. A handle in another process has a fresh one; set it there for draws that repeat."""
        return self._drawer.rng

    @rng.setter
    def rng(self, value: int | np.random.Generator) -> None:
        at = "Shards.rng"
        self._drawer.rng = generator(value, at) if isinstance(value, int | np.integer) else source(value, at)

    # Adding, drawing, updating.

    def writer(self, env_ids: Any = None) -> Writer:
        """Make a writer for some lanes, or for all; it can be sent to other actors before it is used.

        Args:
            env_ids: Its lanes; None: all. A lane has one writer at a time.

        Raises:
            ArgumentError: `env_ids` are not distinct lanes.
        """
        plan = self._running()
        lanes = np.arange(plan.num_envs) if env_ids is None else lanes_of(env_ids, plan.num_envs)
        return Writer(plan, self._transport, lanes)

    def sample(self, batch_size: int, *, beta: float | None = None) -> Batch:
        """Draw items from all shards, as `ReplayBuffer.sample` does from one buffer.

        A part that does not come within 0.5 s (or 10 times what draws usually take, but 1 s at most, or twice that if
        they take longer) is drawn from the other shards: the batch then follows the law over the shards that answered.
        Where there is no other shard to draw from, the draw waits for one to answer, 30 s at most; after 5 s
        it logs a warning. It does not wait for shards that Ray knows to be dead.

        Raises:
            NotEnoughData: Nothing can be drawn yet, or, without replacement, fewer items than asked for.
            StorageError: No shard answers: all are dead, or were silent for 30 s.
            RateLimitTimeout: The limiter did not allow it in time.
            ArgumentError: `batch_size` is not a positive integer, or `beta` is negative, not finite, or without
                priorities.
        """
        size, beta = self._checked(batch_size, beta, "Shards.sample")
        return self._drawer.draw(size, beta)

    def can_sample(self, batch_size: int) -> bool:
        """Return whether `sample(batch_size)` would succeed, as far as is known; never raise."""
        try:
            size, _ = self._checked(batch_size, None, "Shards.can_sample")
            with self._drawer.lock:
                self._drawer.look_for(size)
                return self._drawer.may(size)
        except (ReliveError, ValueError):
            return False

    def update_priorities(self, ids: Any, td_error: Any) -> int | None:
        """Set priorities from TD errors, as `ReplayBuffer.update_priorities` does.

        Ids whose step was overwritten, or lost with its shard, are dropped and counted; so are those of a shard that
        does not answer.

        Returns:
            How many were applied; None while batches are prefetched, since updates then go with the next draws. 0 where
            the sampler has no priorities.

        Raises:
            PriorityError: A TD error is NaN or infinite, or there are not as many as ids. Nothing was sent.
        """
        at = "Shards.update_priorities"
        numbers = ids_of(ids, at)
        errors = td_errors(td_error, numbers)
        sampler = completed(self._running().sampler, Sampler)
        if not sampler.prioritizes:
            return 0
        check_errors(errors, sampler.eps)
        with self._drawer.lock:
            return self._drawer.update(numbers, errors, wait=not self._drawer.prefetching)

    def write(self, ids: Any, **fields: Any) -> int:
        """Write values back to stored steps, as `ReplayBuffer.write` does.

        Ids whose step was overwritten or lost with its shard are dropped, as are those of a shard that does not answer.

        Returns:
            How many were written.

        Raises:
            SchemaError: Values of another shape or dtype. Nothing was sent.
            ArgumentError: A field is not writable. Nothing was sent.
        """
        check.unmasked(ids, "Shards.write(ids)", ArgumentError)
        given = as_array(ids)
        values = parsed(self._running().schema, given.shape, fields)
        which = integers(given.reshape(-1), "Shards.write(ids)")
        named = which >= 0
        if not named.all():
            which = which[named]
            values = [value._replace(values=value.values[named]) for value in values]
        with self._drawer.lock:
            return self._drawer.write(which, values)

    def prefetch(
        self,
        batch_size: int,
        *,
        depth: int = 4,
        to: str | None = None,
        device: Any = None,
        beta: float | None = None,
        transform: Change | None = None,
    ) -> ShardBatches:
        """Ask for batches before they are needed, so that the shards work while the learner does.

        Args:
            batch_size: Items of a batch, >= 1.
            depth: How many are asked for ahead, >= 1. More than 4 hides little more, and draws by older priorities;
                weights take that into account.
            to: `"torch"` or `"jax"`: what batches are made into; None or `"numpy"`: they stay as they are.
            device: Where tensors or JAX's arrays go.
            beta: As in `sample`.
            transform: As in `ReplayBuffer.prefetch`, but called when the batch is asked for: there is no thread. `rng`
                starts from the numbers of this handle's `rng` just before the shards are asked.

        Returns:
            An iterator, and a context manager. While it is open, updates of priorities go with the next draws, which
            see them, and are not waited for.

        Raises:
            ArgumentError, MissingExtra: As `ReplayBuffer.prefetch`.
        """
        at = "Shards.prefetch"
        size, beta = self._checked(batch_size, beta, at)
        ahead = check.integer(depth, f"{at}(depth)", minimum=1)
        change = Transform(transform, f"{at}(transform)")
        return ShardBatches(self._drawer, size, ahead, beta, change, converter(to, device))

    # Looking, keeping, ending.

    def stats(self) -> ShardsStats:
        """Take a snapshot: ask all shards, wait a second or two at most; never raise if one is silent."""
        self._running()
        with self._drawer.lock:
            return snapshot(self._plan, self._transport, self._drawer)

    def save(self, path: str | os.PathLike[str]) -> SavedShards:
        """Save all shards in a directory that each of them can write, for `Shards.load`.

        Every shard saves into its own directory there, of one instant, but not all of the same one. What `save_dir`
        names can be given here, too.

        Raises:
            StorageError: A shard does not answer, or cannot write. Earlier saves stay.
        """
        self._running()
        with self._drawer.lock:
            folder = os.path.abspath(check.path(path, "Shards.save(path)"))
            return save(self._plan, self._transport, self._drawer, folder)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        shards: int | None = None,
        capacity: int | None = None,
        boundaries: float | None = None,
        item: Item | None = None,
        sampler: Sampler | None = None,
        limiter: RateLimiter | None = None,
        seed: int | np.random.Generator | None = None,
        actor_options: Options | None = None,
        save_dir: str | os.PathLike[str] | None = None,
        save_every: float | None = None,
        timeout: float = 600.0,
    ) -> Shards:
        """Start shards with what others saved in `path`, the directory of `save` or a `save_dir`.

        Ids, and with the same choices what is drawn, are those of the shards that were saved. `path` has to stay where
        it is: a shard that dies before its first save in `save_dir` comes back from there.

        Args:
            path: The directory.
            shards: How many actors; None: as many as were saved. Ids and lanes do not depend on it.
            capacity: Steps that are kept, over all lanes; None: as it was. A smaller one keeps the newest steps of each
                lane.
            boundaries: Share of rows reserved for final observations, as in `ReplayBuffer`; None: as it was saved.
            item: What a draw expands to; None: as it was saved.
            sampler: Which items are drawn; None: as it was saved.
            limiter: A `RateLimiter`, which counts from now on.
            seed: A new generator; None: the saved one goes on.
            actor_options: As in `Shards`.
            save_dir: As in `Shards`; may be `path`, if the number of shards stays.
            save_every: As in `Shards`.
            timeout: Seconds in which all actors have to run, with what they load.

        Raises:
            StorageError: No complete save is there, or it cannot be read.
            CorruptionError: The save is damaged.
            ArgumentError: A choice that does not fit.
        """
        found = loading(os.path.abspath(check.path(path, "Shards.load(path)")), item, sampler)
        count = found.shards if shards is None else shards
        if save_dir is not None and os.path.abspath(os.fspath(save_dir)) == found.path and count != found.shards:
            remedy = "give another directory, or none"
            wanted = f"`shards={found.shards}`, as in that directory"
            raise ArgumentError(message(wanted, f"`{count}`", "Shards.load(save_dir)", remedy))
        rng = found.generator() if seed is None else generator(seed)
        size = found.capacity if capacity is None else capacity
        share = BOUNDARIES if found.counts_rows and size != found.capacity else found.boundaries
        share = share if boundaries is None else boundaries
        plan = planned(
            found.schema, size, found.num_envs, count, found.item, found.sampler, rng, save_dir, save_every, share
        )
        if boundaries is None:  # as many rows as the saved steps have
            plan = plan.__replace__(boundaries=share if size == found.capacity else resized(share, plan.steps))
        plan = plan.__replace__(source=found.path)
        made = cls.__new__(cls)
        made._open(plan, rng, limiter, actor_options, timeout)
        made._drawer.draws, made._drawer.drawn = found.draws, found.drawn
        return made

    def close(self) -> None:
        """End the actors, if this handle started them; a handle in another process only ends itself. Twice is fine."""
        if self._closed:
            return
        self._closed = True
        if self._owner and isinstance(self._transport, Actors):
            self._transport.end()
            KeyValues(self._plan.run).forget()

    def __enter__(self) -> Shards:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return _attached, (self._plan, self._transport, self.limiter)

    def __repr__(self) -> str:
        plan = self._plan
        size = f"{plan.shards} shards, {self.capacity} steps, num_envs={plan.num_envs}"
        return f"Shards({size}, {plan.item!r}, {plan.sampler!r})"

    # Shared by the above.

    def _running(self) -> ShardPlan:
        if self._closed:
            raise BufferClosed(message("open shards", "closed ones", "Shards"))
        return self._plan

    def _checked(self, batch_size: Any, beta: Any, at: str) -> tuple[int, float | None]:
        size = check.integer(batch_size, f"{at}(batch_size)", minimum=1)
        if beta is not None:
            beta = check.real(beta, f"{at}(beta)", low=0.0)
            if not self._plan.sampler.prioritizes:
                raise no_priorities(self._plan.sampler, f"{at}(beta)")
        self._running()
        return size, beta


def _attached(plan: ShardPlan, transport: Transport, limiter: RateLimiter | None) -> Shards:
    """Make a handle to shards, in another process."""
    made = Shards.__new__(Shards)
    made._attach(plan, transport, np.random.default_rng(), limiter)
    made._drawer.health.hear_all(1.0)
    made._limit_from_now()
    return made
