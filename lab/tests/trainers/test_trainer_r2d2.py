"""Whole runs of R2D2 on small environments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from dqn_toys import Signs
from needs import needs
from r2d2_toys import Walk, small

from relive.errors import ArgumentError
from relive_lab import Progress, R2D2Config, R2D2Trainer


@pytest.mark.parametrize("use_per", [False, True])
def test_a_run_from_start_to_end(use_per: bool) -> None:
    trainer = R2D2Trainer(small(use_per=use_per, n_step=2))
    result = trainer.train()
    assert (result.steps, result.updates) == (240, 15)
    assert result.eval_steps.tolist() == [120, 240]
    assert result.eval_returns.shape == (2, 3)
    assert np.isfinite(result.episode_returns).all()
    assert all(torch.isfinite(weight).all() for weight in trainer.agent._weights)
    assert bool(trainer.buffer.stats().priority_quantiles) == use_per


def test_it_learns() -> None:
    fast = {"gamma": 0.5, "learning_rate": 1e-2, "target_every": 5, "buffer_capacity": 1_000, "update_every": 4}
    config = small(total_steps=600, epsilon_steps=300, eval_every=600, eval_episodes=10, **fast)
    assert R2D2Trainer(config, make_env=Signs).train().eval_returns.mean() >= 9.0


@pytest.mark.parametrize("changes", [{}, {"use_per": True, "state": "zero", "dueling": True}])
def test_the_same_seed_gives_the_same_run(changes: dict[str, Any]) -> None:
    runs = [R2D2Trainer(small(seed=seed, **changes), make_env=Walk).train() for seed in (3, 3, 4)]
    assert np.array_equal(runs[0].episode_returns, runs[1].episode_returns)
    assert np.array_equal(runs[0].eval_returns, runs[1].eval_returns)
    assert not np.array_equal(runs[0].episode_returns, runs[2].episode_returns)


def test_how_often_it_is_evaluated_does_not_change_what_it_learns() -> None:
    often, never = (R2D2Trainer(small(eval_every=every)) for every in (40, 0))
    assert np.array_equal(often.train().episode_returns, never.train().episode_returns)
    assert all(torch.equal(a, b) for a, b in zip(often.agent._weights, never.agent._weights, strict=True))


@pytest.mark.parametrize("lanes", [1, 3, 7])
def test_vector_environments_keep_the_ratio_of_updates(lanes: int) -> None:
    result = R2D2Trainer(small(num_envs=lanes, start_steps=210, update_every=1, eval_every=0)).train()
    assert 240 <= result.steps < 240 + lanes
    assert result.updates == result.steps - 210


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


def test_an_evaluator_gets_a_policy_that_remembers() -> None:
    def evaluator(policy: Any) -> Any:
        first = policy(np.ones((4, 4), np.float32))
        policy.after(np.zeros(4), np.zeros(4, bool))
        return first + policy(np.ones((4, 4), np.float32))

    result = R2D2Trainer(small(), evaluator=evaluator).train()
    assert result.eval_returns.shape == (2, 4)


def test_progress_can_end_a_run_which_then_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Progress] = []
    trainer = R2D2Trainer(small(), make_env=Walk)
    first = trainer.train(lambda progress: seen.append(progress) or progress.step < 120)
    assert first.steps == 120
    done: list[Any] = []
    explore, collector = trainer.agent.explore, trainer.run._collector
    assert collector is not None
    monkeypatch.setattr(trainer.agent, "explore", lambda *of: done.append(explore(*of)) or done[-1])
    collector.obs = None  # as where an environment raised
    second = trainer.train()
    assert (second.steps, second.updates) == (240, 15)
    # The second call resets in mid-episode then: a cut, across which nothing is remembered.
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


def test_tensorboard_gets_returns_losses_and_the_buffer(tmp_path: Path) -> None:
    EventAccumulator = needs("tensorboard.backend.event_processing.event_accumulator").EventAccumulator

    trainer = R2D2Trainer(small(log_dir=str(tmp_path), log_every=60), make_env=Walk)
    trainer.train()
    trainer.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert {"train/return", "eval/return", "loss/q", "train/epsilon", "train/td_error", "buffer/size"} <= tags


UNFIT: list[tuple[Any, dict[str, Any], str]] = [
    (
        lambda: gymnasium.make("Pendulum-v1"),
        {},
        "Expected a `Discrete` action space, got `Box(-2.0, 2.0, (1,), float32)` - at `R2D2Trainer(env)`",
    ),
    (
        Walk,
        {"explore_weights": (1, 2)},
        "Expected 3 weights, one per action, got 2 of them - at `R2D2Config(explore_weights)`",
    ),
    (
        Walk,
        {"buffer_capacity": 20, "batch_size": 4},
        "at `Sequences(length)`",
    ),
]


@pytest.mark.parametrize(("make", "changes", "text"), UNFIT)
def test_what_cannot_train_is_refused(make: Any, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(text)):
        R2D2Trainer(small(**changes), make_env=make)


def test_a_bad_call_is_refused() -> None:
    trainer = R2D2Trainer(small())
    with pytest.raises(ArgumentError, match=re.escape("got shape `(3,)` - at `R2D2Trainer.act`")):
        trainer.act(np.zeros(3))
    text = "Expected 2 observations, one for each that remembers, got 1 observations - at `R2D2Trainer.act(memory)`"
    with pytest.raises(ArgumentError, match=re.escape(text)):
        trainer.act(np.zeros(4), memory=trainer.memory(2))


BAD: list[tuple[str, Any, str]] = [
    ("state", "old", "Expected one of `'stored'`, `'zero'`, got `'old'`"),
    ("length", 0, "Expected an integer >= 1, got `0`"),
    ("burn_in", -1, "Expected an integer >= 0, got `-1`"),
    ("starts", 0, "Expected an integer >= 1, got `0`"),
    ("priority_eta", 1.5, "Expected a finite number >= 0 and <= 1, got `1.5`"),
    ("lstm_size", 2.0, "Expected an integer >= 1, got `2.0`"),
    ("hidden_sizes", (8, 0), "Expected one positive width for each hidden layer, got `(8, 0)`"),
    ("hidden_sizes", None, "Expected one positive width for each hidden layer, got `None`"),
    ("dueling", 1, "Expected `True` or `False`, got `1`"),
    ("double", None, "Expected `True` or `False`, got `None`"),
    ("rescale", "no", "Expected `True` or `False`, got `'no'`"),
    ("adam_eps", 0.0, "Expected a finite number > 0, got `0.0`"),
    ("max_grad_norm", 0, "Expected a finite number > 0, got `0`"),
    ("target_every", 0, "Expected an integer >= 1, got `0`"),
    ("epsilon_start", 2, "Expected a finite number >= 0 and <= 1, got `2`"),
    ("epsilon_steps", 0, "Expected an integer >= 1, got `0`"),
    ("explore_weights", (), "Expected finite weights >= 0, not all of them 0, got `()`"),
    ("explore_weights", (0, 0), "Expected finite weights >= 0, not all of them 0, got `(0, 0)`"),
    ("explore_weights", (1, -1), "Expected finite weights >= 0, not all of them 0, got `(1, -1)`"),
    ("explore_weights", (1, float("nan")), "Expected finite weights >= 0, not all of them 0, got `(1, nan)`"),
    ("batch_size", 20_000, "Expected at most buffer_capacity (10000), got `20000`"),
]


@pytest.mark.parametrize(("name", "value", "text"), BAD)
def test_a_bad_setting_is_refused_by_name(name: str, value: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(f"{text} - at `R2D2Config({name})`")):
        R2D2Config(**{name: value})
