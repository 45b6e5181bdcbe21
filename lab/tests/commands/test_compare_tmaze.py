"""`relive-lab compare tmaze`, end to end and small; its figures from hand-made runs."""

from __future__ import annotations

import dataclasses

import numpy as np

from relive_lab import DQNConfig, R2D2Config, TrainResult
from relive_lab.envs import TMazeEnv
from relive_lab.studies.runner import Outcome
from relive_lab.studies.study import Job
from relive_lab.studies.tmaze import ARMS, BASE, BEST, success, tmaze_config, tmaze_study


def result_of(returns: list[float], steps: int = 2_000) -> TrainResult:
    """Make a run whose episodes ended at equal distances."""
    at = np.linspace(steps / max(len(returns), 1), steps, len(returns)).astype(np.int64)
    none = np.zeros(0, np.int64)
    return TrainResult(
        eval_steps=none, eval_episodes=none, eval_returns=np.zeros((0, 0)), episode_steps=at,
        episode_returns=np.array(returns, np.float64), steps=steps, updates=0, seconds=1.0,
    )  # fmt: skip


def outcomes(shares: dict[str, float], seeds: range) -> list[Outcome]:
    found = []
    for seed in seeds:
        for arm, share in shares.items():
            wins = round(100 * share)
            job = Job(arm, seed, tmaze_config(arm, seed, 2_000))
            found.append(Outcome(job, result_of([-1.5] * 50 + [0.05] * wins + [-0.1] * (100 - wins)), True))
    return found


SHARES = {"no memory": 0.5, BASE: 0.4, "stored": 0.7, BEST: 0.9}


def test_success_is_the_share_among_the_last_hundred_episodes() -> None:
    found = tmaze_study({}).curves(outcomes(SHARES, range(3)))
    assert found is not None
    assert {arm: set(final.tolist()) for arm, final in found.finals.items()} == {a: {s} for a, s in SHARES.items()}
    assert found.times[-1] == 2_000
    assert found.values[BEST][0, -1] == 0.9
    assert success(result_of([1.0, -0.1, -0.1, 0.5]), at=1_000) == 0.5
    assert success(result_of([1.0] * 4), at=10) == 0.0


def test_the_least_return_of_a_success_is_above_zero() -> None:
    env = TMazeEnv(length=10)
    up = env.reset(seed=0)[0][0] > 0
    actions = [1] * 19 + [0] * 10 + [2 if up else 3]
    steps = [env.step(action) for action in actions]
    assert steps[-1][4] == {"is_success": True}
    assert sum(step[1] for step in steps) > 0.0


def test_bars_hold_or_not() -> None:
    found = tmaze_study({}).curves(outcomes(SHARES, range(5)))
    assert found is not None
    assert [(bar.reached, bar.holds) for bar in found.bars] == [("0.90", True), ("0.40", True), ("1.00", True)]
    turned = tmaze_study({}).curves(outcomes({**SHARES, BASE: 0.9, BEST: 0.4}, range(5)))
    assert turned is not None
    assert [(bar.reached, bar.holds) for bar in turned.bars] == [("0.40", False), ("0.90", False), ("0.00", False)]


def test_the_settings_are_those_of_the_published_comparison() -> None:
    best = tmaze_config(BEST, seed=3, steps=20_000)
    assert isinstance(best, R2D2Config)
    assert (best.length, best.burn_in, best.starts, best.batch_size, best.n_step) == (6, 3, 3, 32, 1)
    assert (best.gamma, best.learning_rate, best.target_every, best.start_steps) == (0.98, 2e-3, 100, 1_000)
    assert (best.num_envs, best.update_every, best.buffer_capacity, best.epsilon_steps) == (10, 10, 6_000, 5_000)
    assert (best.env_kwargs, best.use_per, best.lstm_size) == ({"length": 10}, False, 32)
    assert dataclasses.replace(best, burn_in=0) == tmaze_config("stored", 3, 20_000)
    assert dataclasses.replace(best, burn_in=0, state="zero") == tmaze_config(BASE, 3, 20_000)
    blind = tmaze_config("no memory", 3, 20_000)
    assert isinstance(blind, DQNConfig)
    assert blind.frame_stack == 1
    assert list(ARMS) == ["no memory", BASE, "stored", BEST]
