"""Environments that write to the actions that they are given, and workers that reset once more than they were asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from counting import Counting
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import relive
from relive.gymnasium import Recorder

BOX = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
SPACES = {
    "array": BOX,
    "dict": gymnasium.spaces.Dict({"arm": BOX, "hand": gymnasium.spaces.Dict({"a": BOX})}),
    "tuple": gymnasium.spaces.Tuple((BOX, BOX)),
}


def scaled(action: Any) -> None:
    """Scale in place, whatever is in it."""
    if isinstance(action, dict):
        action = tuple(action.values())
    for part in action if isinstance(action, tuple) else [action]:
        if isinstance(part, np.ndarray):
            part *= 0.05
        elif isinstance(part, list):
            part[:] = [0.05 * each if isinstance(each, float) else scaled(each) or each for each in part]
        elif hasattr(part, "mul_"):
            part.mul_(0.05)
        else:
            scaled(part)


class Torque(gymnasium.Env):  # type: ignore[misc]
    observation_space = gymnasium.spaces.Box(-9, 9, (1,), np.float32)

    def __init__(self, kind: str = "array") -> None:
        self.action_space = SPACES[kind]

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, ...]:
        scaled(action)
        return np.zeros(1, np.float32), 0.0, False, False, {}


class Torques(SyncVectorEnv):
    """A vector environment that scales the whole batch."""

    def step(self, actions: Any) -> Any:
        scaled(actions)
        return super().step(actions)


def leaves(value: Any) -> list[np.ndarray]:
    if isinstance(value, Mapping):
        return [leaf for child in value.values() for leaf in leaves(child)]
    return [np.asarray(value)]


@pytest.mark.parametrize("extras", [False, True])
@pytest.mark.parametrize("kind", [*SPACES, "list", "tensor"])
@pytest.mark.parametrize("lanes", [None, 2])
def test_the_action_that_was_given_is_stored(lanes: int | None, kind: str, extras: bool) -> None:
    form = kind if kind in SPACES else "array"
    env = Torque(form) if lanes is None else Torques([lambda: Torque(form)] * lanes)
    space = getattr(env, "single_action_space", env.action_space)
    more = {"note": relive.Field()} if extras else {}
    schema = relive.Schema.from_spaces(Torque.observation_space, space, **more)
    buffer = relive.ReplayBuffer(schema, 20, num_envs=lanes or 1)
    recorder = Recorder(env, buffer)
    recorder.reset(seed=0)
    space.seed(0)
    action: Any = env.action_space.sample()
    wanted = [leaf.copy() for leaf in leaves(dict(enumerate(action)) if isinstance(action, tuple) else action)]
    if kind == "list":
        action = action.tolist()
    if kind == "tensor":
        action = pytest.importorskip("torch").from_numpy(action)
    recorder.step(action, **({"note": np.zeros(lanes or ())} if extras else {}))
    for stored, leaf in zip(leaves(buffer.read(np.arange(lanes or 1)).action), wanted, strict=True):
        np.testing.assert_array_equal(stored.reshape(leaf.shape), leaf)


@pytest.mark.filterwarnings(r"ignore:os\.fork\(\)")  # where another test has loaded JAX
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=str)
@pytest.mark.parametrize("kind", ["shared memory", "pipes", "one process"])
def test_a_reset_right_behind_an_end_joins_no_episodes(kind: str, mode: AutoresetMode) -> None:
    """Check with Gymnasium's workers, which reset once more at the step after it, unless they share memory."""
    makers = [lambda number=number: Counting(number) for number in range(2)]
    choices = {"autoreset_mode": mode}
    if kind == "one process":
        envs: Any = SyncVectorEnv(makers, **choices)
    else:
        envs = AsyncVectorEnv(makers, shared_memory=kind == "shared memory", **choices)
    schema = relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space)
    buffer = relive.ReplayBuffer(schema, 400, num_envs=2)
    recorder, rng, ended = Recorder(envs, buffer), np.random.default_rng(0), np.zeros(2, bool)
    recorder.reset()
    steps = 0
    for _ in range(120):
        if ended.any() and (mode is AutoresetMode.DISABLED or rng.random() < 0.5):
            some = mode is AutoresetMode.DISABLED and rng.random() < 0.5
            recorder.reset(options={"reset_mask": ended} if some else None)
        _, reward, terminated, truncated, _ = recorder.step(np.zeros((2, 1), np.float32))
        ended = terminated | truncated
        steps += int((reward > 0).sum())
    envs.close()
    assert len(buffer) == steps > 100, "a real step has a reward: each of them is stored, and no other"
    for batch in buffer.batches(100, shuffle=False):
        assert (batch.reward == batch.obs[:, 2] + 1).all()
        np.testing.assert_array_equal(batch.obs[:, :2], batch.next_obs[:, :2])
        np.testing.assert_array_equal(batch.obs[:, 2] + 1, batch.next_obs[:, 2])


