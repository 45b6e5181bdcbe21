"""Hindsight: how many items are relabelled, how far away their goals are, and that these are of the same episode."""

from __future__ import annotations

import gc
import weakref
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import pairs
from statistics_of_draws import P_MIN, chi_square_p

import relive
from relive._ring import kernels as _kernels
from relive.errors import ArgumentError
from relive.testing._lives import BACK_ENDS
from relive.testing.agreement import assert_same_batch, is_refused

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
LANES, GAMMA = 3, 0.5
CODE = relive.Field((3,))  # lane, episode, how many steps the episode had before
SCHEMA = relive.Schema(obs={"achieved_goal": CODE, "desired_goal": CODE}, action=relive.Field(), at=relive.Field((3,)))
SAMPLERS = [relive.Uniform(), relive.Uniform(replacement=False), relive.Prioritized(alpha=0.9)]


def distance(achieved_goal: np.ndarray, desired_goal: np.ndarray, info: dict[str, np.ndarray]) -> np.ndarray:
    """Count the steps to the goal, plus the step's own number from its extras as thousandths."""
    return desired_goal[:, 2] - achieved_goal[:, 2] + info["at"][:, 2] / 1000


def length(lane: int, episode: int) -> int:
    return 3 + (5 * lane + 7 * episode) % 11


def make(n_step: int = 1, capacity: int = 600, **choices: Any) -> relive.ReplayBuffer:
    hindsight = {name: choices.pop(name) for name in ("ratio", "strategy") if name in choices}
    item = relive.Hindsight(item=relive.Transitions(n_step=n_step, gamma=GAMMA), reward=distance, **hindsight)
    return relive.ReplayBuffer(SCHEMA, capacity, num_envs=LANES, item=item, seed=0, **choices)


def live(buffer: relive.ReplayBuffer, calls: int) -> None:
    """Run counting environments: every third episode terminates, every third is truncated, every third is cut."""
    episode, t, desired = np.zeros(LANES, int), np.zeros(LANES, int), np.full((LANES, 3), -1.0)
    for _ in range(calls):
        here = np.stack([np.arange(LANES), episode, t], axis=1).astype(np.float32)
        there = here + np.array([0, 0, 1])
        over = np.array([t[lane] + 1 == length(lane, episode[lane]) for lane in range(LANES)])
        buffer.add(
            obs={"achieved_goal": here, "desired_goal": desired},
            next_obs={"achieved_goal": there, "desired_goal": desired},
            action=np.zeros(LANES), reward=np.full(LANES, -9.0), at=here,
            terminated=over & (episode % 3 == 0), truncated=over & (episode % 3 == 1),
        )  # fmt: skip
        t, episode = np.where(over, 0, t + 1), episode + over


def judge(batch: relive.Batch) -> np.ndarray:
    """Mark the items with another goal; check that all are right."""
    (lane, episode, t), goal = batch.obs.achieved_goal.T.astype(int), batch.obs.desired_goal.astype(int)
    new = goal[:, 0] >= 0
    np.testing.assert_array_equal(goal, batch.next_obs.desired_goal)
    np.testing.assert_array_equal(goal[new, :2], np.stack([lane, episode], axis=1)[new])
    np.testing.assert_array_equal(batch.next_obs.achieved_goal[:, 2], t + batch.steps)
    for i in np.flatnonzero(new):
        assert 1 <= goal[i, 2] <= length(lane[i], episode[i])
        steps = t[i] + np.arange(batch.steps[i])
        expected = (GAMMA ** np.arange(len(steps)) * (goal[i, 2] - (steps + 1) + steps / 1000)).sum()
        np.testing.assert_allclose(batch.reward[i], expected, rtol=1e-5, atol=1e-5)
    old = batch.reward[~new]
    np.testing.assert_allclose(old, [-9 * sum(GAMMA**k for k in range(m)) for m in batch.steps[~new]], rtol=1e-6)
    return new


@pytest.mark.parametrize(("way", "sampler"), pairs(product(("future", "final", "episode"), (1, 3)), SAMPLERS), ids=repr)
def test_no_goal_is_of_another_episode(way: tuple[str, int], sampler: Any) -> None:
    """Check every item that can be drawn, and drawn ones, after the ring was filled several times."""
    strategy, n_step = way
    buffer = make(n_step, strategy=strategy, ratio=0.5, sampler=sampler)
    for calls in (40, 300):
        live(buffer, calls)
        drawn = buffer.sample(60)
        judge(drawn)
        if sampler.prioritizes:
            buffer.update_priorities(drawn.ids, np.arange(60.0))
        ids = buffer.column("ids").ravel()
        located = [key for key in ids[ids >= 0].tolist() if not is_refused(buffer, key)]
        assert len(located) > 0.8 * len(buffer)
        assert 0.3 < judge(buffer.read(located)).mean() < 0.7


