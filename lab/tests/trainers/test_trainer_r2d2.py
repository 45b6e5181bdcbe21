"""Whole runs of R2D2 on small environments."""

from __future__ import annotations

import re
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from dqn_toys import Signs
from r2d2_toys import Walk, small

from relive.errors import ArgumentError
from relive_lab import R2D2Trainer


def test_it_learns() -> None:
    fast = {"gamma": 0.5, "learning_rate": 1e-2, "target_every": 5, "buffer_capacity": 1_000, "update_every": 4}
    config = small(total_steps=600, epsilon_steps=300, eval_every=600, eval_episodes=10, **fast)
    assert R2D2Trainer(config, make_env=Signs).train().eval_returns.mean() >= 9.0


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_any_shape_of_observation(shape: tuple[int, ...]) -> None:
    trainer = R2D2Trainer(small(hidden_sizes=(5, 4)), make_env=lambda: Walk(shape))
    assert trainer.train().updates == 15
    obs = np.zeros(shape, np.float32)
    assert trainer.act(obs).shape == ()
    assert trainer.act(np.stack([obs] * 5)).shape == (5,)


class Recall(gymnasium.Env[Any, Any]):
    """Shows a number once and pays 1 for an action equal to it three steps later; odd rewards on the way."""

    observation_space = gymnasium.spaces.Box(-1.0, 9.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.number, self.bar = int(self.np_random.integers(3)), 0
        return np.float32([self.number]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.bar += 1
        over = self.bar == 4
        return np.float32([-1.0]), float(over and action == self.number) + 0.25 * self.bar, over, False, {}


def test_acting_step_by_step_is_what_evaluation_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = R2D2Trainer(small(), make_env=Recall)
    trainer.train()
    env, memory = Recall(), trainer.memory()
    returns, seen = [], []
    monkeypatch.setattr(
        trainer.agent.net, "step", lambda *a, f=trainer.agent.net.step: seen.append([x.copy() for x in a]) or f(*a)
    )
    for episode in range(3):
        obs, _ = env.reset(seed=1_000_000 + episode)
        total, over = 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(trainer.act(obs, memory=memory))
            over = terminated or truncated
            memory.after(reward, over)
            total += reward
        returns.append(total)
    single, seen[:] = list(seen), []
    np.testing.assert_allclose(trainer.evaluate(3), returns)
    # All three episodes have four steps, so lane i of the evaluation is episode i.
    for bar in range(4):
        for lane in range(3):
            for one, all_lanes in zip(single[4 * lane + bar], seen[bar], strict=True):
                np.testing.assert_allclose(one[0], all_lanes[lane], atol=1e-6)
    assert single[1][2][0] == np.float32(0.25)  # the reward before the second observation
    assert not single[4][3].any()  # a new episode begins without a memory


def test_without_a_memory_every_step_is_a_first_one() -> None:
    trainer = R2D2Trainer(small())
    obs, memory = np.float32([[0, 1, 0, 1]] * 3), trainer.memory(3)
    assert np.array_equal(trainer.act(obs), trainer.act(obs, memory=memory))
    memory.after([0.5, 0.5, 0.5], [False, True, False])
    assert memory.state[0].any()
    assert not memory.state[1].any()
    assert memory.reward.tolist() == [0.5, 0.0, 0.5]
    assert memory.first.tolist() == [False, True, False]


def test_random_actions_come_as_likely_as_their_weights() -> None:
    trainer = R2D2Trainer(small(explore_weights=(4, 1, 0, 2), epsilon_end=1.0))
    actions = trainer.act(np.zeros((7_000, 4), np.float32), deterministic=False)
    np.testing.assert_allclose(np.bincount(actions, minlength=4) / 7_000, [4 / 7, 1 / 7, 0, 2 / 7], atol=0.02)


def test_epsilon_falls_and_the_best_action_is_taken_otherwise() -> None:
    trainer = R2D2Trainer(small(epsilon_start=0.6, epsilon_end=0.2, epsilon_steps=240, explore_weights=(0, 0, 0, 1)))
    trainer.run.step = 120
    obs = np.zeros((5_000, 4), np.float32)
    with torch.no_grad():
        trainer.agent.net.advantage.biases[0].copy_(torch.tensor([9.0, 0.0, 0.0, 0.0]))
    assert np.mean(trainer.act(obs, deterministic=False) == 3) == pytest.approx(0.4, abs=0.03)
    assert not trainer.act(obs).any()
    assert trainer.agent.scalars(trainer.step) == {"train/epsilon": pytest.approx(0.4)}


def test_nothing_is_remembered_across_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = R2D2Trainer(small(), make_env=Walk)
    trainer.train(lambda progress: progress.step < 120)
    done: list[Any] = []
    explore, collector = trainer.agent.explore, trainer.run._collector
    assert collector is not None
    monkeypatch.setattr(trainer.agent, "explore", lambda *of: done.append(explore(*of)) or done[-1])
    collector.obs = None  # as where an environment raised
    trainer.train()
    assert trainer.buffer.stats().cuts > 0
    assert done[0].extras["first"].all()
    assert not done[0].extras["state"].any()
    assert done[1].extras["state"].any()
    batch = trainer.buffer.sample(300)
    np.testing.assert_array_equal(batch.first | ~batch.mask[0], ~batch.state.any((1, 2)))


def test_no_round_of_evaluation_remembers_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = R2D2Trainer(small(), make_env=Walk)
    seen: list[Any] = []
    monkeypatch.setattr(trainer.agent.net, "step", lambda *a, f=trainer.agent.net.step: seen.append(a[3]) or f(*a))
    for _ in range(2):
        seen.clear()
        trainer.evaluate(3)
        assert not seen[0].any()
        assert seen[1].any()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"explore_weights": (1, 2)}, "3 weights, one per action, got 2 of them - at `R2D2Config(explore_weights)`"),
        ({"buffer_capacity": 20, "batch_size": 4}, "at `Sequences(length)`"),
    ],
)
def test_what_cannot_train_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(text)):
        R2D2Trainer(small(**changes), make_env=Walk)


def test_an_observation_for_each_that_remembers() -> None:
    trainer = R2D2Trainer(small())
    text = "Expected 2 observations, one for each that remembers, got 1 observations - at `R2D2Trainer.act(memory)`"
    with pytest.raises(ArgumentError, match=re.escape(text)):
        trainer.act(np.zeros(4), memory=trainer.memory(2))
