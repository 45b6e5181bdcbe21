"""The environment keeps Gymnasium's contract and pays exactly what its formula says."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from depth import LONG
from gymnasium.utils.env_checker import check_env
from needs import needs

import relive_lab.envs  # noqa: F401  # registers them

ID = "relive/PairsTrading-v0"
SETTINGS: list[dict[str, Any]] = [
    {"mode": "break"},
    {"mode": "dislocation", "sigma": 0.3},
    {"data": "real", "split": "train"},
    {"data": "real", "split": "test", "pairs": "KO/PEP"},
]
INFO = {"position", "profit", "cost", "z", "spread", "regime"}


def act(value: float) -> np.ndarray:
    return np.array([value], dtype=np.float32)


@pytest.mark.parametrize("settings", SETTINGS)
def test_env_checker(settings: dict[str, Any]) -> None:
    if settings.get("data") == "real":
        needs("skfolio")
    check_env(gymnasium.make(ID, **settings).unwrapped, skip_render_check=not LONG)  # pictures have tests of their own


@pytest.mark.parametrize(
    "settings", [{}, {"mode": "dislocation", "cost": 1.5, "holding_penalty": 0.3, "reward_scale": 2}]
)
def test_reward_and_info_from_the_formula(settings: dict[str, Any]) -> None:
    c = settings.get("cost", 0.5)
    penalty = settings.get("holding_penalty", 0.02)
    scale = settings.get("reward_scale", 0.2)
    env = gymnasium.make(ID, **settings)
    rng = np.random.default_rng(0)
    for seed in range(10):
        _, info = env.reset(seed=seed)
        assert set(info) == INFO
        assert info["position"] == info["profit"] == info["cost"] == 0.0
        x, q, profit, cost, bars = info["spread"], 0.0, 0.0, 0.0, 0
        truncated = False
        while not truncated:
            action = act(0.0) if seed == 0 else rng.uniform(-1, 1, 1).astype(np.float32)
            a = float(action[0])
            obs, reward, terminated, truncated, info = env.step(action)
            gain = a * (info["spread"] - x) - c * abs(a - q) - penalty * a**2
            profit, cost = profit + gain, cost + c * abs(a - q)
            bars += 1
            assert truncated == (bars == 100)
            assert reward == (0.0 if seed == 0 else pytest.approx(scale * gain, abs=1e-12))
            assert info["regime"] == env.unwrapped.episode.regime[bars]
            assert info["profit"] == pytest.approx(profit, abs=1e-9)
            assert info["cost"] == pytest.approx(cost, abs=1e-9)
            x, q = info["spread"], a
            assert info["position"] == a == obs[5]
            assert obs[0] == pytest.approx(np.clip(info["z"], -5, 5) / 2, rel=1e-6)
            assert obs[1] == pytest.approx(np.clip(info["spread"] / 5, -6, 6), rel=1e-6)
            assert set(info) == INFO
            assert not terminated
            assert type(reward) is float


def test_z_score_covers_the_sixty_bars_up_to_now() -> None:
    env = gymnasium.make(ID)
    _, info = env.reset(seed=7)
    spreads, zs = [info["spread"]], [info["z"]]
    for _ in range(100):
        *_, info = env.step(act(0.3))
        spreads.append(info["spread"])
        zs.append(info["z"])
    for bar in range(59, 101):
        last = np.array(spreads[bar - 59 : bar + 1])
        assert zs[bar] == pytest.approx((last[-1] - last.mean()) / last.std(), rel=1e-9)


@pytest.mark.parametrize("settings", SETTINGS)
def test_one_seed_gives_the_same_prices_whatever_the_actions(settings: dict[str, Any]) -> None:
    if settings.get("data") == "real":
        needs("skfolio")
    env, other = gymnasium.make(ID, **settings), gymnasium.make(ID, **settings)
    a, _ = env.reset(seed=3)
    b, _ = other.reset(seed=3)
    for episode in range(3):
        np.testing.assert_array_equal(a, b)
        for _ in range(100):
            a, *_, info = env.step(env.action_space.sample())
            b, *_, twin = other.step(act(-1.0))
            np.testing.assert_array_equal(a[:5], b[:5])
            assert all(info[key] == twin[key] for key in ("z", "spread", "regime"))
        a, b = (e.reset()[0] for e in (env, other))
        assert episode < 3
    assert not np.array_equal(env.reset(seed=3)[0], env.reset(seed=4)[0])
    assert not np.array_equal(env.reset(seed=3)[0], env.reset()[0])


def test_a_reset_in_mid_episode_starts_flat() -> None:
    env = gymnasium.make(ID)
    env.reset(seed=0)
    for _ in range(5):
        env.step(act(1.0))
    obs, info = env.reset()
    assert obs[5] == info["position"] == info["profit"] == info["cost"] == 0.0