@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.8, 1.0])
def test_the_share_of_relabelled_items(ratio: float) -> None:
    buffer = make(ratio=ratio)
    live(buffer, 150)
    new = buffer.sample(40_000).obs.desired_goal[:, 0] >= 0
    assert abs(new.mean() - ratio) <= 4.5 * np.sqrt(ratio * (1 - ratio) / len(new))


def one_episode(steps: int, strategy: Any, ended: bool) -> relive.ReplayBuffer:
    buffer = make(strategy=strategy, ratio=1.0)
    line = np.zeros((1, steps + 1, 3))
    line[..., 2] = np.arange(steps + 1)
    obs = {"achieved_goal": line, "desired_goal": line * 0 - 1}
    flags = np.zeros((1, steps), bool)
    buffer.extend(
        obs={name: each[:, :-1] for name, each in obs.items()},
        next_obs={name: each[:, 1:] for name, each in obs.items()},
        action=flags, reward=flags, at=line[:, :-1], terminated=flags,
        truncated=(ended & (np.arange(steps) == steps - 1))[None], env_ids=[1],
    )  # fmt: skip
    return buffer


STRATEGIES = {
    "future": lambda rng, position, length: rng.integers(position, length),
    "episode": lambda rng, position, length: rng.integers(0, length),
    "final": lambda rng, position, length: length - 1,
}


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("name", STRATEGIES)
def test_the_law_of_goals(name: str, ended: bool) -> None:
    """Check names and functions: uniform from the anchor on, over all steps, or always the last; 200,000 draws each."""
    steps = 12
    for strategy in (name, STRATEGIES[name]):
        batch = one_episode(steps, strategy, ended).sample(200_000)
        goal, anchor = batch.obs.desired_goal[:, 2].astype(int) - 1, batch.obs.achieved_goal[:, 2].astype(int)
        if name == "final":
            assert (goal == steps - 1).all()
            continue
        law = np.ones((steps, steps))
        if name == "future":
            law = np.triu(law) / np.triu(law).sum(axis=1, keepdims=True) * steps
        counts = np.bincount(anchor * steps + goal, minlength=steps**2)
        assert not counts[law.ravel() == 0].any()
        assert chi_square_p(counts[law.ravel() > 0], law[law > 0] / steps**2) > P_MIN


def test_a_saved_buffer_needs_its_function(tmp_path: Path) -> None:
    buffer = make(3)
    live(buffer, 100)
    buffer.save(tmp_path)
    with pytest.raises(ArgumentError) as refused:
        relive.load(tmp_path)
    assert str(refused.value) == (
        "Expected `item=`, got none, and the save has one of `relive.items.hindsight.Hindsight` - at `load(item)`: "
        "give an equal one; a class that is `relive.saved_as` a name is built again"
    )
    plain = relive.load(tmp_path, item=relive.Transitions())
    assert (plain.read(plain.sample(9).ids).obs.desired_goal == -1).all()


@pytest.mark.skipif(_kernels.active().__name__ != "relive._ring._native", reason="needs the extension")
def test_other_processes_write_and_draw(tmp_path: Path) -> None:
    """Check that the function is not shared: writers need none, and readers give their own."""
    path = tmp_path / "ring"
    with make(2, sampler=relive.Prioritized(), storage=relive.Mapped(path)) as buffer:
        with relive.Writer(path) as writer:
            live(writer, 60)
        judge(buffer.sample(200))
        with pytest.raises(ArgumentError, match="Expected `item=`, got none, and the buffer has one of"):
            relive.open(path)
        with relive.open(path, item=buffer.item, seed=0) as reader:
            judge(reader.sample(200))
        batch = buffer.sample(30)
        buffer.update_priorities(batch.ids, np.full(30, 77.0))
    with relive.open(path, item=buffer.item) as again:
        assert set(again.priorities(batch.ids)) == {77.0 + 1e-6}
        judge(again.sample(200))


