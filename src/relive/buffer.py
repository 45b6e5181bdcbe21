"""`ReplayBuffer`: one class, built from four choices."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from . import items
from . import storage as storages
from ._base import check, forks
from ._base.check import generator, source
from ._base.extras import needs
from ._base.forks import importing
from ._base.types import Array, Float64, Int64
from ._buffer import drawing, stored
from ._buffer.adding import SHADOWED, finite, shadow, shadows
from ._buffer.arguments import absent, choice, hinting
from ._buffer.choices import Choices, Chosen
from ._buffer.core import CLOSED, Core, forked
from ._buffer.stats import Stats
from ._ring import kernels
from ._ring.lanes import BOUNDARIES as BOUNDARIES
from ._ring.plans import Followed
from .batch import Batch
from .errors import ArgumentError, message
from .processes.opening import opened
from .samplers import Sampler
from .schema import Schema
from .storage import Ram, Storage

if TYPE_CHECKING:
    from typing import Self

    from torch.utils.data import IterableDataset

    from ._flow.limiter import RateLimiter
    from ._flow.prefetch import DrawsAhead, Prefetched
    from ._flow.transform import Change
    from .checkpoints._saved import Saved
    from .checkpoints._saving import Saver
    from .checkpoints.autosave import Autosave
    from .processes.writer import Writer

_USED = {"_core", "schema", "item", "sampler", "storage", "num_envs", "boundaries", "limiter"}


class ReplayBuffer:
    """Store what agents experience; sample it back under an explicit distribution.

    Args:
        schema: The fields of a step.
        capacity: Steps that are kept, over all lanes (>= `num_envs`): the newest `capacity // num_envs` of each lane.
        num_envs: Lanes: uninterrupted streams of steps, one per environment (or writer).
        item: What one draw expands to: `Transitions(...)`, `Sequences(...)` or `Hindsight(...)`.
        sampler: Which items are drawn: `Uniform()` or `Prioritized(...)`.
        storage: Where the bytes live: `Ram()`, `Shared(name)` or `Mapped(path)`.
        limiter: A `RateLimiter`, which makes adding and drawing wait for each other; None: no call waits.
        seed: An integer, or a `numpy.random.Generator` that is used itself; None for fresh entropy.
        boundaries: Share of rows reserved for final observations, from 0 to 1, on top of a row for each step; a share
            above 0 is at least 64 rows an environment. With 256 environments or more a share up to a sixteenth is a
            quarter of their steps if that is fewer. An integer above 1 is the number of rows itself. The default is
            enough for episodes of 16 steps on average; 1 is enough for episodes of any length. Where rows run out, a
            lane keeps fewer steps, and a notice says so.
        check_finite: Look at all floats that are given, and warn once where one is NaN or infinite. For finding a
            fault: it takes longer than adding. A save or a copy does not keep it.

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

    schema = Chosen[Schema]()
    item = Chosen[items.Item]()
    sampler = Chosen[Sampler]()
    storage = Chosen[Storage]()
    num_envs = Chosen[int]()
    boundaries = Chosen[float]()
    limiter = Chosen["RateLimiter | None"]()

    if not TYPE_CHECKING:
        __getattr__ = absent

    @hinting
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
        check_finite: bool = False,
    ) -> None:
        kernels.warn_once()
        choices = Choices.of_new(schema, capacity, num_envs, item, sampler, limiter, boundaries)
        where: Storage = choice(storage, Ram(), "storage", "ReplayBuffer(storage)")
        checks = check.flag(check_finite, "ReplayBuffer(check_finite)")
        core = opened(choices, where, generator(seed))
        self._use(core.__replace__(calls=finite(core.calls)) if checks else core)

    @classmethod
    def _of(cls, core: Core) -> Self:
        """Make a buffer of a core that was built elsewhere: by a load, a copy, or a further process."""
        made = cls.__new__(cls)
        made._use(core)
        return made

    def _use(self, core: Core) -> None:
        """Be the buffer of this core; `_USED` has the names of these attributes."""
        self._core = core
        self.schema, self.item, self.sampler, self.storage = core.schema, core.item, core.sampler, core.storage
        self.num_envs, self.boundaries = core.ring.lanes, core.choices.boundaries
        self.limiter = None if core.limit is None else core.limit.limiter
        shadow(self, "add", core.calls[0], ReplayBuffer.add)
        shadow(self, "extend", core.calls[1], ReplayBuffer.extend)
        for name, call in drawing.calls(core).items():
            shadow(self, name, call, getattr(ReplayBuffer, name))
        if core.access.shares_sampler:
            forks.tell(self)

    def _forked(self) -> None:
        """Take the core for a child, which may add, but not draw: both would write the sampler's arrays."""
        if self._core is not CLOSED:
            for name in ("sample", "update_priorities"):
                if shadows(self, name):
                    del vars(self)[name]
            self._core = forked(self._core)

    @property
    def rng(self) -> np.random.Generator:
        """The generator of the draws; it can be replaced."""
        return self._core.tally.rng

    @rng.setter
    def rng(self, generator: Any) -> None:
        self._core.tally.rng = source(generator, "ReplayBuffer.rng")

    @property
    def capacity(self) -> int:
        """The most steps that are stored, `num_envs * (capacity // num_envs)`."""
        return self._core.choices.num_envs * self._core.choices.steps

    def __getitem__(self, index: Any) -> NoReturn:
        raise TypeError("a buffer is not indexed: `sample(n)` and `read(ids)` return items, `batches(n)` visits all")

    def __len__(self) -> int:
        """Return the number of steps stored now, at most `capacity`."""
        return stored.stored(self._core)

    def __repr__(self) -> str:
        return stored.shown(self._core)

    def _repr_html_(self) -> str:
        with importing:
            from ._buffer.report import shown

        return shown(self._core)

    def report(self, path: str | os.PathLike[str]) -> str:
        """Write a page about the buffer as it is now, with plots, as `relive inspect --html` does of a save.

        It has counts, fill by environment, rewards, whole episodes, priorities, ages and images. The page needs nothing
        but itself. Cost: a copy of the rewards and flags of all steps.

        Args:
            path: The file, such as `"replay.html"`; one that exists is replaced.

        Returns:
            The absolute path of the file, for a browser.

        Raises:
            ArgumentError: `path` is no path.

        >>> import os, tempfile
        >>> import relive
        >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000)
        >>> os.path.basename(buffer.report(os.path.join(tempfile.mkdtemp(), "replay.html")))
        'replay.html'
        """
        with importing:
            from ._buffer.report import write

        return write(self._core, path)

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

        NaN and infinity in fields are stored as they are; `ReplayBuffer(check_finite=True)` warns of the first.

        Raises:
            SchemaError: A field is missing, unknown, or of another shape or dtype. Nothing has changed.
            ArgumentError: `env_ids` are not distinct lanes, or the sampler has no priorities. Nothing has changed.
            PriorityError: A priority is not finite or negative. Nothing has changed.
            RateLimitTimeout: The limiter did not allow it in time. Nothing has changed.
        """
        return self._core.calls[0](
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
        return self._core.calls[1](
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
        writer = self._core.writer
        writer.cut(writer.lanes(env_ids))

    def clear(self) -> None:
        """Forget all steps. The buffer goes on as a new one would, but that ids are never used again.

        Open streams end; the next steps begin new ones, without a comparison with what came before. Priorities and the
        largest of them are as in a new buffer. The generator, the clock of an `Anneal` and the counts in `stats()`
        (`added`, `drawn`, `cuts`, ...) go on; a limiter counts from 0 again. Ids from before are stale: overwritten.
        The memory stays.

        >>> import relive
        >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field(), action=relive.Field()), 100)
        >>> step = dict(obs=0.0, action=0.0, reward=0.0, next_obs=1.0, terminated=False, truncated=False)
        >>> ids = buffer.add(**step)
        >>> buffer.clear()
        >>> len(buffer), buffer.can_sample(1), buffer.add(**step).tolist()
        (0, False, [1])
        """
        stored.clear(self._core)

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
        return drawing.sample(self._core, batch_size, beta)

    def prefetch(
        self,
        batch_size: int,
        *,
        depth: int = 2,
        to: str | None = None,
        device: Any = None,
        beta: float | None = None,
        transform: Change | None = None,
    ) -> Prefetched:
        """Draw in a background thread, so that the next batches are there when the learner asks for them.

        The batches are those that `sample` would draw at the moments at which the thread draws them. They move the
        generator and the clock of an `Anneal` like any draw; those that are not handed out count as drawn neither in
        `stats()` nor for a limiter. Priorities that are updated after a batch change those that are drawn later: of the
        next `depth` batches, which wait already, or one of which is just being drawn, nothing changes.

        Where a subclass has a `sample` of its own, the thread calls that; what it draws counts as drawn at once.

        Args:
            batch_size: Number of items of a batch, >= 1.
            depth: How many batches wait at most, >= 1.
            to: `"torch"` or `"jax"`: what the thread makes the batches into, as `Batch.torch` and `Batch.jax` do; None
                or `"numpy"`: they stay as they are.
            device: Where tensors or JAX's arrays go.
            beta: As in `sample`.
            transform: A function `f(batch, rng)` that returns the batch to hand out. The thread calls it, before `to`
                converts, so it has NumPy arrays, which it may change. `rng` is a `numpy.random.Generator` of this batch
                alone, `default_rng(copy.deepcopy(buffer.rng).integers(2**32, size=8, dtype=np.uint32))` just before
                the draw: a loaded buffer repeats it, and the draws are those without a function.

        Returns:
            An iterator of batches, which belong to the caller, and a context manager, whose end stops the thread. What
            a draw or `transform` raises, such as `NotEnoughData`, is raised in place of its batch, and ends the
            iteration. With a limiter the thread waits as `sample` would; leaving the `with` block ends that.

        Raises:
            ArgumentError: An argument outside these limits, `beta` without priorities, a `device` without tensors, or
                a `transform` that is no function. In place of a batch: it returned something else than a `Batch`.
            MissingExtra: The package that `to` names is not installed.

        >>> import numpy as np, relive
        >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000, seed=0)
        >>> obs, flags = np.zeros((8, 3)), np.zeros(8, bool)
        >>> ids = buffer.extend(
        ...     obs=obs, action=flags, reward=np.ones(8), next_obs=obs, terminated=flags, truncated=flags
        ... )
        >>> with buffer.prefetch(4) as batches:
        ...     for step, batch in zip(range(3), batches):
        ...         assert batch.reward.tolist() == [1.0, 1.0, 1.0, 1.0]
        >>> buffer.stats().drawn
        12
        >>> def noisy(batch, rng):
        ...     return relive.Batch({**batch, "obs": batch.obs + 0.01 * rng.standard_normal(batch.obs.shape)})
        >>> with buffer.prefetch(4, transform=noisy) as batches:
        ...     next(batches).obs.std() > 0
        np.True_
        """
        with importing:
            from ._buffer.prefetching import prefetched

        return prefetched(self._core, batch_size, depth, to, device, beta, transform, self._own_sample())

    def dataset(
        self, batch_size: int, *, batches: int | None = None, transform: Change | None = None
    ) -> IterableDataset[Batch]:
        """Return a PyTorch data set of batches, for `torch.utils.data.DataLoader(..., batch_size=None)`.

        Without workers its batches are those of `sample`, as tensors, and the buffer's generator draws them. Workers
        of a loader open a `Shared` or `Mapped` buffer by name, and draw with seeds of their own, which follow from
        PyTorch's; forked ones of a buffer in `Ram` draw from the steps of that moment. No statistic counts their draws.

        Args:
            batch_size: Number of items of a batch, >= 1.
            batches: How many batches an iteration has, all workers together, >= 1; None: it has no end.
            transform: A function `f(batch, rng)` that returns the batch to hand out, as in `prefetch`.

        Returns:
            A `torch.utils.data.IterableDataset`. Without workers `state_dict()` has the number of batches given and
            the state of the generator; after `load_state_dict` the next iteration goes on there.

        Raises:
            ArgumentError: An argument outside these limits; in a loader that starts workers anew, a buffer in `Ram`.
            MissingExtra: PyTorch is not installed.

        >>> import numpy as np, relive
        >>> from torch.utils.data import DataLoader
        >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 100, seed=0)
        >>> obs, no = np.zeros((8, 3)), np.zeros(8, bool)
        >>> ids = buffer.extend(obs=obs, action=no, reward=np.ones(8), next_obs=obs, terminated=no, truncated=no)
        >>> [batch.obs.shape for batch in DataLoader(buffer.dataset(4, batches=2), batch_size=None)]
        [torch.Size([4, 3]), torch.Size([4, 3])]
        """
        with importing, needs("torch", "ReplayBuffer.dataset"):
            from .processes.dataset import Batches

        return Batches(self._core, self.sample, batch_size, batches, transform)

    def _own_sample(self) -> Callable[..., Batch] | None:
        """Return the `sample` of a subclass; None where it is this class's."""
        usual = shadows(self, "sample") or getattr(self.sample, "__func__", None) is ReplayBuffer.sample
        return None if usual or self._core is CLOSED else self.sample

    def _ahead(self, size: int) -> DrawsAhead:
        """Draw batches of `size` items ahead, for a mixture."""
        with importing:
            from ._buffer.prefetching import ahead_of

        return ahead_of(self._core, size, sample=self._own_sample())

    def ids(self, *, item: items.Item | None = None) -> Int64:
        """List the ids of all items that can be drawn, whatever their priorities.

        Args:
            item: List what `read(ids, item=item)` can read; None: the buffer's own items.

        Returns:
            int64 `[N]`, one environment after the other, the oldest step of each first; ids of an environment ascend.

        Raises:
            ArgumentError: As in `read`.

        >>> import numpy as np, relive
        >>> schema, item = relive.Schema(obs=relive.Field(), action=relive.Field()), relive.Transitions(n_step=2)
        >>> buffer = relive.ReplayBuffer(schema, 8, num_envs=2, item=item)
        >>> for t in range(3):
        ...     step = dict(obs=[t, t], action=[0, 0], reward=[t, 10 + t], next_obs=[t + 1, t + 1])
        ...     added = buffer.add(**step, terminated=[False, False], truncated=[False, False])
        >>> buffer.ids().tolist(), buffer.ids(item=relive.Transitions()).tolist()  # the newest steps wait for another
        ([0, 2, 1, 3], [0, 2, 4, 1, 3, 5])
        """
        return drawing.ids(self._core, item)

    def read(self, ids: Any, *, item: items.Item | None = None) -> Batch:
        """Expand the items of given ids, without drawing; weights are 1 and no statistic moves.

        With `item` the same steps come as another item shows them, such as one-step and n-step targets of one draw. Any
        item will do whose steps the buffer still has; it need not have been planned for.

        Args:
            ids: Integer ids, `[B]`.
            item: What each id expands to; None: the buffer's own item. `starts` of `Sequences` is 1, or the buffer's.

        Raises:
            StaleId: An item cannot be read: overwritten, not complete yet, or never issued.
            ArgumentError: `ids` are not one-dimensional integers, or the item does not fit the schema or the capacity.

        >>> import numpy as np, relive
        >>> schema, one_step = relive.Schema(obs=relive.Field(), action=relive.Field()), relive.Transitions()
        >>> buffer = relive.ReplayBuffer(schema, 100, item=relive.Transitions(n_step=3, gamma=0.5), seed=0)
        >>> time, no = np.arange(5.0), np.zeros(5, bool)
        >>> ids = buffer.extend(obs=time, action=time, reward=time, next_obs=time + 1, terminated=no, truncated=no)
        >>> batch = buffer.sample(3)
        >>> batch.ids.tolist(), batch.next_obs.tolist(), batch.reward.tolist()
        ([1, 0, 0], [4.0, 3.0, 3.0], [2.75, 1.0, 1.0])
        >>> short = buffer.read(batch.ids, item=one_step)
        >>> short.next_obs.tolist(), short.reward.tolist()
        ([2.0, 1.0, 1.0], [1.0, 0.0, 0.0])
        """
        return drawing.read(self._core, ids, item)

    def hold(self) -> AbstractContextManager[object]:
        """Keep other threads out for several calls, which so see one state.

        Returns:
            A context manager. Inside, the thread makes its calls as usual, and what it changes itself it sees. All
            calls of other threads wait for the end of the block: `add`, `stats`, a `prefetch`, an autosave.

        Keep the block short, and call nothing in it that waits for another thread. `save`, `autosave`, `close`, and a
        call that a limiter would have wait are refused. The next batch of a `prefetch` never comes, and the calls of an
        adapter whose `relive` the buffer is may not return: hold and call the buffer alone.

        Blocks may be nested. An interrupt, or any exception, ends the block like any `with` block. A signal's handler
        cannot begin one in the middle of a call, but in the middle of a block it may call the buffer.

        Of a `Shared` or `Mapped` buffer each process holds its own threads alone: each `Writer` of other processes
        still adds, and readers still sample. A fork in a block is one in both processes.

        Raises:
            ReliveError: A signal's handler calls it in the middle of a call.

        >>> import numpy as np, relive
        >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field(), action=relive.Field()), 100, seed=0)
        >>> time, no = np.arange(5.0), np.zeros(5, bool)
        >>> ids = buffer.extend(obs=time, action=time, reward=time, next_obs=time + 1, terminated=no, truncated=no)
        >>> with buffer.hold():  # no other thread overwrites in between what was drawn
        ...     batch = buffer.sample(4)
        ...     long = buffer.read(batch.ids[batch.ids < 3], item=relive.Transitions(n_step=3))
        """
        core = self._core
        return core.lock.hold() if core.limit is None else core.limit.hold(core.lock)

    def priorities(self, ids: Any) -> Float64:
        """Return the raw priorities (eps included, alpha not) of drawable ids, float64 `[B]`.

        Ones where the sampler keeps none: `Uniform`, and positive priorities under `alpha=0`.

        Raises:
            StaleId, ArgumentError: As in `read`.
        """
        return drawing.priorities(self._core, ids)

    def probability(self, ids: Any) -> Float64:
        """Return the exact probability of drawable ids in a draw of one item, float64 `[B]`.

        Over all drawable ids the sum is 1.

        Raises:
            StaleId: As in `read`.
            ArgumentError: As in `read`, or the sampler knows no probabilities: `Once`, or one of your own without them.

        >>> import numpy as np, relive
        >>> schema = relive.Schema(obs=relive.Field(), action=relive.Field())
        >>> buffer = relive.ReplayBuffer(schema, 100, sampler=relive.Recent(mean_age=1.0), seed=0)
        >>> time, no = np.arange(5.0), np.zeros(5, bool)
        >>> ids = buffer.extend(obs=time, action=time, reward=time, next_obs=time + 1, terminated=no, truncated=no)
        >>> (buffer.probability(ids) * 31).round(3).tolist()
        [1.0, 2.0, 4.0, 8.0, 16.0]
        """
        return drawing.probability(self._core, ids)

    def update_priorities(self, ids: Any, td_error: Any) -> int:
        """Set priorities from TD errors: `|td_error| + eps`.

        Args:
            ids: Ids as a batch gave them, `[B]`. Ids that have been overwritten since are dropped and counted.
            td_error: One number per id, of either sign, `[B]` or `[B, 1]`; the last of duplicates wins. A tensor may
                require grad, and must be on the CPU.

        Returns:
            How many of the ids were applied; of duplicates each counts. 0 where the sampler has no priorities, as
            `Uniform`, so that a loop need not ask.

        Raises:
            PriorityError: A TD error is NaN or infinite, or there are not as many as ids. Nothing has changed.
            StaleId: An id was never issued. Nothing has changed.
        """
        return drawing.update_priorities(self._core, ids, td_error)

    def write(self, ids: Any, **fields: Any) -> int:
        """Write values back to stored steps, in fields that are `writable=True`: latents, states, values, rewards.

        Args:
            ids: Of steps, integers of any shape: `batch.ids`, or `batch.step_ids` of `Sequences(step_ids=True)`. -1 is
                skipped, and ids that have been overwritten since are dropped.
            **fields: For each field its values `[*ids.shape, *shape]`, nested as in the schema; the last of duplicates
                wins. Fields with `every=k` take ids of steps at which items start.

        Returns:
            How many of the ids were written; of duplicates each counts.

        Raises:
            StaleId: An id was never issued. Nothing has changed.
            ArgumentError: A field is not writable, or not kept at one of the steps. Nothing has changed.
            SchemaError: Values of another shape or dtype. Nothing has changed.
            ReliveError: This process did not make the buffer. Or writers of other processes overwrote more than 64
                steps of a lane, or a quarter of a shorter one, between the last look and the write: then the values are
                written, and those of overwritten steps may stand in steps that took their rows.

        Batches that wait in a `prefetch` keep the values that they were drawn with.

        >>> import numpy as np, relive
        >>> latent = relive.Field((2,), writable=True)
        >>> schema = relive.Schema(obs=relive.Field(), action=relive.Field(), latent=latent)
        >>> buffer = relive.ReplayBuffer(schema, 100, seed=0)
        >>> step = dict(obs=0, action=0, reward=1, next_obs=1, terminated=True, truncated=False, latent=[0, 0])
        >>> ids = buffer.add(**step)
        >>> batch = buffer.sample(3)
        >>> buffer.write(batch.ids, latent=np.full((3, 2), 0.5))
        3
        >>> buffer.read(ids).latent.tolist()
        [[0.5, 0.5]]
        """
        with importing:
            from ._buffer.writing import write

        return write(self._core, ids, fields)

    def can_sample(self, batch_size: int) -> bool:
        """Return True if `sample(batch_size)` would succeed; never raise. A signal handler may call it at any time."""
        return drawing.can_sample(self._core, batch_size)

    def stats(self) -> Stats:
        """Return a snapshot of counts, priorities and ages. Cost: O(capacity) for `Prioritized`.

        A signal handler may call it at any time; in the middle of another call some counts are those before it.
        """
        return stored.stats(self._core)

    def follow(self, ids: Any, steps: Any) -> Followed:
        """Walk from stored steps to later or earlier ones of the same stream.

        A walk ends early at the step that ends its episode or comes before a cut, at the newest stored step, and, going
        back, at the first step of the stream that is still stored. Items that run across episodes change nothing about
        that. As many steps back as were made lead to `ids` again.

        Args:
            ids: Ids of stored steps, `[B]`. They need not be drawable: a step whose window is not complete yet can be
                left and reached.
            steps: How many steps on, an int or integers `[B]`; negative ones go back.

        Returns:
            `Followed(ids, steps)`, two int64 arrays `[B]`, with the end of each walk, and how many steps it made,
            negative where it went back.

        Raises:
            StaleId: An id names no stored step: overwritten, dropped by a cut, or never issued.
            ArgumentError: `ids` are not one-dimensional integers, or `steps` are neither an int nor one integer per id.

        >>> import numpy as np, relive
        >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field(), action=relive.Field()), 100)
        >>> time, ends = np.arange(6.0), np.arange(6) == 3  # the fourth step ends an episode
        >>> ids = buffer.extend(
        ...     obs=time, action=time, reward=time, next_obs=time + 1, terminated=ends, truncated=ends & False
        ... )
        >>> ids.tolist()  # id 4 is the final observation
        [0, 1, 2, 3, 5, 6]
        >>> last, steps = buffer.follow(ids, len(buffer))
        >>> last.tolist(), steps.tolist()
        ([3, 3, 3, 3, 6, 6], [3, 2, 1, 0, 1, 0])
        """
        return stored.follow(self._core, ids, steps)

    def column(self, path: str) -> Array:
        """Return a field of all stored steps, by lane and row, to keep other arrays in step with a buffer.

        The step with the id `i` is at `[i % num_envs, i // num_envs % R]`, where `R = column.shape[1]`. Places
        that hold no step (not written yet, cleared, or the row of a final observation) are zeros, False, and -1 in
        `"ids"`.

        Args:
            path: A field by its path in the schema, such as `"reward"` or `"obs.camera"`; `"terminated"` or
                `"truncated"`; or `"ids"`, which tells where there are steps.

        Returns:
            A read-only copy `[L, R, ...]` in the field's dtype. It shows the buffer at the moment of the call and does
            not follow later ones, since rows lie in blocks in memory. Of a stacked field it has the newest frame; a
            field with `every=k` is zero at the steps that do not keep it.

        Raises:
            ArgumentError: The schema has no such field.

        >>> import numpy as np, relive
        >>> schema = relive.Schema(obs=relive.Field(), action=relive.Field())
        >>> buffer = relive.ReplayBuffer(schema, 6, num_envs=2, boundaries=0)
        >>> for t in range(4):
        ...     step = dict(obs=[t, t], action=[0.0, 0.0], reward=[t, 10 + t], next_obs=[t + 1, t + 1])
        ...     ids = buffer.add(**step, terminated=[False, False], truncated=[False, False])
        >>> buffer.column("reward")
        array([[ 3.,  1.,  2.],
               [13., 11., 12.]], dtype=float32)
        >>> buffer.column("ids")
        array([[6, 2, 4],
               [7, 3, 5]])
        """
        return stored.column(self._core, path)

    def batches(self, batch_size: int, *, shuffle: bool = True, drop_last: bool = False) -> Iterator[Batch]:
        """Go through every drawable item once: an epoch, for offline data and supervised learning.

        The items are those that can be drawn now, whatever their priorities. Items that are overwritten meanwhile are
        left out of the batches that come after. Weights are 1 and no statistic moves.

        Args:
            batch_size: Items in a batch, >= 1; the last batch may have fewer.
            shuffle: In random order, by one call of the buffer's generator; otherwise in the order of ids, oldest
                first.
            drop_last: Leave out a last batch that has fewer.

        Returns:
            An iterator over batches as `sample` returns them.

        Raises:
            ArgumentError: `batch_size` is not a positive integer, or a flag is no bool.

        >>> import numpy as np, relive
        >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field(), action=relive.Field()), 100, seed=0)
        >>> time, no = np.arange(5.0), np.zeros(5, bool)
        >>> ids = buffer.extend(obs=time, action=time, reward=time, next_obs=time + 1, terminated=no, truncated=no)
        >>> [batch.ids.tolist() for batch in buffer.batches(2)]
        [[3, 2], [1, 0], [4]]
        """
        return stored.batches(self._core, batch_size, shuffle, drop_last)

    def save(self, path: str | os.PathLike[str], *, keep: int = 1, wait: bool = True, verify: bool = False) -> Saved:
        """Save the buffer in a directory, for `relive.load`.

        Everything is saved: steps, open episodes, priorities, the clock of an `Anneal`, the generator, statistics.
        A second save in the same directory writes what is new since the first one, and the priorities. A save is
        complete or not there: whatever happens meanwhile, a kill or a loss of power included, `load` finds the last
        complete one.

        Of the files of earlier saves that this one uses again it compares sizes, headers and tables of checksums, and
        256 KiB of the data, other ones in each save; all, where that is less than a megabyte. Where something is wrong
        it says so in the log, and writes all steps.

        Args:
            path: The directory; it is made if it does not exist. Only its owner can read what is written.
            keep: How many complete saves the directory keeps, >= 1. Those that are seen to be damaged do not count.
            wait: Whether to return when the save is complete. Otherwise a thread writes it; adding and drawing go on,
                and what is saved is this instant.
            verify: Whether to read all data of the files that are used again, in place of 256 KiB.

        Returns:
            What was written; with `wait=False` its `wait()` says when.

        Raises:
            StorageError: The directory cannot be written, is in use, or holds another buffer's saves; or another buffer
                has an autosave there.
            ArgumentError: An argument outside these limits, or a generator that is not NumPy's.
            ReliveError: Another process goes on writing to a `Shared` or `Mapped` buffer, for which each `Writer`
                waits; or the call is in a `hold()` block. Earlier saves stay.

        Where a copy of this buffer saved there meanwhile, as one that was loaded twice, a `ReliveWarning` says that its
        save is replaced.

        >>> import relive, tempfile
        >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000)
        >>> buffer.save(tempfile.mkdtemp()).number
        1
        """
        with importing:
            from .checkpoints._saving import save

        return save(self._core, path, keep, wait, verify)

    def autosave(self, path: str | os.PathLike[str], *, every: float = 1.0, keep: int = 1) -> Autosave:
        """Save what is new again and again, in a thread: a crash loses what came in the last interval.

        Args:
            path: The directory, as in `save`; a buffer that goes on with it comes from `relive.load(path)`. No other
                buffer saves there meanwhile.
            every: Seconds from one save to the next, >= 0.1.
            keep: As in `save`.

        Returns:
            The autosave. It is closed by `with`, by its `close()` and with the buffer, by the end of the program, and
            when nothing holds the buffer any more, and then writes a last save. Its `stats()` are in
            `stats().autosave`, too.

        Raises:
            StorageError: The first save, which is made at once, could not be written; or another buffer has an autosave
                there, or saved there since this one was loaded.
            ArgumentError: An argument outside these limits, or a `Shared` buffer.
            ReliveError: The buffer has an autosave that goes on.

        >>> import relive, tempfile
        >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000)
        >>> with buffer.autosave(tempfile.mkdtemp(), every=1.0) as saving:
        ...     saving.stats().number
        1
        """
        with importing:
            from .checkpoints.autosave import begun

        if type(self.storage) is storages.Shared:
            wanted, remedy = "a buffer in `Ram` or `Mapped`", "`Mapped(path)` loses nothing when a process is killed"
            raise ArgumentError(message(wanted, f"`{self.storage!r}`", "ReplayBuffer.autosave", remedy))
        core = self._core
        core.lock.check_not_held("ReplayBuffer.autosave")
        tally = core.tally
        tally.autosave = made = begun(self, ReplayBuffer._of(core), tally.autosave, path, every, keep)
        return made

    def keep_batches(self, path: str | os.PathLike[str] | None, last: int = 8) -> None:
        """Keep the last batches in a file that survives a kill, to find the one that broke a run.

        Each batch that a learner gets from `sample`, `prefetch` or `batches` is copied into a mapped file: ids,
        weights, every field, its number, the time, the generator before the draw, and the TD errors that
        `update_priorities` is given for it, NaN included. A `PriorityError` about them names the file and the batch.
        `relive.kept_batches(path)` reads the file, `relive batches PATH` lists it. After a kill the last `last - 1`
        batches at least are whole, and one that is not is known as torn. Nothing is synced: a loss of power may lose
        some.

        Args:
            path: The file; one of kept batches is replaced. Its owner alone may read it. None ends it; the file stays.
            last: How many batches, >= 2.

        Where a larger batch comes, a larger file takes the file's place. If the disk has no room for it, a warning says
        so, and no further batch is kept. Copies and forked children of the buffer keep nothing.

        Raises:
            StorageError: The file cannot be made, or is of another kind.
            ArgumentError: `path` is no path, or `last` is outside its limits.

        >>> import os, relive, tempfile
        >>> sampler, path = relive.Prioritized(), os.path.join(tempfile.mkdtemp(), "batches")
        >>> schema = relive.Schema(obs=relive.Field(), action=relive.Field())
        >>> buffer = relive.ReplayBuffer(schema, 100, sampler=sampler, seed=0)
        >>> ids = buffer.add(obs=0.0, action=0.0, reward=1.0, next_obs=1.0, terminated=True, truncated=False)
        >>> buffer.keep_batches(path)
        >>> batch = buffer.sample(2)
        >>> buffer.update_priorities(batch.ids, [float("nan"), 1.0])
        Traceback (most recent call last):
            ...
        relive.errors.PriorityError: Expected a finite TD error, got `nan` (1 of 2) - at `td_error[0]`: check the ...
        >>> kept = relive.kept_batches(path)[-1]
        >>> kept.number, kept.ids.tolist(), kept.td_error.tolist()
        (1, [0, 0], [nan, 1.0])
        """
        with importing:
            from ._buffer.keeping import begun

        begun(self._core, path, last)
        self._use(self._core)

    def _changes(self) -> object:
        with importing:
            from .checkpoints._snapshot import changes_of

        return changes_of(self._core)

    def _saver(self) -> Saver:
        with importing:
            from .checkpoints._saving import saver_of

        return saver_of(self._core.tally)

    def _inside(self) -> bool:
        saver = self._core.tally.saver
        return forks.inside() or self._core.lock.taken() or (saver is not None and saver.taken)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # For `pickle` and `copy`: a copy in `Ram` that goes on like this buffer. `save` is faster, and smaller.
        with importing:
            from .checkpoints._copying import copied, rebuilt

        made = rebuilt, (type(self), copied(self._core))
        state: Any = super().__reduce_ex__(2)[2]  # what a subclass, or its user, has added
        state, slots = state if isinstance(state, tuple) else (state, None)
        if isinstance(state, dict):
            state = {name: each for name, each in state.items() if name not in _USED and not shadows(self, name)}
        return (*made, state if slots is None else (state, slots)) if state or slots else made

    def writer(self, env_ids: Any = None) -> Writer:
        """Return a `relive.Writer` for another process: it can be pickled, and claims its lanes on its first use there.

        Args:
            env_ids: Its lanes; None: all that are free then.

        Raises:
            ArgumentError: Other processes cannot open the buffer's storage, or `env_ids` are not distinct lanes.

        >>> import multiprocessing, relive
        >>> schema = relive.Schema(obs=relive.Field(), action=relive.Field())
        >>> def act(writer):
        ...     with writer:
        ...         writer.add(obs=0.0, action=0.0, reward=1.0, next_obs=1.0, terminated=True, truncated=False)
        >>> with relive.ReplayBuffer(schema, 1000, num_envs=2, storage=relive.Shared()) as buffer:
        ...     process = multiprocessing.get_context("fork").Process(target=act, args=(buffer.writer([1]),))
        ...     process.start()
        ...     process.join()
        ...     buffer.sample(1).reward
        array([1.], dtype=float32)
        """
        with importing:
            from .processes.writer import writer_of

        return writer_of(self.storage, None if env_ids is None else self._core.writer.lanes(env_ids).tolist())

    def sync(self) -> None:
        """Write a `Mapped` buffer's steps, priorities and generator to the disk; do nothing for other storages."""
        core = self._core
        with core.lock.alone():
            core.index.refresh()
        core.access.keep(core.tally.rng, core.tally.counts())

    def close(self) -> None:
        """End the buffer: its memory is freed, a shared segment is removed, a mapped file is synced.

        Other processes that have a shared buffer open keep their memory of it until they close it, too. Further calls
        of this buffer raise `BufferClosed`, a second `close()` does nothing.

        Raises:
            ReliveError: It is called inside another call of the buffer, by a signal's handler, or in a `hold()` block.
                Nothing is changed.
            StorageError: The last save of its autosave could not be written. It stays open, and can be closed again.
        """
        core = self._core
        if core is CLOSED:
            return
        core.lock.check_not_held("ReplayBuffer.close")
        saving = core.tally.autosave
        if self._inside():
            raise core.lock.refusal()
        if saving is not None:
            saving.close()
            if not saving.closed:  # inside its own save
                raise core.lock.refusal()
        if not core.access.forked:
            self.sync()
        forks.forget(self)
        with core.lock.alone():
            core.access.close()
            if core.limit is not None:
                core.limit.over = True
            self._core = CLOSED
            for name in SHADOWED:
                vars(self).pop(name, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
