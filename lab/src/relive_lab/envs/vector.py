"""The vector environment behind `gymnasium.make_vec("relive/PairsTrading-v0")`: one array operation for all lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from relive.errors import ArgumentError, message
from relive_lab import checks
from relive_lab.envs.features import OBSERVATION, Floats
from relive_lab.envs.market import ENV, trading_profit
from relive_lab.envs.pairs_trading import make_market, make_spaces

Bools = npt.NDArray[np.bool_]


class PairsTradingVectorEnv(VectorEnv[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[Any]]):
    """Lanes of `PairsTradingEnv` stepped together, equal to `SyncVectorEnv` number for number but faster.

    Lane i seeded by `reset(seed=s)` sees the prices of a single environment seeded by `s + i`. All lanes are truncated
    together. Autoreset is NEXT_STEP: the step after a truncation ignores its action and returns the first observations.

    Args:
        num_envs: lanes.
        data: `"synthetic"` or `"real"`.
        render_mode: only `None`; for pictures, make the environment with `vectorization_mode="sync"`.
        **settings: arguments of `SyntheticMarket` or `HistoricalMarket`.

    Errors are those of `PairsTradingEnv`.

    >>> import gymnasium, relive_lab.envs
    >>> envs = gymnasium.make_vec("relive/PairsTrading-v0", num_envs=4, mode="dislocation", sigma=0.3)
    >>> obs, infos = envs.reset(seed=0)
    >>> obs, reward, terminated, truncated, infos = envs.step(envs.action_space.sample())
    >>> obs.shape, reward.shape
    ((4, 6), (4,))
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self, num_envs: int = 1, *, data: str = "synthetic", render_mode: str | None = None, **settings: Any
    ) -> None:
        checks.integer(num_envs, f"{ENV}(num_envs)", 1)
        if render_mode is not None:
            remedy = 'pass `vectorization_mode="sync"` for pictures'
            raise ArgumentError(message("`None`", f"`{render_mode!r}`", f"{ENV}(render_mode)", remedy))
        self.num_envs, self.render_mode = num_envs, None
        self.market = make_market(data, **settings)
        self.single_observation_space, self.single_action_space = make_spaces()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        bars = self.market.horizon + 1
        self._generators: list[np.random.Generator] = []
        # Bar first: a step then reads one block of memory per array.
        self._observations = np.zeros((bars, num_envs, len(OBSERVATION)), dtype=np.float32)
        self._series = {name: np.zeros((bars, num_envs)) for name in ("move", "z", "spread")}
        self._series["regime"] = np.zeros((bars, num_envs), dtype=np.bool_)
        self._bar = self.market.horizon

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Draw a new episode in every lane and start flat; lane i is seeded with `seed + i`, no `options` are known."""
        super().reset(seed=seed)
        if seed is not None or not self._generators:
            seeds = [None if seed is None else seed + lane for lane in range(self.num_envs)]
            self._generators = [seeding.np_random(one)[0] for one in seeds]
        for lane, generator in enumerate(self._generators):
            episode = self.market.sample(generator)
            self._observations[:, lane] = episode.observations
            for name, values in self._series.items():
                values[:, lane] = getattr(episode, name)
        self._bar = 0
        self._position, self._profit, self._cost = (np.zeros(self.num_envs) for _ in range(3))
        return self._observe()

    def step(
        self, actions: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float32], Floats, Bools, Bools, dict[str, Any]]:
        """Hold one position per lane over one bar; `actions` are float32 `[num_envs, 1]` in [-1, 1]."""
        if not self._generators:
            expected, got = "a running episode", "a step before the first"
            raise ArgumentError(message(expected, got, f"{ENV}.step", "call `reset` first"))
        flags = np.zeros(self.num_envs, dtype=np.bool_)
        if self._bar == self.market.horizon:
            obs, infos = self.reset()
            return obs, np.zeros(self.num_envs), flags, flags.copy(), infos
        position = self._positions(actions)
        self._bar += 1
        profit, paid = trading_profit(self.market, position, self._position, self._series["move"][self._bar])
        self._position, self._profit, self._cost = position, self._profit + profit, self._cost + paid
        truncated = np.full(self.num_envs, self._bar == self.market.horizon)
        obs, infos = self._observe()
        return obs, self.market.reward_scale * profit, flags, truncated, infos

    def _positions(self, actions: object) -> Floats:
        """Check the actions and return them as float64 `[num_envs]`."""
        expected = f"numbers in [-1, 1] of shape `({self.num_envs}, 1)`"
        try:
            values = np.asarray(actions, dtype=np.float64)
        except (TypeError, ValueError):
            raise ArgumentError(message(expected, f"`{actions!r}`", f"{ENV}.step(actions)")) from None
        if values.shape != (self.num_envs, 1):
            raise ArgumentError(message(expected, f"shape `{values.shape}`", f"{ENV}.step(actions)"))
        # NaN fails the comparison too.
        bad = ~(np.abs(values[:, 0]) <= 1.0)
        if bad.any():
            lane = int(np.argmax(bad))
            where, remedy = f"{ENV}.step(actions[{lane}])", "clip or squash the action"
            raise ArgumentError(message(expected, f"`{values[lane, 0]}` ({bad.sum()} of {len(bad)})", where, remedy))
        return values[:, 0].copy()

    def _observe(self) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Return observations and infos of the current bar, in arrays of their own."""
        bar = self._bar
        obs = self._observations[bar].copy()
        obs[:, 5] = self._position
        values = {"position": self._position, "profit": self._profit, "cost": self._cost}
        values |= {name: self._series[name][bar] for name in ("z", "spread", "regime")}
        infos: dict[str, Any] = {}
        for name, value in values.items():
            infos[name], infos[f"_{name}"] = value.copy(), np.ones(self.num_envs, dtype=np.bool_)
        return obs, infos
