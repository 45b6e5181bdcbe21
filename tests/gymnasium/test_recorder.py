"""Every item that a recorded environment yields is one that was lived through, in every autoreset mode."""

from __future__ import annotations

from collections import Counter
from typing import Any

import gymnasium
import numpy as np
import pytest
from counting import KINDS, Counting, code, length
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import relive
from relive.gymnasium import Recorder

LANES = 3
MODES = list(AutoresetMode)


def makers(kind: str) -> list[Any]:
    return [lambda number=number: Counting(number, kind) for number in range(LANES)]


def record(recorder: Recorder, steps: int, user_resets: bool) -> None:
    recorder.reset(seed=0)
    lanes = recorder.buffer.num_envs
    for t in range(steps):
        action = np.full((lanes, 1), t, np.float32)
        _, _, terminated, truncated, _ = recorder.step(action if recorder._vector else action[0])
        ended = np.atleast_1d(np.logical_or(terminated, truncated))
        if user_resets and ended.any():
            recorder.reset(options={"reset_mask": ended} if recorder._vector else None)


def plain(obs: Any) -> np.ndarray:
    return np.asarray(obs["code"] if "code" in obs else obs["0"]) if not isinstance(obs, np.ndarray) else obs


def drawable(buffer: relive.ReplayBuffer, rows: int) -> relive.Batch:
    ids = []
    for number in range(rows * buffer.num_envs):
        try:
            buffer.read([number])
            ids.append(number)
        except relive.errors.StaleId:
            pass
    return buffer.read(ids)


def check(batch: relive.Batch, n: int, gamma: float) -> Counter[tuple[int, int, int]]:
    """Compare every item with the only thing it can be; return how often each step was seen."""
    seen: Counter[tuple[int, int, int]] = Counter()
    for i in range(len(batch.ids)):
        number, episode, t = (int(x) for x in plain(batch.obs)[i])
        end = length(number, episode)
        m = min(n, end - t)
        assert batch.steps[i] == m
        assert batch.reward[i] == pytest.approx(sum(gamma**k * (t + k + 1) for k in range(m)))
        np.testing.assert_array_equal(plain(batch.next_obs)[i], code(number, episode, t + m))
        terminated = t + m == end and episode % 2 == 1
        assert bool(batch.terminated[i]) is terminated
        assert bool(batch.truncated[i]) is (t + m == end and episode % 2 == 0)
        assert batch.discount[i] == pytest.approx(0.0 if terminated else gamma**m)
        seen[number, episode, t] += 1
    return seen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("n", [1, 3])
def test_vector_environments_in_every_mode(mode: AutoresetMode, kind: str, n: int) -> None:
    envs = SyncVectorEnv(makers(kind), autoreset_mode=mode)
    schema = relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space)
    item = relive.Transitions(n_step=n, gamma=0.9)
    buffer = relive.ReplayBuffer(schema, 3000, num_envs=LANES, item=item)
    record(Recorder(envs, buffer), 40, user_resets=mode is AutoresetMode.DISABLED)
    seen = check(drawable(buffer, 80), n, 0.9)
    assert max(seen.values()) == 1
    # Each lane's first steps are there without a gap: nothing was skipped, and no reset was taken for a step.
    for number in range(LANES):
        lived = [(e, t) for e in range(40) for t in range(length(number, e))]
        stored = sorted((e, t) for i, e, t in seen if i == number)
        assert stored == lived[: len(stored)]
        resets = max(e for e, _ in stored)
        spent = len(stored) + (resets if mode is AutoresetMode.NEXT_STEP else 0)
        assert 40 - (n - 1) - 1 <= spent <= 40
    assert buffer.stats().cuts == 0


def test_asynchronous_environments_too() -> None:
    envs = AsyncVectorEnv(makers("dict"), autoreset_mode=AutoresetMode.SAME_STEP, shared_memory=True)
    try:
        schema = relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space)
        buffer = relive.ReplayBuffer(schema, 3000, num_envs=LANES)
        record(Recorder(envs, buffer), 12, user_resets=False)
        assert sum(check(drawable(buffer, 40), 1, 0.99).values()) == 12 * LANES
    finally:
        envs.close()


@pytest.mark.parametrize("autoreset", [False, True])
def test_single_environments(autoreset: bool) -> None:
    env = gymnasium.wrappers.Autoreset(Counting()) if autoreset else Counting()
    buffer = relive.ReplayBuffer(relive.Schema.from_spaces(env.observation_space, env.action_space), 100)
    record(Recorder(env, buffer), 20, user_resets=not autoreset)
    seen = check(drawable(buffer, 60), 1, 0.99)
    assert len(seen) == (20 if not autoreset else 20 - max(e for _, e, _ in seen))


def test_a_reset_in_mid_episode_is_a_cut_even_if_the_observations_are_alike() -> None:
    class Constant(Counting):
        def _obs(self) -> Any:
            return np.zeros(3, np.float32)

    env = Constant()
    item = relive.Transitions(n_step=2, gamma=0.5)
    buffer = relive.ReplayBuffer(relive.Schema.from_spaces(env.observation_space, env.action_space), 100, item=item)
    recorder = Recorder(env, buffer)
    recorder.reset()
    recorder.step(np.zeros(1, np.float32))
    first = recorder.ids
    recorder.reset()
    recorder.step(np.zeros(1, np.float32))
    batch = buffer.read(first)
    assert (batch.steps[0], batch.discount[0], batch.terminated[0], batch.truncated[0]) == (1, 0.5, False, False)
    assert buffer.stats().cuts == 1


def test_extras_and_priorities_go_through() -> None:
    envs = SyncVectorEnv(makers("array"), autoreset_mode=AutoresetMode.NEXT_STEP)
    schema = relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space, log_prob=relive.Field())
    buffer = relive.ReplayBuffer(schema, 300, num_envs=LANES, sampler=relive.Prioritized())
    recorder = Recorder(envs, buffer)
    recorder.reset()
    for t in range(8):  # some lanes are reset on the way
        step = np.arange(LANES, dtype=np.float32) + 10 * t
        recorder.step(np.zeros((LANES, 1), np.float32), log_prob=step, priority=step + 1)
    batch = drawable(buffer, 20)
    np.testing.assert_array_equal(buffer.priorities(batch.ids).round(3), batch.log_prob + 1)


def test_it_is_used_like_the_environment_and_refuses_what_cannot_work() -> None:
    envs = SyncVectorEnv(makers("array"), autoreset_mode=AutoresetMode.NEXT_STEP)
    schema = relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space)
    buffer = relive.ReplayBuffer(schema, 300, num_envs=LANES)
    recorder = Recorder(envs, buffer)
    assert recorder.num_envs == LANES
    assert recorder.single_action_space == envs.single_action_space
    with pytest.raises(relive.errors.ArgumentError, match=r"Expected `reset` before the first `step`"):
        recorder.step(np.zeros((LANES, 1)))
    with pytest.raises(relive.errors.ArgumentError, match=r"Expected a buffer with num_envs=3"):
        Recorder(envs, relive.ReplayBuffer(schema, 300))
    envs.metadata = {}
    with pytest.raises(relive.errors.ArgumentError, match=r"Expected an autoreset mode: `NEXT_STEP`"):
        Recorder(envs, buffer)
    Recorder(envs, buffer, autoreset_mode="NextStep")
