"""Whole runs of deep Q-learning on small environments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from dqn_toys import Drift, Signs, small
from needs import needs

from relive.errors import ArgumentError
from relive_lab import DQNConfig, DQNTrainer, SACConfig, SACTrainer

ENOUGH: dict[str, Any] = {"total_steps": 400, "eval_every": 400, "gamma": 0.5, "learning_rate": 1e-2}


@pytest.mark.parametrize("use_per", [False, True])
def test_a_run_counts_what_it_does(use_per: bool) -> None:
    trainer = DQNTrainer(small(use_per=use_per), make_env=Signs)
    result = trainer.train()
    assert (result.steps, result.updates) == (120, 20)
    assert result.eval_steps.tolist() == [60, 120]
    assert result.eval_returns.shape == (2, 3)
    assert result.episode_steps.tolist() == list(range(10, 121, 10))
    stats = trainer.buffer.stats()
    assert bool(stats.priority_quantiles) is use_per
    assert (stats.beta > 0.4) is use_per


@pytest.mark.parametrize("settings", [{"use_per": True}, {"dueling": True, "double": False, "n_step": 3}])
def test_it_learns(settings: dict[str, Any]) -> None:
    trainer = DQNTrainer(small(**ENOUGH, **settings), make_env=Signs)
    assert trainer.train().eval_returns.mean() >= 9.0


@pytest.mark.slow
def test_two_frames_tell_what_one_does_not() -> None:
    def learned(frames: int) -> float:
        config = small(
            total_steps=500,
            update_every=1,
            target_every=20,
            eval_every=500,
            eval_episodes=8,
            gamma=0.0,
            frame_stack=frames,
        )
        return float(DQNTrainer(config, make_env=lambda: Drift("HWC")).train().eval_returns.mean())

    # An episode's first frame is shown twice, and tells nothing.
    assert learned(2) >= 8.5
    assert learned(1) < 8.0


def test_the_same_seed_gives_the_same_run() -> None:
    runs = [DQNTrainer(small(use_per=True, dueling=True, seed=seed), make_env=Signs).train() for seed in (3, 3, 4)]
    assert np.array_equal(runs[0].episode_returns, runs[1].episode_returns)
    assert np.array_equal(runs[0].eval_returns, runs[1].eval_returns)
    assert not np.array_equal(runs[0].episode_returns, runs[2].episode_returns)


def test_evaluations_change_nothing() -> None:
    often, never = (DQNTrainer(small(eval_every=every, eval_epsilon=0.5), make_env=Signs) for every in (10, 0))
    assert np.array_equal(often.train().episode_returns, never.train().episode_returns)


def test_random_actions_become_rare_along_a_line() -> None:
    trainer = DQNTrainer(small(start_steps=10, epsilon_steps=100, epsilon_end=0.2, total_steps=100), make_env=Signs)
    seen: list[float] = []
    choose = trainer.agent.choose
    trainer.agent.choose = lambda obs, epsilon, rng: seen.append(epsilon) or choose(obs, epsilon, rng)  # type: ignore
    trainer.train()
    training = [epsilon for epsilon in seen if epsilon > 0]
    assert training[:10] == [1.0] * 10
    np.testing.assert_allclose(training[10:], 1 - 0.8 * np.arange(10, 100) / 100)


def test_exploring_is_uniform_over_the_actions() -> None:
    trainer = DQNTrainer(small(), make_env=lambda: Signs(actions=4))
    obs, rng = np.ones((4_000, 3), np.float32), np.random.default_rng(0)
    best = int(trainer.agent.net.evaluate(obs[:1]).argmax())
    counts = np.bincount(trainer.agent.choose(obs, 0.4, rng), minlength=4)
    expected = np.full(4, 400.0)
    expected[best] += 2_400
    assert np.abs(counts - expected).max() < 120
    assert (trainer.agent.choose(obs, 0.0, rng) == best).all()


def test_actions_may_begin_with_any_number() -> None:
    trainer = DQNTrainer(small(**ENOUGH), make_env=lambda: Signs(first=-3))
    assert trainer.train().eval_returns.mean() >= 9.0
    assert set(trainer.buffer.sample(200).action.tolist()) == {-3, -2}
    assert trainer.act(np.ones(3, np.float32)) in (-3, -2)
    assert trainer.act(np.ones((5, 3), np.float32)).shape == (5,)


def test_stacked_frames_are_stored_once() -> None:
    trainer = DQNTrainer(small(frame_stack=4, buffer_capacity=110, eval_every=0, total_steps=300), make_env=Drift)
    given: dict[int, tuple[Any, Any]] = {}
    add = trainer.buffer.add

    def recorded(**step: Any) -> Any:
        ids = add(**step)
        given[int(ids[0])] = (step["obs"][0].copy(), step["next_obs"][0].copy())
        return ids

    trainer.buffer.add = recorded  # type: ignore[method-assign]
    trainer.train()
    stats = trainer.buffer.stats()
    assert (stats.cuts, stats.size) == (0, 110)
    assert stats.nbytes < 110 * 2.5 * 81
    batch = trainer.buffer.sample(300)
    assert batch.obs.shape == (300, 4, 9, 9)
    for index, id_ in enumerate(batch.ids.tolist()):
        np.testing.assert_array_equal(batch.obs[index], given[id_][0])
        np.testing.assert_array_equal(batch.next_obs[index], given[id_][1])


@pytest.mark.parametrize("lanes", [2, 3])
def test_vector_environments_keep_the_ratio_of_updates(lanes: int) -> None:
    config = small(num_envs=lanes, use_per=True, n_step=2, start_steps=42, frame_stack=2, update_every=2)
    result = DQNTrainer(config, make_env=Drift).train()
    assert result.updates == (result.steps - 42) // 2


def test_termination_stops_the_bootstrap_and_truncation_does_not() -> None:
    for ends, last in (("terminated", 0.0), ("truncated", 0.99)):
        trainer = DQNTrainer(small(), make_env=lambda ends=ends: Signs(ends=ends))
        trainer.train()
        batch = trainer.buffer.sample(256)
        np.testing.assert_allclose(batch.discount[batch[ends]], last)


def test_a_learner_of_another_trainer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "dqn"
    DQNTrainer(small(), make_env=Signs).save(path)
    text = f"Expected a learner of `SACTrainer`, got `{path}` of `DQNTrainer` - at `SACTrainer.load`: "
    with pytest.raises(ArgumentError, match=re.escape(text + "`DQNTrainer.load` reads it")):
        SACTrainer.load(path)
    sac = tmp_path / "sac"
    SACTrainer(SACConfig()).save(sac)
    with pytest.raises(ArgumentError, match=re.escape("Expected a learner of `DQNTrainer`")):
        DQNTrainer.load(sac)


def test_tensorboard_gets_speed_and_memory(tmp_path: Path) -> None:
    EventAccumulator = needs("tensorboard.backend.event_processing.event_accumulator").EventAccumulator

    trainer = DQNTrainer(small(log_dir=str(tmp_path), log_every=40, use_per=True), make_env=Signs)
    reports: list[Any] = []
    trainer.train(reports.append)
    trainer.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert {"loss/q", "train/mean_q", "train/epsilon", "train/return", "eval/return", "buffer/beta"} <= tags
    resident = [event.value for event in events.Scalars("system/resident_mb")]
    assert len(resident) == 3
    assert reports[-1].resident / 1e6 == pytest.approx(resident[-1], rel=0.2)
    assert all(event.value > 0 for event in events.Scalars("system/steps_per_second"))


class Odd(Signs):
    """A toy with spaces of one's choice."""

    def __init__(self, **spaces: Any) -> None:
        super().__init__()
        self.__dict__.update(spaces)


