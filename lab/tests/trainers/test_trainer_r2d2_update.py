"""One update of R2D2 against formulas written down again, one sequence and one step at a time."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from depth import some
from r2d2_toys import Walk, small

import relive
from relive_lab import R2D2Trainer
from relive_lab.r2d2 import RecurrentQNet, original, rescaled


def trainer_with_data(make: Any = Walk, **changes: Any) -> R2D2Trainer:
    """Make a trainer whose buffer holds 160 random steps, and whose target net differs from its net."""
    trainer = R2D2Trainer(small(**{"total_steps": 160, "start_steps": 160, "eval_every": 0, **changes}), make_env=make)
    trainer.train()
    with torch.no_grad():
        for weight in trainer.agent.target.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=trainer.agent.random.initial()))
    return trainer


def h(x: float) -> float:
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + 1e-3 * x


def h_inverse(y: float) -> float:
    low, high = -1e6, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if h(middle) < y else (low, middle)
    return low


def read_in_order(net: RecurrentQNet, batch: Any, row: int, start: int, detach_at: int | None) -> list[torch.Tensor]:
    """Compute values at each position of one sequence, one observation at a time; padding in front changes nothing."""
    state = torch.zeros((1, 2, net.size))
    if "state" in batch:
        state = torch.from_numpy(batch.state[row : row + 1])
    values = []
    for i in range(len(batch.all_obs)):
        if i == detach_at:
            state = state.detach()
        obs = torch.from_numpy(batch.all_obs[i, row].copy()).reshape(1, 1, -1)
        action = torch.tensor([[max(int(batch.all_prev_action[i, row]) - start, 0)]])
        out, after = net(obs, action, torch.tensor([[float(batch.all_prev_reward[i, row])]]), state)
        state = after if batch.mask[: i + 1, row].any() else state
        values.append(out[0, 0])
    return values


def begins(batch: Any) -> Any:
    """Mark the sequences that begin an episode."""
    return batch.first | ~batch.mask[0]


def reference(trainer: R2D2Trainer, batch: Any) -> tuple[torch.Tensor, dict[tuple[int, int], float]]:
    """Compute the loss, and the TD error of each (sequence, step) that is learned from."""
    c, start = trainer.config, trainer.agent.spaces.first
    total, errors = torch.zeros(()), {}
    for row in range(len(batch.ids)):
        first = begins(batch)[row]
        learn_from = 0 if first else c.burn_in
        values = read_in_order(trainer.agent.net, batch, row, start, None if first else c.burn_in)
        others = read_in_order(trainer.agent.target, batch, row, start, None)
        for i in range(learn_from, c.burn_in + c.length):
            if not batch.mask[i, row]:
                continue
            after = i + int(batch.steps[i, row])
            best = int((values if c.double else others)[after].argmax())
            value = others[after][best].item()
            back, forth = (h_inverse, h) if c.rescale else (float, float)
            target = forth(float(batch.reward[i, row]) + float(batch.discount[i, row]) * back(value))
            error = values[i][int(batch.action[i, row]) - start] - target
            errors[row, i] = error.item()
            total = total + 0.5 * float(batch.weights[row]) * error**2
    return total / len(errors), errors


CASES: list[dict[str, Any]] = [
    {},
    {"state": "zero"},
    {"state": "zero", "burn_in": 0},
    {"burn_in": 0},
    {"n_step": 3},
    {"n_step": 3, "double": False, "dueling": True},
    {"rescale": True, "n_step": 2, "hidden_sizes": (6,)},
    {"use_per": True, "starts": 1},
    {"burn_in": 5, "length": 2},
    {"burn_in": 4, "length": 1, "starts": 1, "state": "zero"},
    {"burn_in": 3, "length": 3, "starts": 2},
]


@pytest.mark.parametrize("changes", CASES, ids=str)
@pytest.mark.parametrize("ends", some(["both", "truncated"], 1))
def test_loss_errors_and_gradient_are_those_of_a_slow_reference(changes: dict[str, Any], ends: str) -> None:
    trainer = trainer_with_data(lambda: Walk(ends=ends), **changes)
    batch = trainer.buffer.sample(12)
    assert begins(batch).any()
    assert not begins(batch).all()
    assert not batch.mask.all()
    batch["weights"][:] = np.linspace(0.2, 1.0, 12)
    loss, errors, learns = trainer.agent.losses(batch.torch())
    wanted, each = reference(trainer, batch)
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-4)
    assert {(b, i) for i, b in learns.nonzero().tolist()} == set(each)
    for (row, i), error in each.items():
        assert errors[i, row].item() == pytest.approx(error, abs=1e-4)
    for found, other in zip(
        torch.autograd.grad(loss, trainer.agent._weights),
        torch.autograd.grad(wanted, trainer.agent._weights),
        strict=True,
    ):
        torch.testing.assert_close(found, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("starts", [1, 2])
@pytest.mark.parametrize("state", ["stored", "zero"])
def test_all_steps_of_an_episode_are_learned_from(starts: int, state: str) -> None:
    """Check the first ones as well, by the values that an agent had when it acted there."""
    trainer = trainer_with_data(starts=starts, state=state, burn_in=4, length=3)
    buffer, lanes = trainer.buffer, trainer.config.num_envs
    batch = next(buffer.batches(10_000, shuffle=False))
    assert batch.mask[4].all()
    _, errors, learns = trainer.agent.losses(batch.torch())
    assert not errors[learns].isnan().any()
    places = np.arange(len(batch.mask))[:, None]
    at = np.where(learns, batch.ids + (places - 4) * lanes, -1)
    ended = buffer.column("terminated") | buffer.column("truncated")
    ids = buffer.column("ids")
    first = [int(row[0]) for row in ids if row[0] >= 0]
    for lane in range(lanes):
        own = np.sort(ids[lane][ids[lane] >= 0])
        flags = dict(zip(ids[lane].tolist(), ended[lane].tolist(), strict=True))
        first += [int(after) for before, after in itertools.pairwise(own) if flags[int(before)]]
    learned = set(at[at >= 0].tolist())
    assert len(learned & set(first)) >= 0.9 * len(first) > 10
    if starts == 1:
        assert learned >= set(batch.ids.tolist())


def test_the_loss_can_be_hubers() -> None:
    trainer = trainer_with_data(lambda: Walk(), critic_loss="huber", huber_threshold=0.05)
    loss, errors, learns = trainer.agent.losses(trainer.buffer.sample(24).torch())
    size = errors[learns].abs()
    assert (size > 0.05).any()
    each = torch.where(size < 0.05, size**2, 0.05 * (2 * size - 0.05))
    assert loss.item() == pytest.approx(each.mean().item() / 2, rel=1e-5)


@pytest.mark.parametrize("start", [1, -1])
def test_actions_need_not_begin_at_zero(start: int) -> None:
    trainer = trainer_with_data(lambda: Walk(start=start))
    batch = trainer.buffer.sample(16)
    loss, _, _ = trainer.agent.losses(batch.torch())
    assert loss.item() == pytest.approx(reference(trainer, batch)[0].item(), rel=1e-4)
    obs = np.zeros((5, 3), np.float32)
    assert set(trainer.act(obs).tolist()) <= {start, start + 1, start + 2}


def test_the_final_observation_of_a_truncated_episode_is_bootstrapped_from() -> None:
    trainer = trainer_with_data(lambda: Walk(ends="truncated"), gamma=1.0, burn_in=0, length=12)
    batch = trainer.buffer.sample(32)
    plain = trainer.agent.losses(batch.torch())[1]
    row = int(np.flatnonzero(batch.truncated.any(0))[0])
    last = int(np.flatnonzero(batch.truncated[:, row])[0])
    tensors = batch.torch()
    tensors.all_obs[last + 1 :, row] += 1.0
    moved = trainer.agent.losses(tensors)[1]
    changed = (plain - moved).abs() > 1e-6
    assert changed[last, row]
    assert int(changed.sum()) - int(changed[last + 1 :, row].sum()) == 1


def test_priorities_mix_the_largest_and_the_mean_error(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_with_data(use_per=True, priority_eta=0.7)
    batch = trainer.buffer.sample(16)
    _, each = reference(trainer, batch)
    monkeypatch.setattr(trainer.buffer, "sample", lambda n: batch)
    trainer.learn()
    for row, ident in enumerate(batch.ids):
        own = [abs(error) for (b, _), error in each.items() if b == row]
        wanted = 0.7 * max(own) + 0.3 * float(np.mean(own)) if own else 0.0
        assert trainer.buffer.priorities(ident[None])[0] == pytest.approx(wanted + 1e-6, rel=1e-3)


def test_the_target_is_copied_every_so_many_updates() -> None:
    trainer = trainer_with_data(target_every=3)
    same = []
    for _ in range(6):
        trainer.learn()
        pairs = zip(trainer.agent.net.parameters(), trainer.agent.target.parameters(), strict=True)
        same.append(all(torch.equal(a, b) for a, b in pairs))
    assert same == [False, False, True] * 2


def test_gradients_are_scaled_down_to_their_norm_and_adam_gets_its_epsilon() -> None:
    trainer = trainer_with_data(max_grad_norm=1e-3, adam_eps=1e-3)
    trainer.learn()
    assert trainer.agent._optimizer.param_groups[0]["eps"] == 1e-3
    norm = torch.stack([w.grad.square().sum() for w in trainer.agent._weights if w.grad is not None]).sum().sqrt()
    assert norm.item() == pytest.approx(1e-3, rel=1e-3)


def test_rescaling_and_its_inverse() -> None:
    x = torch.tensor([-300.0, -1.5, 0.0, 0.25, 80.0], dtype=torch.float64)
    torch.testing.assert_close(rescaled(x), torch.tensor([h(float(v)) for v in x], dtype=torch.float64))
    torch.testing.assert_close(original(rescaled(x)), x)


@pytest.mark.parametrize("hidden", [(), (7,)])
@pytest.mark.parametrize("dueling", [False, True])
def test_acting_in_numpy_is_reading_in_torch(hidden: tuple[int, ...], dueling: bool) -> None:
    net = RecurrentQNet(3, 4, hidden, 6, dueling, torch.Generator().manual_seed(0))
    rng = np.random.default_rng(0)
    obs, reward = rng.normal(size=(9, 5, 3)).astype(np.float32), rng.normal(size=(9, 5)).astype(np.float32)
    action, state = rng.integers(4, size=(9, 5)), rng.normal(size=(5, 2, 6)).astype(np.float32)
    with torch.no_grad():
        values, last = net(*map(torch.from_numpy, (obs, action, reward, state)))
        for i in range(9):
            out, state = net.step(obs[i], action[i], reward[i], state)
            np.testing.assert_allclose(out, values[i].numpy(), atol=1e-5)
        np.testing.assert_allclose(state, last.numpy(), atol=1e-5)
        for weight in net.parameters():
            weight.mul_(1.5)
        values, _ = net(*map(torch.from_numpy, (obs[:1], action[:1], reward[:1], state)))
        np.testing.assert_allclose(net.step(obs[0], action[0], reward[0], state)[0], values[0].numpy(), atol=1e-5)


def test_initial_weights_come_from_the_given_generator_alone() -> None:
    before = torch.get_rng_state()
    one, two = (RecurrentQNet(3, 4, (5,), 6, True, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    keep = one.lstm.get_parameter("bias_ih_l0")[6:12]
    assert ((keep > 0.5) & (keep < 1.5)).all()


def test_stored_memory_is_what_reading_the_episode_gives() -> None:
    """Check that the buffer's state, previous action and reward at an anchor are those of the agent as it acted."""
    trainer = trainer_with_data(starts=1, burn_in=0, length=12)
    batch = trainer.buffer.sample(400)
    whole = batch.first & (batch.mask.sum(0) >= 3)
    assert whole.any()
    for row in np.flatnonzero(whole)[:40]:
        assert not batch.state[row].any()
        values = []
        state = batch.state[row : row + 1]
        for i in range(int(batch.mask[:, row].sum())):
            action, reward = batch.prev_action[i, row : row + 1], batch.prev_reward[i, row : row + 1]
            later = trainer.buffer.read(batch.ids[row : row + 1] + i * trainer.config.num_envs)
            np.testing.assert_allclose(later.state, state, atol=1e-6)
            assert later.first[0] == (i == 0)
            out, state = trainer.agent.net.step(batch.obs[i, row : row + 1], action, reward, state)
            values.append(out)


def test_zero_state_stores_none() -> None:
    assert "state" not in trainer_with_data(state="zero").buffer.sample(2)
    assert isinstance(trainer_with_data().buffer.item, relive.Sequences)
