"""Whole runs of SAC on small environments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from needs import needs
from trainer_toys import Toy, small

from relive.errors import ArgumentError
from relive_lab import Progress, SACConfig, SACTrainer


def test_sac_trainer_runs_with_per() -> None:
    trainer = SACTrainer(small(use_per=True), make_env=Toy)
    result = trainer.train()
    assert (result.steps, result.updates) == (120, 20)
    assert result.eval_steps.tolist() == [60, 120]
    assert result.eval_episodes.tolist() == [6, 12]
    assert result.eval_returns.shape == (2, 3)
    assert result.episode_steps.tolist() == list(range(10, 121, 10))
    assert (result.episode_returns <= 10.0).all()  # a reward of at most 1 in each of 10 steps
    stats = trainer.buffer.stats()
    assert stats.priority_quantiles[0] < stats.priority_quantiles[-1]
    assert 0.4 < stats.beta <= 1.0


@pytest.mark.parametrize("use_per", [False, True])
def test_the_same_seed_gives_the_same_run(use_per: bool) -> None:
    runs = [SACTrainer(small(use_per=use_per, seed=seed), make_env=Toy).train() for seed in (3, 3, 4)]
    assert np.array_equal(runs[0].episode_returns, runs[1].episode_returns)
    assert np.array_equal(runs[0].eval_returns, runs[1].eval_returns)
    assert not np.array_equal(runs[0].episode_returns, runs[2].episode_returns)


def test_arms_share_what_comes_before_the_first_update() -> None:
    uniform, prioritized = (SACTrainer(small(use_per=per), make_env=Toy).train() for per in (False, True))
    assert np.array_equal(uniform.episode_returns[:4], prioritized.episode_returns[:4])


def test_n_step_targets_come_from_the_buffer() -> None:
    trainer = SACTrainer(small(n_step=3, gamma=0.9), make_env=Toy)
    trainer.train()
    batch = trainer.buffer.sample(64)
    assert set(batch.steps.tolist()) == {1, 2, 3}
    np.testing.assert_allclose(batch.discount, 0.9**batch.steps, rtol=1e-6)


def test_termination_stops_the_bootstrap_and_truncation_does_not() -> None:
    for ends, last in (("terminated", 0.0), ("truncated", 0.99)):
        trainer = SACTrainer(small(), make_env=lambda ends=ends: Toy(ends=ends))
        trainer.train()
        batch = trainer.buffer.sample(256)
        over = batch[ends]
        assert over.any()
        np.testing.assert_allclose(batch.discount[over], last)


@pytest.mark.parametrize("lanes", [2, 3, 7])
def test_vector_environments_keep_the_ratio_of_updates(lanes: int) -> None:
    trainer = SACTrainer(small(num_envs=lanes, use_per=True, n_step=2, start_steps=84, update_every=1), make_env=Toy)
    result = trainer.train()
    assert 120 <= result.steps < 120 + lanes
    assert result.updates == result.steps - 84
    assert len(result.episode_returns) == result.steps // lanes // 10 * lanes
    assert trainer.buffer.num_envs == lanes


@pytest.mark.parametrize(("every", "rounds", "updates"), [(8, 1, 2), (4, 3, 15), (1, 2, 40)])
def test_updates_come_as_often_as_asked_for(every: int, rounds: int, updates: int) -> None:
    result = SACTrainer(small(total_steps=60, update_every=every, updates_per_step=rounds), make_env=Toy).train()
    assert result.updates == updates


@pytest.mark.parametrize("obs_shape", [(), (1,), (2, 3), (4, 4, 2)])
@pytest.mark.parametrize("action_shape", [(), (3,), (2, 2)])
def test_any_shape_of_observation_and_action(obs_shape: tuple[int, ...], action_shape: tuple[int, ...]) -> None:
    config = small(total_steps=50, start_steps=44, update_every=2, eval_every=50, num_envs=2, use_per=True)
    trainer = SACTrainer(config, make_env=lambda: Toy(obs_shape, action_shape))
    assert trainer.train().updates == 3
    obs = np.zeros(obs_shape, np.float32)
    assert trainer.act(obs).shape == action_shape
    assert trainer.act(np.stack([obs] * 5)).shape == (5, *action_shape)


@pytest.mark.parametrize("dtype", [np.float64, np.uint8])
def test_any_numeric_observation(dtype: Any) -> None:
    trainer = SACTrainer(small(total_steps=60), make_env=lambda: Toy((4,), obs_dtype=dtype))
    assert trainer.train().updates == 5
    assert trainer.buffer.sample(4).obs.dtype == dtype


def test_actions_fill_their_bounds() -> None:
    # The toy refuses actions outside its bounds; one axis has no width at all.
    low, high = np.array([-3.0, 10.0, 0.1]), np.array([1.0, 11.0, 0.1])
    trainer = SACTrainer(small(start_steps=100), make_env=lambda: Toy((3,), (3,), low=low, high=high))
    trainer.train()
    actions = trainer.buffer.sample(512).action
    assert (actions.min(axis=0)[:2] < low[:2] + 0.2).all()
    assert (actions.max(axis=0)[:2] > high[:2] - 0.2).all()
    np.testing.assert_allclose(actions[:, 2], 0.1)


def test_acting_is_deterministic_unless_asked_otherwise() -> None:
    trainer = SACTrainer(small(), make_env=Toy)
    obs = np.ones((3,), np.float32)
    assert np.array_equal(trainer.act(obs), trainer.act(obs))
    assert not np.array_equal(trainer.act(obs, deterministic=False), trainer.act(obs, deterministic=False))
    np.testing.assert_allclose(trainer.act(np.stack([obs, obs]))[1], trainer.act(obs), rtol=1e-5)


def test_evaluation_plays_the_same_episodes_every_time() -> None:
    made: list[Toy] = []

    def make() -> Toy:
        made.append(Toy())
        return made[-1]

    trainer = SACTrainer(small(eval_episodes=20), make_env=make)
    training = len(made)
    first, second = trainer.evaluate(), trainer.evaluate()
    assert np.array_equal(first, second)
    assert first.shape == (20,)
    assert trainer.evaluate(5).shape == (5,)
    seeds = [seed for env in made[training:] for seed in env.seeds if seed is not None]
    assert set(seeds) >= set(range(1_000_000, 1_000_020))
    assert not {seed for env in made[:training] for seed in env.seeds} & set(seeds)


def test_an_evaluator_takes_the_place_of_evaluation() -> None:
    def evaluator(policy: Any) -> Any:
        return policy(np.zeros((4, 3), np.float32)).mean(axis=1)

    result = SACTrainer(small(), make_env=Toy, evaluator=evaluator).train()
    assert result.eval_returns.shape == (2, 4)


def test_progress_can_end_a_run_which_then_goes_on() -> None:
    seen: list[Progress] = []
    trainer = SACTrainer(small(), make_env=Toy)
    first = trainer.train(lambda progress: seen.append(progress) or progress.step < 60)
    assert first.steps == 60
    assert seen[-1].eval_return == pytest.approx(first.eval_returns[-1].mean())
    assert (seen[-1].total_steps, seen[-1].episodes, seen[-1].updates) == (120, 6, 5)
    second = trainer.train()
    assert (second.steps, second.updates) == (120, 20)
    assert len(second.eval_steps) == 2


def test_tensorboard_gets_returns_losses_and_the_buffer(tmp_path: Path) -> None:
    EventAccumulator = needs("tensorboard.backend.event_processing.event_accumulator").EventAccumulator

    config = small(log_dir=str(tmp_path), log_every=30, use_per=True)
    trainer = SACTrainer(config, make_env=Toy)
    trainer.train()
    trainer.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert {"train/return", "eval/return", "loss/critic", "loss/actor", "loss/alpha"} <= tags
    assert {"buffer/size", "buffer/replay_ratio", "buffer/beta", "buffer/priority_50", "buffer/age_max"} <= tags
    assert [event.step for event in events.Scalars("buffer/size")] == [30, 60, 90, 120]


class Aside(Toy):
    """A toy that wants actions of 0.7."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, _, *ends = super().step(action)
        return obs, 1.0 - float(np.square(action - 0.7).mean()), *ends  # type: ignore[return-value]