@pytest.mark.parametrize(
    ("spaces", "text"),
    [
        (
            {"action_space": gymnasium.spaces.Box(-1, 1, (2,))},
            "Expected a `Discrete` action space, got `Box(-1.0, 1.0, (2,), float32)` - at `DQNTrainer(env)`",
        ),
        (
            {"observation_space": gymnasium.spaces.Discrete(2)},
            "Expected a `Box` observation space, got `Discrete(2)` - at `DQNTrainer(env)`: "
            "wrap the environment in `gymnasium.wrappers.FlattenObservation`",
        ),
    ],
)
def test_an_unfit_environment_is_refused(spaces: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{re.escape(text)}$"):
        DQNTrainer(small(), make_env=lambda: Odd(**spaces))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("frame_stack", 0, "Expected an integer >= 1, got `0`"),
        ("target_every", 0, "Expected an integer >= 1, got `0`"),
        ("epsilon_steps", 0, "Expected an integer >= 1, got `0`"),
        ("epsilon_end", 1.5, "Expected a finite number >= 0 and <= 1, got `1.5`"),
        ("eval_epsilon", -0.1, "Expected a finite number >= 0 and <= 1, got `-0.1`"),
        ("max_grad_norm", 0, "Expected a finite number > 0, got `0`"),
        ("tau", 0, "Expected a finite number > 0 and <= 1, got `0`"),
        ("double", 1, "Expected `True` or `False`, got `1`"),
        ("dueling", None, "Expected `True` or `False`, got `None`"),
        ("net", "transformer", "Expected one of `'auto'`, `'perceptron'`, `'convolution'`, got `'transformer'`"),
        ("hidden_sizes", (0,), "Expected one positive width for each hidden layer, got `(0,)`"),
        ("batch_size", 2_000_000, "Expected at most buffer_capacity (100000), got `2000000`"),
    ],
)
def test_a_bad_setting_is_refused_by_name(name: str, value: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(f"{text} - at `DQNConfig({name})`")):
        DQNConfig(**{name: value})


def test_a_bad_call_is_refused() -> None:
    trainer = DQNTrainer(small(), make_env=Signs)
    with pytest.raises(ArgumentError, match=re.escape("got shape `(4,)` - at `DQNTrainer.act`")):
        trainer.act(np.zeros(4))
    with pytest.raises(ArgumentError, match=re.escape("at `DQNTrainer.evaluate`")):
        trainer.evaluate(0)
    with pytest.raises(ArgumentError, match=re.escape("at `DQNConfig(env_id)`")):
        DQNTrainer(DQNConfig(env_id="NoSuchThing-v7"))
