"""Ordinary steps go straight to the native ring: a hidden fall-back to Python would cost 50 times as much."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import relive
from relive import _kernels
from relive._step_parser import StepParser

pytestmark = pytest.mark.skipif(
    _kernels.active().__name__ != "relive._native", reason="without the extension every step is parsed in Python"
)
STEPS = 100
FLAT = relive.Schema(obs=relive.Field((3,)), action=relive.Field((), "int64"))
NESTED = relive.Schema(
    obs={"camera": relive.Field((4, 4), "uint8", stack=2), "pose": relive.Field((3,))},
    action=relive.Field((2,)),
    log_prob=relive.Field(),
)


@pytest.fixture(name="parsed")
def _parsed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the calls of every method of the parser."""
    calls: Counter[str] = Counter()

    def counting(name: str, method: object) -> object:
        def counted(*arguments: object, **named: object) -> object:
            calls[name] += 1
            return method(*arguments, **named)

        return counted

    for name, method in list(vars(StepParser).items()):
        if callable(method) and not name.startswith("__"):
            monkeypatch.setattr(StepParser, name, counting(name, method))
    return calls


def step(schema: relive.Schema, t: int, lanes: int) -> dict[str, object]:
    """One step of every lane: arrays of the schema's dtypes, an end now and then."""

    def value(field: object, at: int) -> object:
        if isinstance(field, dict):
            return {name: value(child, at) for name, child in field.items()}
        return np.full((lanes, *field.full_shape), at % 200, field.dtype)

    made = {name: value(field, t) for name, field in schema.tree.items()}
    ended = np.full(lanes, t % 10 == 9)
    return {
        **made,
        "next_obs": value(schema.tree["obs"], t + 1),
        "terminated": ended,
        "truncated": ~ended & (t % 7 == 6),
    }


def without_axis(made: dict[str, object]) -> dict[str, object]:
    return {name: without_axis(value) if isinstance(value, dict) else value[0] for name, value in made.items()}


def add(buffer: relive.ReplayBuffer, form: str = "arrays") -> None:
    """Add a hundred steps in one of the forms that environments give."""
    for t in range(STEPS):
        made = step(buffer.schema, t, buffer.num_envs)
        if form == "no lane axis":
            made = without_axis(made)
        if form == "Python numbers":
            made = {**without_axis(made), "reward": 0.5, "action": 1, "terminated": t % 10 == 9, "truncated": False}
        if form.startswith("no next_obs"):
            del made["next_obs"]
        if form == "no next_obs, no time limit":
            made["truncated"] = np.zeros(buffer.num_envs, bool)
        if form in NAMED:
            made["env_ids"] = NAMED[form](buffer.num_envs)
        if form in PRIORITIES:
            made["priority"] = PRIORITIES[form](buffer.num_envs)
        if form == "lists":
            made = {name: value.tolist() for name, value in made.items()}
        buffer.add(**made)


NAMED = {
    "lanes in an array": lambda lanes: np.arange(lanes)[::-1].copy(),
    "lanes in a list": lambda lanes: [*range(lanes)],
}
PRIORITIES = {"one priority": lambda lanes: 0.5, "priorities": lambda lanes: np.full(lanes, 0.5)}


def build(schema: relive.Schema = FLAT, lanes: int = 1, **choices: object) -> relive.ReplayBuffer:
    return relive.ReplayBuffer(schema, 50 * lanes, num_envs=lanes, seed=0, **choices)


TABLE = {
    "one lane": (lambda: build(), "arrays"),
    "one lane, no lane axis": (lambda: build(), "no lane axis"),
    "one lane, Python numbers": (lambda: build(), "Python numbers"),
    "no next_obs": (lambda: build(lanes=2), "no next_obs, no time limit"),
    "lanes in an array": (lambda: build(lanes=2), "lanes in an array"),
    "lanes in a list": (lambda: build(lanes=2), "lanes in a list"),
    "64 lanes": (lambda: build(lanes=64), "arrays"),
    "nested, stacked, extras": (lambda: build(NESTED, lanes=3), "arrays"),
    "prioritized": (lambda: build(lanes=2, sampler=relive.Prioritized()), "arrays"),
    "one priority": (lambda: build(lanes=2, sampler=relive.Prioritized()), "one priority"),
    "priorities": (lambda: build(lanes=2, sampler=relive.Prioritized()), "priorities"),
    "ranked": (lambda: build(lanes=2, sampler=relive.Ranked()), "arrays"),
    "ranked, priorities": (lambda: build(lanes=2, sampler=relive.Ranked()), "priorities"),
    "over episodes": (lambda: build(lanes=2, sampler=relive.Uniform(over="episodes")), "arrays"),
    "without replacement": (lambda: build(lanes=2, sampler=relive.Uniform(replacement=False)), "arrays"),
    "n-step": (lambda: build(lanes=2, item=relive.Transitions(n_step=3)), "arrays"),
    "sequences": (lambda: build(lanes=2, item=relive.Sequences(4, burn_in=2)), "arrays"),
}


@pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
@pytest.mark.parametrize("name", TABLE)
def test_ordinary_steps_are_not_parsed_in_python(name: str, parsed: Counter[str]) -> None:
    make, form = TABLE[name]
    buffer = make()
    add(buffer, form)
    assert not parsed
    assert buffer.stats().added == STEPS * buffer.num_envs


@pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
def test_only_the_first_step_that_loses_a_final_observation_is_parsed(parsed: Counter[str]) -> None:
    """Python warns before it is stored; the others take the native path."""
    buffer = build(lanes=2)
    add(buffer, "no next_obs")
    assert parsed["step"] == 1
    assert buffer.stats().unbootstrapped > 1


@pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
def test_some_of_64_lanes_are_not_parsed_in_python(parsed: Counter[str]) -> None:
    """One lane fewer is what every step after an episode's end looks like in Gymnasium's NEXT_STEP mode."""
    buffer = build(lanes=64)
    live = np.delete(np.arange(64), 17)
    for t in range(9):
        made = step(buffer.schema, t, 64)
        buffer.add(**{name: value[live] for name, value in made.items()}, env_ids=live)
    assert not parsed
    assert buffer.stats().added == 9 * 63


@pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
def test_meta_a_parsed_step_is_counted(parsed: Counter[str]) -> None:
    add(build(), "lists")
    assert sum(parsed.values()) >= STEPS


@pytest.mark.parametrize(
    "given",
    [
        lambda td: td,
        lambda td: td.astype(np.float32),
        lambda td: td[:, None],
        lambda td: td.astype(np.float32)[:, None],
    ],
)
def test_an_update_is_one_call(given, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the TD errors that networks give; what needs a closer look takes the long way, and the same priorities."""
    buffers = [relive.ReplayBuffer(FLAT, 50, sampler=relive.Prioritized(), seed=0) for _ in range(2)]
    monkeypatch.setattr(buffers[0], "_index", None)  # the long way asks it
    monkeypatch.setattr(buffers[1], "_try_update", lambda ids, td: False)
    td = np.array([0.5, -3.0, 0.0, 2.0])
    for buffer in buffers:
        for t in range(20):
            buffer.add(**step(FLAT, t, 1))
        assert buffer.update_priorities(np.array([1, 5, 3, 5]), given(td)) == 4
    monkeypatch.undo()
    ids = np.arange(7)
    np.testing.assert_array_equal(buffers[0].priorities(ids), buffers[1].priorities(ids))
