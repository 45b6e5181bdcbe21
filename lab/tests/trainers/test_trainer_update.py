"""One update of SAC, against formulas written down again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from trainer_toys import Toy, small

from relive_lab import SACTrainer
from relive_lab.sac import Actor


def trainer_with_data(**changes: Any) -> SACTrainer:
    """Make a trainer whose buffer holds 40 random steps."""
    trainer = SACTrainer(small(**{"total_steps": 40, "eval_every": 0, **changes}), make_env=Toy)
    trainer.train()
    return trainer


def tensors(rows: int, seed: int = 0) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(shape, generator=g)  # noqa: E731
    return {
        "obs": draw(rows, 3),
        "action": torch.tanh(draw(rows, 2)),
        "reward": draw(rows),
        "next_obs": draw(rows, 3),
        "discount": torch.full((rows,), 0.9),
        "weights": torch.ones(rows),
    }


def test_the_critic_loss_is_the_mean_of_both_squared_errors() -> None:
    trainer, data = trainer_with_data(), tensors(16)
    noise = torch.Generator().set_state(trainer.agent.random.generator.get_state())
    with torch.no_grad():
        next_action, log_prob = trainer.agent.actor(data["next_obs"], torch.randn((16, 2), generator=noise))
        value = trainer.agent.target(data["next_obs"], next_action)
        target = data["reward"] + 0.9 * (torch.minimum(value[0], value[1]) - trainer.agent.log_alpha.exp() * log_prob)
        error = trainer.agent.critic(data["obs"], data["action"]) - target
    loss, found = trainer.agent.update_critics(**data)
    assert loss.item() == pytest.approx((error[0] ** 2 + error[1] ** 2).mean().item(), rel=1e-5)
    torch.testing.assert_close(found, error)


def test_a_weight_scales_its_own_transition() -> None:
    data, one = tensors(4), tensors(4)
    one["weights"] = torch.tensor([1.0, 0.5, 0.0, 1.0])
    plain, weighted = (trainer_with_data().agent.update_critics(**batch) for batch in (data, one))
    # The same generator gives both the same next actions, hence the same errors.
    torch.testing.assert_close(plain[1], weighted[1])
    squares = (plain[0] * 4).item(), (weighted[0] * 4).item()
    assert 0 < squares[1] < squares[0]


def test_log_probabilities_are_those_of_a_squashed_gaussian() -> None:
    actor = Actor(3, 2, (8,), torch.Generator().manual_seed(0)).double()
    source = torch.Generator().manual_seed(0)
    obs, noise = (torch.randn(64, n, generator=source).double() for n in (3, 2))
    obs = 3 * obs
    action, log_prob = actor(obs, noise)
    mean, log_std = actor.net(obs).chunk(2, dim=-1)
    normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
    pre = mean + normal.scale * noise
    expected = (normal.log_prob(pre) - torch.log1p(-(torch.tanh(pre) ** 2))).sum(-1)
    torch.testing.assert_close(action, torch.tanh(pre))
    torch.testing.assert_close(log_prob, expected)


def test_log_probabilities_stay_finite_far_out() -> None:
    actor = Actor(1, 1, (8,), torch.Generator().manual_seed(0))
    noise = torch.full((1, 1), 60.0)
    log_prob = actor(torch.full((1, 1), 1e3), noise)[1]
    assert torch.isfinite(log_prob).all()


def test_acting_in_numpy_is_acting_in_torch() -> None:
    actor = Actor(3, 2, (16, 16), torch.Generator().manual_seed(1))
    obs, noise = (np.random.default_rng(0).normal(size=(5, n)).astype(np.float32) for n in (3, 2))
    expected = actor(torch.from_numpy(obs), torch.from_numpy(noise))[0].detach().numpy()
    np.testing.assert_allclose(actor.act(obs, noise), expected, atol=1e-6)
    with torch.no_grad():
        for weight in actor.parameters():
            weight.mul_(1.5)
    changed = actor(torch.from_numpy(obs), torch.zeros(5, 2))[0].detach().numpy()
    np.testing.assert_allclose(actor.act(obs, None), changed, atol=1e-6)


def test_the_temperature_moves_towards_its_target() -> None:
    rising = SACTrainer(small(target_entropy=50.0, init_alpha=0.5), make_env=Toy)
    falling = SACTrainer(small(target_entropy=-50.0, init_alpha=0.5), make_env=Toy)
    fixed = SACTrainer(small(target_entropy=50.0, init_alpha=0.5, autotune=False), make_env=Toy)
    for trainer in (rising, falling, fixed):
        trainer.agent.update_actor(tensors(16)["obs"])
    alphas = [trainer.agent.log_alpha.exp().item() for trainer in (rising, falling, fixed)]
    assert alphas[0] > 0.5 > alphas[1]
    assert alphas[2] == pytest.approx(0.5)


def test_the_gradient_of_the_temperature_is_that_of_its_loss() -> None:
    trainer = SACTrainer(small(target_entropy=-3.0), make_env=Toy)
    obs = tensors(16)["obs"]
    noise = torch.Generator().set_state(trainer.agent.random.generator.get_state())
    log_prob = trainer.agent.actor(obs, torch.randn((16, 2), generator=noise))[1].detach()
    log_alpha = torch.zeros(1, requires_grad=True)
    (-(log_alpha * (log_prob - 3.0)).mean()).backward()
    trainer.agent.update_actor(obs)
    torch.testing.assert_close(trainer.agent.log_alpha.grad, log_alpha.grad)


def test_the_actor_update_leaves_the_critics_alone() -> None:
    trainer = trainer_with_data()
    before = [w.clone() for w in trainer.agent._critic_weights]
    trainer.agent.update_actor(tensors(16)["obs"])
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.agent._critic_weights, strict=True))
    assert all(w.grad is None for w in trainer.agent._critic_weights)


def test_targets_follow_by_tau() -> None:
    trainer = trainer_with_data(tau=0.25)
    old = [w.clone() for w in trainer.agent._target_weights]
    trainer.learn()
    for before, after, critic in zip(old, trainer.agent._target_weights, trainer.agent._critic_weights, strict=True):
        torch.testing.assert_close(after, 0.75 * before + 0.25 * critic)


def test_rewards_are_scaled_in_targets_only() -> None:
    plain, scaled = trainer_with_data(), trainer_with_data(reward_scale=0.5)
    assert np.array_equal(plain.result.episode_returns, scaled.result.episode_returns)
    plain.learn()
    scaled.learn()
    assert not torch.equal(plain.agent._critic_weights[0], scaled.agent._critic_weights[0])


def test_priorities_are_the_mean_of_both_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_with_data(use_per=True)
    seen: list[Any] = []
    monkeypatch.setattr(
        trainer.agent, "update_critics", lambda *a, f=trainer.agent.update_critics: seen.append(f(*a)) or seen[-1]
    )
    batch = trainer.buffer.sample(16)
    monkeypatch.setattr(trainer.buffer, "sample", lambda n: batch)
    trainer.learn()
    sizes = (seen[0][1][0].abs() + seen[0][1][1].abs()) / 2
    last = {int(id_): float(size) for id_, size in zip(batch.ids, sizes, strict=True)}
    stored = trainer.buffer.priorities(np.array(list(last)))
    np.testing.assert_allclose(stored, np.array(list(last.values())) + 1e-6, rtol=1e-6)


def test_beta_moves_over_the_updates() -> None:
    trainer = trainer_with_data(use_per=True, per_beta_start=0.4, per_beta_end=1.0, per_beta_anneal_steps=10)
    betas = []
    for _ in range(12):
        trainer.learn()
        betas.append(trainer.buffer.stats().beta)
    assert betas[0] == pytest.approx(0.4)
    assert betas[5] == pytest.approx(0.7)
    assert betas[10:] == [1.0, 1.0]


def test_initial_weights_are_uniform_in_the_fan_in() -> None:
    actor = Actor(400, 2, (64,), torch.Generator().manual_seed(0))
    bound = 1 / math.sqrt(400)
    largest = actor.net.weights[0].abs().max().item()
    assert 0.99 * bound < largest <= bound
