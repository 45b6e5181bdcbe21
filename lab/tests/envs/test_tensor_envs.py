"""Environments of tensors: Gymnasium's pendulum number for number, and what they hand out at a time limit."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch

from relive_lab.envs.tensors import Pendulum, Reach, TensorEnvs


def test_the_pendulum_is_gymnasiums() -> None:
    theirs = gymnasium.make("Pendulum-v1").unwrapped
    ours = Pendulum(1, limit=None)
    rng = np.random.default_rng(0)
    for episode in range(3):
        theirs.reset(seed=episode)
        for _ in range(200):
            ours.state = torch.tensor(theirs.state, dtype=torch.float32)[None]  # type: ignore[attr-defined]
            action = rng.uniform(-1.2, 1.2, 1).astype(np.float32)  # beyond the limits, too
            obs, reward, *_ = theirs.step(2.0 * action)
            step = ours.step(torch.from_numpy(action)[None])
            np.testing.assert_allclose(step.final_obs[0], obs, atol=2e-5)
            np.testing.assert_allclose(step.reward[0], reward, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", [Pendulum, Reach])
def test_a_lane_begins_anew_in_the_step_that_reaches_the_limit(kind: type[TensorEnvs]) -> None:
    lanes, limit = 64, 8
    envs = kind(lanes, limit=limit, seed=3)
    endless = kind(lanes, limit=None, seed=3)
    ends = torch.zeros(lanes, dtype=torch.int64)
    for t in range(3 * limit):
        action = envs.uniform(*[1.0] * kind.action_size)
        endless.state = envs.state
        step, unended = envs.step(action), endless.step(action)
        assert torch.equal(step.final_obs, unended.next_obs)
        assert torch.equal(step.reward, unended.reward)
        same = (step.next_obs == step.final_obs).all(1)
        assert torch.equal(same, ~step.truncated)
        assert not step.terminated.any()
        assert step.next_obs is envs.obs
        ends += step.truncated
        if t == limit - 1:
            assert ends.eq(1).all()  # in the first `limit` steps every lane ends once ...
    assert ends.eq(3).all()
    assert not step.truncated.all()  # ... not all at the same time


def test_the_same_seed_gives_the_same_episodes() -> None:
    one, other, third = (Reach(5, limit=4, seed=seed) for seed in (1, 1, 2))
    for _ in range(9):
        action = torch.ones(5, 2)
        assert torch.equal(one.step(action).next_obs, other.step(action).next_obs)
    assert not torch.equal(one.obs, third.obs)


def test_a_point_that_is_pushed_home_costs_less_and_stays_in_its_square() -> None:
    home, away = Reach(16, limit=None), Reach(16, limit=None)
    for _ in range(60):
        toward = home.step(-5.0 * home.state[:, :2] - 20.0 * home.state[:, 2:])
        outward = away.step(10.0 * away.state[:, :2])
    assert toward.reward.min() > -0.01
    assert away.state[:, :2].abs().max() <= 2.0
    assert outward.reward.max() < -1.9
