"""Real daily prices: pairs of S&P 500 stocks, hedged and scaled with the past only."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from relive.errors import ArgumentError, message
from relive_lab.checks import Fields, needs
from relive_lab.envs.features import Floats, Observed, Path, observe, rolling_mean
from relive_lab.envs.market import ENV, Market

Dates = npt.NDArray[np.datetime64]

#: Pairs of one industry each, drawn at random unless the caller names others.
PAIRS = ("KO/PEP", "JNJ/PFE", "XOM/CVX", "HD/WMT")


@functools.cache
def load_prices() -> tuple[Dates, dict[str, Floats]]:
    """Read skfolio's bundled S&P 500 set: adjusted closes of 20 stocks, 1990-01-02 to 2022-12-28.

    The file is part of skfolio. Importing it takes a second or two, once per process.

    Returns:
        The days, `datetime64[D]` `[8313]`, and the price of each ticker, float64 `[8313]`, in US dollars.
    """
    with needs("data", f"{ENV}(data)"):
        from skfolio.datasets import load_sp500_dataset
    table = load_sp500_dataset()
    days = table.index.to_numpy().astype("datetime64[D]")
    prices = {str(ticker): table[ticker].to_numpy(dtype=np.float64, copy=True) for ticker in table.columns}
    for shared in (days, *prices.values()):
        shared.flags.writeable = False
    return days, prices


def hedge(prices_a: Floats, prices_b: Floats, window: int, beta_range: tuple[float, float]) -> tuple[Floats, Floats]:
    """Estimate hedge ratio and spread volatility of days `window + 1` to `N - 1` from `window` log returns before each.

    `beta` is the slope of the no-intercept regression of returns of A on returns of B, clipped to `beta_range`; the
    volatility is the root mean square of `r_A - beta * r_B` over the same days.
    """
    r_a, r_b = np.diff(np.log(prices_a)), np.diff(np.log(prices_b))
    view = np.lib.stride_tricks.sliding_window_view
    # The last window has no day after it to be used on.
    aa, ab, bb = (view(product, window)[:-1].sum(axis=-1) for product in (r_a * r_a, r_a * r_b, r_b * r_b))
    slope = np.divide(ab, bb, out=np.ones_like(ab), where=bb > 0)
    beta = np.clip(slope, *beta_range)
    variance = np.maximum(aa - 2 * beta * ab + beta * beta * bb, 0.0) / window
    return beta, np.sqrt(variance)


def spread_path(
    prices_a: Floats, prices_b: Floats, hedge_window: int, beta_range: tuple[float, float], z_window: int
) -> Path:
    """Turn two price series into the path that is traded and observed.

    One unit of position holds `1 / volatility` of stock A against `beta / volatility` of stock B over a day, so a move
    is in daily volatilities of the spread. Moves before day `hedge_window + 1` are 0, and the spread is NaN until its
    mean over `z_window` days is known.
    """
    beta, volatility = hedge(prices_a, prices_b, hedge_window, beta_range)
    r_a, r_b = (np.diff(np.log(prices), prepend=np.log(prices[0])) for prices in (prices_a, prices_b))
    first = hedge_window + 1
    raw = r_a[first:] - beta * r_b[first:]
    move = np.zeros(len(prices_a))
    move[first:] = np.divide(raw, volatility, out=np.zeros_like(raw), where=volatility > 1e-12)
    level = np.cumsum(move)
    spread = np.full(len(level), np.nan)
    spread[first:] = level[first:] - rolling_mean(level[first:], z_window)
    quiet = np.zeros(len(level), dtype=np.bool_)
    return Path(level=level, spread=spread, move=move, leg_a=r_a, leg_b=r_b, regime=quiet)


@functools.lru_cache(maxsize=64)
def _history(
    pair: str, hedge_window: int, beta_range: tuple[float, float], z_window: int, stat_window: int
) -> Observed:
    """Observe the whole series of a pair; environments in one process share it."""
    _, prices = load_prices()
    a, b = pair.split("/")
    seen = observe(spread_path(prices[a], prices[b], hedge_window, beta_range, z_window), z_window, stat_window)
    for shared in (seen.observations, seen.z, seen.spread, seen.move, seen.regime):
        shared.flags.writeable = False
    return seen


@dataclass(frozen=True, kw_only=True)
class HistoricalMarket(Market):
    """Daily prices of two stocks of one industry, split in time: fit before `split_date`, judge after it.

    An episode is `horizon` consecutive days of one pair, both drawn uniformly, with all of its moves on one side of
    the split. Hedge ratio, scale and observation of a day use earlier closes and that day's own; never a later one.
    `regime` is always False: nobody labels breaks in real prices. `cost` is a tenth of a daily volatility unless given.

    Attributes:
        split: `"train"` (days before `split_date`) or `"test"` (the others).
        pairs: `"KO/PEP"` or several of them; any two of the 20 tickers.
        split_date: first day of the test part, ISO format.
        hedge_window: days of returns behind the hedge ratio and the scale.
        beta_range: smallest and largest hedge ratio.

    Raises:
        ArgumentError: a value outside its legal range, an unknown ticker, a part that holds no whole episode.
        MissingExtra: skfolio is not installed.

    >>> market = HistoricalMarket(split="test", pairs="KO/PEP")
    >>> market.sample(np.random.default_rng(0)).observations.shape
    (101, 6)
    """

    cost: float = 0.1
    split: str = "train"
    pairs: str | tuple[str, ...] = PAIRS
    split_date: str = "2015-01-01"
    hedge_window: int = 252
    beta_range: tuple[float, float] = (0.2, 2.0)

    def __post_init__(self) -> None:
        """Check every value against the price table, which is read here for the first time."""
        super().__post_init__()
        fields = Fields(self, ENV)
        fields.choice("split", "train", "test")
        fields.integers("hedge_window", minimum=2)
        fields.pair("beta_range", low=0.0)
        object.__setattr__(self, "pairs", self._known_pairs())
        if len(self.starts) < 1:
            remedy = "move `split_date`, or shorten `horizon` or the windows"
            raise fields.refusal("split_date", f"a `{self.split}` part of at least one whole episode", remedy)

    def _known_pairs(self) -> tuple[str, ...]:
        """Return the pairs as a tuple, each checked against the table's tickers."""
        tickers = load_prices()[1]
        pairs = (self.pairs,) if isinstance(self.pairs, str) else self.pairs
        if not isinstance(pairs, Sequence) or not pairs:
            raise Fields(self, ENV).refusal("pairs", "at least one pair")
        for pair in pairs:
            a, slash, b = pair.partition("/") if isinstance(pair, str) else ("", "", "")
            if not slash or a == b or a not in tickers or b not in tickers:
                legal = "choose from " + ", ".join(tickers)
                raise ArgumentError(message("two tickers as in `KO/PEP`", f"`{pair!r}`", f"{ENV}(pairs)", legal))
        return tuple(pairs)

    @property
    def starts(self) -> range:
        """Days, as rows of the price table, on which an episode of this part may start."""
        days, _ = load_prices()
        try:
            border = int(np.searchsorted(days, np.datetime64(self.split_date, "D")))
        except (TypeError, ValueError):
            raise Fields(self, ENV).refusal("split_date", "a date as in `2015-01-01`") from None
        # The first day with a full mean, and with a full window of moves behind it.
        usable = self.hedge_window + max(self.z_window, self.stat_window)
        if self.split == "train":
            return range(usable, border - self.horizon)
        return range(max(usable, border), len(days) - self.horizon)

    def sample(self, rng: np.random.Generator) -> Observed:
        """Draw a pair and a first day, and return `horizon + 1` consecutive days."""
        pair = self.pairs[int(rng.integers(len(self.pairs)))]
        starts = self.starts
        return self.episode(pair, starts[int(rng.integers(len(starts)))])

    def episode(self, pair: str, start: int) -> Observed:
        """Return the episode of `pair` whose first decision is taken at the close of day `start`, one of `starts`."""
        history = _history(pair, self.hedge_window, self.beta_range, self.z_window, self.stat_window)
        days, _ = load_prices()
        last = start + self.horizon
        return history.cut(start, last, f"{pair}, {days[start]} to {days[last]}")
