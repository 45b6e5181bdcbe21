"""The rule of thumb that a learned policy is measured against, and what a policy earns."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from relive.errors import ArgumentError, message
from relive_lab import checks
from relive_lab.checks import Fields
from relive_lab.envs.features import SPREAD_CLIP, SPREAD_SCALE, Floats
from relive_lab.envs.market import ENV
from relive_lab.envs.vector import PairsTradingVectorEnv

Policy = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]


@dataclass(frozen=True)
class ThresholdPolicy:
    """Trade fully against a wide spread, and leave when it crosses zero.

    Where `|spread| > threshold` the position is minus the spread's sign; otherwise it is held until the spread has
    crossed zero. The observation has both, so one object serves any number of lanes.

    Attributes:
        threshold: in units of quiet per-bar volatility, in (0, 30); other values are an ArgumentError.

    >>> policy = ThresholdPolicy(2.0)
    >>> policy(np.array([0.0, 0.5, 0.0, 0.0, 0.0, 0.0], dtype=np.float32)).tolist()  # spread 2.5, flat
    [-1.0]
    """

    threshold: float = 2.0

    def __post_init__(self) -> None:
        Fields(self, ENV).numbers("threshold", above=0.0, below=SPREAD_CLIP * SPREAD_SCALE)

    def __call__(self, obs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Choose positions, float32 `[1]` or `[lanes, 1]`, from observations `[6]` or `[lanes, 6]`."""
        spread, position = obs[..., 1:2] * np.float32(SPREAD_SCALE), obs[..., 5:6]
        held = np.where(position * spread < 0, position, np.float32(0.0))
        return np.where(np.abs(spread) > self.threshold, -np.sign(spread), held).astype(np.float32)


class Episodes:
    """A fixed set of episodes, simulated once, that any number of policies can be run on.

    Args:
        count: how many; episode i has the prices of an environment seeded with `seed + i`.
        seed: a non-negative integer.
        **settings: as for `evaluate`.

    >>> held_out = Episodes(200, seed=0)
    >>> bool((held_out(ThresholdPolicy(2.0)) == evaluate(ThresholdPolicy(2.0), episodes=200)).all())
    True
    """

    def __init__(self, count: int, seed: int, **settings: Any) -> None:
        checks.integer(count, f"{ENV}(episodes)", 1)
        checks.integer(seed, f"{ENV}(seed)", 0)
        if "num_envs" in settings:
            got, remedy = f"`{settings['num_envs']!r}`", "one lane runs one episode"
            raise ArgumentError(message("`episodes`", got, f"{ENV}(num_envs)", remedy))
        self._start = PairsTradingVectorEnv(count, **settings)
        self._obs, _ = self._start.reset(seed=seed)

    def __call__(self, policy: Policy) -> Floats:
        """Return what the policy earns in each episode, float64 `[count]`; see `evaluate`."""
        # Steps bind new arrays and write to none, so a shallow copy begins at the first bar each time.
        envs, obs = copy.copy(self._start), self._obs.copy()
        returns = np.zeros(envs.num_envs)
        for _ in range(envs.market.horizon):
            obs, reward, _, _, _ = envs.step(policy(obs))
            returns += reward
        return returns


def evaluate(policy: Policy, *, episodes: int = 1000, seed: int = 0, **settings: Any) -> Floats:
    """Run a policy on a fixed set of episodes, all at once; the same seed and settings give the same prices.

    Args:
        policy: maps observations float32 `[episodes, 6]` to positions `[episodes, 1]`.
        episodes: how many; episode i has the prices of an environment seeded with `seed + i`.
        seed: a non-negative integer.
        **settings: `data=` and the market's arguments, as for the environment, with its errors.

    Returns:
        The undiscounted return (sum of rewards) of each episode, float64 `[episodes]`.

    >>> returns = evaluate(ThresholdPolicy(2.0), episodes=200)
    >>> bool(1.4 < returns.mean() < 2.3)
    True
    """
    return Episodes(episodes, seed, **settings)(policy)
