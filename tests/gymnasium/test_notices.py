"""Warnings about loops that store steps which never happened, and about rings that are full of final observations."""

from __future__ import annotations

import re
import textwrap
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from depth import LONG
from gymnasium.vector import AutoresetMode

import relive
from relive._ring import kernels as _kernels

LANES = 3
NAMED = {"NEXT_STEP": "in autoreset mode NEXT_STEP", "SAME_STEP": "in autoreset mode SAME_STEP"}
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "CartPole-v1": {"max_episode_steps": 9},
    "Pendulum-v1": {"max_episode_steps": 20},
    "FrozenLake-v1": {"max_episode_steps": 5},
    "CliffWalking-v1": {"max_episode_steps": 20},
}


class Nested(gymnasium.ObservationWrapper):  # type: ignore[misc]
    """The same observation as a dict of two parts."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Dict({"all": env.observation_space, "again": env.observation_space})

    def observation(self, observation: Any) -> dict[str, Any]:
        return {"all": observation, "again": observation}


def environments(name: str, mode: str, wrap: Any = None, **options: Any) -> gymnasium.vector.VectorEnv:
    def make() -> gymnasium.Env:
        env = gymnasium.make(name, **(ENVIRONMENTS[name] | options))
        return wrap(env) if wrap else env

    envs = gymnasium.vector.SyncVectorEnv([make] * LANES, autoreset_mode=AutoresetMode[mode])
    envs.action_space.seed(0)
    return envs


def buffer_for(envs: gymnasium.vector.VectorEnv, capacity: int = 30_000) -> relive.ReplayBuffer:
    schema = relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space)
    return relive.ReplayBuffer(schema, capacity, num_envs=envs.num_envs, seed=0)


MISUSED = (
    "buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, terminated=terminated, truncated=truncated)"
)


def loop(envs: Any, buffer: Any, store: str, steps: int = 1500, before: str = "") -> list[str]:
    """Run a loop whose lines that store a step are `store`; return what relive warned of, until 60 episodes ended."""
    obs, _ = envs.reset(seed=0)
    scope: dict[str, Any] = {"np": np, "buffer": buffer, "envs": envs}
    exec(before, scope)
    ended = 0
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        code = compile(store, "loop", "exec")
        for _ in range(steps):
            action = envs.action_space.sample()
            next_obs, reward, terminated, truncated, infos = envs.step(action)
            scope |= {"obs": obs, "action": action, "reward": reward, "next_obs": next_obs, "infos": infos}
            scope |= {"terminated": terminated, "truncated": truncated}
            exec(code, scope)
            obs = next_obs
            ended += int((terminated | truncated).sum())
            if ended > 60:
                break
        buffer.stats()
        buffer.can_sample(1) and buffer.sample(1)
    assert ended > 60
    return [str(one.message) for one in said if one.category is relive.errors.ReliveWarning]


def remedies(text: str) -> list[tuple[str, str]]:
    """Return the indented blocks of a warning: lines before the loop, and lines in it."""
    blocks = [textwrap.dedent(block) for block in re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)]
    parts = []
    for block in blocks:
        lines = block.splitlines()
        first = [line for line in lines if line.endswith("# before the loop")]
        parts.append(("\n".join(first), "\n".join(line for line in lines if line not in first)))
    return parts


@pytest.mark.parametrize("mode", NAMED)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_misused_autoreset_is_said_once_and_mended_by_the_remedy(name: str, mode: str) -> None:
    envs = environments(name, mode)
    buffer = buffer_for(envs)
    (text,) = loop(envs, buffer, MISUSED)
    stats = buffer.stats()
    assert stats.ends >= 20
    assert stats.repeated_finals >= 0.9 * stats.ends
    event = r"\d+ of \d+ (truncated )?episodes begin with the final observation of the episode before"
    assert re.match(event + r" - at `obs`: ", text)
    both = name == "FrozenLake-v1" and mode == "SAME_STEP"
    assert [words in text for words in NAMED.values()] == [both or named == mode for named in NAMED]
    assert "`relive.gymnasium.Recorder(envs, buffer)`" in text
    # In SAME_STEP the first remedy of two is not the right one.
    before, lines = remedies(text)[-1 if mode == "SAME_STEP" else 0]
    mended = buffer_for(environments(name, mode))
    assert loop(environments(name, mode), mended, lines, before=before) == []
    assert mended.stats().ends > 20
    assert mended.stats().repeated_finals < 0.5 * mended.stats().ends
    assert_same_items_as_the_recorder(name, mode, mended)


def assert_same_items_as_the_recorder(name: str, mode: str, buffer: relive.ReplayBuffer) -> None:
    from relive.gymnasium import Recorder

    envs = environments(name, mode)
    recorded = buffer_for(envs)
    recorder = Recorder(envs, recorded)
    recorder.reset(seed=0)
    ended = 0
    while ended <= 60:
        *_, terminated, truncated, _ = recorder.step(envs.action_space.sample())
        ended += int((terminated | truncated).sum())
    assert recorded.stats().added == buffer.stats().added
    ids = recorded.ids()
    for field in ("obs", "next_obs", "reward", "discount"):
        np.testing.assert_array_equal(buffer.read(ids)[field], recorded.read(ids)[field])


@pytest.mark.parametrize("mode", NAMED)
@pytest.mark.parametrize("wrap", ["nested", "stacked"])
def test_nested_and_stacked_observations(wrap: str, mode: str) -> None:
    def stacked(env: gymnasium.Env) -> gymnasium.Env:
        return gymnasium.wrappers.FrameStackObservation(env, 3, padding_type="zero")

    envs = environments("CartPole-v1", mode, Nested if wrap == "nested" else stacked)
    if wrap == "stacked":
        schema = relive.Schema(obs=relive.Field((4,), stack=3), action=relive.Field((), "int64"))
        buffer = relive.ReplayBuffer(schema, 30_000, num_envs=LANES)
    else:
        buffer = buffer_for(envs)
    (text,) = loop(envs, buffer, MISUSED)
    assert [words in text for words in NAMED.values()] == [named == mode for named in NAMED]
    assert buffer.stats().repeated_finals == buffer.stats().ends >= 20


def fresh(number: int) -> float:
    """Return an observation that no other episode has."""
    return 1000.0 + number


def final(number: int) -> float:
    return -1.0 - number


def after_final(number: int) -> float:
    """Return the final observation of the episode before: what a misused autoreset stores as the first one."""
    return -1.0 * number


def flat(capacity: int, lanes: int = 1, **choices: Any) -> relive.ReplayBuffer:
    schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    return relive.ReplayBuffer(schema, capacity, num_envs=lanes, **choices)


def episodes(
    buffer: relive.ReplayBuffer, count: int, length: int, first: Any, final: Any, by: str = "truncated"
) -> list[str]:
    """Add episodes to one lane (or all) of a length, from `first(number)` to `final(number)`; return the warnings."""
    lanes = buffer.num_envs
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for number in range(count):
            obs = first(number)
            for t in range(length):
                ended = t + 1 == length
                after = final(number) if ended else number + (t + 1) / 1000
                step = {"obs": obs, "action": 0.0, "reward": 1.0, "next_obs": after}
                step |= {"terminated": False, "truncated": False, by: ended}
                buffer.add(**{name: np.full(lanes, value) for name, value in step.items()})
                obs = after
        if buffer.can_sample(1):
            buffer.sample(1)
    return [str(one.message) for one in said]


@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1"])
def test_the_final_observation_of_an_episode_that_terminated_is_never_used(name: str) -> None:
    """Check a loop that stores the next episode's first one for it: right finals at truncations are enough."""
    envs = environments(name, "SAME_STEP", max_episode_steps=500)
    right = """
final = next_obs.copy()
for lane in np.flatnonzero(truncated):
    final[lane] = infos["final_obs"][lane]
buffer.add(obs=obs, action=action, reward=reward, next_obs=final, terminated=terminated, truncated=truncated)
"""
    buffer = buffer_for(envs)
    looks, say = [], buffer._core.notices.say
    buffer._core.notices.say = lambda ring: looks.append(1) or say(ring)
    assert loop(envs, buffer, right) == []
    assert buffer.stats().repeated_finals == buffer.stats().ends > 40
    if _kernels.is_native():
        assert 0 < len(looks) < 10  # steps are added natively, but for those after twice as many ends


