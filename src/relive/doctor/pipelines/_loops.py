"""A loop over a Gymnasium vector environment, as users write it by hand."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

Array = np.ndarray[Any, Any]


class Call(NamedTuple):
    """What one call of `step` gave, every array `[L, ...]`; `next_obs` has the final observations."""

    obs: Array
    action: Array
    reward: Array
    next_obs: Array
    terminated: Array
    truncated: Array
    reset: bool  # the environments were reset in mid-episode before this call


def calls_of(
    make_env: Any, num_envs: int, calls: int, mode: AutoresetMode, reset_at: Collection[int] = ()
) -> Iterator[Call]:
    """Step the environments; in NEXT_STEP mode every call is handed on, those that only reset, too."""
    envs = SyncVectorEnv([make_env] * num_envs, autoreset_mode=mode)
    obs, _ = envs.reset()
    action = np.zeros(num_envs, np.int64)
    for number in range(calls):
        again = number in reset_at
        if again:
            obs, _ = envs.reset()
        obs = obs.copy()
        next_obs, reward, terminated, truncated, infos = envs.step(action)
        ended, final = terminated | truncated, next_obs.copy()
        if mode is AutoresetMode.SAME_STEP:
            for lane in np.flatnonzero(ended):
                final[lane] = infos["final_obs"][lane]
        yield Call(obs, action, reward, final, terminated, truncated, again)
        obs = next_obs
        if mode is AutoresetMode.DISABLED and ended.any():
            obs, _ = envs.reset(options={"reset_mask": ended})