F, S = relive.Field, relive.Schema
NUMBERS = "Expected integers of shape `(20,)`, the places of steps, got"
REFUSED = {
    "Expected the name of a field of `obs`, got `goal` besides `achieved_goal`, `desired_goal` - at `Hindsight(ach": (
        lambda: build(SCHEMA, achieved="goal")
    ),
    "Expected the name of a field of `obs`, got `achieved_goal` in an observation of one field": (
        lambda: build(S(obs=F(3), action=F()))
    ),
    "Expected goals like `achieved_goal`, `Field((2,), 'float32')`, got `Field((2,), 'float64')` - at `obs.desired_": (
        lambda: build(S(obs={"achieved_goal": F(2), "desired_goal": F(2, "float64")}, action=F()))
    ),
    "Expected a goal that is not a stack of frames, got": (
        lambda: build(S(obs={"achieved_goal": F(2, stack=2), "desired_goal": F(2)}, action=F()))
    ),
    "Expected numbers of shape `(20,)`, one reward a step, got `float64` of shape `(20, 3)` - at `Hindsight(reward)`": (
        lambda: draw(reward=lambda achieved, desired, info: (achieved - desired).astype(float))
    ),
    "Expected bools of shape `(20,)`, one a step, got `bool` of shape `()` - at `Hindsight(te": (
        lambda: draw(terminated=lambda achieved, desired, info: False)
    ),
    "Expected bools of shape `(20,)`, one a step, got `float32` of shape `(20,)` - at `Hinds": (
        lambda: draw(terminated=lambda achieved, desired, info: achieved[:, 0])
    ),
    f"{NUMBERS} `float64` of shape `(20,)` - at `Hindsight(strategy)`": (
        lambda: draw(strategy=lambda rng, position, length: length / 2)
    ),
    f"{NUMBERS} `int64` of shape `()` - at `Hindsight(strategy)`": (
        lambda: draw(strategy=lambda rng, position, length: 0)
    ),
    "Expected places >= 0 and < ": lambda: draw(strategy=lambda rng, position, length: length),
}


def build(schema: relive.Schema, **choices: Any) -> relive.ReplayBuffer:
    item = relive.Hindsight(**{"reward": distance, "ratio": 1.0, **choices})
    return relive.ReplayBuffer(schema, 60, num_envs=LANES, item=item)


def draw(**choices: Any) -> None:
    buffer = build(SCHEMA, **choices)
    live(buffer, 10)
    buffer.sample(20)


@pytest.mark.parametrize("text", REFUSED)
def test_what_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        REFUSED[text]()
    assert str(refused.value).startswith(text)


@pytest.mark.parametrize(("strategy", "n_step"), product(STRATEGIES, (1, 3)))
def test_a_draw_is_the_same_whoever_makes_it(strategy: str, n_step: int) -> None:
    """Draw by both kernels, and by Python as a limiter needs it: open streams, ends, cuts, rings that went round."""
    runs, no_limit = [], relive.RateLimiter(1, 1, error_buffer=1e15)
    for name, limiter in [*((name, None) for name in BACK_ENDS), (BACK_ENDS[-1], no_limit)]:
        with _kernels.use(name):
            buffer = make(n_step, 90, strategy=strategy, ratio=0.7, sampler=relive.Prioritized(), limiter=limiter)
            batches = []
            for calls in (7, 20, 60):
                live(buffer, calls)
                buffer.cut([1])
                batches.append(buffer.sample(64))
                buffer.update_priorities(batches[-1].ids, np.arange(64.0))
            runs.append([*batches, *buffer.batches(25)])
    for ours, *others in zip(*runs, strict=True):
        for theirs in others:
            assert_same_batch(ours, theirs)


def test_extras_that_are_kept_apart_come_from_their_own_steps() -> None:
    """Check a field with `every=1`, whose rows are numbered unlike those of other fields."""
    seen = []

    def reward(achieved: np.ndarray, desired: np.ndarray, info: dict[str, np.ndarray]) -> np.ndarray:
        np.testing.assert_array_equal(info["state"], info["at"])
        seen.append(len(achieved))
        return achieved[:, 0] * 0

    schema = relive.Schema(
        obs={"achieved_goal": CODE, "desired_goal": CODE},
        action=relive.Field(), at=relive.Field((3,)), state=relive.Field((3,), every=1),
    )  # fmt: skip
    item = relive.Hindsight(reward=reward, item=relive.Transitions(n_step=2, gamma=0.5))
    buffer = relive.ReplayBuffer(schema, 90, num_envs=LANES, item=item, seed=0)
    for t in range(100):
        here = np.stack([np.arange(LANES), np.zeros(LANES), np.full(LANES, t)], axis=1).astype(np.float32)
        obs, after = ({"achieved_goal": each, "desired_goal": here * 0} for each in (here, here + np.array([0, 0, 1])))
        buffer.add(
            obs=obs, next_obs=after, action=np.zeros(LANES), reward=np.zeros(LANES), at=here, state=here,
            terminated=np.zeros(LANES, bool), truncated=np.zeros(LANES, bool),
        )  # fmt: skip
    buffer.sample(200)
    assert sum(seen) > 200


