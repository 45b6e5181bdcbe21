"""Draws by precision: the reward's noise is found, priorities follow from it, and nothing else changes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trainer_toys import Toy, small

import relive
from relive.reward_noise import LIMIT, RewardNoise, noise_gradient
from relive_lab import SACConfig, SACTrainer
from relive_lab.nets import loss_of
from relive_lab.sac import effective_share


def precise(**changes: Any) -> SACConfig:
    return small(**{"use_per": True, "priority": "precision", **changes})


def test_the_variance_of_rewards_is_found_where_it_depends_on_the_state() -> None:
    rng = np.random.default_rng(0)
    model = RewardNoise(2, (32, 32), 1e-2, torch.Generator().manual_seed(0), "cpu")
    for _ in range(400):
        x = torch.from_numpy(rng.uniform(-1, 1, (128, 2)).astype(np.float32))
        noise = torch.from_numpy(rng.normal(size=128).astype(np.float32))
        model.learn(x, 2.0 * x[:, 1] + torch.exp(x[:, 0]) * noise)
    grid = torch.tensor([[a, b] for a in (-0.8, 0.0, 0.8) for b in (-0.5, 0.5)])
    with torch.no_grad():
        mean, log_variance = model.net(grid).unbind(-1)
    np.testing.assert_allclose(mean, 2.0 * grid[:, 1], atol=0.35)
    np.testing.assert_allclose(log_variance, 2.0 * grid[:, 0], atol=0.35)


def test_the_gradient_is_that_of_the_stated_loss() -> None:
    reward = torch.tensor([0.0, 3.0, 1.0, 10.0])
    pairs = [[0.5, -1.0], [0.0, math.log(0.5)], [1.0, -200.0], [0.0, 0.0]]  # the last is an outlier: e2 is 100 v
    predicted = torch.tensor(pairs, requires_grad=True)
    mean, log_variance = predicted.unbind(-1)
    square = (mean - reward).square()
    loss = square + log_variance + square.detach() / log_variance.exp().clamp(min=1e-30)
    (expected,) = torch.autograd.grad(loss.sum(), predicted)
    expected[3, 1] = 1.0 - LIMIT
    torch.testing.assert_close(noise_gradient(predicted.detach(), reward), expected)


def test_running_means_are_over_the_memory_and_not_over_what_is_drawn() -> None:
    rng = np.random.default_rng(0)
    model = RewardNoise(1, (4,), 1e-3, torch.Generator().manual_seed(0), "cpu")
    assert math.isnan(model.share)
    square, variance, chance = np.array([1.0, 9.0]), np.array([0.5, 3.5]), np.array([0.9, 0.1])
    for _ in range(200):
        drawn = rng.choice(2, 256, p=chance)
        model.note(square[drawn], variance[drawn], 1.0 / chance[drawn])
    assert model.share == pytest.approx(4.0 / 10.0, rel=0.05)
    expected = relive.precision_priority(variance, 5.0)
    np.testing.assert_allclose(model.priorities(variance), expected, rtol=0.05)


def test_the_share_of_a_batch_that_draw_probabilities_leave() -> None:
    assert effective_share(np.full(10, 3.0)) == pytest.approx(1.0)
    assert effective_share(np.array([1.0, 3.0])) == pytest.approx(16 / 20)


def test_a_run_draws_by_the_priorities_of_its_noise() -> None:
    trainer = SACTrainer(precise(), make_env=Toy)
    result = trainer.train()
    assert result.updates == 20
    stats = trainer.buffer.stats()
    assert (stats.beta, stats.effective_sample_size) == (0.0, 16.0)
    model = trainer.agent.noise
    assert model is not None
    batch = trainer.buffer.sample(16)
    trainer.buffer.sample = lambda n: batch  # type: ignore[method-assign]
    x = torch.cat((batch.torch().obs, batch.torch().action), 1)
    with torch.no_grad():
        variance = {int(i): float(v) for i, v in zip(batch.ids, model.net(x)[:, 1].double().exp(), strict=True)}
    trainer.learn()
    total, square, _ = model.sums.tolist()
    expected = relive.precision_priority(list(variance.values()), square / total)
    np.testing.assert_allclose(trainer.buffer.priorities(np.array(list(variance))), expected + 1e-6, rtol=1e-6)


def test_a_learner_saved_without_its_noise_learns_the_noise_anew(tmp_path: Path) -> None:
    old = SACTrainer(small(), make_env=Toy)
    old.train()
    old.save(tmp_path)
    for changes in ({"measure_noise": True}, {"use_per": True, "priority": "precision"}):
        new = SACTrainer.load(tmp_path, make_env=Toy, total_steps=240, **changes)
        assert all(torch.equal(a, b) for a, b in zip(old.agent._critic_weights, new.agent._critic_weights, strict=True))
        model = new.agent.noise
        assert model is not None
        assert model.sums.tolist() == [0.0, 0.0, 0.0]
        assert new.train().updates == 20 + 30
        assert 0.0 < model.share <= 1.0


class Steady(Toy):
    """A toy whose reward is 1 with noise that is the same everywhere."""

    def _reward(self, action: Any) -> float:
        return 1.0 + float(self.np_random.normal())


@pytest.mark.slow
def test_constant_noise_is_drawn_about_uniformly() -> None:
    lengths = {"total_steps": 2_400, "start_steps": 1_200, "buffer_capacity": 4_000, "eval_every": 0}
    config = precise(**lengths, batch_size=64, hidden_sizes=(16,))
    trainer = SACTrainer(config, make_env=Steady)
    trainer.train()
    _, low, _, high, _ = trainer.buffer.stats().priority_quantiles
    assert high < 1.3 * low
    scalars = trainer.agent.scalars(trainer.step)
    assert scalars["noise/effective_batch"] > 0.98
    assert scalars["noise/variance"] == pytest.approx(1.0, abs=0.3)
    assert 0.3 < scalars["noise/share"] <= 1.0


def test_measuring_noise_changes_no_draw_and_no_weight() -> None:
    for use_per in (False, True):
        plain, measured = (
            SACTrainer(small(use_per=use_per, measure_noise=measure), make_env=Toy) for measure in (False, True)
        )
        one, two = plain.train(), measured.train()
        assert np.array_equal(one.episode_returns, two.episode_returns)
        assert np.array_equal(one.eval_returns, two.eval_returns)
        assert all(
            torch.equal(a, b) for a, b in zip(plain.agent._critic_weights, measured.agent._critic_weights, strict=True)
        )
        assert "noise/share" not in plain.agent.scalars(plain.step)
        assert measured.agent.scalars(measured.step)["noise/share"] > 0.0


@pytest.mark.parametrize("threshold", [0.3, 1.0, 5.0])
def test_both_losses_and_their_gradients(threshold: float) -> None:
    error = torch.tensor([-4.0, -threshold, -0.1, 0.0, 0.2, 7.0], requires_grad=True)
    size = error.detach().abs()
    expected = {"mse": size**2, "huber": torch.where(size < threshold, size**2, threshold * (2 * size - threshold))}
    slopes = {"mse": 2 * error.detach(), "huber": 2 * error.detach().clamp(-threshold, threshold)}
    for kind in ("mse", "huber"):
        loss = loss_of(error, kind, threshold)
        torch.testing.assert_close(loss, expected[kind])
        torch.testing.assert_close(torch.autograd.grad(loss.sum(), error)[0], slopes[kind])


def test_the_critic_loss_of_sac_can_be_hubers() -> None:
    losses = {}
    for kind in ("mse", "huber"):
        trainer = SACTrainer(small(critic_loss=kind, huber_threshold=0.1, eval_every=0, total_steps=41), make_env=Toy)
        trainer.train()
        t = trainer.buffer.sample(16).torch()
        loss, error = trainer.agent.update_critics(t.obs, t.action, t.reward, t.next_obs, t.discount, t.weights)
        each = error.square() if kind == "mse" else torch.where(error.abs() < 0.1, error**2, 0.2 * error.abs() - 0.01)
        assert loss.item() == pytest.approx(each.sum(0).mean().item(), rel=1e-5)
        losses[kind] = loss.item()
    assert losses["huber"] < losses["mse"]
