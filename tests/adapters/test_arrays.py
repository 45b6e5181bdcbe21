"""Flat arrays and lists of episodes become the steps that they say, none dropped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relive
from relive.minari import from_arrays

# Lengths of episodes, and whether each terminates; the observation of step t of episode e is 100 * e + t.
EPISODES = ((4, True), (3, False), (1, True), (5, False))
STEPS = sum(length for length, _ in EPISODES)


def episode(number: int, nested: bool = False) -> dict[str, Any]:
    """Make one episode in D4RL's names, with `length + 1` observations."""
    length, terminates = EPISODES[number]
    obs = 100.0 * number + np.arange(length + 1.0)
    ends = np.arange(length) == length - 1
    observations: Any = {"a": obs[:, None], "b": {"c": (obs % 7).astype(np.uint8)}} if nested else obs[:, None]
    return {
        "observations": observations,
        "actions": obs[:-1].astype(np.int64) % 3,
        "rewards": obs[:-1] + 0.5,
        "terminals": ends & terminates,
        "timeouts": ends & (not terminates),
    }


def flat(**changes: Any) -> dict[str, Any]:
    """Join all episodes, one after the other."""
    parts = [episode(number) for number in range(len(EPISODES))]
    data = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name != "observations"}
    data["observations"] = np.concatenate([part["observations"][:-1] for part in parts])
    data["next_observations"] = np.concatenate([part["observations"][1:] for part in parts])
    return {name: value for name, value in (data | changes).items() if value is not None}


def rlds(number: int, form: str) -> Any:
    """Make the same episode as RLDS has it: its last entry is an observation alone."""
    part, (length, terminates) = episode(number), EPISODES[number]
    last = np.arange(length + 1) == length
    steps = {
        "observation": part["observations"],
        "action": np.append(part["actions"], 2),
        "reward": np.append(part["rewards"], 99.0),
        "discount": np.ones(length + 1),
        "is_first": np.arange(length + 1) == 0,
        "is_last": last,
        "is_terminal": last & terminates,
    }
    if form == "arrays":
        return {"steps": steps}
    listed = [{name: value[t] for name, value in steps.items()} for t in range(length + 1)]
    return {"steps": listed} if form == "steps" else listed


def check(buffer: relive.ReplayBuffer, finals: bool = True) -> None:
    """Check that every step is stored and right; `finals`: final observations are known at truncations."""
    assert len(buffer) == STEPS
    batch = buffer.read(np.sort(buffer.column("ids")[buffer.column("ids") >= 0]))
    at = [(number, t) for number, (length, _) in enumerate(EPISODES) for t in range(length)]
    obs = batch.obs["a"] if isinstance(batch.obs, relive.Batch) else batch.obs
    assert obs[:, 0].tolist() == [100 * number + t for number, t in at]
    assert batch.reward.tolist() == [100 * number + t + 0.5 for number, t in at]
    assert batch.action.tolist() == [(100 * number + t) % 3 for number, t in at]
    following = batch.next_obs["a"] if isinstance(batch.obs, relive.Batch) else batch.next_obs
    for row, (number, t) in enumerate(at):
        length, terminates = EPISODES[number]
        ended = t == length - 1
        assert batch.terminated[row] == (ended and terminates)
        assert batch.truncated[row] == (ended and not terminates)
        assert (batch.discount[row] > 0) == (not ended or (finals and not terminates))
        if batch.discount[row]:
            assert following[row, 0] == 100 * number + t + 1
    assert buffer.stats().cuts == 0


def test_flat_arrays_with_next_observations() -> None:
    check(from_arrays(flat()))
    renamed = flat(next_observations=None, after=flat()["next_observations"], terminals=None, done=flat()["terminals"])
    check(from_arrays(renamed, next_observations="after", terminals="done"))


def test_flat_arrays_without_next_observations_have_none_at_timeouts() -> None:
    with pytest.warns(relive.ReliveWarning, match="a final observation with every truncated step"):
        buffer = from_arrays(flat(next_observations=None))
    check(buffer, finals=False)
    assert buffer.capacity == STEPS


