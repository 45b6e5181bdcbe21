"""Whole runs of SAC on small environments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from trainer_toys import Toy, small

from relive_lab import SACTrainer


def test_n_step_targets_come_from_the_buffer() -> None:
    trainer = SACTrainer(small(n_step=3, gamma=0.9), make_env=Toy)
    trainer.train()
    batch = trainer.buffer.sample(64)
    assert set(batch.steps.tolist()) == {1, 2, 3}
    np.testing.assert_allclose(batch.discount, 0.9**batch.steps, rtol=1e-6)


@pytest.mark.parametrize(
    ("obs_shape", "action_shape", "dtype"),
    [((), (3,), np.float32), ((1,), (), np.float64), ((2, 3), (2, 2), np.uint8), ((4, 4, 2), (3,), np.float32)],
)
def test_any_shape_and_number(obs_shape: tuple[int, ...], action_shape: tuple[int, ...], dtype: Any) -> None:
    config = small(total_steps=50, start_steps=44, update_every=2, eval_every=50, num_envs=2, use_per=True)
    trainer = SACTrainer(config, make_env=lambda: Toy(obs_shape, action_shape, obs_dtype=dtype))
    assert trainer.train().updates == 3
    assert trainer.buffer.sample(4).obs.dtype == dtype
    obs = np.zeros(obs_shape, dtype)
    assert trainer.act(obs).shape == action_shape
    assert trainer.act(np.stack([obs] * 5)).shape == (5, *action_shape)


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


class Aside(Toy):
    """A toy that wants actions of 0.7."""

    def _reward(self, action: Any) -> float:
        return 1.0 - float(np.square(action - 0.7).mean())


def test_it_learns() -> None:
    config = small(use_per=True, total_steps=200, update_every=2, gamma=0.5, learning_rate=1e-2, init_alpha=0.1)
    trainer = SACTrainer(config, make_env=Aside)
    assert trainer.evaluate().mean() < 7.0
    trainer.train()
    assert trainer.evaluate().mean() >= 9.0
