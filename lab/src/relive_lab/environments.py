"""Environments for trainers: made, vectorized, played, and their spaces converted to and from arrays."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from relive.errors import ArgumentError, message
from relive_lab.config import MakeEnv, TrainerConfig

Floats = npt.NDArray[np.float32]


class Makers(NamedTuple):
    """Functions that build an environment: to train in, and to evaluate in."""

    train: MakeEnv
    evaluate: MakeEnv


def makers(config: TrainerConfig, make_env: MakeEnv | None = None) -> Makers:
    """Return what builds the environments of a run, in the wrappers that its settings ask for.

    Training and evaluation differ for Atari games, where training ends an episode with each life and clips rewards.

    Args:
        config: Names the environment.
        make_env: Builds it instead.
    """
    train, evaluate = _named(config) if make_env is None else (make_env, make_env)
    return Makers(config.wrapped(train), config.wrapped(evaluate))


def _named(config: TrainerConfig) -> tuple[MakeEnv, MakeEnv]:
    if config.env_id.startswith("relive/"):
        import relive_lab.envs  # noqa: F401 (registers them)
    if config.env_id.startswith("ALE/"):
        from relive_lab import atari

        game = functools.partial(atari.make, config.env_id, config.env_kwargs)
        return functools.partial(game, training=True), functools.partial(game, training=False)

    def make() -> gymnasium.Env[Any, Any]:
        try:
            return gymnasium.make(config.env_id, **cast(dict[str, Any], config.env_kwargs))
        except gymnasium.error.UnregisteredEnv as error:
            got, at = f"`{config.env_id}` ({error})", f"{type(config).__name__}(env_id)"
            remedy = "`module:Name-v0` imports the module that registers it"
            raise ArgumentError(message("a registered environment", got, at, remedy)) from error

    return make, make


def stacked(make: MakeEnv, frames: int) -> MakeEnv:
    """Return a function that builds the same environment with its last `frames` observations stacked, oldest first."""
    return lambda: gymnasium.wrappers.FrameStackObservation(make(), frames)


def vectorize(make: MakeEnv, lanes: int) -> SyncVectorEnv:
    """Return `lanes` environments stepped in turn, each starting its next episode in the step that ends one."""
    return SyncVectorEnv([make] * lanes, autoreset_mode=AutoresetMode.SAME_STEP)


class Observations:
    """Boxes of numbers: their shape, and batches of them. Other spaces are an ArgumentError, also in the subclasses."""

    def __init__(self, envs: SyncVectorEnv, trainer: str) -> None:
        space = envs.single_observation_space
        if not isinstance(space, gymnasium.spaces.Box):
            wrap = "wrap the environment in `gymnasium.wrappers.FlattenObservation`"
            raise ArgumentError(message("a `Box` observation space", f"`{space}`", f"{trainer}(env)", wrap))
        self.obs_shape, self.obs_dtype, self._trainer = space.shape, space.dtype, trainer
        self.obs_size = int(np.prod(space.shape))

    def batch_of(self, obs: npt.ArrayLike) -> tuple[npt.NDArray[Any], bool]:
        """Return observations as `[N, ...]`, and whether a single one was given; other shapes are an ArgumentError."""
        array = np.asarray(obs)
        single = array.shape == self.obs_shape
        if not single and array.shape[1:] != self.obs_shape:
            wanted = f"an observation of shape `{self.obs_shape}`, or a batch"
            raise ArgumentError(message(wanted, f"shape `{array.shape}`", f"{self._trainer}.act"))
        return array[None] if single else array, single


class Continuous(Observations):
    """Bounded actions: scaled to [-1, 1] for the nets, and back to the environment's bounds."""

    def __init__(self, envs: SyncVectorEnv, trainer: str) -> None:
        super().__init__(envs, trainer)
        action = envs.single_action_space
        if not isinstance(action, gymnasium.spaces.Box) or not np.issubdtype(action.dtype, np.floating):
            raise ArgumentError(message("a `Box` action space of floats", f"`{action}`", f"{trainer}(env)"))
        if not action.is_bounded("both"):
            wrap = "wrap the environment so that its actions have bounds"
            raise ArgumentError(message("bounded actions", f"`{action}`", f"{trainer}(env)", wrap))
        self.action, self.action_size = action, int(np.prod(action.shape))
        low, high = action.low.astype(np.float64).ravel(), action.high.astype(np.float64).ravel()
        self.middle = (low + high) / 2.0
        # An axis whose bounds coincide has one legal value; any positive width keeps its unit action finite.
        self.half = np.where(high > low, (high - low) / 2.0, 1.0)

    def to_env(self, unit: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Scale actions in [-1, 1], `[N, A]`, to the environment's shape and dtype, `[N, ...]`."""
        scaled = (self.middle + self.half * unit).astype(self.action.dtype).reshape(-1, *self.action.shape)
        # Rounding may step over a bound by its last bit, and environments may insist on it.
        bounded: npt.NDArray[Any] = np.minimum(np.maximum(scaled, self.action.low), self.action.high)
        return bounded


class Discrete(Observations):
    """Discrete actions: indices from 0 for the nets; the environment's own may start elsewhere."""

    def __init__(self, envs: SyncVectorEnv, trainer: str) -> None:
        super().__init__(envs, trainer)
        action = envs.single_action_space
        if not isinstance(action, gymnasium.spaces.Discrete):
            raise ArgumentError(message("a `Discrete` action space", f"`{action}`", f"{trainer}(env)"))
        self.actions, self.first, self._dtype = int(action.n), int(action.start), action.dtype

    def to_env(self, index: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the environment's actions for indices, `[N]` and `[N]`."""
        return (index + self.first).astype(self._dtype)


def flat(obs: npt.NDArray[Any]) -> Floats:
    """Return observations `[N, ...]` as float32 `[N, D]`."""
    return obs.reshape(len(obs), -1).astype(np.float32, copy=False)
