"""A replay buffer that Stable-Baselines3 takes for one of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common import buffers, type_aliases

from .._adapters.copies import ReadOnly, Write, no_assignment
from .._base import check
from .._base.types import Array, Bool, Int64
from ..batch import Batch
from ..buffer import BOUNDARIES
from ..buffer import ReplayBuffer as Buffer
from ..errors import ArgumentError, SchemaError, message
from ..items import Item, Transitions
from ..samplers import Sampler
from ..schema import Field, Schema

if TYPE_CHECKING:
    from ..batch import Tensors

Observation: TypeAlias = "Array | dict[str, Array]"

_LIMIT = "TimeLimit.truncated"  # in infos
_WRITABLE = '`replay_buffer_kwargs={"writable": True}`'


class _Fields(NamedTuple):
    observations: Tensors
    actions: torch.Tensor
    next_observations: Tensors
    dones: torch.Tensor
    rewards: torch.Tensor
    discounts: torch.Tensor | None
    weights: torch.Tensor
    ids: Int64


class Samples(_Fields, type_aliases.ReplayBufferSamples):
    """A batch of `ReplayBuffer.sample`: the fields of SB3's `ReplayBufferSamples`, then `weights` and `ids`.

    Attributes:
        observations: `[B, ...]` in the space's dtype.
        actions: `[B, size]`.
        next_observations: After the window; the final ones where the episode ended.
        dones: 1 where the window ended in a terminal state, so that nothing is bootstrapped, float32 `[B, 1]`.
        rewards: Discounted sums over the window, float32 `[B, 1]`.
        discounts: `gamma**m` for windows of m steps, float32 `[B, 1]`; None where `n_steps` is 1, as in SB3.
        weights: Importance-sampling weights, float32 `[B, 1]`; 1 for uniform draws.
        ids: For `update_priorities`, int64 `[B]`, a NumPy array.

    >>> Samples._fields[-3:]
    ('discounts', 'weights', 'ids')
    """

    __slots__ = ()


class DictSamples(_Fields, type_aliases.DictReplayBufferSamples):
    """The same where observations are dicts of tensors.

    >>> DictSamples._fields == Samples._fields
    True
    """

    __slots__ = ()


class Shown(property):
    """A property for looking at, whose assignment names the call that writes."""

    def __set__(self, buffer: Any, value: Any) -> None:
        if hasattr(buffer, "_relive"):  # SB3's constructor sets some before
            raise no_assignment(f"ReplayBuffer.{getattr(self.fget, '__name__', '')}", _WRITABLE)


class ReplayBuffer(buffers.ReplayBuffer):
    """SB3's replay buffer on relive's: for `replay_buffer_class=`, for `Dict` observations too, and for CleanRL.

    Observations are stored once, so there is nothing for `optimize_memory_usage` to do, and it goes together with
    `handle_timeout_termination`. A reset in mid-episode, as by `learn()` called again, cuts the stream: no window joins
    two episodes. The newest windows of `n_steps` wait until they are complete.

    Args:
        buffer_size: Steps over all environments.
        observation_space: A `Box`, `Discrete`, `MultiDiscrete` or `MultiBinary` space, or a `Dict` of these.
        action_space: The action space.
        device: Where samples go.
        n_envs: Environments.
        optimize_memory_usage: Taken, as SB3 passes it on.
        handle_timeout_termination: Whether `TimeLimit.truncated` in `infos` marks steps that ended from outside, from
            whose final observation values are bootstrapped. Otherwise `done` is a terminal state, always.
        n_steps: Steps of a window.
        gamma: Discount per step, for windows of several.
        sampler: Which steps are drawn: `relive.Uniform()` or `relive.Prioritized(...)`.
        stack: Frames in an observation, along its first axis, of which each is stored once.
        seed: None: drawn from NumPy's global generator, which SB3 seeds.
        boundaries: Share of memory reserved for final observations, on top of the steps. The default is enough for
            episodes of 16 steps, 1 for any; a warning says where fewer steps than `buffer_size` are kept.
        writable: Whether `relive.write(ids, reward=...)` may change stored rewards; saves then hold all of them anew.

    Attributes:
        relive: The `relive.ReplayBuffer` with the steps: `relive.stats()`, `relive.save(path)`, ... Another one that
            is assigned must have as many environments, the same fields and the same item.

    `observations`, `next_observations`, `actions`, `rewards`, `dones` and `timeouts` are read-only copies
    `[size, n_envs, ...]`, for looking at; `pos` and `full` are for looking at, too.

    Raises:
        ArgumentError, SchemaError: Arguments that `relive.ReplayBuffer` refuses, in its words.

    >>> import gymnasium, numpy as np
    >>> env = gymnasium.make("CartPole-v1")
    >>> buffer = ReplayBuffer(1000, env.observation_space, env.action_space, device="cpu", n_steps=3, seed=0)
    >>> zeros = np.zeros((1, 4), np.float32)
    >>> for _ in range(5):
    ...     buffer.add(zeros, zeros, np.zeros(1, int), np.ones(1), np.zeros(1, bool), [{}])
    >>> samples = buffer.sample(2)
    >>> samples.rewards.shape, round(float(samples.rewards[0, 0]), 4), buffer.size()
    (torch.Size([2, 1]), 2.9701, 5)
    """

    buffer_size: int
    n_envs: int

    def __repr__(self) -> str:
        return f"relive.sb3.{type(self).__name__}({self.relive!r})"

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        n_steps: int = 1,
        gamma: float = 0.99,
        sampler: Sampler | None = None,
        stack: int | None = None,
        seed: int | None = None,
        boundaries: float = BOUNDARIES,
        writable: bool = False,
    ) -> None:
        at = "relive.sb3.ReplayBuffer"
        size = check.integer(buffer_size, f"{at}(buffer_size)", minimum=1)
        envs = check.integer(n_envs, f"{at}(n_envs)", minimum=1)
        buffers.BaseBuffer.__init__(self, size, observation_space, action_space, device, n_envs=envs)
        self.buffer_size = max(size // envs, 1)
        self.optimize_memory_usage = optimize_memory_usage
        self.handle_timeout_termination = handle_timeout_termination
        self.n_steps, self.gamma = n_steps, gamma
        self._pos, self._full = 0, False
        self._relive = Buffer(
            Schema(
                obs=self._fields(stack),
                action=self._action_field(),
                reward=Field(writable=check.flag(writable, f"{at}(writable)")),
                **self._extra_fields(),
            ),
            envs * self.buffer_size,
            num_envs=envs,
            item=self._item(Transitions(n_step=n_steps, gamma=gamma)),
            sampler=sampler,
            seed=int(np.random.randint(2**31)) if seed is None else seed,
            boundaries=boundaries,
        )
        self._ids = np.full((self.buffer_size, envs), -1)
        self._never = np.zeros(envs, bool)
        self._shapes: Any = (envs, *self.obs_shape)
        if isinstance(self.obs_shape, dict):
            self._shapes = {name: (envs, *shape) for name, shape in self.obs_shape.items()}

    @property
    def relive(self) -> Buffer:
        """The `relive.ReplayBuffer` with the steps."""
        return self._relive

    @relive.setter
    def relive(self, buffer: Buffer) -> None:
        check_fits(buffer, self._relive)
        self._relive = buffer

    @Shown
    def pos(self) -> int:
        """Return the position of the next step."""
        return self._pos

    @Shown
    def full(self) -> bool:
        """Return True once it has been filled."""
        return self._full

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name in ("pos", "full", "relive"):  # as older pickles call them
            if name in state:
                state[f"_{name}"] = state.pop(name)
        self.__dict__.update(state)

    def _fields(self, stack: int | None) -> Any:
        space = self.observation_space
        if stack is not None:
            return Schema.from_spaces(space, self.action_space, stack=stack).tree["obs"]
        if isinstance(space, spaces.Dict):
            return {name: Field(self.obs_shape[name], child.dtype) for name, child in space.spaces.items()}
        return Field(self.obs_shape, space.dtype)

    def _action_field(self) -> Field:
        return Field((self.action_dim,), self._maybe_cast_dtype(self.action_space.dtype))

    def _extra_fields(self) -> dict[str, Field]:
        return {}

    def _item(self, transitions: Transitions) -> Item:
        return transitions

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        """Store a step of every environment.

        Args:
            obs: Observations `[n_envs, ...]`, or a dict of them.
            next_obs: Those that followed, the final ones where `done`.
            action: `[n_envs, ...]`.
            reward: `[n_envs]`.
            done: `[n_envs]`.
            infos: A list of dicts, as SB3 has it, or a dict of arrays, as Gymnasium's vector environments have it.
                There an episode with a `final_obs` and without `done` was truncated.

        Raises:
            SchemaError: A value of another shape or dtype than the spaces say; nothing is stored.
        """
        try:
            ended = _shaped(done, (self.n_envs,))
        except SchemaError:
            raise other_number(self.n_envs, np.size(done), "ReplayBuffer.add") from None
        truncated = self._truncated(ended, infos)
        self._ids[self._pos] = self._relive.add(
            obs=_all_shaped(obs, self._shapes),
            action=_shaped(action, (self.n_envs, self.action_dim)),
            reward=_shaped(reward, (self.n_envs,)),
            next_obs=_all_shaped(next_obs, self._shapes),
            terminated=ended if truncated is None else (ended != 0) & ~truncated,
            truncated=self._never if truncated is None else truncated,
            **self._extras(infos),
        )
        self._pos += 1
        if self._pos == self.buffer_size:
            self._pos, self._full = 0, True

    def _extras(self, infos: Any) -> dict[str, Any]:
        return {}

    def _truncated(self, ended: Array, infos: Any) -> Bool | None:
        """Mark the environments that ended from outside; return None if none did."""
        if isinstance(infos, Mapping):
            if self.handle_timeout_termination and _LIMIT in infos:
                return np.broadcast_to(np.asarray(infos[_LIMIT], bool).reshape(-1), self.n_envs)
            over = infos.get("_final_obs")  # Gymnasium's SAME_STEP: the episodes that this call ended
            return None if over is None else np.asarray(over, bool).reshape(self.n_envs) & (ended == 0)
        each = [info.get(_LIMIT, False) for info in infos] if self.handle_timeout_termination else []
        return np.asarray(each, bool).reshape(self.n_envs) if any(each) else None

    def sample(self, batch_size: int, env: Any = None) -> Samples | DictSamples:
        """Draw steps, by the sampler.

        Args:
            batch_size: How many.
            env: A `VecNormalize` that normalizes observations and rewards; discounted sums of several rewards as one.

        Raises:
            NotEnoughData: No window is complete yet.
        """
        return self._tensors(self.relive.sample(batch_size), env)

    def update_priorities(self, ids: Any, td_errors: Any) -> int:
        """Set the priorities of steps, as `relive.ReplayBuffer.update_priorities` does.

        Args:
            ids: `samples.ids`.
            td_errors: TD errors `[B]` or `[B, 1]`, a tensor on the CPU or an array.

        Returns:
            How many were applied; those of steps that have been overwritten since are dropped.
        """
        return self.relive.update_priorities(ids, td_errors)

    def keep_batches(self, path: Any, last: int = 8) -> None:
        """Keep the last batches in a file, as `relive.ReplayBuffer.keep_batches` does."""
        self.relive.keep_batches(path, last)

    def _get_samples(self, batch_inds: Int64, env: Any = None) -> Samples | DictSamples:
        lanes = self.relive.rng.integers(self.n_envs, size=len(batch_inds))
        return self._tensors(self.relive.read(self._ids[np.asarray(batch_inds), lanes]), env)

    def _tensors(self, batch: Batch, env: Any) -> Samples | DictSamples:
        rewards = self._normalize_reward(batch.reward.reshape(-1, 1), env)
        discounts = None
        if self.n_steps > 1:
            discounts = self._tensor((self.gamma**batch.steps).astype(np.float32)[:, None])
        kind = DictSamples if isinstance(self.obs_shape, dict) else Samples
        return kind(
            observations=self._observed(batch.obs, env),
            actions=self._tensor(batch.action),
            next_observations=self._observed(batch.next_obs, env),
            dones=self._tensor(batch.terminated.astype(np.float32)[:, None]),
            rewards=self._tensor(rewards),
            discounts=discounts,
            weights=self._tensor(batch.weights[:, None]),
            ids=batch.ids,
        )

    def _tensor(self, array: Array) -> torch.Tensor:
        return torch.as_tensor(array, device=self.device)

    def _observed(self, values: Any, env: Any) -> Any:
        if isinstance(values, Batch):
            return {name: self._tensor(each) for name, each in self._normalize_obs(dict(values), env).items()}
        return self._tensor(self._normalize_obs(values, env))

    def size(self) -> int:
        """Return the stored steps of each environment, at most `buffer_size`."""
        return min(self.buffer_size, len(self.relive) // self.n_envs)

    def reset(self) -> None:
        """Forget all steps."""
        self._pos, self._full = 0, False
        self.relive.clear()
        self._ids.fill(-1)

    @Shown
    def observations(self) -> Observation:
        """Return a read-only copy of the observations, `[size, n_envs, ...]`."""
        return self._stored("obs", "observations")

    @Shown
    def next_observations(self) -> Observation:
        """Return a read-only copy of the observations that followed, `[size, n_envs, ...]`."""
        return self._stored("next_obs", "next_observations")

    @Shown
    def actions(self) -> Array:
        """Return a read-only copy of the actions, `[size, n_envs, ...]`."""
        return self._copy(self._column("action"), "actions")

    @Shown
    def rewards(self) -> Array:
        """Return a read-only copy of the rewards, float32 `[size, n_envs]`."""
        return self._copy(self._column("reward"), "rewards")

    @Shown
    def dones(self) -> Array:
        """Return a read-only copy of the flags of ended episodes, float32 `[size, n_envs]`."""
        return self._copy(self._over(), "dones", self._mark_end)

    @Shown
    def timeouts(self) -> Array:
        """Return a read-only copy of the flags of episodes ended from outside, float32 `[size, n_envs]`."""
        return self._copy(self._outside(), "timeouts")

    def _over(self) -> Array:
        return np.maximum(self._column("terminated"), self._column("truncated")).astype(np.float32)

    def _outside(self) -> Array:
        return self._column("truncated").astype(np.float32)

    def _copy(self, array: Array, name: str, write: Write | None = None) -> ReadOnly:
        return ReadOnly.of(array, f"ReplayBuffer.{name}", _WRITABLE, write)

    def _mark_end(self, key: Any, value: Any) -> bool:
        """Cut the streams where SB3 marks the newest step as its episode's last, as `learn` does before a reset."""
        newest = np.ndim(key) == 0 and isinstance(key, int | np.integer) and key == (self.pos - 1) % self.buffer_size
        if newest and np.all(value):
            self.relive.cut()
        return bool(newest and np.all(value))

    def _places(self) -> tuple[Bool, Int64, Int64]:
        """Mark SB3's positions that hold a step, and return the lanes and rows of these steps in relive's columns."""
        envs, there = self.n_envs, self.relive.column("ids")
        lanes, places = np.broadcast_to(np.arange(envs), self._ids.shape), self._ids // envs % there.shape[1]
        held = (self._ids >= 0) & (there[lanes, places] == self._ids)
        return held, lanes[held], places[held]

    def _column(self, path: str) -> Array:
        held, lanes, places = self._places()
        column = self.relive.column(path)
        found = np.zeros((*held.shape, *column.shape[2:]), column.dtype)
        found[held] = column[lanes, places]
        return found

    def _stored(self, name: str, shown: str) -> Observation:
        one_step = Transitions()
        with self.relive.hold():
            held = np.isin(self._ids, self.relive.ids(item=one_step))
            fields = self.relive.read(self._ids[held], item=one_step)[name]
        if not isinstance(fields, Batch):
            return self._copy(_placed(fields, held), shown)
        return {key: self._copy(_placed(values, held), shown) for key, values in fields.items()}


