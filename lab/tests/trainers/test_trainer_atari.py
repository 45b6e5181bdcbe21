"""Atari games through ale-py: what the wrappers do, and what the buffer keeps of them."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest
from needs import needs

needs("ale_py", "cv2")

import relive_lab as lab
from relive._buffer import stored
from relive.errors import ArgumentError, MissingExtra
from relive_lab import DQNConfig, DQNTrainer, atari


def played(game: str, steps: int, training: bool) -> tuple[Any, list[dict[str, Any]]]:
    """Play a game at random; return it with the results of each step."""
    env = atari.make(f"ALE/{game}-v5", {"repeat_action_probability": 0.0}, training=training)
    env.reset(seed=0)
    env.action_space.seed(0)
    seen = []
    for _ in range(steps):
        frame = env.unwrapped.ale.getFrameNumber()  # type: ignore[attr-defined]
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        seen.append({"obs": obs, "reward": reward, "ended": terminated or truncated, "frame": frame, **info})
        if terminated or truncated:
            env.reset()
    return env, seen


def test_a_step_is_four_frames_and_an_image_84_by_84() -> None:
    env, seen = played("Pong", 100, training=True)
    assert env.observation_space.shape == (84, 84)
    assert all(step["obs"].shape == (84, 84) and step["obs"].dtype == np.uint8 for step in seen)
    assert np.diff([step["frame"] for step in seen]).tolist() == [4] * 99
    starts = set()
    for seed in range(3):
        env.reset(seed=seed)
        starts.add(env.unwrapped.ale.getEpisodeFrameNumber())
    assert len(starts) > 1  # idle frames differ
    env.close()


def test_a_life_is_an_episode_of_training_but_not_a_game() -> None:
    env, seen = played("Breakout", 250, training=True)
    ends = [step for step in seen if step["ended"]]
    # Lives count down over several episodes of one game; then a new game begins with all five.
    assert [step["lives"] for step in ends][:6] == [4, 3, 2, 1, 0, 4]
    frames = [step["episode_frame_number"] for step in ends][:6]
    assert frames[:5] == sorted(frames[:5])
    assert frames[5] < frames[4]
    env.close()
    env, seen = played("Breakout", 250, training=False)
    assert [step["lives"] for step in seen if step["ended"]][:1] == [0]
    env.close()


def test_rewards_are_signs_in_training_and_points_otherwise() -> None:
    # Aliens are worth more in each row upwards.
    for training, found in ((True, {0.0, 1.0}), (False, {0.0, 5.0, 10.0, 15.0, 20.0})):
        env, seen = played("SpaceInvaders", 200, training)
        assert {float(step["reward"]) for step in seen} == found
        env.close()


def test_games_that_wait_for_the_button_get_it() -> None:
    env = atari.make("ALE/Breakout-v5", {}, training=False)
    assert isinstance(env, atari.FireAtReset)
    env.reset(seed=0)
    for _ in range(60):
        _, _, _, _, info = env.step(0)
    # The ball is in play: it has been lost to an idle player.
    assert info["lives"] < 5
    env.close()


def test_a_game_is_stored_one_frame_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"total_steps": 220, "start_steps": 200, "eval_every": 0, "buffer_capacity": 1_000}
    config = DQNConfig.atari("ALE/Pong-v5", use_per=True, num_envs=2, torch_threads=1, **settings)
    trainer = DQNTrainer(config)
    given: dict[int, Any] = {}
    add = trainer.buffer.add

    def recorded(**step: Any) -> Any:
        ids = add(**step)
        given.update(zip(ids.tolist(), zip(step["obs"].copy(), step["next_obs"].copy(), strict=True), strict=True))
        return ids

    monkeypatch.setattr(trainer.buffer, "add", recorded)
    assert trainer.train().updates == 5
    stats = trainer.buffer.stats()
    assert (stats.cuts, stats.size) == (0, 220)
    assert stats.nbytes < 1.01 * 2 * 576 * 7_150  # rows of 500 steps and 64 final observations, in blocks of 32
    batch = trainer.buffer.sample(200)
    assert batch.obs.shape == (200, 4, 84, 84)
    for index, id_ in enumerate(batch.ids.tolist()):
        assert np.array_equal(batch.obs[index], given[id_][0])
    trainer.close()


def test_padding_takes_no_rows() -> None:
    settings = {"buffer_capacity": 150, "total_steps": 300, "start_steps": 300, "eval_every": 0}
    trainer = DQNTrainer(DQNConfig.atari("ALE/Breakout-v5", **settings))
    ends = trainer.train().episode_steps
    assert len(ends) > 5
    # A row for each step, and one for each final observation.
    stats = trainer.buffer.stats()
    assert (stats.cuts, stats.size, stored.next_rows(trainer.buffer._core).tolist()) == (0, 150, [300 + len(ends)])
    trainer.close()


def test_unknown_games_are_refused_and_settings_kept() -> None:
    with pytest.raises(ArgumentError, match=re.escape("Expected an Atari game of ale-py, got `ALE/Nope-v5`")):
        DQNTrainer(DQNConfig.atari("ALE/Nope-v5"))
    config = DQNConfig.atari("ALE/Pong-v5", n_step=1, env_kwargs={"full_action_space": True})
    assert (config.frame_stack, config.n_step) == (4, 1)
    trainer = DQNTrainer(config)
    training, evaluation = trainer.run._own_envs.envs[0], trainer.run._make_eval_env()
    for env in (training, evaluation):
        assert env.action_space.n == 18
        assert env.observation_space.shape == (4, 84, 84)
        assert env.unwrapped.ale.getFloat("repeat_action_probability") == 0.25
    # Training has lives for episodes and signs for rewards; what is reported as evaluation has not.
    assert "LifeIsEpisode" in str(training)
    assert "LifeIsEpisode" not in str(evaluation)
    assert "TransformReward" not in str(evaluation)
    evaluation.close()
    trainer.close()


@pytest.mark.parametrize("package", ["ale_py", "cv2"])
def test_what_is_missing_is_named_with_its_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(lab, "atari")
    monkeypatch.delitem(sys.modules, "relive_lab.atari")
    monkeypatch.setitem(sys.modules, package, None)
    text = f"Expected the package `{package}`, got none - at `relive_lab`: pip install 'relive-lab[atari]'"
    with pytest.raises(MissingExtra, match=f"^{re.escape(text)}$"):
        DQNTrainer(DQNConfig.atari("ALE/Pong-v5"))


@pytest.mark.slow
def test_memory_grows_by_the_rows_that_are_written_and_no_further() -> None:
    # 20,000 frames of the emulator; the ring is full after the first 2,000 of 5,000 steps.
    settings = {"total_steps": 5_000, "start_steps": 1_000, "eval_every": 0, "buffer_capacity": 2_000}
    trainer = DQNTrainer(DQNConfig.atari("ALE/Pong-v5", use_per=True, torch_threads=1, **settings))
    seen: list[tuple[int, int]] = []
    trainer.train(lambda now: seen.append((now.step, now.resident)))
    assert trainer.buffer.stats().cuts == 0
    late = [resident for step, resident in seen if step > 2_500]
    assert max(late) - late[0] < 20e6
    trainer.close()