@pytest.mark.parametrize("terminated", [25, pytest.param(100, marks=pytest.mark.slow)])
def test_truncations_that_come_late_are_looked_at(terminated: int) -> None:
    """Check that wrong final observations of truncated episodes are told once ends doubled, despite terminated ones."""
    buffer = flat(20_000)
    assert episodes(buffer, terminated, 4, after_final, final, "terminated") == []
    (text,) = episodes(buffer, 3 * terminated, 4, after_final, final)
    assert re.match(r"\d+ of \d+ truncated episodes begin with", text)
    assert "NEXT_STEP" not in text


def test_constant_observations_say_nothing() -> None:
    """Check that such an end does not count: a new episode could not begin with anything else."""
    buffer = flat(1000)
    assert episodes(buffer, 50, 1, lambda number: 7.0, lambda number: 7.0) == []
    assert (buffer.stats().ends, buffer.stats().repeated_finals) == (0, 0)


@pytest.mark.parametrize(("repeats", "others", "said"), [(19, 0, 0), (20, 0, 1), (18, 2, 1), (17, 3, 0)])
def test_from_twenty_ends_on_nine_in_ten(repeats: int, others: int, said: int) -> None:
    buffer = flat(1000)
    new = set(range(1, 1 + others))  # episodes that begin with an observation of their own
    texts = episodes(
        buffer, repeats + others + 1, 3, lambda n: fresh(n) if n in new or not n else after_final(n), final
    )
    assert (buffer.stats().ends, buffer.stats().repeated_finals) == (repeats + others, repeats)
    assert [("episodes begin with" in text) for text in texts] == [True] * said


