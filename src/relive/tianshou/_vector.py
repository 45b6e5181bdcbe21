"""The vector buffer: Tianshou counts slots and episodes, relive holds observations, actions and priorities."""

from __future__ import annotations

import os
from typing import Any, NoReturn, TypeVar

import numpy as np
from tianshou.data import Batch, ReplayBuffer, ReplayBufferManager

from .._adapters.copies import ReadOnly
from .._adapters.saves import opened, packed
from .._base import check
from .._base.nests import mapped
from .._base.types import Array, Bool, Float64, Int64
from .._flow.call_lock import AdapterLock, one_at_a_time
from ..batch import Batch as Drawn
from ..buffer import ReplayBuffer as Buffer
from ..errors import ArgumentError, SchemaError, StaleId, message
from ..samplers import Uniform
from ..schema import Field, Schema
from . import _hdf5
from ._counting import counted
from ._trees import IN_RELIVE, NEEDED, Indices, by_slot, frames, plain, refusal, schema_of, to_batch

_SHOWN = {"obs": "obs", "next_obs": "obs_next", "action": "act"}
_ELSEWHERE = dict.fromkeys(IN_RELIVE, Batch())  # what Tianshou's own arrays have of these
Self = TypeVar("Self", bound="VectorReplayBuffer")


class VectorReplayBuffer(ReplayBufferManager):
    """Tianshou's `VectorReplayBuffer`, one lane for each environment.

    Slots, lengths and what `add` returns are Tianshou's own. What is different:

    * An episode that is reset in its middle ends there: `next`, `prev` and n-step returns never cross over.
    * `obs_next` of a last step is the final observation, with `ignore_obs_next` as well: it is always kept.
    * What `Collector` asks for NaNs after each `collect` is looked up in the new steps only.

    Args:
        total_size: How many steps it holds, over all environments.
        buffer_num: Environments.
        observation_space: A single environment's, with `action_space`; None: shapes and dtypes follow the first steps.
        action_space: Likewise.
        stack_num: How many observations are stacked when they are drawn, along axis 1; the first one is repeated.
        sampler: `relive.Prioritized(...)`, with which the buffer has `update_weight` and `set_beta`, or
            `relive.Uniform()`, or another sampler without priorities.
        random_seed: An integer, a `numpy.random.Generator`, or None.
        ignore_obs_next: Nothing: observations are stored once anyway.
        save_only_last_obs: Store the last frame of observations that come stacked.
        sample_avail: False; observations without all frames are drawn, with the first one repeated.

    Attributes:
        relive: The `relive.ReplayBuffer` with the steps: `stats`, `follow`, `read`; None before the first step.

    Raises:
        ArgumentError: A choice that is not there, with what to do instead.

    >>> import numpy as np
    >>> from tianshou.data import Batch
    >>> buffer = VectorReplayBuffer(100, buffer_num=2)
    >>> for t in range(3):
    ...     obs = np.full((2, 3), t, np.float32)
    ...     step = Batch(obs=obs, act=np.zeros(2), rew=np.ones(2), obs_next=obs + 1, info={})
    ...     slots, *_ = buffer.add(Batch(step, terminated=np.array([t == 2, False]), truncated=np.zeros(2, bool)))
    >>> slots, buffer.next(np.array([0, 2, 50])), buffer.unfinished_index()
    (array([ 2, 52]), array([ 1,  2, 51]), array([52]))
    """

    def __init__(
        self,
        total_size: int,
        buffer_num: int,
        *,
        observation_space: Any = None,
        action_space: Any = None,
        stack_num: int = 1,
        sampler: Any = None,
        random_seed: int | np.random.Generator | None = 42,
        ignore_obs_next: bool = False,
        save_only_last_obs: bool = False,
        sample_avail: bool = False,
    ) -> None:
        kind = type(self).__name__
        lanes = check.integer(buffer_num, f"{kind}(buffer_num)", minimum=1)
        steps = -(-check.integer(total_size, f"{kind}(total_size)", minimum=1) // lanes)
        if sample_avail:
            remedy = "leave it out: before an episode's first frame, that frame is repeated"
            raise ArgumentError(message("`sample_avail=False`", "`True`", kind, remedy))
        if (observation_space is None) != (action_space is None):
            raise ArgumentError(message("both spaces or none", "one", f"{kind}(observation_space, action_space)"))
        stack = check.integer(stack_num, f"{kind}(stack_num)", minimum=1)
        self._outer = AdapterLock()
        # Its children count slots and episodes; none of them holds an observation.
        super().__init__([ReplayBuffer(steps, stack_num=stack, ignore_obs_next=True) for _ in range(lanes)])
        self._given = {"total_size": total_size, "buffer_num": lanes, "stack_num": stack}
        self._given["save_only_last_obs"] = bool(save_only_last_obs)
        self._sampler: Any = Uniform() if sampler is None else sampler
        self._seed = random_seed
        prioritizes = getattr(self._sampler, "prioritizes", None)
        if not isinstance(prioritizes, bool) or (
            prioritizes and not all(hasattr(self._sampler, name) for name in ("alpha", "beta"))
        ):
            wanted = "`Uniform()`, `Prioritized(...)` or a sampler without priorities"
            raise ArgumentError(message(wanted, f"`{sampler!r}`", f"{kind}(sampler)"))
        self._beta: float | None = None
        self._cuts: Bool = np.zeros(self.maxsize, bool)
        self._last_drawn: Int64 = np.full(self.maxsize, -1)
        self._unchecked: list[Int64] = []
        self._steps = steps
        self._stored: Int64 = np.full(self.maxsize, -1)  # the id of the step in each slot
        self._newest = np.full(lanes, -1)  # the ids of each environment's newest steps, as far as they are known
        self._next = np.zeros(lanes, np.int64)  # where each environment goes on, counted from its first slot
        self.relive: Buffer | None = None
        if observation_space is not None:
            self._make(Schema.from_spaces(observation_space, action_space, slot=Field((), "int64")))

    def _make(self, schema: Schema) -> Buffer:
        # A step for each slot however short the episodes are: as many rows for final observations as for steps.
        choices: dict[str, Any] = {"sampler": self._sampler, "seed": self._seed, "boundaries": 1.0}
        self.relive = Buffer(schema, self.maxsize, num_envs=self.buffer_num, **choices)
        return self.relive

    def __getattr__(self, name: str) -> Any:
        sampler = self.__dict__.get("_sampler")
        if sampler is not None and sampler.prioritizes and name in ("update_weight", "get_weight", "set_beta"):
            return getattr(self, f"_{name}")
        return super().__getattr__(name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} of {self.maxsize} steps, {self.buffer_num} environments)"

    @one_at_a_time
    def add(self, batch: Any, buffer_ids: Any = None) -> tuple[Int64, Array, Array, Int64]:
        """Add a step of every environment, or of those in `buffer_ids`.

        Args:
            batch: Has `obs`, `act`, `rew`, `terminated`, `truncated`, `obs_next`, and may have `info` and `policy`.
            buffer_ids: The environments, in the order of the batch; None: all.

        Returns:
            Slots, and, where the episode ended, its return and length (0 elsewhere), and the slot of its first step.

        Raises:
            SchemaError: A field is missing, or does not fit. Nothing has changed.
        """
        given = dict(batch.items())
        if missing := [name for name in NEEDED if name not in given]:
            raise SchemaError(message(f"a batch with `{missing[0]}`", f"{sorted(given)}", f"$.{missing[0]}"))
        lanes = np.arange(self.buffer_num) if buffer_ids is None else np.asarray(buffer_ids, np.int64)
        obs, after, act = (plain(given[name]) for name in ("obs", "obs_next", "act"))
        if self._given["save_only_last_obs"]:
            obs, after = (mapped(lambda stack: stack[:, -1], stacked) for stacked in (obs, after))
        buffer = self._make(schema_of(obs, act, given["rew"])) if self.relive is None else self.relive
        slots = self._offset[lanes] + self._next[lanes]
        step = {"obs": obs, "action": act, "reward": given["rew"], "next_obs": after, "slot": slots}
        ends = {name: np.asarray(given[name], bool) for name in ("terminated", "truncated")}
        ids = buffer.add(**step, **ends, env_ids=None if buffer_ids is None else lanes)
        kept = {name: given[name] for name in self._input_keys if name in given} | _ELSEWHERE
        result = counted(self, kept, ends["terminated"] | ends["truncated"], slots, lanes)
        if result is None:
            batch = Batch()  # filled as Tianshou does, without looking at each value again
            batch.__dict__.update(kept)
            result = super().add(batch, lanes)
        self._stored[slots] = ids
        self._next[lanes] = (self._next[lanes] + 1) % self._steps
        self._cuts[slots] = False
        # Behind an end, or a cut, a row holds the final observation, and takes an id.
        if (apart := ids - self._newest[lanes] != self.buffer_num).any():
            self._note_cuts(buffer, slots[apart], lanes[apart])
        self._newest[lanes] = ids
        self._unchecked.append(slots)
        return result

    def _note_cuts(self, buffer: Buffer, slots: Int64, lanes: Int64) -> None:
        """Mark the steps before these slots that did not end, but are not continued: their environment was reset."""
        begin = self._offset[lanes]
        last_slots = begin + (slots - begin - 1) % self._steps
        last = self._stored[last_slots]
        known = (last >= 0) & (last_slots != slots)
        stopped = buffer.follow(last[known], 1).steps == 0
        self._cuts[last_slots[known]] = stopped & ~self._meta.done[last_slots[known]]

    def _ids(self, slots: Int64) -> Int64:
        """Return the steps in these slots."""
        ids = self._stored[slots]
        if (ids < 0).any():
            got = f"slot `{slots[ids < 0][0]}`, which is empty"
            raise StaleId(message("slots that hold a step", got, type(self).__name__, "`sample_indices(0)` has them"))
        return np.asarray(ids)

    @one_at_a_time
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            index = self.sample_indices(0) if index == slice(None) else self._indices[: len(self)][index]
        slots = self._indices[index]
        if np.ndim(slots) == 0:
            return self[slots[None]][0]
        return self._batch(slots, self._ids(slots))

    def _batch(self, slots: Int64, ids: Int64, drawn: Drawn | None = None) -> Any:
        if self.relive is None:
            return Batch()
        read = self.relive.read(ids) if drawn is None else drawn
        obs, after = frames(self.relive, ids, read, self.stack_num)
        found = {"obs": to_batch(obs), "act": to_batch(plain(read.action)), "obs_next": to_batch(after)}
        for name in ("rew", "terminated", "truncated", "done"):
            found[name] = self._meta[name][slots]
        for name in ("info", "policy"):
            found[name] = self.get(slots, name, Batch())
        for name in set(self._meta.get_keys()) - {*found, *IN_RELIVE}:
            found[name] = self._meta[name][slots]
        if self._sampler.prioritizes:
            found["weight"] = self._weights(ids) if drawn is None else drawn.weights.astype(np.float64)
        return Batch(found)

    def _weights(self, ids: Int64) -> Float64:
        """Compute importance-sampling weights of these steps, divided by the largest of them or of the buffer."""
        buffer, sampler = self.relive, self._sampler
        if buffer is None or not len(ids):
            return np.ones(len(ids))
        raw = buffer.priorities(ids)
        smallest = raw
        if sampler.weights == "buffer":
            with buffer.hold():
                smallest = buffer.priorities(buffer.ids())
        beta = self._beta
        if beta is None:
            beta = sampler.beta if isinstance(sampler.beta, float) else buffer.stats().beta
        return np.asarray((raw / smallest.min()) ** (-sampler.alpha * beta))

    @one_at_a_time
    def get(self, index: Any, key: str, default_value: Any = None, stack_num: int | None = None) -> Any:
        """Return one key at these slots, as Tianshou's `get`."""
        if key not in IN_RELIVE:
            return super().get(index, key, default_value, stack_num)
        ids = self._ids(np.atleast_1d(self._indices[index]))
        if self.relive is None:
            return Batch()
        read = self.relive.read(ids)
        obs, after = frames(self.relive, ids, read, stack_num or self.stack_num)
        found = to_batch({"obs": obs, "obs_next": after, "act": plain(read.action)}[key])
        return found[0] if np.ndim(self._indices[index]) == 0 else found

    @property
    def obs(self) -> Any:
        """All observations by slot, a read-only copy; zeros where there is no step."""
        return self._whole("obs")

    @property
    def obs_next(self) -> Any:
        """All next observations by slot, a read-only copy."""
        return self._whole("next_obs")

    @property
    def act(self) -> Any:
        """All actions by slot, a read-only copy."""
        return self._whole("action")

    @one_at_a_time
    def _whole(self, name: str) -> Any:
        if self.relive is None:
            raise AttributeError(name)
        slots = self.sample_indices(0)
        whole = by_slot(self.relive.read(self._ids(slots))[name], slots, self.maxsize)
        return to_batch(mapped(lambda array: ReadOnly.of(array, f"VectorReplayBuffer.{_SHOWN[name]}"), whole))

    def next(self, index: Any) -> Any:
        """Return the slots of the next steps; those of last steps of episodes, and of newest steps, stay."""
        return self._walked(index, 1)

    def prev(self, index: Any) -> Any:
        """Return the slots of the steps before; those of first steps stay."""
        return self._walked(index, -1)

    @one_at_a_time
    def _walked(self, index: Any, way: int) -> Any:
        check.unmasked(index, type(self).__name__, ArgumentError)
        slots = np.atleast_1d(np.asarray(index)) % self.maxsize
        held = self._held()[slots]
        made = np.zeros(len(slots), np.int64)
        if self.relive is not None:
            made[held] = self.relive.follow(self._stored[slots[held]], way).steps
        begin = slots - slots % self._steps
        found = begin + (slots - begin + made) % self._steps
        return found if np.ndim(index) else found[0]

    @one_at_a_time
    def unfinished_index(self) -> Int64:
        """Return the slots of the last steps of episodes that have not ended: newest ones, and those before a reset."""
        newest = super().unfinished_index()
        cut = np.flatnonzero(self._cuts & self._held()) if self._cuts.any() else newest[:0]
        return np.concatenate([newest, np.setdiff1d(cut, newest)])

    def _held(self) -> Bool:
        return self._stored >= 0

    @one_at_a_time
    def sample_indices(self, batch_size: int | None) -> Int64:
        """Draw slots; all of them, lane by lane and the oldest first, for 0 and None; none below."""
        if batch_size is None or batch_size <= 0 or self.relive is None:
            return np.asarray(super().sample_indices(0 if batch_size is None or batch_size >= 0 else -1), np.int64)
        return self._noted(self._drawn(self.relive, batch_size))

    def _drawn(self, buffer: Buffer, batch_size: int) -> Drawn:
        return buffer.sample(batch_size, beta=self._beta if self._sampler.prioritizes else None)

    def _noted(self, drawn: Drawn) -> Indices:
        slots = np.asarray(drawn.slot)
        self._last_drawn[slots] = drawn.ids
        return Indices.of(slots, drawn.ids)

    @one_at_a_time
    def sample(self, batch_size: int | None) -> tuple[Any, Int64]:
        """Draw a batch, and the slots of its steps; everything for 0 and None.

        Raises:
            NotEnoughData: There is no step.
        """
        if self.relive is None or batch_size is None or batch_size <= 0:
            indices = self.sample_indices(batch_size)
            return self[indices], indices
        drawn = self._drawn(self.relive, batch_size)
        slots = self._noted(drawn)
        return self._batch(np.asarray(slots), drawn.ids, drawn), slots

    @one_at_a_time
    def _update_weight(self, index: Any, new_weight: Any) -> None:
        """Set priorities; see `PrioritizedVectorReplayBuffer.update_weight`."""
        if self.relive is None:
            raise StaleId(message("slots that hold a step", "an empty buffer", "update_weight"))
        check.unmasked(index, "update_weight(index)", ArgumentError)
        slots = np.asarray(index, np.int64)
        given = getattr(index, "ids", None)
        last, now = self._last_drawn[slots], self._stored[slots]
        drawn = np.where(last >= 0, last, now) if given is None else given
        self.relive.update_priorities(drawn, new_weight)
        if given is None:
            self._last_drawn[slots[drawn != now]] = -1

    @one_at_a_time
    def _get_weight(self, index: Any) -> Array:
        ids = self._ids(np.atleast_1d(self._indices[index]))
        return self._weights(ids)

    def _set_beta(self, beta: float) -> None:
        self._beta = check.real(beta, "set_beta", low=0.0)

    @one_at_a_time
    def reset(self, keep_statistics: bool = False) -> None:
        """Forget all steps; with `keep_statistics` not the return and length of the episodes that go on."""
        super().reset(keep_statistics)
        self._cuts[:], self._last_drawn[:], self._unchecked = False, -1, []
        self._stored[:], self._next[:] = -1, 0
        if self.relive is not None:
            self.relive.clear()

    @one_at_a_time
    def hasnull(self) -> bool:
        """Return True if a step has a NaN or None. Steps that had none the last time are not checked again."""
        slots = np.unique(np.concatenate(self._unchecked)) if self._unchecked else np.empty(0, np.int64)
        found = bool(len(slots)) and bool(self[slots[self._held()[slots]]].hasnull())
        self._unchecked = [slots] if found else []
        return found

    @one_at_a_time
    def set_array_at_key(self, seq: Any, key: str, index: Any = None, default_value: float | None = None) -> None:
        """Set a key of these slots, a new one as well, but no observation and no action."""
        if key in IN_RELIVE:
            raise ArgumentError(message("a key beside observations and actions", f"`{key}`", "set_array_at_key"))
        super().set_array_at_key(seq, key, index, default_value)
        self._unchecked = [self.sample_indices(0)]

    def set_batch(self, batch: Any) -> NoReturn:
        """Refuse: steps come in by `add`, one after the other."""
        raise refusal("set_batch", "call `add` for each step")

    def dropnull(self) -> NoReturn:
        """Refuse: the remaining steps would no longer follow each other."""
        raise refusal("dropnull", "keep NaNs out in the environment, or in the collector's hooks")

    @classmethod
    def from_data(cls, *data: Any, **named: Any) -> NoReturn:
        """Refuse: arrays do not say where streams end."""
        raise refusal("from_data", "call `add` for each step")

    @one_at_a_time
    def save_hdf5(self, path: str | os.PathLike[str], compression: str | None = None) -> None:
        """Save everything in an HDF5 file without pickles; infos as far as they are numbers.

        Args:
            path: The file.
            compression: As `h5py.Group.create_dataset` takes it, for all but observations and actions.

        Raises:
            ArgumentError: There is no step yet.
        """
        if self.relive is None:
            raise ArgumentError(message("a buffer with steps", "none", "save_hdf5"))
        state = {"cuts": self._cuts, "ids": self._stored, "next": self._next, **_hdf5.of_children(self.buffers)}
        choices = {**self._given, "beta": self._beta, "weights": self._choices()}
        _hdf5.write(path, choices, packed(self.relive), {**state, **_hdf5.numbers(self._meta)}, compression)

    def _choices(self) -> dict[str, Any]:
        """Return the further arguments of a subclass."""
        return {}

    @classmethod
    def load_hdf5(cls: type[Self], path: str | os.PathLike[str], device: Any = None, **choices: Any) -> Self:
        """Load the buffer of a file that `save_hdf5` wrote; it continues as the saved one would have, draw for draw.

        Args:
            path: The file.
            device: Nothing.
            **choices: Arguments of the class that the file does not have: a `sampler`.

        Raises:
            CorruptionError: The file is damaged, or another one's.
        """
        given, saved, state = _hdf5.read(path)
        beta, own = given.pop("beta"), given.pop("weights")
        buffer = cls(**given, **own, **choices)
        buffer.relive = opened(saved, capacity=buffer.maxsize, sampler=buffer._sampler, boundaries=1.0)
        place = saved if "ids" in saved else state  # older files have it among the arrays of the buffer
        buffer._stored, buffer._next = place.pop("ids").reshape(-1), place.pop("next")
        buffer._cuts, buffer._beta = state.pop("cuts"), beta
        _hdf5.restore_children(buffer, state)
        return buffer
