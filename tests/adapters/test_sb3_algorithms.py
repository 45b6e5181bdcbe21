"""Prioritized algorithms: an update beside that of Stable-Baselines3 and sb3-contrib, and the priorities after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import LONG, pairs
from needs import needs

needs("stable_baselines3")
needs("sb3_contrib")

import torch
from sb3_contrib import QRDQN, TQC, CrossQ
from sb3_loops import GAMMA, built, judge, ledger
from stable_baselines3 import DQN, SAC, TD3
from torch.nn import functional as F

import relive
from relive.errors import ArgumentError
from relive.sb3 import PrioritizedDQN, PrioritizedReplay, PrioritizedSAC, PrioritizedTD3, ReplayBuffer
from relive.sb3._weighing import Weighing

pytestmark = [
    pytest.mark.filterwarnings("ignore:The last trajectory in the replay buffer:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*steps do not continue their stream:relive.errors.ReliveWarning"),
]


class PrioritizedQRDQN(PrioritizedReplay, QRDQN):
    pass


class PrioritizedTQC(PrioritizedReplay, TQC):
    pass


class PrioritizedCrossQ(PrioritizedReplay, CrossQ):
    pass


QUANTILES = {PrioritizedQRDQN: QRDQN, PrioritizedTQC: TQC}
VALUES = {PrioritizedDQN: DQN, PrioritizedSAC: SAC, PrioritizedTD3: TD3, PrioritizedCrossQ: CrossQ}
ALGORITHMS = {**VALUES, **QUANTILES}


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_an_update_without_priorities_is_sb3s(kind: Any) -> None:
    """Check that with weights of 1 both make the same nets of the same batches."""
    models = [
        built(ALGORITHMS[kind], replay_buffer_class=ReplayBuffer),
        built(kind, sampler=relive.Prioritized(beta=0.0)),
    ]
    models[0].learn(30)
    models[1]._setup_learn(0)
    # Small rewards, since DQN's loss only shows the sign of large errors.
    batches = [data._replace(rewards=data.rewards / 100) for data in map(models[0].replay_buffer.sample, [16] * 4)]
    for model in models:
        model.policy.load_state_dict(models[0].policy.state_dict())
        handed = iter(batches)
        model.replay_buffer.sample = lambda size, env=None, handed=handed: next(handed)
        model.replay_buffer.update_priorities = lambda ids, errors: len(ids)
    first = {name: tensor.clone() for name, tensor in models[0].policy.state_dict().items()}
    fresh = [
        built(ALGORITHMS[kind], replay_buffer_class=ReplayBuffer),
        built(kind, sampler=relive.Prioritized(beta=0.0)),
    ]
    for model, old in zip(fresh, models, strict=True):
        model.policy.load_state_dict(first)
        model.replay_buffer = old.replay_buffer
        model._setup_learn(0)
        torch.manual_seed(5)
        model.train(4, 16)
    mine, theirs = (model.policy.state_dict() for model in reversed(fresh))
    assert any(not torch.equal(theirs[name], first[name]) for name in first)
    for name in first:
        torch.testing.assert_close(mine[name], theirs[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "priority"),
    [(kind, rule) for kind, rule in pairs(ALGORITHMS, ("lap", "precision", "td")) if rule != "lap" or kind in VALUES],
)
def test_prioritized_algorithms_run_save_and_go_on(kind: Any, priority: str, tmp_path: Path) -> None:
    model = built(kind, priority=priority, n_steps=2, gamma=GAMMA).learn(80 if LONG else 48)
    buffer = model.replay_buffer
    raw = buffer.relive.priorities(buffer.sample(200).ids)
    assert (buffer.n_steps, buffer.gamma, model.n_steps) == (2, GAMMA, 2)
    assert len(np.unique(raw)) > 3
    if priority == "lap":
        assert raw.min() >= 1.0
    weights = buffer.sample(100).weights
    assert weights.shape == (100, 1)
    assert (len(weights.unique()) > 3) == (priority == "td")
    judge(buffer.sample(300), ledger(model.get_env().envs), 2)
    model.save(tmp_path / "model")
    loaded = kind.load(tmp_path / "model", env=model.get_env())
    assert (loaded.priority, loaded.sampler, loaded.critic_loss) == (priority, model.sampler, model.critic_loss)
    if priority == "precision":
        torch.testing.assert_close(loaded._noise.net.state_dict(), model._noise.net.state_dict())
        assert loaded._noise.sums.tolist() == model._noise.sums.tolist() != [0, 0, 0]
    loaded.learn(30)


class Weighted:
    """A buffer whose batches have different items and random weights."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.buffer, name)

    def sample(self, n: int, env: Any = None) -> Any:
        data = self.buffer.sample(n)
        _, first = np.unique(data.ids, return_index=True)
        data = type(data)(*(each[first] if each is not None else None for each in data))
        return data._replace(weights=torch.rand(len(first), 1))


def drawn(model: Any) -> tuple[Weighing, Any, dict[str, Any]]:
    """Return a stand-in for the model's buffer, a batch of it, and the globals that `train` would have."""
    buffer = Weighted(model.replay_buffer)
    weighing = Weighing(buffer, model.critic_loss, model.huber_threshold, model._priorities)
    own = super(PrioritizedReplay, model).train
    return weighing, weighing.sample(400), weighing.weighted(own).__func__.__globals__


