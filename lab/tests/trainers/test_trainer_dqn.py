"""Whole runs of deep Q-learning on small environments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dqn_toys import Drift, Signs, small

from relive.errors import ArgumentError
from relive_lab import DQNTrainer, SACConfig, SACTrainer

ENOUGH: dict[str, Any] = {"total_steps": 400, "eval_every": 400, "gamma": 0.5, "learning_rate": 1e-2}


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
