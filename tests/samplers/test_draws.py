"""Draws follow P(i) = p_i^alpha / sum whatever the priorities look like: chi-square on 400,000 draws each."""

from __future__ import annotations

import numpy as np
import pytest
from depth import LONG, pairs
from statistics_of_draws import P_MIN, chi_square_p, largest_z

import relive

DRAWS, BATCH = 400_000, 20_000


def decades(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw log-uniformly over twelve decades."""
    return 10.0 ** rng.uniform(-6, 6, n)


def sparse(rng: np.random.Generator, n: int) -> np.ndarray:
    """Set nine in ten to zero, the first and the last of them too."""
    p = np.where(rng.random(n) < 0.9, 0.0, rng.random(n) + 0.1)
    p[[0, -1]], p[n // 2] = 0.0, 1.0
    return p


def giant(rng: np.random.Generator, n: int) -> np.ndarray:
    """Give one as much as all others together."""
    p = rng.random(n) + 0.5
    p[n // 3] = p.sum()
    return p


PROFILES = {
    "uniform": (1000, lambda rng, n: np.ones(n)),
    "ramp": (777, lambda rng, n: np.arange(n) + 1.0),
    "twelve decades": (4097, decades),
    "one giant": (1000, giant),
    "one giant of 1e5": (4096, lambda rng, n: np.where(np.arange(n) == 5, 1e5, rng.random(n))),
    "many zeros": (5000, sparse),
    "zeros in blocks of eight": (4096, lambda rng, n: np.where(np.arange(n) // 8 % 3 == 1, rng.random(n), 0.0)),
    "only the last": (513, lambda rng, n: np.eye(1, n, n - 1)[0]),
    "only the first": (513, lambda rng, n: np.eye(1, n, 0)[0]),
    "pareto": (2000, lambda rng, n: rng.pareto(1.1, n) + 1e-3),
    "two levels": (64, lambda rng, n: np.where(np.arange(n) % 2, 1.0, 1e-3)),
    "tiny numbers": (300, lambda rng, n: rng.random(n) * 1e-200),
    "huge numbers": (300, lambda rng, n: rng.random(n) * 1e200),
    "five leaves": (5, lambda rng, n: np.array([0.0, 1.0, 0.0, 3.0, 0.5])),
}


def buffer_of(priorities: np.ndarray, **sampler: object) -> relive.ReplayBuffer:
    """Make a full one-lane buffer with these raw priorities, in the order of ids."""
    n = len(priorities)
    buffer = relive.ReplayBuffer(
        relive.Schema(obs=relive.Field((), "int64"), action=relive.Field((), "bool")),
        capacity=n,
        sampler=relive.Prioritized(eps=0.0, **sampler),
        seed=20260,
    )
    extend(buffer, 0, n, priorities)
    return buffer


def extend(buffer: relive.ReplayBuffer, start: int, n: int, priorities: np.ndarray) -> np.ndarray:
    """Add `n` steps of one lane; observations count up."""
    serial, off = np.arange(start, start + n)[None], np.zeros((1, n), bool)
    return buffer.extend(
        obs=serial, action=off, reward=serial, next_obs=serial + 1, terminated=off, truncated=off,
        priority=np.asarray(priorities, float)[None],
    )[0]  # fmt: skip


def count(buffer: relive.ReplayBuffer, ids: np.ndarray, draws: int = DRAWS, batch: int = BATCH) -> np.ndarray:
    """Count the draws of each of `ids` (ascending)."""
    counts = np.zeros(len(ids), np.int64)
    for _ in range(draws // batch):
        drawn = np.searchsorted(ids, buffer.sample(batch).ids)
        counts += np.bincount(drawn, minlength=len(ids))
    return counts


@pytest.mark.parametrize(("profile", "stratified"), pairs(PROFILES, [False, True]))
def test_draws_follow_the_priorities(profile, stratified):
    n, make = PROFILES[profile]
    raw = make(np.random.default_rng(7), n)
    for alpha in (1.0,) if profile != "twelve decades" else (1.0, 0.6):
        mass = np.where(raw > 0, raw**alpha, 0.0)
        buffer = buffer_of(raw, alpha=alpha, stratified=stratified)
        counts = count(buffer, np.arange(n))
        assert counts[raw == 0].sum() == 0
        if (raw > 0).sum() > 1:
            # Strata make the counts vary less than independent draws do, so the bound holds all the more.
            assert chi_square_p(counts, mass / mass.sum()) > P_MIN


@pytest.mark.parametrize(
    "profile", [name for name in PROFILES if name not in ("uniform", "only the last", "only the first")]
)
def test_meta_uniform_draws_of_the_positive_ones_are_found(profile):
    """Check that a sampler that ignores the size of priorities fails the test above, for all priorities."""
    n, make = PROFILES[profile]
    rng = np.random.default_rng(7)
    raw = make(rng, n)
    counts = rng.multinomial(DRAWS, (raw > 0) / (raw > 0).sum())
    assert chi_square_p(counts, raw / raw.sum()) <= P_MIN


def test_meta_a_test_without_freedom_is_refused():
    with pytest.raises(ValueError, match="nothing to compare"):
        chi_square_p(np.array([999, 1, 0]), np.array([0.998, 0.001, 0.001]))


def test_alpha_is_applied_once_and_to_every_kind_of_priority():
    """Check that given, initial, running maximum and updated priorities all go through the same power."""
    buffer = relive.ReplayBuffer(
        relive.Schema(obs=relive.Field((), "int64"), action=relive.Field((), "bool")),
        capacity=8,
        sampler=relive.Prioritized(alpha=0.5, eps=0.0, stratified=False, initial=4.0),
        seed=5,
    )

    def one(start: int, **extra: object) -> None:
        buffer.add(obs=start, action=0, reward=0, next_obs=start + 1, terminated=False, truncated=False, **extra)

    one(0)  # initial: 4
    one(1)  # initial: 4
    buffer.update_priorities([1], [-9.0])  # |td| = 9, the running maximum from now on
    one(2)  # 9
    one(3, priority=25.0)
    one(4, priority=1.0)
    one(5, priority=0.0)
    np.testing.assert_allclose(buffer.priorities(range(6)), [4, 9, 9, 25, 1, 0])
    mass = np.array([2.0, 3, 3, 5, 1, 0])
    assert chi_square_p(count(buffer, np.arange(6)), mass / mass.sum()) > P_MIN


@pytest.mark.parametrize("lanes", [1, 3])
def test_after_ten_laps_and_updates(lanes):
    """Check full rings with lanes at different speeds, ends inside, priorities updated late and twice."""
    rng = np.random.default_rng(11)
    buffer = relive.ReplayBuffer(
        relive.Schema(obs=relive.Field((), "int64"), action=relive.Field((), "bool")),
        capacity=500 * lanes,
        num_envs=lanes,
        item=relive.Transitions(n_step=3),
        sampler=relive.Prioritized(alpha=0.7, stratified=False),
        seed=3,
    )
    clock, newest = np.zeros(lanes, int), np.zeros(lanes, np.int64)
    while clock.min() < 5000:
        lane = int(rng.integers(lanes))
        n = int(rng.integers(1, 40)) * (lane + 1)
        serial = np.arange(clock[lane], clock[lane] + n)[None]
        ids = buffer.extend(
            obs=serial, action=serial % 2, reward=serial, next_obs=serial + 1, terminated=rng.random((1, n)) < 0.05,
            truncated=rng.random((1, n)) < 0.05, env_ids=[lane],
        )[0]  # fmt: skip
        clock[lane] += n
        newest[lane] = ids[-1]
        drawn = buffer.sample(64).ids if buffer.can_sample(1) else ids[:1]
        buffer.update_priorities(np.concatenate([drawn, drawn[::-1]]), 10 ** rng.uniform(-4, 2, 2 * len(drawn)))
    alive = drawable_ids(buffer, newest)
    assert len(alive) == buffer.stats().drawable
    mass = buffer.priorities(alive) ** 0.7
    assert chi_square_p(count(buffer, alive), mass / mass.sum()) > P_MIN


def drawable_ids(buffer: relive.ReplayBuffer, newest: np.ndarray) -> np.ndarray:
    """Return every id that can be read, in ascending order, found by trying all of two laps."""
    lanes = len(newest)
    found = []
    for key in (newest[:, None] - np.arange(2 * buffer.capacity // lanes) * lanes).ravel().tolist():
        try:
            buffer.read([key])
        except relive.errors.StaleId:
            continue
        found.append(key)
    return np.sort(found)


@pytest.mark.parametrize("batch", [1, 7, 32, 256])
def test_strata(batch):
    """Check that each item's count in a batch is within two of its expectation: one draw per equal slice, in order."""
    raw = decades(np.random.default_rng(2), 300) ** 0.25
    buffer = buffer_of(raw, alpha=1.0)
    edges = np.concatenate([[0.0], np.cumsum(raw)])
    share = raw.sum() / batch
    for _ in range(200):
        ids = buffer.sample(batch).ids
        assert (np.diff(ids) >= 0).all()
        slices = np.arange(batch)
        assert (edges[ids] <= (slices + 1) * share * (1 + 1e-12)).all()
        assert (edges[ids + 1] >= slices * share * (1 - 1e-12)).all()
        assert (np.abs(np.bincount(ids, minlength=300) - raw / share) < 2).all()


@pytest.mark.parametrize("sampler", [relive.Prioritized(alpha=0.0), relive.Uniform()], ids=["alpha 0", "Uniform"])
def test_uniform_over_all_lanes_together(sampler):
    """Check lanes of different lengths: every item equally likely, not every lane."""
    buffer = relive.ReplayBuffer(
        relive.Schema(obs=relive.Field((), "int64"), action=relive.Field((), "bool")),
        capacity=400,
        num_envs=2,
        sampler=sampler,
        seed=1,
    )
    ids = []
    for lane, n in ((0, 900), (1, 37)):
        serial, off = np.arange(n)[None], np.zeros((1, n), bool)
        arguments = {"obs": serial, "action": off, "reward": off, "next_obs": serial + 1, "terminated": off}
        ids += buffer.extend(**arguments, truncated=off, env_ids=[lane])[0][-200:].tolist()
    counts = count(buffer, np.sort(ids))
    assert chi_square_p(counts, np.full(237, 1 / 237)) > P_MIN


@pytest.mark.parametrize(("size", "batch"), [(4, 2), (12, 4), (40, 39)])
@pytest.mark.parametrize("kind", ["prioritized", "uniform"])
def test_without_replacement(kind, size, batch):
    """Check that nothing repeats, and that inclusions are as frequent as in NumPy's successive draws."""
    rng = np.random.default_rng(size)
    raw = decades(rng, size) ** 0.3
    buffer = buffer_of(raw, alpha=1.0, replacement=False)
    if kind == "uniform":
        raw = np.ones(size)
        buffer = relive.ReplayBuffer(
            relive.Schema(obs=relive.Field((), "int64"), action=relive.Field((), "bool")), size,
            sampler=relive.Uniform(replacement=False), seed=8,
        )  # fmt: skip
        off = np.zeros(size, bool)
        buffer.extend(
            obs=np.arange(size)[None], action=off[None], reward=off[None], next_obs=np.arange(size)[None] + 1,
            terminated=off[None], truncated=off[None],
        )  # fmt: skip
    rounds = 4_000 if LONG else 1_500
    included, reference = np.zeros(size, int), np.zeros(size, int)
    for _ in range(rounds):
        ids = buffer.sample(batch).ids
        assert len(np.unique(ids)) == batch
        included[ids] += 1
        reference[rng.choice(size, batch, replace=False, p=raw / raw.sum())] += 1
    assert largest_z(included, reference, rounds) < 5.5


def test_unnormalised_weights_make_the_mean_unbiased():
    """Check that with beta = 1 the weighted mean of any quantity is its plain mean over the buffer."""
    raw = np.random.default_rng(4).random(200) + 0.05
    buffer = buffer_of(raw, alpha=1.0, beta=1.0, weights="none", stratified=False)
    total, weight = 0.0, 0.0
    for _ in range(DRAWS // BATCH):
        batch = buffer.sample(BATCH)
        total += float((batch.weights.astype(float) * batch.reward).sum())
        weight += float(batch.weights.sum())
    assert abs(total / DRAWS - 99.5) < 0.5
    assert abs(weight / DRAWS - 1) < 0.005


def two_lanes(item: object, sampler: object, capacity: int = 600) -> tuple[relive.ReplayBuffer, np.ndarray]:
    """Fill two lanes several times, with episodes of 1 to 40 steps that end in every way; return their drawable ids.

    Observations count the episodes of all lanes together, rewards the steps.
    """
    rng = np.random.default_rng(17)
    buffer = relive.ReplayBuffer(
        relive.Schema(obs=relive.Field((), "int64"), action=relive.Field((), "bool")),
        capacity=capacity,
        num_envs=2,
        item=item,
        sampler=sampler,
        seed=6,
    )
    newest = np.zeros(2, np.int64)
    for number in range(capacity // 5):
        lane, n = number % 2, int(rng.integers(1, 41))
        same, off, last = np.full((1, n), number), np.zeros((1, n), bool), np.eye(1, n, n - 1, dtype=bool)
        ends = {"terminated": last, "truncated": off} if number % 3 else {"terminated": off, "truncated": last}
        if number % 5 == 2:
            ends = {"terminated": off, "truncated": off}
        # Where one lane has final observations, nothing stands between the episodes of the other.
        arguments = {
            "obs": same,
            "action": off,
            "reward": np.arange(n)[None],
            "next_obs": None if lane else same,
            **ends,
        }
        newest[lane] = buffer.extend(**arguments, env_ids=[lane])[0, -1]
        buffer.cut()
    return buffer, drawable_ids(buffer, newest)


@pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
@pytest.mark.parametrize(
    "item",
    [
        relive.Transitions(n_step=3),
        relive.Sequences(6, burn_in=2),
        relive.Sequences(4, n_step=2, starts=3),
        relive.Sequences(5, starts=2, across_episodes=True),
    ],
    ids=["transitions", "sequences", "every third step", "across episodes"],
)
def test_every_episode_is_equally_likely(item):
    """Check also those with only their last steps left, or only a few starts; and in each one all of its items."""
    buffer, ids = two_lanes(item, relive.Uniform(over="episodes"))
    obs = buffer.read(ids).obs
    episode = obs if obs.ndim == 1 else obs[:, 0]
    names, which, items = np.unique(episode, return_inverse=True, return_counts=True)
    assert len(names) > 15
    assert items.max() > 4 * items.min()
    counts = count(buffer, ids)
    assert chi_square_p(np.bincount(which, counts), np.full(len(names), 1 / len(names))) > P_MIN
    assert chi_square_p(counts, 1 / (len(names) * items[which])) > P_MIN


@pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
@pytest.mark.parametrize("prioritized", [False, True])
def test_sequences_without_replacement(prioritized):
    """Compare inclusion frequencies of anchors with NumPy's; some are overwritten, and some rows no starts."""
    choice = relive.Prioritized(alpha=0.5, eps=0.0, replacement=False) if prioritized else None
    item = relive.Sequences(3, starts=4)
    buffer, ids = two_lanes(item, choice or relive.Uniform(replacement=False), capacity=160)
    rng, batch, rounds = np.random.default_rng(9), 6, 4_000 if LONG else 1_500
    mass = np.ones(len(ids))
    if prioritized:
        mass = rng.uniform(0.2, 5, len(ids))
        buffer.update_priorities(ids, mass**2)
    included, reference = np.zeros(len(ids), int), np.zeros(len(ids), int)
    for _ in range(rounds):
        drawn = np.searchsorted(ids, buffer.sample(batch).ids)
        assert len(np.unique(drawn)) == batch
        included[drawn] += 1
        reference[rng.choice(len(ids), batch, replace=False, p=mass / mass.sum())] += 1
    assert largest_z(included, reference, rounds) < 5.5
