"""Real prices: hedged and scaled with the past only, split in time."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest
from needs import needs

needs("skfolio")

from relive.errors import ArgumentError, MissingExtra
from relive_lab.envs import HistoricalMarket, PairsTradingEnv, prices
from relive_lab.envs.features import observe

DAYS, TABLE = prices.load_prices()
RANGE = (0.2, 2.0)


def test_bundled_table() -> None:
    assert len(TABLE) == 20
    assert (str(DAYS[0]), str(DAYS[-1]), len(DAYS)) == ("1990-01-02", "2022-12-28", 8313)
    assert all(len(price) == 8313 and (price > 0).all() for price in TABLE.values())


@pytest.mark.parametrize("day", [253, 254, 1000, 8312])
def test_a_days_move_from_raw_prices(day: int) -> None:
    a, b = TABLE["HD"], TABLE["WMT"]
    path = prices.spread_path(a, b, 252, RANGE, 60)
    returns = [(float(np.log(a[k] / a[k - 1])), float(np.log(b[k] / b[k - 1]))) for k in range(day - 252, day)]
    beta = sum(p * q for p, q in returns) / sum(q * q for _, q in returns)
    beta = min(max(beta, 0.2), 2.0)
    volatility = (sum((p - beta * q) ** 2 for p, q in returns) / 252) ** 0.5
    move = (np.log(a[day] / a[day - 1]) - beta * np.log(b[day] / b[day - 1])) / volatility
    assert path.move[day] == pytest.approx(move, rel=1e-8)


def test_spread_is_the_distance_from_the_mean_of_sixty_days() -> None:
    path = prices.spread_path(TABLE["KO"], TABLE["PEP"], 252, RANGE, 60)
    for day in (312, 500, 8312):
        level = path.move[: day + 1].cumsum()
        assert path.spread[day] == pytest.approx(level[-1] - level[-60:].mean(), abs=1e-8)
    assert np.isnan(path.spread[:312]).sum() == 312
    assert path.move[253:].std() == pytest.approx(1.0, abs=0.1)


def test_beta_is_clipped() -> None:
    beta, _ = prices.hedge(TABLE["KO"], TABLE["PEP"], 252, (0.5, 0.7))
    assert (beta.min(), beta.max()) == (0.5, 0.7)


@pytest.mark.parametrize("day", [312, 1000, 6300, 8000])
def test_future_prices_change_no_past_observation_or_move(day: int) -> None:
    rng = np.random.default_rng(day)
    other = []
    for name in ("XOM", "CVX"):
        price = TABLE[name].copy()
        price[day + 1 :] *= np.exp(rng.normal(0, 0.05, len(price) - day - 1).cumsum())
        other.append(price)
    seen = observe(prices.spread_path(TABLE["XOM"], TABLE["CVX"], 252, RANGE, 60), 60, 20)
    twin = observe(prices.spread_path(other[0], other[1], 252, RANGE, 60), 60, 20)
    np.testing.assert_array_equal(seen.observations[: day + 1], twin.observations[: day + 1])
    np.testing.assert_array_equal(seen.move[: day + 1], twin.move[: day + 1])
    assert (seen.observations[day + 1, :5] != twin.observations[day + 1, :5]).all()


def test_split_in_time() -> None:
    train, test = HistoricalMarket(split="train"), HistoricalMarket(split="test")
    assert train.starts[0] == 312
    assert str(DAYS[train.starts[-1] + 100]) == "2014-12-31"
    assert str(DAYS[test.starts[0]]) == "2015-01-02"
    assert test.starts[-1] + 100 == len(DAYS) - 1
    assert HistoricalMarket(split="test", split_date="2020-01-01").starts[0] > test.starts[0]


def test_episodes_stay_in_their_part_and_visit_every_pair() -> None:
    border = np.datetime64("2015-01-01")
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        market = HistoricalMarket(split=split)
        found = set()
        for _ in range(200):
            episode = market.sample(rng)
            pair, first, last = re.fullmatch(r"(\S+), (\S+) to (\S+)", episode.label).groups()
            found.add(pair)
            inside = np.datetime64(last) < border if split == "train" else np.datetime64(first) >= border
            assert inside
            assert not np.isnan(episode.observations).any()
            assert not episode.regime.any()
        assert found == set(prices.PAIRS)


def test_the_env_pays_the_moves_of_the_chosen_days() -> None:
    env = PairsTradingEnv(data="real", split="test", pairs="KO/PEP")
    env.reset(seed=1)
    pair, first, _ = re.fullmatch(r"(\S+), (\S+) to (\S+)", env.episode.label).groups()
    assert pair == "KO/PEP"
    start = int(np.searchsorted(DAYS, np.datetime64(first)))
    path = prices.spread_path(TABLE["KO"], TABLE["PEP"], 252, RANGE, 60)
    q = 0.0
    for bar in range(1, 101):
        a = float(np.float32(np.sin(bar)))
        _, reward, _, _, info = env.step(np.array([a], dtype=np.float32))
        move = path.move[start + bar]
        assert reward == pytest.approx(0.2 * (a * move - 0.1 * abs(a - q) - 0.02 * a * a), abs=1e-12)
        assert info["spread"] == path.spread[start + bar]
        assert info["regime"] is False
        q = a


def test_shared_tables_cannot_be_written() -> None:
    episode = HistoricalMarket().sample(np.random.default_rng(0))
    for array in (TABLE["KO"], episode.observations, episode.move):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"split": "all"}, "one of `'train'`, `'test'`, got `'all'` - at `PairsTrading-v0(split)`"),
        (
            {"pairs": "KO-PEP"},
            "two tickers as in `KO/PEP`, got `'KO-PEP'` - at `PairsTrading-v0(pairs)`: choose from",
        ),
        ({"pairs": ("KO/PEP", "KO/XYZ")}, "two tickers as in `KO/PEP`, got `'KO/XYZ'` - at `PairsTrading-v0(pairs)`"),
        ({"pairs": "KO/KO"}, "two tickers as in `KO/PEP`, got `'KO/KO'`"),
        ({"pairs": ()}, "at least one pair, got `()` - at `PairsTrading-v0(pairs)`"),
        ({"pairs": 3}, "at least one pair, got `3` - at `PairsTrading-v0(pairs)`"),
        ({"split_date": "soon"}, "a date as in `2015-01-01`, got `'soon'` - at `PairsTrading-v0(split_date)`"),
        ({"split_date": "1990-06-01"}, "a `train` part of at least one whole episode, got `'1990-06-01'`"),
        ({"horizon": 9000}, "a `train` part of at least one whole episode"),
        ({"hedge_window": 20_000}, "a `train` part of at least one whole episode"),
        ({"split": "test", "split_date": "2022-12-01"}, "a `test` part of at least one whole episode"),
        ({"beta_range": (2, 0.2)}, "two numbers, the smaller first, got `(2, 0.2)` - at `PairsTrading-v0(beta_range)`"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape("Expected " + text)):
        HistoricalMarket(**settings)


def test_missing_skfolio_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("skfolio", "skfolio.datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    prices.load_prices.cache_clear()
    text = "the package `skfolio`, got none - at `PairsTrading-v0(data)`: pip install 'relive-lab[data]'"
    with pytest.raises(MissingExtra, match=re.escape(text)):
        PairsTradingEnv(data="real")
