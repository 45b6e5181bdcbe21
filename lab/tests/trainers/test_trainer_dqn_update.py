"""One update of deep Q-learning, and its nets, against formulas written down again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from dqn_toys import Drift, Signs, small
from torch.nn import functional

from relive_lab import DQNTrainer
from relive_lab.dqn import Images, QNet, is_image


def trained(**changes: Any) -> DQNTrainer:
    """Make a trainer whose buffer holds 60 steps, and whose target net differs from its net."""
    trainer = DQNTrainer(small(total_steps=60, eval_every=0, **changes), make_env=Signs)
    trainer.train()
    return trainer


def fixed(trainer: DQNTrainer, monkeypatch: pytest.MonkeyPatch, weights: Any = None) -> Any:
    """Fix the batch of the trainer's next update, and return it."""
    batch = trainer.buffer.sample(16)
    if weights is not None:
        batch.weights[:] = weights
    monkeypatch.setattr(trainer.buffer, "sample", lambda n: batch)
    return batch


def errors(trainer: DQNTrainer, batch: Any) -> torch.Tensor:
    """Compute TD errors of a batch from the formulas."""
    obs, next_obs, reward, discount = (
        torch.from_numpy(batch[name]) for name in ("obs", "next_obs", "reward", "discount")
    )
    with torch.no_grad():
        following = trainer.agent.target(next_obs)
        best = (trainer.agent.net(next_obs) if trainer.config.double else following).argmax(1)
        rows = torch.arange(len(obs))
        target = reward + discount * following[rows, best]
        error: torch.Tensor = trainer.agent.net(obs)[rows, torch.from_numpy(batch.action)] - target
    return error


