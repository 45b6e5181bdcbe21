"""Collecting experience: environments that an agent steps, and a `Recorder` that adds their steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import SyncVectorEnv

from relive.gymnasium import Recorder
from relive_lab.agent import Agent, Memory
from relive_lab.config import TrainerConfig


class Collector:
    """Steps environments with an agent, and adds what they return.

    Args:
        config: Seeds of the environments.
        agent: Chooses actions.
        envs: The environments.
        into: A `ReplayBuffer`, or what takes its place before one.
        ended: Called with the run's step and the return of each episode that ends.

    Attributes:
        step: Steps of the run; set by its owner, as other actors may do steps, too.
        obs: The present observations `[N, ...]`; None where episodes have to begin.
        returns: Rewards so far of the running episodes, float64 `[N]`.
        memory: What acting keeps between two steps.
    """

    def __init__(
        self, config: TrainerConfig, agent: Agent, envs: SyncVectorEnv, into: Any, ended: Callable[[int, float], None]
    ) -> None:
        self.envs: Any = Recorder(envs, into)
        self.step = 0
        self.obs: npt.NDArray[Any] | None = None
        self.returns = np.zeros(config.num_envs)
        self.memory: Memory | None = None
        self._config, self._agent, self._ended = config, agent, ended

    def begin(self) -> npt.NDArray[Any]:
        """Begin new episodes in all environments, and return their observations."""
        obs: npt.NDArray[Any] = self.envs.reset(seed=self._config.seeds(self.step)[3:])[0]
        self.returns = np.zeros(self._config.num_envs)
        self.memory = self._agent.memory(self._config.num_envs)
        return obs

    def collect(self) -> int:
        """Step all environments once, and return how many steps that was. After an error new episodes begin."""
        obs, self.obs = self.begin() if self.obs is None else self.obs, None
        action, extras = self._agent.explore(obs, self.step, self.memory)
        obs, reward, terminated, truncated, _ = self.envs.step(action, **extras)
        ended = terminated | truncated
        self.step += len(reward)
        self.returns += reward
        for lane in np.flatnonzero(ended):
            self._ended(self.step, float(self.returns[lane]))
            self.returns[lane] = 0.0
        if self.memory is not None:
            self.memory.after(reward, ended)
        self.obs = obs  # where an episode ended, the first of the next one
        return len(reward)

    def resume(self, obs: npt.NDArray[Any], returns: npt.NDArray[np.float64], memory: dict[str, Any]) -> None:
        """Go on in the middle of episodes, in environments that have been put back into their states."""
        if (own := self._agent.memory(self._config.num_envs)) is not None:
            own.restore(memory)
        self.obs, self.returns, self.memory = obs, returns, own
        self.envs.resume(obs)