def test_it_learns() -> None:
    config = small(use_per=True, total_steps=200, update_every=2, gamma=0.5, learning_rate=1e-2, init_alpha=0.1)
    trainer = SACTrainer(config, make_env=Aside)
    assert trainer.evaluate().mean() < 7.0
    trainer.train()
    assert trainer.evaluate().mean() >= 9.0


class Odd(Toy):
    """A toy with spaces of one's choice."""

    def __init__(self, **spaces: Any) -> None:
        super().__init__()
        self.__dict__.update(spaces)


UNFIT: list[tuple[dict[str, Any], str]] = [
    (
        {"action_space": gymnasium.spaces.Discrete(3)},
        "Expected a `Box` action space of floats, got `Discrete(3)` - at `SACTrainer(env)`",
    ),
    (
        {"action_space": gymnasium.spaces.Box(0, 9, (2,), np.int64)},
        "Expected a `Box` action space of floats, got `Box(0, 9, (2,), int64)` - at `SACTrainer(env)`",
    ),
    (
        {"action_space": gymnasium.spaces.Box(-np.inf, 1.0, (2,), np.float32)},
        "Expected bounded actions, got `Box(-inf, 1.0, (2,), float32)` - at `SACTrainer(env)`: "
        "wrap the environment so that its actions have bounds",
    ),
    (
        {"observation_space": gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(2)})},
        "Expected a `Box` observation space, got `Dict('a': Discrete(2))` - at `SACTrainer(env)`: "
        "wrap the environment in `gymnasium.wrappers.FlattenObservation`",
    ),
]


@pytest.mark.parametrize(("spaces", "text"), UNFIT)
def test_an_unfit_environment_is_refused(spaces: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{re.escape(text)}$"):
        SACTrainer(small(), make_env=lambda: Odd(**spaces))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda t: t.act(np.zeros(4)),
            "an observation of shape `(3,)`, or a batch, got shape `(4,)` - at `SACTrainer.act`",
        ),
        (lambda t: t.act(np.zeros((2, 2, 3))), "got shape `(2, 2, 3)` - at `SACTrainer.act`"),
        (lambda t: t.evaluate(0), "Expected a positive number of episodes, got `0` - at `SACTrainer.evaluate`"),
    ],
)
def test_a_bad_call_is_refused(call: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(text)):
        call(SACTrainer(small(), make_env=Toy))


def test_an_unknown_environment_or_device_is_refused() -> None:
    with pytest.raises(ArgumentError, match=re.escape("at `SACConfig(env_id)`")):
        SACTrainer(SACConfig(env_id="NoSuchThing-v7"))
    with pytest.raises(ArgumentError, match=re.escape("at `SACConfig(device)`")):
        SACTrainer(small(device="abacus"), make_env=Toy)


def test_an_environment_of_relive_needs_no_import() -> None:
    config = small(env_id="relive/PairsTrading-v0", env_kwargs={"mode": "dislocation", "sigma": 0.3}, eval_every=0)
    assert SACTrainer(config).train().updates == 20
