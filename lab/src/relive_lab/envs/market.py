"""Where episodes come from: the settings every market shares, and the synthetic pair."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from relive_lab.checks import Fields
from relive_lab.envs.features import Floats, Observed, Path, observe

ENV = "PairsTrading-v0"

#: A plain float, or one number per lane.
Number = TypeVar("Number", float, Floats)


@dataclass(frozen=True, kw_only=True)
class Market(abc.ABC):
    """The costs of trading and the observation of an episode; a subclass gives the prices.

    Volatilities and profits are in units of the quiet per-bar volatility of the spread, costs per unit traded.

    Attributes:
        cost: paid per unit of position changed.
        holding_penalty: paid per bar for a position q, times q squared.
        reward_scale: reward per unit of profit.
        horizon: bars in an episode, after which it is truncated.
        z_window: bars of the rolling z-score.
        stat_window: bars of the rolling volatility and correlation.
    """

    cost: float = 0.5
    holding_penalty: float = 0.02
    reward_scale: float = 0.2
    horizon: int = 100
    z_window: int = 60
    stat_window: int = 20

    def __post_init__(self) -> None:
        fields = Fields(self, ENV)
        fields.numbers("cost", "holding_penalty", low=0.0)
        fields.numbers("reward_scale", above=0.0)
        fields.integers("horizon", minimum=1)
        fields.integers("z_window", "stat_window", minimum=2)

    @abc.abstractmethod
    def sample(self, rng: np.random.Generator) -> Observed:
        """Draw the prices of one episode: bar 0 is the first decision, bar `horizon` the last observation."""


def trading_profit(market: Market, position: Number, previous: Number, move: Number) -> tuple[Number, Number]:
    """Return the profit of holding `position` over one bar's move, and the part of it that was paid for trading.

    `position * move - paid - holding_penalty * position^2`, and `paid = cost * |position - previous|`.

    >>> market = SyntheticMarket(cost=0.5, holding_penalty=0.02)
    >>> trading_profit(market, position=-1.0, previous=0.0, move=-3.0)
    (2.48, 0.5)
    """
    paid = market.cost * abs(position - previous)
    return position * move - paid - market.holding_penalty * (position * position), paid


@dataclass(frozen=True, kw_only=True)
class SyntheticMarket(Market):
    """A mean-reverting spread of two made-up stocks, with rare events of one of two kinds.

    Quiet bars follow `x' = x - kappa * x + sigma * e`, `e ~ N(0, 1)`, from the stationary law. With `mode="break"`,
    reversion stops and volatility rises for a few bars, which leaves the spread wide. With `mode="dislocation"`, the
    spread jumps far away and reverts faster than usual.

    Attributes:
        mode: `"break"` or `"dislocation"`.
        kappa: share of the spread that reverts per quiet bar.
        sigma: volatility of a quiet bar.
        factor_volatility: volatility of the return that both stocks share.
        warm_up: bars simulated before the first observation, so that every window is full.
        break_probability: chance that a quiet bar is the first of a break.
        break_bars: a break lasts 1 bar and a geometric number of mean `break_bars` more.
        break_volatility: volatility within a break, in units of `sigma`.
        break_factor: volatility of the shared return within a break, in units of `factor_volatility`.
        dislocation_probability: chance that the spread jumps at a quiet bar.
        dislocation_jump: smallest and largest jump, uniform between them, either sign.
        dislocation_kappa: share of the spread that reverts per bar after a jump.
        dislocation_exit: the dislocation ends when the spread is closer to 0 than this ...
        dislocation_bars: ... or after this many bars.

    Raises:
        ArgumentError: a value outside its legal range, or windows that the warm-up cannot fill.

    >>> episode = SyntheticMarket(mode="dislocation", sigma=0.3).sample(np.random.default_rng(0))
    >>> episode.observations.shape
    (101, 6)
    """

    mode: str = "break"
    kappa: float = 0.08
    sigma: float = 1.0
    factor_volatility: float = 1.5
    warm_up: int = 61
    break_probability: float = 0.002
    break_bars: float = 5.0
    break_volatility: float = 6.0
    break_factor: float = 2.0
    dislocation_probability: float = 0.001
    dislocation_jump: tuple[float, float] = (8.0, 16.0)
    dislocation_kappa: float = 0.15
    dislocation_exit: float = 2.0
    dislocation_bars: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        fields = Fields(self, ENV)
        fields.choice("mode", "break", "dislocation")
        # Outside (0, 2) the quiet spread has no stationary law to start from.
        fields.numbers("kappa", "dislocation_kappa", above=0.0, below=2.0)
        fields.numbers("break_bars", low=1.0)
        fields.numbers("break_probability", "dislocation_probability", low=0.0, high=1.0)
        fields.numbers("sigma", "factor_volatility", above=0.0)
        fields.numbers("break_volatility", "break_factor", "dislocation_exit", low=0.0)
        fields.pair("dislocation_jump", low=0.0)
        fields.integers("dislocation_bars", "warm_up", minimum=1)
        needed = max(self.z_window, self.stat_window)
        if self.warm_up < needed:
            raise fields.refusal("warm_up", f"at least {needed} bars", "the longest rolling window must be full")

    def sample(self, rng: np.random.Generator) -> Observed:
        """Simulate one episode: `horizon + 1` bars with full windows."""
        last = self.warm_up + self.horizon
        seen = observe(self.simulate(rng, last), self.z_window, self.stat_window)
        return seen.cut(self.warm_up, last, f"synthetic pair, {self.mode} mode")

    def simulate(self, rng: np.random.Generator, bars: int) -> Path:
        """Simulate the start, where nothing moves, and `bars` bars after it."""
        start = self.sigma / math.sqrt(2 * self.kappa - self.kappa**2) * float(rng.standard_normal())
        shock = self.sigma * rng.standard_normal(bars)
        factor = self.factor_volatility * rng.standard_normal(bars)
        if self.mode == "break":
            spread, regime = self._break(rng, start, shock)
            factor[regime[1:]] *= self.break_factor
        else:
            spread, regime = self._dislocate(rng, start, shock)
        move = np.diff(spread, prepend=spread[0])
        factor = np.concatenate(([0.0], factor))
        leg_a, leg_b = factor + move / 2, factor - move / 2
        return Path(level=spread, spread=spread, move=move, leg_a=leg_a, leg_b=leg_b, regime=regime)

    def _break(self, rng: np.random.Generator, start: float, shock: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Follow the spread through quiet bars and breaks; `shock` is scaled in place."""
        regime = np.zeros(len(shock) + 1, dtype=np.bool_)
        quiet_from = 0
        for bar in np.flatnonzero(rng.random(len(shock)) < self.break_probability).tolist():
            if bar >= quiet_from:
                quiet_from = bar + 1 + int(rng.geometric(1.0 / self.break_bars))
                regime[bar + 1 : quiet_from + 1] = True
        shock[regime[1:]] *= self.break_volatility
        keep = np.where(regime[1:], 1.0, 1.0 - self.kappa)
        # The recursion runs on Python floats: at a few hundred bars that beats NumPy scalars several times over.
        x, spread = start, [start]
        for share, step in zip(keep.tolist(), shock.tolist(), strict=True):
            x = share * x + step
            spread.append(x)
        return np.array(spread), regime

    def _dislocate(self, rng: np.random.Generator, start: float, shock: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Follow the spread through quiet bars and dislocations."""
        jumps = (rng.random(len(shock)) < self.dislocation_probability).tolist()
        low, high = self.dislocation_jump
        x, spread, regime, left = start, [start], [False], 0
        for jump, step in zip(jumps, shock.tolist(), strict=True):
            if left:
                x += step - self.dislocation_kappa * x
                left -= 1
                regime.append(True)
            else:
                x += step - self.kappa * x
                if jump:
                    x += rng.uniform(low, high) * (1.0 if rng.random() < 0.5 else -1.0)
                    left = self.dislocation_bars
                regime.append(jump)
            if abs(x) < self.dislocation_exit:
                left = 0
            spread.append(x)
        return np.array(spread), np.array(regime)
