"""TD3 on a device buffer: the same seed gives the same run, and what its targets bootstrap from."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch
from no_wait import NoWait

import relive
from relive_lab.td3 import TD3, TD3Config, Training, train

ENDS: tuple[Literal["final", "reset", "none"], ...] = ("final", "reset", "none")
SHORT: dict[str, Any] = {
    "num_envs": 16,
    "total_steps": 480,
    "start_steps": 240,
    "eval_every": 240,
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
    assert (one.eval_steps.tolist(), one.steps, one.updates) == ([240, 480], 480, 60)
    assert np.isfinite(one.eval_returns).all()
    assert not np.array_equal(one.eval_returns, other.eval_returns)


def test_ends_decide_what_the_last_item_of_an_episode_bootstraps_from() -> None:
    runs = {ends: Training(TD3Config(**SHORT, limit=10, ends=ends)) for ends in ENDS}
    for run in runs.values():
        for _ in range(40):
            run.step(random=True)
    final, reset, none = (run.buffer.sample(1_000) for run in runs.values())
    # A point moves at most 0.1 in a step; hardly any episode begins that near to where one ends.
    jumps = [((batch.next_obs - batch.obs)[:, :2].abs().amax(1) > 0.11).float().mean() for batch in (final, reset)]
    assert jumps[0] == 0
    assert 0.05 < jumps[1] < 0.15
    assert [bool((batch.discount > 0).all()) for batch in (final, reset, none)] == [True, True, False]
    assert 0.05 < (none.discount == 0).float().mean() < 0.15
    assert [run.buffer.stats().unbootstrapped > 0 for run in runs.values()] == [False, False, True]


@pytest.mark.parametrize("options", [{}, {"n_step": 3, "use_per": True, "env": "pendulum"}])
def test_the_loop_waits_for_nothing(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    # On a CPU, PyTorch's Adam reads how many steps it did; on a GPU it has that on the device.
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self: None)
    training = Training(TD3Config(**SHORT, **options))
    with NoWait() as seen:
        for _ in range(4):
            training.step(random=True)
        training.step(random=False)
        training.learn()
    assert seen.ops["addmm"] > 0
    training.buffer.check()


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