@pytest.mark.parametrize("double", [False, True])
def test_the_loss_is_the_weighted_mean_of_hubers(double: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trained(double=double, n_step=2)
    for weight in trainer.agent._weights:
        weight.data.mul_(3.0)  # so that some errors are larger than 1
    weights = np.linspace(0.1, 1.0, 16).astype(np.float32)
    error = errors(trainer, fixed(trainer, monkeypatch, weights))
    assert error.abs().max() > 1 > error.abs().min()
    size = error.abs()
    expected = (torch.from_numpy(weights) * torch.where(size < 1, size**2 / 2, size - 0.5)).mean()
    trainer.learn()
    assert trainer.agent.scalars(trainer.step)["loss/q"] == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("double", [False, True])
def test_td_errors_are_those_of_the_loss(double: bool) -> None:
    trainer = trained(double=double, n_step=2)
    batch = trainer.buffer.sample(16)
    np.testing.assert_allclose(trainer.td_error(batch), errors(trainer, batch), rtol=1e-5)


def test_the_loss_can_be_half_of_the_square(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trained(critic_loss="mse")
    error = errors(trainer, fixed(trainer, monkeypatch))
    trainer.learn()
    assert trainer.agent.scalars(trainer.step)["loss/q"] == pytest.approx((error**2).mean().item() / 2, rel=1e-5)


def test_double_targets_differ() -> None:
    trainer = trained()
    args = torch.zeros(64), torch.ones(64), torch.randn((64, 3), generator=torch.Generator().manual_seed(0))
    trainer.agent.target.load_state_dict({k: v.flip(-1) for k, v in trainer.agent.target.state_dict().items()})
    double = trainer.agent.targets(*args)
    object.__setattr__(trainer.config, "double", False)
    plain = trainer.agent.targets(*args)
    assert (plain >= double).all()
    assert (plain > double).any()


def test_priorities_are_absolute_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trained(use_per=True)
    batch = fixed(trainer, monkeypatch)
    last = dict(zip(batch.ids.tolist(), errors(trainer, batch).abs().tolist(), strict=True))
    trainer.learn()
    stored = trainer.buffer.priorities(np.array(list(last)))
    np.testing.assert_allclose(stored, np.array(list(last.values())) + 1e-6, rtol=1e-5)


def test_the_target_moves_when_it_is_due() -> None:
    trainer = trained(target_every=3, tau=0.25)
    trainer.run.updates = 0
    for update in range(1, 7):
        old = [weight.clone() for weight in trainer.agent._target_weights]
        trainer.learn()
        for before, after, online in zip(old, trainer.agent._target_weights, trainer.agent._weights, strict=True):
            expected = 0.75 * before + 0.25 * online if update % 3 == 0 else before
            torch.testing.assert_close(after, expected)
    whole = trained(target_every=1)
    whole.learn()
    assert all(torch.equal(a, b) for a, b in zip(whole.agent._target_weights, whole.agent._weights, strict=True))


def test_gradients_are_clipped_by_their_common_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trained(max_grad_norm=1e-3)
    fixed(trainer, monkeypatch)
    trainer.learn()
    norm = torch.sqrt(sum(weight.grad.square().sum() for weight in trainer.agent._weights))
    assert norm.item() == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize(
    ("shape", "dtype", "stack", "found"),
    [
        ((84, 84), "uint8", 1, True),
        ((4, 84, 84), "uint8", 4, True),
        ((10, 10, 4), "bool", 1, True),
        ((3, 10, 10, 4), "bool", 3, True),
        ((96, 96, 3), "uint8", 1, True),
        ((128,), "uint8", 1, False),
        ((4, 128), "uint8", 4, False),
        ((4, 3), "uint8", 1, False),
        ((10, 10, 4), "float32", 1, False),
    ],
)
def test_images_are_told_from_vectors(shape: tuple[int, ...], dtype: str, stack: int, found: bool) -> None:
    assert is_image(shape, dtype, stack) is found


@pytest.mark.parametrize(
    ("shape", "stack", "channels"),
    [
        ((9, 8), 1, 1),
        ((4, 9, 8), 4, 4),
        ((9, 8, 3), 1, 3),
        ((3, 9, 8), 1, 3),
        ((2, 9, 8, 3), 2, 6),
        ((2, 3, 9, 8), 2, 6),
    ],
)
def test_every_layout_reaches_the_convolutions_the_right_way_round(
    shape: tuple[int, ...], stack: int, channels: int
) -> None:
    images = Images(shape, "uint8", stack, torch.Generator().manual_seed(0))
    obs = torch.arange(int(np.prod(shape))).reshape(1, *shape)
    planes = images._channels(obs)
    assert planes.shape == (1, channels, 9, 8)
    # Neighbours in a row stay neighbours in a row.
    step = 3 if shape[-1] == 3 else 1
    assert (planes[..., 1:] - planes[..., :-1] == step).all()


def test_nets_have_the_sizes_of_the_literature() -> None:
    source = torch.Generator().manual_seed(0)
    large = QNet((4, 84, 84), "uint8", 6, stack=4, images=True, generator=source)
    assert large.images is not None
    assert large.images.size == 3136
    assert sum(weight.numel() for weight in large.parameters()) == 1_687_206
    small = QNet((10, 10, 4), "bool", 6, images=True, generator=source)
    assert small.images is not None
    assert small.images.size == 8 * 8 * 16
    # Bytes are read as [0, 1].
    dark, light = (large.images(torch.full((1, 4, 84, 84), value, dtype=torch.uint8)) for value in (0, 255))
    scaled = large.images.layers(torch.ones((1, 4, 84, 84)))
    torch.testing.assert_close(light, scaled)
    assert not torch.equal(dark, light)


@pytest.mark.parametrize("hidden", [(8,), (8, 4)])
def test_dueling_is_value_plus_centred_advantage(hidden: tuple[int, ...]) -> None:
    net = QNet((3,), "float32", 5, hidden=hidden, dueling=True, generator=torch.Generator().manual_seed(0))
    obs = torch.randn((7, 3), generator=torch.Generator().manual_seed(1))
    x = obs if net.shared is None else functional.relu(net.shared(obs))
    assert net.value is not None
    torch.testing.assert_close(net(obs).mean(1, keepdim=True), net.value(x))
    values, advantage = net(obs), net.advantage(x)
    torch.testing.assert_close(values - values[:, :1], advantage - advantage[:, :1])


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("make", [Signs, Drift])
def test_acting_values_are_learning_values(make: Any, dueling: bool) -> None:
    trainer = DQNTrainer(small(dueling=dueling, hidden_sizes=(8, 8)), make_env=make)
    obs = trainer.run._own_envs.reset(seed=0)[0]
    expected = trainer.agent.net(torch.from_numpy(obs)).detach().numpy()
    np.testing.assert_allclose(trainer.agent.net.evaluate(obs), expected, atol=1e-6)
    with torch.no_grad():
        for weight in trainer.agent.net.parameters():
            weight.mul_(1.5)
    changed = trainer.agent.net(torch.from_numpy(obs)).detach().numpy()
    np.testing.assert_allclose(trainer.agent.net.evaluate(obs), changed, atol=1e-6)