def test_columns_and_numbers_are_flags_too() -> None:
    data = flat()
    for name in ("terminals", "timeouts", "rewards"):
        data[name] = data[name].astype(np.float32)[:, None]
    buffer = from_arrays(data, seed=3, sampler=relive.Prioritized(), item=relive.Transitions(n_step=1, gamma=0.5))
    check(buffer)
    assert buffer.schema.tree["obs"] == relive.Field((1,), "float32")
    assert from_arrays(flat(), float_dtype=None).schema.tree["obs"] == relive.Field((1,), "float64")
    assert buffer.item == relive.Transitions(n_step=1, gamma=0.5)


def test_without_timeouts_next_observations_tell_where_streams_end() -> None:
    buffer = from_arrays(flat(timeouts=None))
    assert len(buffer) == STEPS
    assert buffer.stats().cuts == 1  # the other unmarked end is that of the data
    assert (buffer.read(np.sort(buffer.column("ids")[buffer.column("ids") >= 0])).discount == 0).sum() == 2
    with pytest.warns(relive.ReliveWarning, match="Expected an array `timeouts`, or `next_observations`, got"):
        from_arrays(flat(timeouts=None, next_observations=None))
    from_arrays(flat(timeouts=None, next_observations=None), timeouts=None)


def test_steps_in_any_order_are_kept_whole() -> None:
    order = np.random.default_rng(0).permutation(STEPS)
    data = {name: values[order] for name, values in flat().items()}
    buffer = from_arrays(data)
    assert len(buffer) == STEPS
    batch = next(buffer.batches(STEPS, shuffle=False))
    assert batch.obs.tolist() == data["observations"].tolist()
    assert batch.next_obs[batch.discount > 0].tolist() == data["next_observations"][batch.discount > 0].tolist()


def test_extras_are_kept() -> None:
    buffer = from_arrays(flat(log_prob=np.arange(STEPS) / 2), extras=["log_prob"])
    assert buffer.column("log_prob").max() == (STEPS - 1) / 2


@pytest.mark.parametrize("nested", [False, True])
def test_episodes_with_a_final_observation(nested: bool) -> None:
    numbers = range(len(EPISODES))
    check(from_arrays([episode(number, nested) for number in numbers]))
    without = [{**episode(number, nested)} for number in numbers]
    for part in without:
        del part["timeouts"]
    check(from_arrays(part for part in without))


@pytest.mark.parametrize("form", ["arrays", "steps", "list"])
def test_rlds_episodes(form: str) -> None:
    check(from_arrays([rlds(number, form) for number in range(len(EPISODES))]))


def test_episodes_without_a_final_observation() -> None:
    parts = [episode(number) for number in range(len(EPISODES))]
    for part in parts:
        part["observations"] = part["observations"][:-1]
    with pytest.warns(relive.ReliveWarning, match="final observation"):
        check(from_arrays(parts), finals=False)


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (flat(actions=None), relive.SchemaError, "Expected an array `actions`, got `"),
        (flat(rewards=np.zeros(2)), relive.SchemaError, "Expected 2 entries, one per step, got 13 - at `obs`"),
        (flat(terminals=np.zeros((13, 2))), relive.SchemaError, "Expected one number per step, got shape `(13, 2)`"),
        (flat(actions=["a"] * 13), relive.SchemaError, "Expected an array of numbers, got `<U1`"),
        (
            [{"observations": [1.0]}],
            relive.SchemaError,
            "an array `actions` in an episode, got `observations`",
        ),
        ([[1, 2]], relive.SchemaError, "Expected steps as mappings of names to values, got `int` - at `$[0]`"),
        ([], relive.ArgumentError, "Expected at least one step, got none"),
        ("d4rl", relive.ArgumentError, "Expected a mapping of names to arrays, or a list of episodes, got `str`"),
    ],
)
def test_what_does_not_fit_is_refused(data: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        from_arrays(data)
    assert text in str(caught.value)
