"""cpprb's buffers, by name and by argument, on relive: `from relive.cpprb import ReplayBuffer`.

cpprb itself is not needed. Fields are those of `env_dict`. A field `x` beside `next_x`, or named in `next_of`, is an
observation: it is stored once. A step whose `done` is not 0 ends its episode, and `on_episode_end()` ends it otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import IO, Any, TypeAlias
from zipfile import BadZipFile

import numpy as np

from .._adapters.saves import opened, packed
from .._base import check
from .._base.types import Array, Int64
from .._buffer.call_lock import AdapterLock, one_at_a_time
from .._buffer.stored import drawable_ids
from .._disk.files import replacing
from ..buffer import ReplayBuffer as Buffer
from ..errors import ArgumentError, SchemaError, StorageError, message
from ..items import Transitions
from ..samplers import Prioritized, Sampler, Uniform
from ._fields import Fields, names_of

__all__ = ["PrioritizedReplayBuffer", "ReplayBuffer"]

File: TypeAlias = "str | os.PathLike[str] | IO[bytes]"
_ELSEWHERE = {
    "mmap_prefix": "`relive.ReplayBuffer(storage=...)` says where the bytes live",
    "shared": "`relive.ReplayBuffer(storage=...)` says where the bytes live",
}


class ReplayBuffer:
    """cpprb's `ReplayBuffer`: named fields, drawn uniformly.

    What is different:

    * `"indexes"` are ids, which name steps for ever, in place of slots, and `add` returns them.
    * `sample` has `"discounts"`, too, `(B, 1)`: `gamma**m` of a window of m steps, 0 where it ends in a terminal state.
      So `rew + discounts * Q(next_obs)` is right for every window, the shorter ones before an end included.
    * An n-step window ends with its episode, and at `on_episode_end()`. A stream whose next observation is not the
      `next_obs` before it is cut there.

    Args:
        size: How many steps it holds.
        env_dict: Names of fields, each with a `"shape"` (1 unless given) and a `"dtype"`.
        next_of: Fields that have a successor, `next_...`, which need not be in `env_dict`.
        stack_compress: Observations of which only the newest frame is stored; their last axis is that of the frames.
            Fields without a successor are stored whole.
        default_dtype: The dtype of fields that have none of their own; `float32` unless given.
        Nstep: `{"size": n, "gamma": 0.99, "rew": names, "next": names}`. Rewards are summed; every observation's
            successor moves, whether named in `"next"` or not.
        seed: As for `relive.ReplayBuffer`. cpprb takes NumPy's global generator.

    Attributes:
        relive: The `relive.ReplayBuffer` with the steps: `stats`, `follow`, `read`. Steps go in and out through this
            one.

    Raises:
        ArgumentError: A choice that is not there, with what to do instead.
        SchemaError: A field that cannot be stored.

    >>> import numpy as np
    >>> env_dict = {"obs": {"shape": 3}, "act": {}, "rew": {}, "next_obs": {"shape": 3}, "done": {}}
    >>> rb = ReplayBuffer(100, env_dict, Nstep={"size": 2, "gamma": 0.5, "rew": "rew", "next": "next_obs"})
    >>> for t in range(3):
    ...     index = rb.add(obs=np.full(3, t), act=0, rew=1, next_obs=np.full(3, t + 1), done=t == 2)
    >>> items = rb.get_all_transitions()
    >>> items["rew"][:, 0].tolist(), items["next_obs"][:, 0].tolist(), items["discounts"][:, 0].tolist()
    ([1.5, 1.5, 1.0], [2.0, 3.0, 3.0], [0.25, 0.0, 0.0])
    """

    def __init__(
        self,
        size: int,
        env_dict: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        next_of: str | Iterable[str] | None = None,
        stack_compress: str | Iterable[str] | None = None,
        default_dtype: Any = None,
        Nstep: Mapping[str, Any] | None = None,
        seed: int | np.random.Generator | None = None,
        **elsewhere: Any,
    ) -> None:
        self._make(size, env_dict, next_of, stack_compress, default_dtype, Nstep, Uniform(), seed, elsewhere)

    def _make(
        self,
        size: int,
        env_dict: Mapping[str, Mapping[str, Any]] | None,
        next_of: str | Iterable[str] | None,
        stack_compress: str | Iterable[str] | None,
        default_dtype: Any,
        Nstep: Mapping[str, Any] | None,
        sampler: Sampler,
        seed: Any,
        elsewhere: Mapping[str, Any],
    ) -> None:
        for name in elsewhere:
            remedy = _ELSEWHERE.get(name, "leave it out")
            raise ArgumentError(message("arguments of cpprb that are here", f"`{name}`", "ReplayBuffer", remedy))
        steps = check.integer(int(size) if isinstance(size, float) else size, "ReplayBuffer(size)", minimum=1)
        self._fields = Fields(env_dict or {}, names_of(next_of), names_of(stack_compress), default_dtype, Nstep)
        self._n_step = self._fields.item.n_step
        self._outer = AdapterLock()
        # As many rows for final observations as for steps: no episode is too short, and cpprb stores `next_obs`, too.
        choices = {"item": self._fields.item, "sampler": sampler, "seed": seed, "boundaries": 1.0}
        self.relive = Buffer(self._fields.schema, steps, **choices)
        self._added = 0  # steps since the buffer was empty
        self._newest: int | None = None  # the step that the next one may continue

    def add(self, **fields: Any) -> int | None:
        """Add one step, or several in the order of time.

        Args:
            **fields: Every field of `env_dict`, `(*shape)` or `(T, *shape)`, and the `next_...` of those in `next_of`.

        Returns:
            The index of the first item that can be drawn from now on; None while its n-step window is not complete.

        Raises:
            SchemaError: A field is missing, unknown, or does not fit. Nothing has changed.
        """
        return self._add(fields, None)

    @one_at_a_time
    def _add(self, fields: Mapping[str, Any], priority: Array | None) -> int | None:
        steps, ended = self._fields.steps(fields)
        given: dict[str, Any] = {} if priority is None else {"priority": priority}
        if priority is not None and priority.shape != ended.shape:
            wanted = f"{len(ended)} priorities, one for each step"
            raise ArgumentError(message(wanted, f"shape `{priority.shape}`", "$.priorities"))
        ids = self._extended(steps | given, ended)
        if self._n_step == 1:
            return int(ids[0])
        stored = ids[-self.relive.capacity :]  # the others of this call are overwritten already
        first, back = self.relive.follow(stored[:1], 1 - self._n_step)
        whole = bool(ended.any()) or len(ids) - int(back[0]) >= self._n_step
        return int(first[0]) if whole else None

    @one_at_a_time
    def sample(self, batch_size: int, beta: float = 0.4) -> dict[str, Array]:
        """Draw items.

        Args:
            batch_size: B.
            beta: Exponent of the importance-sampling weights; without priorities they are 1.

        Returns:
            Every field, `(B, *shape)`; `"weights"`, float32 `(B,)`; `"indexes"`, int64 `(B,)`; `"discounts"`, float32
            `(B, 1)`.

        Raises:
            NotEnoughData: Nothing can be drawn yet.
        """
        own = beta if self.relive.sampler.prioritizes else None
        return self._fields.named(self.relive.sample(batch_size, beta=own))

    @one_at_a_time
    def on_episode_end(self) -> None:
        """End the episode without a terminal state, at a time limit or a reset: n-step windows are shortened here."""
        self.relive.cut()
        self._newest = None

    @one_at_a_time
    def clear(self) -> None:
        """Forget all steps. Indexes are never used again."""
        self.relive.clear()
        self._added, self._newest = 0, None

    @one_at_a_time
    def get_stored_size(self) -> int:
        """Items that can be drawn now: steps stored, less those whose n-step window is not complete."""
        return self.relive._core.ring.drawable

    def get_buffer_size(self) -> int:
        """The capacity, in steps."""
        return self.relive.capacity

    @one_at_a_time
    def get_next_index(self) -> int:
        """The place in a ring of `get_buffer_size()` steps that the next item takes, as cpprb counts places.

        It is no index: those that `add` returns and samples have name steps, and are never used again.
        """
        return (self._added - self.relive._core.ring.waiting) % self.get_buffer_size()

    @one_at_a_time
    def get_current_episode_len(self) -> int:
        """Steps stored of the episode that goes on; 0 after its end."""
        if self._newest is None:
            return 0
        return 1 - int(self.relive.follow([self._newest], -self.get_buffer_size()).steps[0])

    def is_Nstep(self) -> bool:
        """Whether windows of several steps are drawn."""
        return self._n_step > 1

    @one_at_a_time
    def get_all_transitions(self, shuffle: bool = False) -> dict[str, Array]:
        """All items as `sample` gives them, by their places in a ring or in random order; weights are 1."""
        return self._encode_sample(self.relive.rng.permutation(self.get_stored_size()) if shuffle else None)

    def _encode_sample(self, places: Any = None) -> dict[str, Array]:
        """Items by their places in a ring of `size`, as cpprb's own tests ask for them."""
        with self.relive._core.lock.alone():
            ids = drawable_ids(self.relive._core)
        after = self.get_next_index()  # where the newest item is just before
        ids = np.roll(ids, min(after, len(ids)))
        return self._fields.named(self.relive.read(ids if places is None else ids[places]))

    @one_at_a_time
    def save_transitions(self, file: File, *, safe: bool = True) -> None:
        """Save the steps in a file, and priorities where there are any. No pickle is in it.

        Args:
            file: The file's name, or a file.
            safe: Nothing: there is one format.
        """
        arrays: dict[str, Any] = packed(self.relive)
        if hasattr(file, "write"):
            np.savez(file, **arrays)
            return
        name = check.path(file, "save_transitions(file)")
        with replacing(name if name.endswith(".npz") else f"{name}.npz") as whole:  # as NumPy names it
            np.savez(whole, **arrays)

    @one_at_a_time
    def load_transitions(self, file: File) -> None:
        """Add the steps of a file that `save_transitions` wrote. They need not be windows of as many steps as here.

        Raises:
            StorageError: The file is damaged, or cpprb's own, which is a pickle.
            SchemaError: Its fields are others.
        """
        if not hasattr(file, "read"):
            file = check.path(file, "load_transitions(file)")
        try:
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except (ValueError, KeyError, EOFError, BadZipFile) as error:
            remedy = (
                "cpprb's own files are pickles: load them with cpprb, and `add(**cpprb_buffer.get_all_transitions())`"
            )
            raise StorageError(
                message("a file of `save_transitions`", f"{error}", "load_transitions", remedy)
            ) from None
        source = opened(arrays, item=Transitions(), sampler=self.relive.sampler)
        if source.schema != self._fields.schema:
            raise SchemaError(message(f"fields `{self._fields.schema}`", f"`{source.schema}`", "load_transitions"))
        with source._core.lock.alone():
            ids = drawable_ids(source._core)
        last = source.follow(ids, 1).steps == 0 if len(ids) else ids
        for stream in filter(len, np.split(ids, np.flatnonzero(last[:-1]) + 1)):
            self.on_episode_end()
            self._take(source, stream)

    def _take(self, source: Buffer, ids: Int64) -> None:
        """Add steps of another buffer that follow each other."""
        batch = source.read(ids)
        names = [*self._fields.schema.tree, "next_obs", "terminated", "truncated"]
        steps = {name: batch[name] for name in names}
        if self.relive.sampler.prioritizes:
            steps["priority"] = source.priorities(ids)
        self._extended(steps, batch.terminated | batch.truncated)

    def _extended(self, steps: Mapping[str, Any], ended: Array) -> Int64:
        """Add steps, of which some `ended` their episode, and return their ids."""
        ids = self.relive.extend(**steps)
        self._added += len(ids)
        self._newest = None if ended[-1] else int(ids[-1])
        return ids


