"""The T-maze pays and shows exactly what its description says, and its cue only once."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from relive_lab.envs import TMazeEnv

ID = "relive/TMaze-v0"
FORWARD, BACK, UP, DOWN = range(4)


@pytest.mark.parametrize("settings", [{}, {"length": 1}, {"length": 25, "render_mode": "ansi"}])
def test_env_checker(settings: dict[str, Any]) -> None:
    check_env(gymnasium.make(ID, **settings).unwrapped)


def reference(length: int, cue: float, actions: list[int]) -> list[tuple[list[float], float, bool, bool]]:
    """Return the outcome of each action by the task's rules, written down again, until the episode ends."""
    place, steps = 0, []
    for number, action in enumerate(actions, 1):
        reward, terminated = -0.05, False
        if place < length and action == FORWARD:
            place, reward = place + 1, 0.0
        elif place == length and action in (UP, DOWN):
            terminated = True
            reward = 1.0 if (action, cue) in ((UP, 1.0), (DOWN, -1.0)) else -0.1
        obs = [0.0, 1.0, 0.0, 1.0] if place < length else [0.0, 0.0, 1.0, 1.0]
        truncated = number == 3 * length and not terminated
        steps.append((obs, reward, terminated, truncated))
        if terminated or truncated:
            return steps
    return steps


@pytest.mark.parametrize("length", [1, 2, 10])
def test_every_step_is_what_the_description_says(length: int) -> None:
    env = TMazeEnv(length)
    rng = np.random.default_rng(length)
    ends, cues = set(), set()
    for episode in range(200):
        obs, info = env.reset(seed=episode)
        assert info == {}
        cue = float(obs[0])
        assert obs.tolist() == [cue, 1.0, 0.0, 1.0]
        assert cue in (-1.0, 1.0)
        actions = rng.choice(4, size=3 * length, p=[0.7, 0.1, 0.1, 0.1]).tolist()
        steps = reference(length, cue, actions)
        for action, (wanted, *outcome) in zip(actions, steps, strict=False):
            obs, reward, terminated, truncated, info = env.step(action)
            assert env.observation_space.contains(obs)
            assert (obs.tolist(), [reward, terminated, truncated]) == (wanted, outcome)
            over = terminated or truncated
            assert info == ({"is_success": reward == 1.0} if over else {})
        assert over
        ends.add((reward, terminated, truncated))
        cues.add(cue)
    assert cues == {-1.0, 1.0}
    assert {(1.0, True, False), (-0.1, True, False)} <= ends
    assert any(truncated for _, _, truncated in ends)


def test_a_turn_in_the_last_step_is_an_end_and_no_time_out() -> None:
    env = TMazeEnv(length=2)
    obs, _ = env.reset(seed=0)
    for action in (BACK, BACK, BACK, FORWARD, FORWARD):
        assert env.step(action)[2:4] == (False, False)
    assert env.step(UP if obs[0] > 0 else DOWN)[1:] == (1.0, True, False, {"is_success": True})


def test_seeds_decide_the_cues_and_both_are_as_likely() -> None:
    env, twin = TMazeEnv(), TMazeEnv()
    cues = [float(e.reset(seed=7)[0][0]) for e in (env, twin)]
    later = [[float(e.reset()[0][0]) for _ in range(1_000)] for e in (env, twin)]
    assert cues[0] == cues[1]
    assert later[0] == later[1]
    assert 0.45 < np.mean(np.array(later[0]) > 0) < 0.55


def test_lanes_of_a_vector_environment_are_single_environments() -> None:
    envs = gymnasium.make_vec(ID, num_envs=3, length=4)
    singles = [gymnasium.make(ID, length=4) for _ in range(3)]
    obs, _ = envs.reset(seed=5)
    np.testing.assert_array_equal(obs, [env.reset(seed=5 + i)[0] for i, env in enumerate(singles)])
    for action in (FORWARD, FORWARD, BACK, FORWARD, FORWARD, DOWN):
        obs, reward, terminated, truncated, _ = envs.step(np.full(3, action))
        for i, env in enumerate(singles):
            own = env.step(action)
            np.testing.assert_array_equal(obs[i], own[0])
            assert (reward[i], terminated[i], truncated[i]) == own[1:4]
    assert terminated.all()


def test_the_drawing_shows_the_agent_and_the_cue_only_at_the_start() -> None:
    env = TMazeEnv(length=3, render_mode="ansi")
    for seed in range(6):
        cue = env.reset(seed=seed)[0][0]
        word = "up" if cue > 0 else "down"
        assert env.render() == f"      U\n@ . . + cue: {word}\n      D"
        for expected in (". @ . +", ". . @ +", ". . . @"):
            env.step(FORWARD)
            assert env.render() == f"      U\n{expected}\n      D"
    assert TMazeEnv().render() is None
