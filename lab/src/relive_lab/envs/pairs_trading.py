"""The single environment `relive/PairsTrading-v0`."""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from relive.errors import ArgumentError, message
from relive_lab import checks
from relive_lab.envs.features import OBSERVATION_BOUND, Observed
from relive_lab.envs.market import ENV, Market, SyntheticMarket, trading_profit
from relive_lab.envs.prices import HistoricalMarket
from relive_lab.envs.render import Renderer

MARKETS: dict[str, type[Market]] = {"synthetic": SyntheticMarket, "real": HistoricalMarket}
RENDER_MODES = ("human", "rgb_array")


def make_market(data: str = "synthetic", **settings: Any) -> Market:
    """Build a `SyntheticMarket` (`data="synthetic"`) or a `HistoricalMarket` (`data="real"`) from its arguments.

    >>> make_market(mode="dislocation", sigma=0.3).cost
    0.5
    """
    checks.one_of(data, [*MARKETS], f"{ENV}(data)")
    known = [field.name for field in fields(MARKETS[data])]
    for name, value in settings.items():
        if name not in known:
            others = [other for other, kind in MARKETS.items() if name in (field.name for field in fields(kind))]
            remedy = f"it belongs to `data={others[0]!r}`" if others else None
            expected = f"with `data={data!r}` an argument out of " + ", ".join(f"`{option}`" for option in known)
            raise ArgumentError(message(expected, f"`{name}={value!r}`", f"{ENV}({name})", remedy))
    return MARKETS[data](**settings)


def make_spaces() -> tuple[gymnasium.spaces.Box[np.float32], gymnasium.spaces.Box[np.float32]]:
    """Return the observation space, float32 `[6]`, and the action space, float32 `[1]`, of one environment."""
    box = gymnasium.spaces.Box
    return box(-OBSERVATION_BOUND, OBSERVATION_BOUND, dtype=np.float32), box(-1.0, 1.0, (1,), dtype=np.float32)


