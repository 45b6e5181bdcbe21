"""TD3 on a device buffer: the same seed gives the same run, and what its targets bootstrap from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import relive
from relive.errors import ArgumentError
from relive_lab.td3 import TD3, TD3Config, train

SHORT: dict[str, Any] = {
    "num_envs": 16,
    "total_steps": 960,
    "start_steps": 480,
    "eval_every": 480,
    "eval_envs": 4,
    "eval_length": 20,
    "buffer_capacity": 960,
    "hidden_sizes": (8,),
    "batch_size": 32,
}


@pytest.mark.parametrize("options", [{}, {"n_step": 3, "use_per": True, "env": "pendulum", "ends": "none"}])
def test_the_same_seed_gives_the_same_run(options: dict[str, Any]) -> None:
    one, again, other = (train(TD3Config(**SHORT, **options, seed=seed)) for seed in (1, 1, 2))
    assert np.array_equal(one.eval_returns, again.eval_returns)
    assert (one.eval_steps.tolist(), one.steps, one.updates) == ([480, 960], 960, 120)
    assert np.isfinite(one.eval_returns).all()
    assert not np.array_equal(one.eval_returns, other.eval_returns)


def test_ends_decide_what_the_last_item_of_an_episode_bootstraps_from(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[relive.DeviceBuffer] = []

    class Kept(relive.DeviceBuffer):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self)

    monkeypatch.setattr(relive, "DeviceBuffer", Kept)
    for ends in ("final", "reset", "none"):
        train(TD3Config(**SHORT, limit=10, ends=ends))
    final, reset, none = (buffer.sample(1_000) for buffer in made)
    # A point moves at most 0.1 in a step; the next episode's start is further away, or elsewhere.
    far = {
        name: (b.next_obs - b.obs)[:, :2].abs().amax(1) > 0.11 for name, b in {"final": final, "reset": reset}.items()
    }
    assert not far["final"].any()
    assert 0.05 < far["reset"].float().mean() < 0.15
    assert (final.discount > 0).all()
    assert (reset.discount > 0).all()
    assert 0.05 < (none.discount == 0).float().mean() < 0.15
    assert [buffer.stats().unbootstrapped > 0 for buffer in made] == [False, False, True]


def test_targets_are_the_lower_value_of_a_smoothed_action() -> None:
    config = TD3Config(hidden_sizes=(8,), smooth=0.0)
    agent = TD3(config, 4, 2)
    source = torch.Generator().manual_seed(0)
    obs, next_obs = (torch.randn(5, 4, generator=source) for _ in range(2))
    action, reward, discount = obs[:, :2].clamp(-1, 1), torch.arange(5.0), torch.tensor([0.0, 0.5, 0.9, 0.9, 0.9])
    batch = relive.Batch(
        {"obs": obs, "action": action, "reward": reward, "next_obs": next_obs, "discount": discount}
        | {"weights": torch.ones(5)}
    )
    following = torch.tanh(agent.actor_target(next_obs))
    low = agent.values(agent.critic_target, next_obs, following).amin(0)
    target = config.reward_scale * reward + discount * low
    wanted = (agent.values(agent.critic, obs, action) - target).abs().mean(0)
    before = agent.actor_target(obs).detach().clone()
    torch.testing.assert_close(agent.learn(batch, False), wanted.detach())
    assert torch.equal(agent.actor_target(obs), before)
    agent.learn(batch, True)
    assert not torch.equal(agent.actor_target(obs), before)


@pytest.mark.parametrize(("field", "value"), [("env", "ant"), ("ends", "start"), ("updates_per_step", 3), ("limit", 0)])
def test_a_setting_outside_its_range_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=field):
        TD3Config(**{field: value})
