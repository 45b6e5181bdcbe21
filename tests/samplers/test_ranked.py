"""Ranks are exact at every draw, whatever came before, and draws and weights follow `rank**-alpha`."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from depth import LONG
from statistics_of_draws import P_MIN, chi_square_p, largest_z

import relive
from relive._ring import kernels
from relive._ring.lanes import HEAD

DRAWS, BATCH = 400_000, 20_000
BACK_ENDS = ["numpy", *(["native"] if importlib.util.find_spec("relive._ring._native") else [])]


def buffer_of(capacity: int, lanes: int = 1, seed: int = 7, **sampler: object) -> relive.ReplayBuffer:
    """An empty buffer with lanes of `capacity` steps."""
    schema = relive.Schema(obs=relive.Field((), "int64"), action=relive.Field((), "bool"))
    return relive.ReplayBuffer(
        schema, capacity * lanes, num_envs=lanes, sampler=relive.Ranked(**{"eps": 0.0, **sampler}), seed=seed
    )


def extend(buffer: relive.ReplayBuffer, start: int, n: int, priority: object = None, lane: int = 0) -> np.ndarray:
    """Add `n` steps of one lane; observations count up."""
    serial, off = np.arange(start, start + n)[None], np.zeros((1, n), bool)
    if priority is not None:
        priority = np.asarray(priority, float)[None]
    return buffer.extend(
        obs=serial, action=off, reward=serial, next_obs=serial + 1, terminated=off, truncated=off,
        env_ids=[lane], priority=priority,
    )[0]  # fmt: skip


def ranking(buffer: relive.ReplayBuffer, ranked: int) -> list[int]:
    """Ids by rank: with alpha 0 and strata, uniforms of one half draw every rank once, in order."""

    class Middle:
        def random(self, n: int) -> np.ndarray:
            return np.full(n, 0.5)

    generator, buffer.rng = buffer.rng, Middle()
    ids = buffer.sample(ranked).ids.tolist()
    buffer.rng = generator
    return ids


class Model:
    """What is promised, one item at a time: highest priority first, of equal ones the one that was set earlier."""

    def __init__(self) -> None:
        self.priority: dict[int, float] = {}
        self.set_at: dict[int, int] = {}
        self.clock, self.largest = 0, 0.0

    def put(self, key: int, priority: float) -> None:
        self.priority[key], self.set_at[key] = priority, self.clock
        self.clock += 1
        self.largest = max(self.largest, priority)

    def add(self, keys: list[int], priorities: list[float] | None, capacity: int) -> None:
        if priorities is not None:
            self.largest = max([self.largest, *priorities])
        for at, key in enumerate(keys):
            default = self.largest or 1.0
            self.put(key, default if priorities is None else priorities[at])
            self.priority.pop(key - capacity, None)

    def order(self) -> list[int]:
        known = [key for key, value in self.priority.items() if value > 0]
        return sorted(known, key=lambda key: (-self.priority[key], self.set_at[key]))


@pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("capacity", [1, 5, 64, pytest.param(700, marks=pytest.mark.slow)])
def test_ranks_are_exact_after_any_history(capacity: int, back_end: str) -> None:
    """Additions that go round, priorities given and zero, updates with duplicates, ties everywhere."""
    rng = np.random.default_rng(capacity)
    with kernels.use(back_end):
        buffer, model, clock = buffer_of(capacity, alpha=0.0), Model(), 0
    merged_and_not = set()
    for turn in range(300 if LONG else 130):
        if not model.priority or rng.random() < 0.4:
            n = min(int(rng.geometric(0.3 if turn % 50 else 0.01)), capacity)
            given = rng.integers(0, 6, n) / 2.0 if rng.random() < 0.5 else None
            keys = extend(buffer, clock, n, given).tolist()
            clock += n
            model.add(keys, None if given is None else given.tolist(), capacity)
        else:
            size = int(rng.integers(1, 2 + capacity // (1 if turn % 40 == 0 else 8)))
            keys = rng.choice(list(model.priority), size).tolist()
            errors = rng.integers(-6, 6, size) / 2.0
            assert buffer.update_priorities(keys, errors) == size
            last = {key: at for at, key in enumerate(keys)}
            for at in sorted(last.values()):
                model.put(keys[at], abs(float(errors[at])))
            model.largest = max(model.largest, float(np.abs(errors).max()))
        expected = model.order()
        assert buffer.stats().drawable == len(model.priority)
        assert buffer.can_sample(1) is bool(expected)
        if expected:
            assert ranking(buffer, len(expected)) == expected
        keys = list(model.priority)
        np.testing.assert_array_equal(buffer.priorities(keys), [model.priority[key] for key in keys])
        merged_and_not |= {len(buffer._core.index._ranks._order._late) > 0} if back_end == "numpy" else {True, False}
    assert merged_and_not == {True, False} or capacity < 64


def test_lanes_that_go_round_at_different_speeds() -> None:
    """Against a sort of the priorities that the buffer itself reports."""
    rng = np.random.default_rng(3)
    buffer, clock, alive = buffer_of(40, lanes=3, alpha=0.0), [0, 0, 0], [[], [], []]
    for _ in range(500):
        lane = int(rng.integers(3))
        n = int(rng.integers(1, 4)) * (lane + 1)
        alive[lane] = [*alive[lane], *extend(buffer, clock[lane], n, rng.random(n), lane).tolist()][-40:]
        clock[lane] += n
        keys = np.concatenate([np.array(part, np.int64) for part in alive])
        some = rng.choice(keys, min(len(keys), 16))
        buffer.update_priorities(some, rng.random(len(some)))
        priority = buffer.priorities(keys)
        assert ranking(buffer, len(keys)) == keys[np.argsort(-priority)].tolist()


@pytest.mark.parametrize("stratified", [False, True], ids=["independent", "stratified"])
@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0, 3.0])
def test_draws_follow_the_ranks(alpha: float, stratified: bool) -> None:
    rng = np.random.default_rng(11)
    buffer = buffer_of(300, alpha=alpha, stratified=stratified)
    ids = extend(buffer, 0, 300, 10.0 ** rng.uniform(-6, 6, 300))
    buffer.update_priorities(ids[::3], np.where(rng.random(100) < 0.2, 0.0, rng.standard_normal(100)))
    priority = buffer.priorities(ids)
    mass = probabilities(priority, alpha)
    counts = np.zeros(300, np.int64)
    for _ in range(DRAWS // BATCH):
        counts += np.bincount(buffer.sample(BATCH).ids, minlength=300)
    assert counts[priority == 0].sum() == 0
    assert chi_square_p(counts, mass) > P_MIN


def probabilities(priority: np.ndarray, alpha: float) -> np.ndarray:
    """`rank**-alpha`, normalised; 0 where the priority is 0."""
    rank = np.empty(len(priority))
    rank[np.argsort(-priority, kind="stable")] = np.arange(1, len(priority) + 1)
    mass = np.where(priority > 0, rank**-alpha, 0.0)
    return mass / mass.sum()


@pytest.mark.parametrize("weights", ["batch", "buffer", "none"])
@pytest.mark.parametrize("beta", [0.4, 1.0])
def test_weights(weights: str, beta: float) -> None:
    """`(N P(i))**-beta` over the largest in the batch, over the largest in the buffer, and as it is."""
    buffer = buffer_of(90, alpha=0.7, beta=beta, weights=weights)
    ids = extend(buffer, 0, 90, np.random.default_rng(5).permutation(90))  # one of them is 0
    share = probabilities(buffer.priorities(ids), 0.7)
    raw = np.where(share > 0, (90 * np.maximum(share, 1e-9)) ** -beta, 0.0)
    for size in (1, 8, 64):
        batch = buffer.sample(size)
        largest = {"batch": raw[batch.ids].max(), "buffer": raw.max(), "none": 1.0}[weights]
        np.testing.assert_allclose(batch.weights, raw[batch.ids] / largest, rtol=1e-5)


def test_unnormalised_weights_make_the_mean_unbiased() -> None:
    buffer = buffer_of(200, alpha=0.7, beta=1.0, weights="none", stratified=False)
    extend(buffer, 0, 200, np.random.default_rng(4).random(200) + 0.05)
    batches = [buffer.sample(BATCH) for _ in range(50)]
    mean = np.mean([(batch.weights.astype(float) * batch.reward).mean() for batch in batches])
    assert abs(mean - 99.5) < 0.5


@pytest.mark.parametrize(("size", "batch"), [(4, 2), (12, 4), (40, 39)])
def test_without_replacement(size: int, batch: int) -> None:
    """No repeats, and each item is in a batch as often as when NumPy draws them one after the other."""
    rng = np.random.default_rng(size)
    buffer = buffer_of(size, alpha=1.0, replacement=False)
    extend(buffer, 0, size, rng.permutation(size) + 1.0)
    share = probabilities(buffer.priorities(np.arange(size)), 1.0)
    rounds = 4_000 if LONG else 1_500
    included, reference = np.zeros(size, int), np.zeros(size, int)
    for _ in range(rounds):
        ids = buffer.sample(batch).ids
        assert len(np.unique(ids)) == batch
        included[ids] += 1
        reference[rng.choice(size, batch, replace=False, p=share)] += 1
    assert largest_z(included, reference, rounds) < 5.5


@pytest.mark.parametrize("batch", [1, 7, 256])
def test_strata(batch: int) -> None:
    """One draw in every equal slice of the total, in the order of ranks."""
    buffer = buffer_of(300, alpha=0.7)
    extend(buffer, 0, 300, np.arange(300.0, 0.0, -1.0))  # rank is id + 1
    edges = np.concatenate([[0.0], np.cumsum(np.arange(1.0, 301.0) ** -0.7)])
    share = edges[-1] / batch
    for _ in range(100):
        ids = buffer.sample(batch).ids
        assert (np.diff(ids) >= 0).all()
        assert (edges[ids] <= (np.arange(batch) + 1) * share * (1 + 1e-12)).all()
        assert (edges[ids + 1] >= np.arange(batch) * share * (1 - 1e-12)).all()


def test_a_large_alpha_is_greedy() -> None:
    buffer = buffer_of(100, alpha=100.0)
    ids = extend(buffer, 0, 100, np.arange(100) + 1.0)
    assert set(buffer.sample(1000).ids.tolist()) == {ids[99]}
    buffer.update_priorities([ids[99]], [0.5])
    assert set(buffer.sample(1000).ids.tolist()) == {ids[98]}


def test_new_items_take_the_running_maximum() -> None:
    buffer = buffer_of(8, initial=4.0, eps=0.5)
    extend(buffer, 0, 2)
    assert buffer.priorities([0, 1]).tolist() == [4.0, 4.0]
    buffer.update_priorities([1, 0], [-9.0, 1.0])
    extend(buffer, 2, 1)
    extend(buffer, 3, 1, [25.0])
    extend(buffer, 4, 1, [0.0])
    extend(buffer, 5, 1)
    np.testing.assert_array_equal(buffer.priorities(range(6)), [1.5, 9.5, 9.5, 25, 0, 25])
    assert buffer.stats().priority_quantiles == (1.5, 9.5, 9.5, 25.0, 25.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_refused_update_changes_nothing(bad: float) -> None:
    buffer = buffer_of(5, alpha=0.0)
    extend(buffer, 0, 5, [3, 1, 2, 5, 4])
    with pytest.raises(relive.PriorityError, match=r"at `\$\.td_error\[1\]`: check the loss"):
        buffer.update_priorities([0, 1], [9.0, bad])
    assert ranking(buffer, 5) == [3, 4, 0, 2, 1]
    buffer.update_priorities([0, 1], [9.0, 6.0])
    assert ranking(buffer, 5) == [0, 1, 3, 4, 2]


def test_a_sum_that_overflows_is_refused() -> None:
    """With its error, and no warning of NumPy's before that."""
    buffer = buffer_of(8, eps=1e308)
    ids = extend(buffer, 0, 4)
    with pytest.raises(relive.PriorityError):
        buffer.update_priorities(ids, np.full(len(ids), 1.7e308))
    assert np.isfinite(buffer.priorities(ids)).all()