class Reused(gymnasium.Env):  # type: ignore[misc]
    """Returns one array again and again, with the number of the step in it."""

    observation_space, action_space = gymnasium.spaces.Box(-99, 99, (1,), np.float32), BOX

    def __init__(self) -> None:
        self._obs = np.zeros(1, np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self._obs[:] = 0
        return self._obs, {}

    def step(self, action: Any) -> tuple[Any, ...]:
        self._obs += 1
        return self._obs, 0.0, False, False, {}


def test_an_observation_that_the_environment_writes_over_is_stored_as_it_was() -> None:
    env = Reused()
    schema = relive.Schema.from_spaces(env.observation_space, env.action_space)
    buffer = relive.ReplayBuffer(schema, 20, seed=0)
    recorder = Recorder(env, buffer)
    recorder.reset()
    for _ in range(6):
        recorder.step(np.zeros(2, np.float32))
    batch = buffer.read(buffer.ids())
    assert (batch.obs[:, 0].tolist(), batch.next_obs[:, 0].tolist()) == ([*range(6)], [*range(1, 7)])
    assert buffer.stats().cuts == 0


class Keeping(relive.ReplayBuffer):
    """Keeps what it was given, as a user's subclass may."""

    def __init__(self, *arguments: Any, **choices: Any) -> None:
        super().__init__(*arguments, **choices)
        self.given: list[dict[str, Any]] = []

    def add(self, **step: Any) -> Any:
        self.given.append({name: np.asarray(value) for name, value in step.items()})
        return super().add(**step)


@pytest.mark.parametrize("viewed", [False, True])
def test_arrays_that_a_buffer_keeps_are_not_written_over(viewed: bool) -> None:
    """Check with the arrays themselves and with views of them; else their memory serves for later steps."""
    env = Reused()
    buffer = Keeping(relive.Schema.from_spaces(env.observation_space, env.action_space), 20, seed=0)
    recorder = Recorder(env, buffer)
    recorder.reset()
    for t in range(6):
        recorder.step(np.full(2, t, np.float32))
        if viewed:
            buffer.given[-1] = {name: value[...] for name, value in buffer.given[-1].items()}
    assert [step["obs"].item() for step in buffer.given] == [*range(6)]
    assert [step["action"].tolist() for step in buffer.given] == [[t, t] for t in range(6)]


@pytest.mark.parametrize("form", ["view of bytes", "big-endian", "strided", "0-d"])
def test_flags_and_observations_of_odd_forms_are_read_right(form: str) -> None:
    """Check forms that the copy of bytes has to leave alone, or to look at closely: a set flag may be any byte."""

    class Odd(Reused):
        def step(self, action: Any) -> tuple[Any, ...]:
            obs, reward, _, truncated, infos = super().step(action)
            over: Any = self._obs[0] == 3
            if form == "view of bytes":
                over = np.array([2 * over], np.uint8).view(bool)
            elif form == "big-endian":
                obs = obs.astype(">f4")
            elif form == "strided":
                obs = np.repeat(obs, 2)[::2]
            else:
                over = np.array(over)
            return obs, reward, over, truncated, infos

    env = Odd()
    buffer = relive.ReplayBuffer(relive.Schema.from_spaces(env.observation_space, env.action_space), 20, seed=0)
    recorder = Recorder(env, buffer)
    for _ in range(3):
        recorder.reset()
        for _ in range(3):
            recorder.step(np.zeros(2, np.float32))
    batch = buffer.read(buffer.ids())
    assert batch.obs[:, 0].tolist() == [0, 1, 2] * 3
    assert batch.next_obs[:, 0].tolist() == [1, 2, 3] * 3
    assert batch.terminated.tolist() == [False, False, True] * 3
    assert buffer.stats().cuts == 0
