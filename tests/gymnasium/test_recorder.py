"""Every item that a recorded environment yields is one that was lived through, in every autoreset mode."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import gymnasium
import numpy as np
import pytest
from counting import KINDS, Counting, code, length
from depth import pairs
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import relive
from relive.gymnasium import Recorder

LANES = 3
MODES = list(AutoresetMode)


def makers(kind: str, lanes: int = LANES) -> list[Any]:
    return [lambda number=number: Counting(number, kind) for number in range(lanes)]


def buffer_of(envs: Any, item: Any = None) -> relive.ReplayBuffer:
    schema = relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space)
    return relive.ReplayBuffer(schema, 1000 * envs.num_envs, num_envs=envs.num_envs, item=item)


def record(env: Any, steps: int, user_resets: bool) -> list[tuple[int, int]]:
    """Step a recorder, or a wrapper around one; return lane and length of the episodes that `infos` report."""
    env.reset(seed=0)
    shape = env.action_space.shape
    episodes = []
    for t in range(steps):
        _, _, terminated, truncated, infos = env.step(np.full(shape, t, np.float32))
        ended = np.atleast_1d(np.logical_or(terminated, truncated))
        if "episode" in infos:
            episodes += [(int(lane), int(np.atleast_1d(infos["episode"]["l"])[lane])) for lane in np.flatnonzero(ended)]
        if user_resets and ended.any():
            env.reset(options={"reset_mask": ended} if len(shape) == 2 else None)
    return episodes


def plain(obs: Any) -> np.ndarray:
    return np.asarray(obs["code"] if "code" in obs else obs["0"]) if not isinstance(obs, np.ndarray) else obs


def drawable(buffer: relive.ReplayBuffer) -> relive.Batch:
    return buffer.read(np.sort(buffer.ids()))


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


def check_lanes(buffer: relive.ReplayBuffer, mode: AutoresetMode, calls: int) -> None:
    """Check that every stored step is right, and that each lane's first steps have no gap."""
    n = buffer.item.n_step
    seen = check(drawable(buffer), n, buffer.item.gamma)
    assert max(seen.values()) == 1
    for number in range(buffer.num_envs):
        lived = [(e, t) for e in range(calls) for t in range(length(number, e))]
        stored = sorted((e, t) for i, e, t in seen if i == number)
        assert stored == lived[: len(stored)]
        resets = max(e for e, _ in stored)
        spent = len(stored) + (resets if mode is AutoresetMode.NEXT_STEP else 0)
        assert calls - (n - 1) - 1 <= spent <= calls
    assert buffer.stats().cuts == 0


@pytest.mark.parametrize(("way", "size"), pairs(product(KINDS, MODES), list(product((1, LANES), (1, 3)))), ids=str)
def test_vector_environments_in_every_mode(way: tuple[str, AutoresetMode], size: tuple[int, int]) -> None:
    (kind, mode), (lanes, n) = way, size
    envs = SyncVectorEnv(makers(kind, lanes), autoreset_mode=mode)
    buffer = buffer_of(envs, relive.Transitions(n_step=n, gamma=0.9))
    record(Recorder(envs, buffer), 40, user_resets=mode is AutoresetMode.DISABLED)
    check_lanes(buffer, mode, 40)


class Foreign:
    """A vector environment with Gymnasium's methods, but none of its classes."""

    def __init__(self, envs: SyncVectorEnv) -> None:
        self.num_envs, self.action_space, self._envs = envs.num_envs, envs.action_space, envs
        self.step = envs.step

    def reset(self, options: dict[str, Any] | None = None, seed: int = 0) -> Any:
        return self._envs.reset(options=options, seed=seed)


class Batched(gymnasium.Env):  # type: ignore[misc]
    """Many environments in the class of a single one, as simulators on a GPU are."""

    def __init__(self, envs: SyncVectorEnv) -> None:
        self.num_envs, self.action_space, self.observation_space = 3, envs.action_space, envs.observation_space
        self.step, self.reset, self.metadata = envs.step, envs.reset, envs.metadata


def dressed(dress: str, made: SyncVectorEnv, buffer: relive.ReplayBuffer) -> tuple[Any, Any]:
    """Return a recorder of environments in some dress, and the one that is stepped."""
    statistics = gymnasium.wrappers.vector.RecordEpisodeStatistics
    if dress == "foreign":
        recorder: Any = Recorder(Foreign(made), buffer, autoreset_mode=made.metadata["autoreset_mode"].name)
    elif "batched" in dress:
        recorder = Recorder(gymnasium.Wrapper(Batched(made)) if "wrapped" in dress else Batched(made), buffer)
    else:
        inside = statistics(made, stats_key="episode" if dress == "inside" else "inner") if dress != "outside" else made
        recorder = Recorder(inside, buffer)
        assert recorder.unwrapped is made
        assert recorder.np_random_seed == made.np_random_seed
    return recorder, statistics(recorder) if dress in ("outside", "both") else recorder


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("dress", ["foreign", "batched", "batched and wrapped", "inside", "outside", "both"])
def test_vector_environments_are_known_by_their_lanes_and_wrapped_inside_and_outside(
    mode: AutoresetMode, dress: str
) -> None:
    made = SyncVectorEnv(makers("dict"), autoreset_mode=mode)
    buffer = buffer_of(made)
    recorder, env = dressed(dress, made, buffer)
    assert isinstance(recorder, VectorEnv)
    assert recorder.metadata["autoreset_mode"] is mode
    episodes = record(env, 40, user_resets=mode is AutoresetMode.DISABLED)
    check_lanes(buffer, mode, 40)
    # Inside, statistics never see the mask of DISABLED mode: the environment takes it out of the options.
    told = dress in ("outside", "both") or (dress == "inside" and mode is not AutoresetMode.DISABLED)
    for lane in range(LANES if told else 0):
        lengths = [steps for number, steps in episodes if number == lane]
        assert lengths
        assert lengths == [length(lane, episode) for episode in range(len(lengths))]
    if told:
        env.close()
        assert made.closed


def test_wrappers_of_single_environments_go_inside_and_outside() -> None:
    made = Counting()
    buffer = relive.ReplayBuffer(relive.Schema.from_spaces(made.observation_space, made.action_space), 100)
    recorder: Any = Recorder(gymnasium.wrappers.TimeLimit(made, 3), buffer)
    assert isinstance(recorder, gymnasium.Wrapper)
    env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.wrappers.TransformReward(recorder, lambda r: 100 * r))
    lengths = [steps for _, steps in record(env, 30, user_resets=True)]
    assert lengths == [min(length(0, episode), 3) for episode in range(len(lengths))]
    assert env.unwrapped is made
    env.set_wrapper_attr("number", 7)
    assert (made.number, recorder.get_wrapper_attr("number")) == (7, 7)
    batch = drawable(buffer)
    np.testing.assert_array_equal(batch.reward, batch.obs[:, 2] + 1)  # the one outside changes nothing that is stored
    np.testing.assert_array_equal((batch.terminated | batch.truncated)[:11], [0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1])


@pytest.mark.parametrize("autoreset", [False, True])
def test_single_environments(autoreset: bool) -> None:
    env = gymnasium.wrappers.Autoreset(Counting()) if autoreset else Counting()
    buffer = relive.ReplayBuffer(relive.Schema.from_spaces(env.observation_space, env.action_space), 100)
    record(Recorder(env, buffer), 20, user_resets=not autoreset)
    seen = check(drawable(buffer), 1, 0.99)
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