@pytest.mark.skipif("_native" not in kernels.active().__name__, reason="the NumPy kernels sort all items at a draw")
@pytest.mark.parametrize("lanes", [1, 3])
def test_steps_are_ranked_while_they_are_added(lanes: int) -> None:
    """No draw has to put more than some thousand steps in order, and ranks are those of a draw that does."""
    schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    buffers = [relive.ReplayBuffer(schema, 12_000, num_envs=lanes, sampler=relive.Ranked(), seed=0) for _ in range(2)]
    n, each = 18_000 // lanes, 300 // lanes
    steps = np.arange(n, dtype=np.float32) + np.zeros((lanes, 1), np.float32)
    flags = np.zeros((lanes, n), bool)
    rows = {"obs": steps, "action": steps, "reward": steps, "next_obs": steps + 1}
    rows |= {"terminated": flags, "truncated": flags}

    def extend(buffer: relive.ReplayBuffer, begin: int, end: int) -> None:
        some = {name: each[:, begin:end] for name, each in rows.items()}
        buffer.extend(**({name: each[0] for name, each in some.items()} if lanes == 1 else some))

    for begin in range(0, n, each):
        extend(buffers[0], begin, begin + each)
        assert waiting(buffers[0]) < 4096 + 300
    extend(buffers[1], 0, n)
    assert waiting(buffers[1]) == 18_000
    batches = [buffer.sample(500) for buffer in buffers]
    for name in ("ids", "weights") if lanes == 1 else ("weights",):  # steps of one call are ranked lane by lane
        np.testing.assert_array_equal(batches[0][name], batches[1][name])


def waiting(buffer: relive.ReplayBuffer) -> int:
    """Rows that the sampler has not taken in."""
    counters, seen = buffer._core.ring.counters, buffer._core.memory.host("ranks.seen")
    return int((counters[:, HEAD] - seen[:, 2]).sum())
