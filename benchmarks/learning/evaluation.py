"""Returns of a policy in the last fifth of a run, and the CPU time of all else."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import gymnasium as gym
import numpy as np
import numpy.typing as npt

EPISODES, EVALUATIONS = 10, 5

Policy = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.generic]]


@dataclass
class Course:
    """One run: `at(step, policy)` after every step evaluates when it is time.

    Attributes:
        returns: The mean return of 10 episodes at 80, 85, 90, 95 and 100 % of the steps.
    """

    env_id: str
    seed: int
    steps: int
    returns: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        share = 0.2 / (EVALUATIONS - 1)
        self._due = [round(self.steps * (1 - share * left)) for left in reversed(range(EVALUATIONS))]
        self._begun, self._evaluating = time.process_time(), 0.0

    @property
    def cpu(self) -> float:
        """Seconds of the processor since the beginning, without those of evaluations."""
        return time.process_time() - self._begun - self._evaluating

    def at(self, step: int, policy: Policy) -> None:
        if len(self.returns) < EVALUATIONS and step >= self._due[len(self.returns)]:
            begun = time.process_time()
            self.returns.append(evaluate(self.env_id, policy, 10_000 + self.seed))
            self._evaluating += time.process_time() - begun


def evaluate(env_id: str, policy: Policy, seed: int) -> float:
    """Return the mean return of the first episode of each of 10 environments, which begin alike for every arm."""
    envs = gym.make_vec(env_id, num_envs=EPISODES, vectorization_mode="sync")
    obs, _ = envs.reset(seed=seed)
    total, running = np.zeros(EPISODES), np.ones(EPISODES, bool)
    while running.any():
        obs, rewards, terminations, truncations, _ = envs.step(policy(obs))
        total[running] += rewards[running]
        running &= ~(terminations | truncations)
    envs.close()
    return float(total.mean())