class PrioritizedReplayBuffer(ReplayBuffer):
    """cpprb's `PrioritizedReplayBuffer`: drawn in proportion to `(priority + eps)**alpha`.

    A new step gets the largest priority so far, 1 before there is one. Weights are divided by the largest in the
    buffer.

    Args:
        size: As for `ReplayBuffer`, and so are the arguments that are not named here.
        env_dict: Likewise.
        alpha: How strongly priorities count.
        eps: Added to each priority.
        check_for_update: Nothing: an index names a step, so a late priority can never land on a newer one.
        **choices: The other arguments of `ReplayBuffer`.

    >>> rb = PrioritizedReplayBuffer(100, {"obs": {}, "next_obs": {}, "done": {}}, seed=0)
    >>> for t in range(8):
    ...     index = rb.add(obs=t, next_obs=t + 1, done=0)
    >>> sample = rb.sample(4, beta=0.4)
    >>> rb.update_priorities(sample["indexes"], [0.5, 2.0, 0.1, 1.0])
    >>> rb.get_max_priority()
    2.0
    """

    def __init__(
        self,
        size: int,
        env_dict: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        alpha: float = 0.6,
        eps: float = 1e-4,
        check_for_update: bool = True,
        next_of: str | Iterable[str] | None = None,
        stack_compress: str | Iterable[str] | None = None,
        default_dtype: Any = None,
        Nstep: Mapping[str, Any] | None = None,
        seed: int | np.random.Generator | None = None,
        **elsewhere: Any,
    ) -> None:
        sampler = Prioritized(alpha=alpha, eps=eps, weights="buffer")
        self._make(size, env_dict, next_of, stack_compress, default_dtype, Nstep, sampler, seed, elsewhere)
        self._largest = 0.0

    def add(self, *, priorities: Any = None, **fields: Any) -> int | None:
        """Add one step or several, as `ReplayBuffer.add`.

        Args:
            priorities: Their priorities, one number each, >= 0; None: the largest so far.
            **fields: As in `ReplayBuffer.add`.

        Returns:
            As `ReplayBuffer.add`.

        Raises:
            PriorityError: A priority is not finite, or negative. Nothing has changed.
            ArgumentError: There are not as many as steps. Nothing has changed.
        """
        if priorities is None:
            return self._add(fields, None)
        given = np.asarray(priorities, np.float64).reshape(-1)
        index = self._add(fields, given + np.where(given >= 0, self.relive.sampler.eps, 0))
        self._largest = max(self._largest, float(given.max()))
        return index

    @one_at_a_time
    def update_priorities(self, indexes: Any, priorities: Any) -> None:
        """Set priorities, `|priority| + eps`; those of steps that are no longer stored are dropped and counted.

        Args:
            indexes: What a sample had as `"indexes"`.
            priorities: One number for each.

        Raises:
            PriorityError: A priority is NaN or infinite, or there are not as many. Nothing has changed.
        """
        ids = np.asarray(indexes)
        if ids.dtype.kind == "f" and bool((ids == np.floor(ids)).all()):
            ids = ids.astype(np.int64)
        given = np.asarray(priorities).reshape(ids.shape) if np.size(priorities) == ids.size else priorities
        if self.relive.update_priorities(ids, given):
            self._largest = max(self._largest, float(np.abs(given).max()))

    def get_max_priority(self) -> float:
        """The largest priority so far, without `eps`; 1 before there is one."""
        return self._largest or 1.0

    @one_at_a_time
    def clear(self) -> None:
        """Forget all steps and priorities. Indexes are never used again."""
        super().clear()
        self._largest = 0.0