@pytest.mark.parametrize("priority", ["td", "lap", "precision"])
def test_weights_and_priorities_of_a_batch(priority: str) -> None:
    """Check the loss by hand, and the priorities, which are smaller for noisy rewards."""
    model = built(PrioritizedSAC, priority=priority, huber_threshold=0.5).learn(60)
    weighing, data, losses = drawn(model)
    count = len(data.ids)
    one, two = torch.randn(2, count, 1)
    loss = 0.5 * sum(losses["F"].mse_loss(values, torch.zeros(count, 1)) for values in (one, two))
    each = torch.stack([one, two])
    huber = torch.where(each.abs() < 0.5, each**2, each.abs() - 0.25)
    wanted = 0.5 * (data.weights * (huber if priority == "lap" else each**2)).mean(dim=1).sum()
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    weighing.update()
    told = model.replay_buffer.relive.priorities(data.ids)
    sizes = each[..., 0].abs().numpy()
    if priority == "precision":
        _, log_variance = model._noise.net(model._inputs(data)).detach().unbind(-1)
        assert np.corrcoef(np.log(told), log_variance.numpy())[0, 1] < -0.9
    else:
        wanted = sizes.mean(axis=0) if priority == "td" else np.maximum(sizes.max(axis=0), 0.5)
        np.testing.assert_allclose(told, wanted + 1e-6, rtol=1e-5)


def test_rules_and_buffers_that_do_not_fit_are_refused() -> None:
    for choices, text in (
        ({"priority": "rank"}, "one of `'td'`, `'lap'`, `'precision'`"),
        ({"priority": "lap", "critic_loss": "mse"}, "`'huber'` with `priority='lap'`"),
        ({"sampler": relive.Uniform()}, "a sampler with priorities, got `Uniform"),
        ({"replay_buffer_class": DQN}, "`relive.sb3.ReplayBuffer` or"),
        ({"n_steps": 3, "replay_buffer_kwargs": {"gamma": 0.9}}, "`0.99`, as the model has, got `0.9` - at `Prior"),
        ({"replay_buffer_kwargs": {"n_steps": 3, "gamma": 0.9}}, "`0.99`, as the model has, got `0.9` - at `Prior"),
    ):
        with pytest.raises(ArgumentError, match=text):
            built(PrioritizedDQN, **choices)
    built(PrioritizedDQN, replay_buffer_kwargs={"gamma": 0.9})  # of single steps the model's is used


@pytest.mark.parametrize("critics", [None, 2])
@pytest.mark.parametrize("together", [False, True])
def test_weights_and_priorities_of_quantiles(critics: int | None, together: bool) -> None:
    """Check the loss of each row alone, weighted, and the errors of the means."""
    from sb3_contrib.common.utils import quantile_huber_loss

    model = built(PrioritizedQRDQN).learn(60)
    weighing, data, losses = drawn(model)
    count = len(data.ids)
    lead = (count,) if critics is None else (count, critics)
    current, target = torch.randn(*lead, 5, requires_grad=True), torch.randn(*lead[:1], *[1] * (len(lead) - 1), 7)
    loss = losses["quantile_huber_loss"](current, target, sum_over_quantiles=together)
    rows = [quantile_huber_loss(current[i : i + 1], target[i : i + 1], None, together) for i in range(count)]
    wanted = (data.weights[:, 0] * torch.stack(rows)).mean()
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(one, current)[0] for one in (loss, wanted)))
    weighing.update()
    errors = (current.detach().mean(dim=-1) - target.mean(dim=-1)).abs().reshape(count, -1).mean(dim=1)
    np.testing.assert_allclose(model.replay_buffer.relive.priorities(data.ids), errors.numpy() + 1e-6, rtol=1e-5)


class Unnamed(SAC):
    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        self.replay_buffer.sample(batch_size)
        F.mse_loss(torch.zeros(3), torch.ones(3))  # no critic's


class PrioritizedUnnamed(PrioritizedReplay, Unnamed):
    pass


def test_a_train_without_a_loss_is_refused() -> None:
    """Refuse a module without a loss, and a `train` that learned without one."""
    with pytest.raises(relive.ReliveError, match="`train` computed no loss that could be weighted"):
        built(PrioritizedUnnamed).learn(60)
    unknown = type(Unnamed.train)(Unnamed.train.__code__, {"torch": torch}, "train")
    other = type("Other", (PrioritizedReplay, type("Base", (SAC,), {"train": unknown})), {})
    with pytest.raises(ArgumentError, match=r"an algorithm whose `train` calls `F\.mse_loss`"):
        built(other)
    with pytest.raises(ArgumentError, match=r"`'td'` or .* got `'lap'` - at `PrioritizedTQC\(prior"):
        built(PrioritizedTQC, priority="lap")
    with pytest.raises(ArgumentError, match=r"None with .* got `'huber'` - at `PrioritizedTQC\(critic_loss"):
        built(PrioritizedTQC, priority="lap", critic_loss="huber")
