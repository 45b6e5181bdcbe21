"""The synthetic pair follows the law it states."""

from __future__ import annotations

import numpy as np
import pytest

from relive_lab.envs import SyntheticMarket

BARS = 600_000


def runs(flags: np.ndarray) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(int), [0])))).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def test_breaks() -> None:
    path = SyntheticMarket().simulate(np.random.default_rng(0), BARS)
    regime, x = path.regime, path.spread
    # A break of 6 bars on average starts at 1 quiet bar in 500: 0.012 / 1.012 of all bars.
    assert regime.mean() == pytest.approx(0.01186, rel=0.12)
    lengths = np.array([end - first for first, end in runs(regime)])
    assert lengths.min() >= 2
    assert lengths.mean() == pytest.approx(6.0, rel=0.08)
    inside, before = regime[1:], x[:-1]
    assert np.diff(x)[inside].std() == pytest.approx(6.0, rel=0.04)
    residual = (x[1:] - 0.92 * before)[~inside]
    assert residual.std() == pytest.approx(1.0, rel=0.01)
    assert np.corrcoef(residual, before[~inside])[0, 1] == pytest.approx(0.0, abs=0.005)
    # Within a break nothing reverts: the move does not depend on where the spread was.
    assert np.polyfit(before[inside], np.diff(x)[inside], 1)[0] == pytest.approx(0.0, abs=0.03)


def test_legs_share_a_factor_that_doubles_in_a_break() -> None:
    path = SyntheticMarket().simulate(np.random.default_rng(1), BARS)
    np.testing.assert_allclose((path.leg_a - path.leg_b)[1:], np.diff(path.spread), atol=1e-9)
    factor = (path.leg_a + path.leg_b)[1:] / 2
    assert factor[~path.regime[1:]].std() == pytest.approx(1.5, rel=0.01)
    assert factor[path.regime[1:]].std() == pytest.approx(3.0, rel=0.04)
    calm, torn = (np.corrcoef(path.leg_a[1:][m], path.leg_b[1:][m])[0, 1] for m in (~path.regime[1:], path.regime[1:]))
    assert calm > 0.75 > torn + 0.5


def test_dislocations() -> None:
    path = SyntheticMarket(mode="dislocation", sigma=0.3).simulate(np.random.default_rng(2), BARS)
    regime, x = path.regime, path.spread
    assert regime.mean() == pytest.approx(0.012, rel=0.12)
    jumps, signs, merged = [], [], 0
    for first, end in runs(regime):
        jump = x[first] - 0.92 * x[first - 1]
        jumps.append(abs(jump))
        signs.append(np.sign(jump))
        # The next bar may jump again by chance (1 in 1,000): two runs then look like one.
        if end - first > 21 or (np.abs(x[first : end - 1]) < 2).any():
            merged += 1
        else:
            assert abs(x[end - 1]) < 2 or end - first == 21
    assert merged <= 4
    assert min(jumps) > 8 - 1.5
    assert max(jumps) < 16 + 1.5
    assert np.mean(jumps) == pytest.approx(12.0, abs=0.4)
    assert abs(np.mean(signs)) < 0.15
    reverting = regime[1:] & regime[:-1]
    assert np.polyfit(x[:-1][reverting], x[1:][reverting], 1)[0] == pytest.approx(0.85, abs=0.01)


def test_a_break_starts_only_at_a_quiet_bar() -> None:
    """Check with common breaks: 9 quiet bars on average before each break of 6."""
    path = SyntheticMarket(break_probability=0.1).simulate(np.random.default_rng(3), 200_000)
    assert path.regime.mean() == pytest.approx(0.4, rel=0.02)


def test_a_slow_dislocation_ends_after_its_last_bar() -> None:
    market = SyntheticMarket(mode="dislocation", sigma=0.01, dislocation_kappa=0.01, dislocation_bars=7)
    path = market.simulate(np.random.default_rng(4), 100_000)
    lengths = [end - first for first, end in runs(path.regime)]
    # The jump and 7 bars of reversion, but for the few that another jump follows at once.
    assert np.mean(np.array(lengths) == 8) > 0.95
    assert set(lengths) <= {8, 16}


@pytest.mark.parametrize("kappa", [0.08, 0.8])
def test_starts_from_the_stationary_law(kappa: float) -> None:
    market = SyntheticMarket(break_probability=0.0, kappa=kappa)
    starts = [market.simulate(np.random.default_rng(seed), 1).spread[0] for seed in range(1000)]
    assert np.std(starts) == pytest.approx((2 * kappa - kappa**2) ** -0.5, rel=0.08)


def test_episode_is_the_end_of_the_path() -> None:
    assert (SyntheticMarket().stat_window, SyntheticMarket().warm_up) == (20, 61)
    market = SyntheticMarket(horizon=40, warm_up=75)
    path = market.simulate(np.random.default_rng(5), 115)
    episode = market.sample(np.random.default_rng(5))
    assert len(episode.observations) == 41
    np.testing.assert_array_equal(episode.spread, path.spread[75:])
    np.testing.assert_array_equal(episode.move[1:], np.diff(path.spread[75:]))
    assert not np.isnan(episode.observations).any()