def _all_shaped(values: Any, shapes: Any) -> Any:
    """Reshape an observation, an array or a dict of arrays, to the shapes that the buffer has them in."""
    if type(shapes) is dict:
        return {name: _shaped(values[name], shape) for name, shape in shapes.items()}
    return _shaped(values, shapes)


def _shaped(values: Any, shape: tuple[int, ...]) -> Array:
    if type(values) is np.ndarray and values.shape == shape:
        return values
    array = np.asanyarray(values)  # a mask stays, and is refused
    try:
        reshaped: Array = array.reshape(shape)
    except ValueError:
        raise SchemaError(message(f"shape `{shape}`", f"`{array.shape}`", "ReplayBuffer.add")) from None
    return reshaped


def other_number(wanted: int, got: int, at: str) -> ArgumentError:
    """Compose the error about a buffer for another number of environments."""
    remedy = (
        "`replay_buffer.relive = relive.load([path, empty])` puts the environments of several saves side by side, here"
        " those of the buffer and of an empty one for the others"
    )
    expected, found = (f"{number} environment{'s' * (number != 1)}" for number in (wanted, got))
    return ArgumentError(message(expected, found, at, remedy))


def check_fits(given: Any, own: Buffer) -> None:
    """Check that a buffer can take the place of another one.

    Raises:
        ArgumentError: It has another number of environments, other fields or another item.
    """
    at = "ReplayBuffer.relive"
    if not isinstance(given, Buffer):
        raise ArgumentError(message("a `relive.ReplayBuffer`", f"`{type(given).__name__}`", at))
    if given.num_envs != own.num_envs:
        raise other_number(own.num_envs, given.num_envs, at)
    mine, theirs = (
        {column.path: (column.field.full_shape, column.field.dtype) for column in buffer.schema.columns}
        for buffer in (own, given)
    )
    for path in {**mine, **theirs}:
        wanted, got = (
            "no such field" if each is None else f"`{each[1]}` of shape `{each[0]}`"
            for each in (mine.get(path), theirs.get(path))
        )
        if wanted != got:
            raise ArgumentError(message(wanted, got, f"{at}: {path}", "`relive.load` of a buffer of the same spaces"))
    if given.item != own.item:
        remedy = "`relive.load(path, item=model.replay_buffer.relive.item)`"
        raise ArgumentError(message(f"`{own.item!r}`", f"`{given.item!r}`", f"{at}.item", remedy))


def _placed(values: Array, held: Bool) -> Array:
    found = np.zeros((*held.shape, *values.shape[1:]), values.dtype)
    found[held] = values
    return found