def test_lanes_without_a_row_and_rewards_of_two_parts() -> None:
    reward = relive.Field((2,), "float64")
    schema = relive.Schema(obs=relive.Field(), action=relive.Field(), reward=reward)
    buffer = relive.ReplayBuffer(schema, 300, num_envs=3)

    def steps() -> None:
        for t in range(70):
            step = {"obs": [t], "next_obs": [t + 1], "reward": [[0.0, 1.0]], "truncated": [t % 3 == 2]}
            buffer.add(**step, action=[0], terminated=[False], env_ids=[1])

    with pytest.warns(relive.errors.ReliveWarning, match="in autoreset mode SAME_STEP") as said:
        steps()
    assert len(said) == 1


LARGE = [(480, 1, 5, 1 / 16), (300, 2, 1, 0.1)]  # more rows are reserved than the least
DEEP = [(300, 3, 10, 0), (4000, 1, 5, 1 / 16)]
SMALL = [(60, 1, 5, 0), (90, 3, 10, 0)]


@pytest.mark.parametrize(("capacity", "lanes", "length", "boundaries"), SMALL + LARGE + (DEEP if LONG else []))
def test_finals_that_fill_a_ring(capacity: int, lanes: int, length: int, boundaries: float) -> None:
    """Check for a warning when a ring first overwrites; its remedy reserves rows for all requested steps."""
    buffer = flat(capacity, lanes, boundaries=boundaries)
    assert episodes(buffer, capacity // lanes // (length + 1), length, fresh, final) == []
    count = 3 * capacity // lanes // length + 2
    (text,) = episodes(buffer, count, length, fresh, final)
    found = re.fullmatch(
        rf"A lane keeps (\d+) of {capacity // lanes} steps, since final observations use up its rows "
        r"- at `ReplayBuffer\(capacity\)`: `boundaries=([\d.]+)` reserves enough rows for them",
        text,
    )
    assert found, text
    assert abs(int(found[1]) * lanes - len(buffer)) <= lanes + 1
    wider = flat(capacity, lanes, boundaries=float(found[2]))
    assert episodes(wider, 3 * count, length, fresh, final) == []
    assert len(wider) == capacity


def test_few_finals_and_many_cuts_say_nothing_of_the_capacity() -> None:
    buffer = flat(200)
    assert episodes(buffer, 10, 40, fresh, final) == []
    buffer.clear()  # now it has room
    assert episodes(buffer, 2, 40, lambda number: 3000.0 + number, final) == []
    cut = flat(50)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for t in range(300):
            cut.add(obs=t, action=0, reward=0, next_obs=t + 0.5, terminated=False, truncated=False)
    (text,) = [str(one.message) for one in said]
    assert re.match(r"\d+ of 10\d steps do not continue their stream - at `obs`: .* byte for byte", text)


def test_a_warning_turned_into_an_error_refuses_a_call_that_changed_nothing() -> None:
    """Check, for every notice, that the repeated call stores its step once."""

    def step(t: float, jump: float = 0, ended: bool = False, repeat: bool = False, **more: Any) -> dict[str, Any]:
        obs = -1.0 if repeat else t
        after = -1.0 if ended else t + 1 + jump
        return {
            "obs": obs,
            "action": 0.0,
            "reward": 0.0,
            "next_obs": after,
            "terminated": False,
            "truncated": ended,
        } | more

    lives = {
        "byte for byte": [step(t, jump=0.5) for t in range(150)],
        "without - at": [step(t, next_obs=None, truncated=True) for t in range(5)],
        "episodes begin with": [step(t, ended=t % 4 == 3, repeat=t % 4 == 0 and t > 0) for t in range(120)],
        "use up its rows": [step(t, ended=t % 4 == 3) for t in range(120)],
    }
    for words, steps in lives.items():
        buffer, calm = (flat(64 if "rows" in words else 1000, seed=0, boundaries=0) for _ in range(2))
        refused = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for number, arguments in enumerate(steps):
                before = buffer.stats()
                try:
                    ids = buffer.add(**arguments)
                except relive.errors.ReliveWarning as error:
                    refused.append(str(error))
                    assert buffer.stats() == before, words
                    ids = buffer.add(**arguments)
                assert buffer.stats().added == number + 1
        assert len(refused) == 1, (words, refused)
        assert words in refused[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for arguments in steps:
                last = calm.add(**arguments)
        assert ids == last
        assert calm.stats() == buffer.stats()


def test_a_lane_that_fills_in_mid_episode_is_named_by_the_next_call() -> None:
    schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    buffer = relive.ReplayBuffer(schema, 400, boundaries=0.05)  # 464 rows
    step = {"action": 0.0, "reward": 0.0, "truncated": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for t in range(230):  # of two rows each
            buffer.add(obs=2 * t, next_obs=2 * t + 1, terminated=True, **step)
        for t in range(1000, 1005):
            buffer.add(obs=t, next_obs=t + 1, terminated=False, **step)
    with pytest.warns(relive.ReliveWarning, match="A lane keeps 234 of 400 steps"):
        buffer.add(obs=1005, next_obs=1006, terminated=False, **step)
