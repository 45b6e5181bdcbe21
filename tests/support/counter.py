"""The counting environment, and what every item of it has to be: the judge of the adapters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from counting import Counting as Counting
from counting import length

GAMMA = 0.5  # a power of two, so that float32 sums are exact


def truth(
    obs: np.ndarray, n: int, cuts: Mapping[tuple[int, int], int], gamma: float = GAMMA
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute rewards, discounts and next observations of the n-step windows from these observations `[B, 3]`.

    Args:
        obs: Environment, episode and step.
        n: Steps.
        cuts: The steps of episodes that a reset ended, by environment and episode.
        gamma: Discount per step.
    """
    reward, discount, after = np.zeros(len(obs)), np.zeros(len(obs)), np.array(obs, np.float64)
    for row, (lane, episode, t) in enumerate(np.asarray(obs, int).tolist()):
        whole = length(lane, episode)
        end = cuts.get((lane, episode), whole)
        m = min(n, end - t)
        reward[row] = sum(gamma**k * (t + k + 1) for k in range(m))
        terminated = t + m == whole == end and episode % 2 == 1
        discount[row], after[row, 2] = 0.0 if terminated else gamma**m, t + m
    return reward, discount, after


def wrong(
    obs: Any, reward: Any, discount: Any, next_obs: Any, n: int, cuts: Mapping[tuple[int, int], int] | None = None
) -> int:
    """Count the wrong items; the next observation counts if it is bootstrapped from."""
    want = truth(np.asarray(obs), n, cuts or {})
    same = (np.asarray(reward).reshape(-1) == want[0]) & (np.asarray(discount).reshape(-1) == want[1])
    same &= (np.asarray(next_obs) == want[2]).all(axis=1) | (want[1] == 0)
    return int((~same).sum())


def coded(obs: np.ndarray) -> np.ndarray:
    """Return one number for each observation."""
    return obs[..., 0] * 10_000.0 + obs[..., 1] * 100 + obs[..., 2]