def test_a_function_may_choose_steps_before_the_anchor() -> None:
    """Check that positions count the stream's stored steps, in a full ring and in open streams, too."""
    seen = []

    def first(rng: Any, position: np.ndarray, length: np.ndarray) -> np.ndarray:
        seen.append((position, length))
        return np.zeros_like(position)

    buffer = make(2, 60, strategy=first, ratio=1.0)
    live(buffer, 100)
    batch = buffer.sample(200)
    judge(batch)
    (position, length), anchor = seen[0], batch.obs.achieved_goal[:, 2]
    relabelled = batch.obs.desired_goal[:, 0] >= 0
    oldest = buffer.follow(batch.ids, -100).steps
    assert (position == -oldest[relabelled]).all()
    assert (length > position).all()
    assert (batch.obs.desired_goal[relabelled, 2] == (anchor + oldest + 1)[relabelled]).all()


def test_a_reward_function_that_fails_leaves_the_buffer_as_it_was() -> None:
    """Check counts, the lock, and that the function may not call the buffer."""

    def reward(achieved: np.ndarray, desired: np.ndarray, info: dict[str, np.ndarray]) -> np.ndarray:
        buffer.add if works else buffer.sample(3)
        return achieved[:, 0]

    works = True
    buffer = relive.ReplayBuffer(SCHEMA, 90, num_envs=LANES, item=relive.Hindsight(reward=reward, ratio=1.0), seed=0)
    live(buffer, 20)
    buffer.sample(8)
    works = False
    with pytest.raises(relive.ReliveError, match="sample"):
        buffer.sample(8)
    assert buffer.stats().drawn == 8
    works = True
    assert len(buffer.sample(8).ids) == 8


def test_a_buffer_that_its_reward_function_refers_to_is_dropped() -> None:
    class Agent:
        def reward(self, achieved: np.ndarray, desired: np.ndarray, info: dict[str, np.ndarray]) -> np.ndarray:
            return achieved[:, 0]

    agent = Agent()
    agent.buffer = relive.ReplayBuffer(SCHEMA, 90, num_envs=LANES, item=relive.Hindsight(reward=agent.reward))
    live(agent.buffer, 20)
    agent.buffer.sample(8)
    dropped = weakref.ref(agent.buffer)
    del agent
    gc.collect()
    assert dropped() is None


@pytest.mark.parametrize(("width", "n_step"), product((1, 2, 3, 7, 8), (1, 3)))
def test_goals_of_a_few_numbers_come_number_by_number(width: int, n_step: int) -> None:
    """Check both kernels: the layout, that sums are those of rows, and that writing to the arrays changes no batch."""
    runs = []
    for name in BACK_ENDS:
        with _kernels.use(name):
            runs.append(drawn_by_numbers(width, n_step))
    for theirs in runs[1:]:
        assert_same_batch(runs[0], theirs)


def drawn_by_numbers(width: int, n_step: int) -> relive.Batch:
    few = 1 < width < 8

    def reward(achieved: np.ndarray, desired: np.ndarray, info: dict[str, np.ndarray]) -> np.ndarray:
        for goals in (achieved, desired):
            assert (goals.flags.f_contiguous, goals.flags.c_contiguous) == (few or width == 1, not few)
            assert goals.flags.behaved
        sums = np.linalg.norm(achieved - desired, axis=-1) + desired.sum(axis=-1)
        if few:
            rows, goals = np.ascontiguousarray(achieved), np.ascontiguousarray(desired)
            np.testing.assert_array_equal(sums, np.linalg.norm(rows - goals, axis=-1) + goals.sum(axis=-1))
            achieved[:], desired[:] = 7.0, 7.0
        return sums

    goal = relive.Field((width,))
    schema = relive.Schema(obs={"achieved_goal": goal, "desired_goal": goal}, action=relive.Field())
    item = relive.Hindsight(item=relive.Transitions(n_step=n_step, gamma=GAMMA), reward=reward)
    buffer = relive.ReplayBuffer(schema, 100, item=item, seed=0)
    walk = np.random.default_rng(0).normal(size=(81, width)).astype(np.float32)
    buffer.extend(
        obs={"achieved_goal": walk[:-1], "desired_goal": walk[:-1] * 0},
        next_obs={"achieved_goal": walk[1:], "desired_goal": walk[:-1] * 0},
        action=np.zeros(80), reward=np.zeros(80), terminated=np.zeros(80, bool), truncated=np.arange(80) % 20 == 19,
    )  # fmt: skip
    batch = buffer.sample(64)
    goals = batch.obs.desired_goal[batch.obs.desired_goal.any(axis=1)]
    assert len(goals) > 30
    assert (goals[:, None] == walk).all(axis=-1).any(axis=1).all()
    return batch