class PairsTradingEnv(gymnasium.Env[npt.NDArray[np.float32], npt.NDArray[np.float32]]):
    """Trade the spread of two stocks: choose the position, pay for changing it, earn what the spread moves.

    The action `a` in [-1, 1], float32 `[1]`, is the position held over the next bar. The reward of a step is

        reward_scale * (a * move - cost * |a - q| - holding_penalty * a^2)

    with `q` the position before and `move` what one unit of the spread earned. An episode starts flat and is truncated
    (never terminated) after `horizon` bars: prices go on, so bootstrap through the end. Doing nothing earns exactly 0.
    Prices do not react: one seed gives the same prices whatever the actions.

    The observation, float32 `[6]`, is the same for both sources of prices:

    | | name | value | bound |
    |---|---|---|---|
    | 0 | z | z-score of the spread over `z_window` bars, clipped at 5, over 2 | 2.5 |
    | 1 | spread | distance from the mean, over 5, clipped | 6 |
    | 2 | log_volatility | log of the RMS move of `stat_window` bars | 10 |
    | 3 | correlation | of the two stocks' returns over `stat_window` bars | 1 |
    | 4 | last_move | the last bar's move, clipped at 8, over 2 | 4 |
    | 5 | position | the position held | 1 |

    `info` has `position`, `profit` (so far, in units of quiet per-bar volatility: the rewards' sum over
    `reward_scale`), `cost` (paid for trading so far), and unclipped `z`, `spread` and `regime` (True in a break or
    dislocation).

    Args:
        data: `"synthetic"` or `"real"`.
        render_mode: `None`, `"human"` or `"rgb_array"`.
        **settings: arguments of `SyntheticMarket` or `HistoricalMarket`.

    Raises:
        ArgumentError: an unknown argument, or a value outside its legal range.
        MissingExtra: `data="real"` without skfolio, or a render mode without Matplotlib.

    >>> import gymnasium, relive_lab.envs
    >>> env = gymnasium.make("relive/PairsTrading-v0", mode="break", cost=1.0)
    >>> obs, info = env.reset(seed=0)
    >>> obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
    >>> obs.shape, terminated, truncated
    ((6,), False, False)
    """

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 10}  # noqa: RUF012 (Gymnasium's API)

    def __init__(self, *, data: str = "synthetic", render_mode: str | None = None, **settings: Any) -> None:
        self.market = make_market(data, **settings)
        if render_mode is not None:
            checks.one_of(render_mode, RENDER_MODES, f"{ENV}(render_mode)")
        self.render_mode = render_mode
        self.observation_space, self.action_space = make_spaces()
        self.episode: Observed | None = None
        fps = self.metadata["render_fps"]
        self._renderer = Renderer(window=render_mode == "human", fps=fps) if render_mode else None
        # `step` refuses before the first reset as it does after an episode's end.
        self._bar = self.market.horizon

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Draw the prices of a new episode and start flat; no `options` are known."""
        super().reset(seed=seed)
        episode = self._begin()
        self._bar, self._cost = 0, 0.0
        self._positions, self._profits = [0.0], [0.0]
        if self.render_mode == "human":
            self.render()
        return episode.observations[0].copy(), self._info()

    def _begin(self) -> Observed:
        """Draw the prices of an episode."""
        self._drawn_by = copy.deepcopy(self.np_random)
        self.episode = episode = self.market.sample(self.np_random)
        # Python numbers: reading one costs a fraction of indexing an array.
        self._moves: list[float] = episode.move.tolist()
        self._facts = list(zip(*(facts.tolist() for facts in (episode.z, episode.spread, episode.regime)), strict=True))
        return episode

    def state(self) -> dict[str, Any]:
        """Return where the environment stands, for `restore`.

        It is the generator, as it was when it drew the prices and as it is now, and what was done since.

        >>> env, other = PairsTradingEnv(), PairsTradingEnv()
        >>> _ = env.reset(seed=0), env.step([0.5])
        >>> other.restore(env.state())
        >>> other.step([1.0])[1] == env.step([1.0])[1]
        True
        """
        if self.episode is None:
            return {"generator": self.np_random}
        done = {"positions": self._positions, "profits": self._profits, "cost": self._cost}
        return {"generator": self.np_random, "drawn_by": self._drawn_by, **done}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where another environment with the same arguments stood.

        Raises:
            ArgumentError: It is not a state of such an environment.
        """
        positions, profits = (state.get(name, []) for name in ("positions", "profits"))
        generators = [state.get("generator"), state.get("drawn_by", state.get("generator"))]
        numbers = [*positions, *profits, state.get("cost", 0.0)]
        fits = len(positions) == len(profits) <= self.market.horizon + 1 and {*map(type, numbers)} == {float}
        if not fits or not all(isinstance(each, np.random.Generator) for each in generators):
            raise ArgumentError(message("what `state` returned", f"`{[*state]!r}`", f"{ENV}.restore"))
        now, drawn_by = (copy.deepcopy(each) for each in generators if each is not None)
        if positions:
            self.np_random = drawn_by
            self._begin()
            self._bar, self._cost = len(positions) - 1, state["cost"]
            self._positions, self._profits = [*positions], [*profits]
        self.np_random = now

    def step(
        self, action: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Hold a position, one number in [-1, 1], over one bar."""
        try:
            (value,) = action
            position = float(value)
        except (TypeError, ValueError):
            raise _bad_action(action) from None
        # The comparison also refuses NaN, which would poison every later profit.
        if not -1.0 <= position <= 1.0:
            raise _bad_action(action)
        bar = self._bar + 1
        if self.episode is None or bar > self.market.horizon:
            expected, got = "a running episode", "a step after its end"
            raise ArgumentError(message(expected, got, f"{ENV}.step", "call `reset` first"))
        profit, paid = trading_profit(self.market, position, self._positions[-1], self._moves[bar])
        self._bar, self._cost = bar, self._cost + paid
        self._positions.append(position)
        self._profits.append(self._profits[-1] + profit)
        obs = self.episode.observations[bar].copy()
        obs[5] = position
        if self.render_mode == "human":
            self.render()
        return obs, self.market.reward_scale * profit, False, bar == self.market.horizon, self._info()

    def _info(self) -> dict[str, Any]:
        """Return the numbers of the current bar, unscaled and unclipped."""
        z, spread, regime = self._facts[self._bar]
        held = {"position": self._positions[-1], "profit": self._profits[-1], "cost": self._cost}
        return {**held, "z": z, "spread": spread, "regime": regime}

    def render(self) -> npt.NDArray[np.uint8] | None:
        """Draw the episode so far; return uint8 `[height, width, 3]` in mode `"rgb_array"`, None otherwise."""
        if self._renderer is None:
            remedy = "pass it to `gymnasium.make`"
            raise ArgumentError(message("`human` or `rgb_array`", "`None`", f"{ENV}(render_mode)", remedy))
        if self.episode is None:
            raise ArgumentError(message("an episode", "a picture before one", f"{ENV}.render", "call `reset` first"))
        self._renderer.draw(self.episode, self._positions, self._profits)
        if self.render_mode == "human":
            self._renderer.show()
            return None
        return self._renderer.pixels()

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._renderer is not None:
            self._renderer.close()


def _bad_action(action: object) -> ArgumentError:
    text = message("one finite number in [-1, 1]", f"`{action!r}`", f"{ENV}.step(action)", "clip or squash the action")
    return ArgumentError(text)
