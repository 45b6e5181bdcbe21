"""The share of the TD error that is noise, where it is known by construction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from depth import some
from trainer_toys import Toy, small

import relive
from relive.errors import ArgumentError, NotEnoughData, PriorityError
from relive_lab import SACTrainer, noise_share

N = 8_000


def items(share: float, seed: int = 0) -> tuple[dict[str, Any], np.ndarray]:
    """Make items whose TD errors of unit mean square are noise by `share`; the noise depends on the item."""
    rng = np.random.default_rng(seed)
    obs, action = rng.normal(size=(N, 3)), rng.uniform(-1, 1, (N, 1))
    bias = np.sin(2 * obs[:, 0]) + action[:, 0] * np.tanh(obs[:, 1])
    noise = np.where(obs[:, 2] > 1, 3.0, 0.5) * rng.normal(size=N)
    td = np.sqrt(1 - share) * bias / bias.std() + np.sqrt(share) * noise / noise.std()
    return {"obs": obs, "action": action}, td


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.9, 1.0])
def test_a_known_share_is_found(share: float) -> None:
    data, td = items(share)
    found = noise_share(data, td)
    assert found.share.value == pytest.approx(share, abs=0.04)
    assert found.share.low <= found.share.value <= found.share.high <= 1.0
    assert found.share.high - found.share.low < 0.1
    assert found.items == N


def filled(sampler: Any, td: np.ndarray, data: dict[str, Any]) -> relive.ReplayBuffer:
    """Make a buffer of these items, one lane, whose rewards are the TD errors."""
    schema = relive.Schema(obs={"a": relive.Field((2,)), "b": relive.Field()}, action=relive.Field((1,)))
    buffer = relive.ReplayBuffer(schema, 2 * N, sampler=sampler, seed=3)
    obs = {"a": data["obs"][:, :2], "b": data["obs"][:, 2]}
    following = {name: np.roll(values, -1, axis=0) for name, values in obs.items()}
    flags = {"terminated": np.zeros(N, bool), "truncated": np.arange(N) == N - 1}
    steps = {"obs": obs, "action": data["action"], "reward": td, "next_obs": following, **flags}
    lane = lambda x: {k: lane(v) for k, v in x.items()} if isinstance(x, dict) else x[None]  # noqa: E731
    buffer.extend(**lane(steps))
    return buffer


@pytest.mark.parametrize("sampler", some([relive.Prioritized(alpha=1.0), relive.Uniform()], 1))
def test_a_buffer_is_asked_for_its_items_and_left_as_it_was(sampler: Any) -> None:
    data, _ = items(0.5)
    quiet = data["obs"][:, 2] < 1.0
    td = np.where(quiet, np.sign(data["obs"][:, 0]), 3.0 * np.random.default_rng(1).normal(size=N))
    share = (td[~quiet] ** 2).sum() / (td**2).sum()
    buffer, untouched = (filled(sampler, td, data) for _ in range(2))
    if sampler.prioritizes:  # draws are far from uniform: large errors, which are noise here, come up more often
        for each in (buffer, untouched):
            each.update_priorities(np.arange(N), td)
    sizes: list[int] = []

    def td_error(batch: Any) -> torch.Tensor:
        sizes.append(len(batch.ids))
        return batch.torch().reward[:, None].requires_grad_()

    found = noise_share(buffer, td_error, items=4_000)
    assert found.share.value == pytest.approx(share, abs=0.07)
    assert sum(sizes) == found.items <= N
    assert max(sizes) <= 1_024
    assert np.array_equal(buffer.sample(64).ids, untouched.sample(64).ids)


@pytest.mark.slow
def test_discrete_actions_have_a_column_each() -> None:
    rng = np.random.default_rng(0)
    action = rng.integers(4, size=N)
    td = np.array([1.0, -1.0, -1.0, 1.0])[action] + rng.normal(size=N)
    data = {"obs": rng.normal(size=(N, 1)), "action": action}
    assert noise_share(data, td).share.value == pytest.approx(0.5, abs=0.03)


@pytest.mark.slow
def test_a_trainer_gives_td_errors_and_trains_on_as_before() -> None:
    config = small(total_steps=700, eval_every=0, buffer_capacity=1_000, update_every=20)
    trainers = [SACTrainer(config, make_env=Toy) for _ in range(2)]
    for trainer in trainers:
        trainer.train()
    noise_share(trainers[0].buffer, trainers[0].td_error, items=2_000)
    for trainer in trainers:
        trainer.learn()
    one, two = (trainer.agent._critic_weights for trainer in trainers)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_the_td_errors_of_a_trainer() -> None:
    trainer = SACTrainer(small(reward_scale=0.5), make_env=Toy)
    trainer.train()
    for weight in trainer.agent._actor_weights:
        weight.data.zero_()
    trainer.agent.actor.net.biases[-1].data[2:] = -100.0  # no noise to speak of: std is exp(-5)
    trainer.agent.log_alpha.fill_(-100.0)
    batch = trainer.buffer.sample(16)
    t = batch.torch()
    with torch.no_grad():
        target = 0.5 * t.reward + t.discount * trainer.agent.target(t.next_obs, torch.zeros(16, 2)).amin(0)
        expected = (trainer.agent.critic(t.obs, t.action) - target).mean(0)
    np.testing.assert_allclose(trainer.td_error(batch), expected, atol=0.02)


@pytest.mark.parametrize(
    ("error", "change", "td", "text"),
    [
        (ArgumentError, {"obs": None}, None, "a ReplayBuffer, or `obs` and `action`, got `action`"),
        (ArgumentError, {"action": np.zeros((N - 1, 1))}, None, "observations and actions of one length"),
        (ArgumentError, {"obs": np.zeros((N, 5_000), bool)}, None, "at most 4096 numbers in observation and action"),
        (PriorityError, {}, np.zeros(N), "TD errors, got zeros only - at `noise_share(td_error)`"),
        (PriorityError, {}, np.ones(N - 1), "TD errors of shape `(8000,)`, one per item, got `float64` of shape"),
        (PriorityError, {}, np.full(N, np.inf), "finite TD errors, got 8000 that are not"),
    ],
)
def test_what_is_refused(error: type[Exception], change: dict[str, Any], td: Any, text: str) -> None:
    data, good = items(0.5)
    data = {name: values for name, values in {**data, **change}.items() if values is not None}
    with pytest.raises(error) as caught:
        noise_share(data, good if td is None else td)
    assert str(caught.value).startswith(f"Expected {text}")


def test_sequences_are_refused() -> None:
    schema = relive.Schema(obs=relive.Field((1,)), action=relive.Field((1,)))
    buffer = relive.ReplayBuffer(schema, 100, item=relive.Sequences(4))
    with pytest.raises(ArgumentError, match=r"^Expected a buffer of transitions, got `Sequences\(length=4"):
        noise_share(buffer, lambda batch: batch.reward)


def test_a_buffer_wants_a_function_and_enough_items() -> None:
    data, td = items(0.5)
    buffer = filled(relive.Uniform(), td, data)
    with pytest.raises(ArgumentError, match=r"Expected a function from batches to TD errors, got `ndarray`"):
        noise_share(buffer, td)
    with pytest.raises(NotEnoughData, match="Expected at least 500 different items, got"):
        noise_share(buffer, lambda batch: batch.reward, items=400)
