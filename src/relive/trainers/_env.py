"""Between a learner, which knows flat vectors and actions in [-1, 1], and an environment with spaces of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from relive.errors import ArgumentError, message
from relive.trainers._config import SACConfig
from relive.trainers._nets import Floats

MakeEnv = Callable[[], "gymnasium.Env[Any, Any]"]
Act = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


def maker(config: SACConfig) -> MakeEnv:
    """Return a function that builds the environment a configuration names."""
    if config.env_id.startswith("relive/"):
        import relive.envs  # noqa: F401 (registers them)

    def make() -> gymnasium.Env[Any, Any]:
        try:
            return gymnasium.make(config.env_id, **cast(dict[str, Any], config.env_kwargs))
        except gymnasium.error.UnregisteredEnv as error:
            remedy = "`module:Name-v0` imports the module that registers it"
            got = f"`{config.env_id}` ({error})"
            raise ArgumentError(message("a registered environment", got, "SACConfig(env_id)", remedy)) from error

    return make


def vectorize(make: MakeEnv, lanes: int) -> SyncVectorEnv:
    """Return `lanes` environments stepped in turn, each starting its next episode in the step that ends one."""
    return SyncVectorEnv([make] * lanes, autoreset_mode=AutoresetMode.SAME_STEP)


class Spaces:
    """The sizes that nets need, and actions in [-1, 1] scaled to the environment's bounds and back.

    Raises:
        ArgumentError: Observations are no box, or actions no bounded box of floats.
    """

    def __init__(self, envs: SyncVectorEnv) -> None:
        obs, action = envs.single_observation_space, envs.single_action_space
        if not isinstance(obs, gymnasium.spaces.Box):
            wrap = "wrap the environment in `gymnasium.wrappers.FlattenObservation`"
            raise ArgumentError(message("a `Box` observation space", f"`{obs}`", "SACTrainer(env)", wrap))
        if not isinstance(action, gymnasium.spaces.Box) or not np.issubdtype(action.dtype, np.floating):
            raise ArgumentError(message("a `Box` action space of floats", f"`{action}`", "SACTrainer(env)"))
        if not action.is_bounded("both"):
            wrap = "wrap the environment so that its actions have bounds"
            raise ArgumentError(message("bounded actions", f"`{action}`", "SACTrainer(env)", wrap))
        self.obs_shape, self.action = obs.shape, action
        self.obs_size, self.action_size = int(np.prod(obs.shape)), int(np.prod(action.shape))
        low, high = action.low.astype(np.float64).ravel(), action.high.astype(np.float64).ravel()
        self.middle = (low + high) / 2.0
        # An axis whose bounds coincide has one legal value; any positive width keeps its unit action finite.
        self.half = np.where(high > low, (high - low) / 2.0, 1.0)

    def to_env(self, unit: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Scale actions in [-1, 1], `[N, A]`, to the environment's shape and dtype, `[N, ...]`."""
        scaled: npt.NDArray[Any] = (
            (self.middle + self.half * unit).astype(self.action.dtype).reshape(-1, *self.action.shape)
        )
        # Rounding may step over a bound by its last bit, and environments may insist on it.
        bounded: npt.NDArray[Any] = np.minimum(np.maximum(scaled, self.action.low), self.action.high)
        return bounded

    def batch_of(self, obs: npt.ArrayLike) -> tuple[Floats, bool]:
        """Return observations as `[N, D]`, and whether a single one was given.

        Raises:
            ArgumentError: The observation has another shape.
        """
        array = np.asarray(obs)
        single = array.shape == self.obs_shape
        if not single and array.shape[1:] != self.obs_shape:
            wanted = f"an observation of shape `{self.obs_shape}`, or a batch"
            raise ArgumentError(message(wanted, f"shape `{array.shape}`", "SACTrainer.act"))
        return flat(array[None] if single else array), single


def flat(obs: npt.NDArray[Any]) -> Floats:
    """Return observations `[N, ...]` as float32 `[N, D]`."""
    return obs.reshape(len(obs), -1).astype(np.float32, copy=False)


def play(envs: SyncVectorEnv, act: Act, seed: int) -> npt.NDArray[np.float64]:
    """Play one episode in every lane, lane i seeded with `seed + i`, and return the undiscounted returns."""
    obs, _ = envs.reset(seed=seed)
    returns, running = np.zeros(envs.num_envs), np.ones(envs.num_envs, bool)
    while running.any():
        obs, reward, terminated, truncated, _ = envs.step(act(obs))
        # A lane that ended plays on in its next episode, unheard, until the last one ends.
        returns += np.where(running, reward, 0.0)
        running &= ~(terminated | truncated)
    return returns
