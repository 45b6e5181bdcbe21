"""Evaluation: whole episodes of the deterministic policy, from the same seeds in every run."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import SyncVectorEnv

from relive_lab.agent import Act

# Far from any seed that training is likely to use.
SEED, LANES = 1_000_000, 16


def play(envs: SyncVectorEnv, policy: Act, seed: int) -> npt.NDArray[np.float64]:
    """Play one episode in every environment, the one at i seeded with `seed + i`; return the undiscounted returns.

    If the policy has a method `after(reward, ended)`, it is called after each step.
    """
    obs, _ = envs.reset(seed=seed)
    returns, running = np.zeros(envs.num_envs), np.ones(envs.num_envs, bool)
    after: Any = getattr(policy, "after", None)
    while running.any():
        obs, reward, terminated, truncated, _ = envs.step(policy(obs))
        ended = terminated | truncated
        # Finished environments keep stepping; their rewards are ignored until all have finished.
        returns += np.where(running, reward, 0.0)
        running &= ~ended
        if after is not None:
            after(reward, ended)
    return returns
