"""The Blind Cliffwalk: its memory, its learners, and what every rule of replay makes of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import relive
from relive.errors import ArgumentError
from relive_lab import cliffwalk
from relive_lab.cliffwalk import ARMS, LEARNERS, Values, Walk, memory, truth


def played(n: int, actions: tuple[int, ...]) -> list[tuple[int, int, float, bool]]:
    """Play one sequence of actions until its episode ends, one step at a time."""
    steps = []
    for state, action in enumerate(actions):
        right = action == state % 2
        last = state == n - 1
        steps.append((state, action, float(right and last), not right or last))
        if steps[-1][-1]:
            break
    return steps


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_the_memory_holds_every_sequence_of_actions_once(n: int) -> None:
    steps = memory(n, np.random.default_rng(n))
    rows = list(zip(*(steps[name].tolist() for name in ("obs", "action", "reward", "terminated")), strict=True))
    assert len(rows) == 2 ** (n + 1) - 2
    ends = [0, *(1 + np.flatnonzero(steps["terminated"])).tolist()]
    found = [rows[start:end] for start, end in itertools.pairwise(ends)]
    expected = [played(n, actions) for actions in itertools.product((0, 1), repeat=n)]
    assert sorted(found) == sorted(expected)
    assert sum(reward for _, _, reward, _ in rows) == 1.0
    for state in range(n):
        assert rows.count((state, state % 2, float(state == n - 1), state == n - 1)) == 2 ** (n - 1 - state)


def test_the_order_of_the_memory_is_random() -> None:
    first, second = (memory(6, np.random.default_rng(seed))["obs"].tolist() for seed in (0, 1))
    assert first != second
    rewards = [int(memory(4, np.random.default_rng(seed))["reward"].argmax()) for seed in range(200)]
    assert min(rewards) < 8
    assert max(rewards) > 22


@pytest.mark.parametrize("n", [2, 5, 12])
def test_the_truth_is_the_fixed_point(n: int) -> None:
    values, gamma = truth(n), 1 - 1 / n
    for state in range(n):
        right = 1.0 if state == n - 1 else gamma * values[state + 1].max()
        assert values[state, state % 2] == pytest.approx(right)
        assert values[state, 1 - state % 2] == 0.0


def transitions(n: int, count: int, seed: int) -> list[tuple[int, int, float, int, float]]:
    walk = Walk(n=n, learner="table", arm="uniform", seed=seed)
    batch = walk.fill(memory(n, np.random.default_rng(seed)), relive.Uniform()).sample(count)
    names = ("obs", "action", "reward", "next_obs", "discount")
    return list(zip(*(batch[name].tolist() for name in names), strict=True))


@pytest.mark.parametrize("shared_bias", [False, True], ids=["table", "linear"])
def test_an_update_is_that_of_linear_q_learning(shared_bias: bool) -> None:
    """Check against `theta += eta * w * delta * phi(s, a)` written out with whole feature vectors."""
    n, weights = 5, np.random.default_rng(8).random(1000).tolist()
    values = Values(truth(n), np.random.default_rng(1), shared_bias=shared_bias)
    rng = np.random.default_rng(1)
    theta = np.append(rng.normal(0, 0.1, (n, 2)).ravel(), rng.normal(0, 0.1) if shared_bias else 0.0)
    features = np.hstack([np.eye(2 * n), np.full((2 * n, 1), float(shared_bias))])
    for seen, weight in zip(transitions(n, 1000, 3), weights, strict=True):
        obs, action, reward, next_obs, discount = seen
        q = features @ theta
        delta = reward + discount * q.reshape(n, 2)[next_obs].max() - q[2 * obs + action]
        error = np.mean((q - truth(n).ravel()) ** 2)
        assert values.error() == pytest.approx(error, rel=1e-9)
        assert values.solved() is bool(error < 1e-3)
        if not shared_bias:
            after = q.copy()
            after[2 * obs + action] += 0.25 * delta
            gain = 2 * n * (error - np.mean((after - truth(n).ravel()) ** 2))
            assert values.gain(*seen) == pytest.approx(gain, abs=1e-12)
        assert values.learn(*seen, weight) == pytest.approx(delta, rel=1e-9, abs=1e-12)
        theta += 0.25 * weight * delta * features[2 * obs + action]


def test_the_buffer_discounts_what_goes_on_and_not_what_ends() -> None:
    for obs, action, reward, next_obs, discount in transitions(4, 500, 0):
        goes_on = action == obs % 2 and obs < 3
        assert discount == pytest.approx(0.75 if goes_on else 0.0)
        assert next_obs == obs + 1 or not goes_on
        assert reward == float(action == obs % 2 and obs == 3)


def test_uniform_draws_fetched_at_once_are_those_fetched_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = Walk(n=5, learner="table", arm="uniform", seed=4)
    updates = walk.run()
    monkeypatch.setattr(cliffwalk, "ROUND", 1)
    assert walk.run() == updates


@pytest.mark.parametrize(("arm", "beta"), [("prop 0.6", 0.0), ("prop 0.6, beta 0.4", 0.4), ("prop 0.6, beta 1", 1.0)])
def test_weights_with_batches_of_one(arm: str, beta: float) -> None:
    """Check `(M P)**-beta` itself: divided by the largest of one they would all be 1."""
    walk = Walk(n=4, learner="table", arm=arm, seed=0)
    buffer = walk.fill(memory(4, np.random.default_rng(0)), ARMS[arm])
    errors = np.random.default_rng(1).exponential(size=30)
    buffer.update_priorities(np.arange(30), errors)
    mass = (errors + 1e-6) ** 0.6
    for _ in range(50):
        batch = buffer.sample(1)
        assert batch.weights[0] == pytest.approx((30 * mass[batch.ids[0]] / mass.sum()) ** -beta, rel=1e-5)


def test_a_rare_item_takes_no_larger_step(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    learn = Values.learn

    def note(values: Values, *arguments: float) -> float:
        seen.append(arguments[-1])
        return learn(values, *arguments)

    monkeypatch.setattr(Values, "learn", note)
    Walk(n=4, learner="table", arm="prop 0.6, beta 1", seed=0).run()
    assert max(seen) == 1.0
    assert min(seen) < 0.5


def test_arms_share_the_memory_and_the_initial_values(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[Any]] = []
    fill = Walk.fill

    def note_order(walk: Walk, *arguments: Any) -> Any:
        buffer = fill(walk, *arguments)
        seen.append([buffer.read(range(62)).obs.tolist()])
        return buffer

    monkeypatch.setattr(Walk, "fill", note_order)
    monkeypatch.setattr(Values, "learn", lambda values, *_: seen[-1].append(values.error()) or 0.0)
    monkeypatch.setattr(Values, "solved", lambda values: True)  # after one update, which changes nothing
    for arm in ARMS:
        Walk(n=5, learner="table", arm=arm, seed=9).run()
    assert len(seen) == len(ARMS)
    assert all(one == seen[0] for one in seen)
    Walk(n=5, learner="table", arm="uniform", seed=10).run()
    assert not any(one == other for one, other in zip(seen[-1], seen[0], strict=True))


def test_all_items_enter_with_the_same_priority() -> None:
    for arm in ("prop 1", "prop 0.6"):
        walk = Walk(n=3, learner="table", arm=arm, seed=0)
        buffer = walk.fill(memory(3, np.random.default_rng(0)), ARMS[arm])
        assert buffer.priorities(range(14)).tolist() == [1.0] * 14


@pytest.mark.parametrize(("learner", "arm"), [("table", "prop 1"), ("table", "oracle"), ("linear", "prop 0.6")])
def test_a_run_repeats_itself(learner: str, arm: str) -> None:
    walk = Walk(n=5, learner=learner, arm=arm, seed=2)
    assert walk.run() == walk.run()
    assert isinstance(walk.run(), int)


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_run_can_be_ended_and_can_fail(learner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for arm in LEARNERS[learner]:
        assert Walk(n=6, learner=learner, arm=arm, seed=0).run(lambda: False) is None
    monkeypatch.setattr(cliffwalk, "PATIENCE", 1)
    assert Walk(n=6, learner=learner, arm="uniform", seed=0).run() == np.inf


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"n": 1}, "Expected an integer from 2 to 20, got `1` - at `Walk(n)`"),
        ({"n": 2.5}, "Expected an integer from 2 to 20, got `2.5` - at `Walk(n)`"),
        (
            {"learner": "forest"},
            "Expected one of `'table'`, `'linear'`, `'network'`, got `'forest'` - at `Walk(learner)`",
        ),
        ({"arm": "prop"}, "got `'prop'` - at `Walk(arm)`"),
        ({"learner": "linear", "arm": "oracle"}, "got `'oracle'` - at `Walk(arm)`"),
        ({"learner": "network", "arm": "prop 1"}, "got `'prop 1'` - at `Walk(arm)`"),
        ({"seed": -1}, "Expected an integer >= 0, got `-1` - at `Walk(seed)`"),
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, object], text: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        Walk(**{"n": 4, "learner": "table", "arm": "uniform", "seed": 0, **changes})
    assert str(refused.value).endswith(text)
