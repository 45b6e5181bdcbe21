"""The queue of anchors: the back ends against each other, and against what the ring says of every id."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, permutations
from types import ModuleType

import numpy as np
from back_ends import BACKENDS, both, digest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_rings import Life, ring_of

from relive._ring.lanes import HEAD, STEP, STORED, first_rows, ranges
from relive._ring.plans import Window
from relive._ring.ring import Ring

WINDOWS = [
    Window(span=1),
    Window(span=3, lookback=2),
    Window(span=4, starts=3),
    Window(span=2, lookback=1, starts=2, across=True),
]
DRAWS = ("draw", "draw_distinct", "draw_episodes")


class Followed:
    """A ring and a queue that follows it, with the arrays that the queue works on."""

    def __init__(self, module: ModuleType, ring: Ring, dtype: type = np.int32) -> None:
        self.places, self.firsts = (np.zeros((ring.lanes, ring.rows), dtype) for _ in range(2))
        self.ends, self.seen = np.zeros((ring.lanes, 4), np.int64), np.zeros((ring.lanes, 3), np.int64)
        self.ring = ring
        self.queue = module.Queue(ring.kernel, self.places, self.firsts, self.ends, self.seen)

    def ids(self, name: str, u: np.ndarray) -> list[int]:
        return self.ring.ids(getattr(self.queue, name)(u)).tolist()


def in_the_middle(n: int) -> np.ndarray:
    """Return uniforms that name each of n items once."""
    return (np.arange(n) + 0.5) / n


@settings(max_examples=max(settings().max_examples // 4, 1))
@given(
    st.sampled_from(WINDOWS),
    st.integers(1, 5),
    st.integers(8, 23),
    st.integers(6, 23),
    st.sampled_from([np.int32, np.int64]),
    st.integers(0, 2**32 - 1),
)
def test_random_lives(window, lanes, rows, steps, dtype, seed):
    """Check two queues a ring, one refreshed now and then, one at the end only: the same draws on every back end."""
    rng = np.random.default_rng(seed)
    rings = [ring_of(module, lanes, rows, window, steps=min(rows, steps)) for module in BACKENDS]
    life = Life(rings, rng)
    eager = [Followed(module, ring, dtype) for module, ring in zip(BACKENDS, rings, strict=True)]
    late = [Followed(module, ring, dtype) for module, ring in zip(BACKENDS, rings, strict=True)]
    for _ in range(int(rng.integers(1, 40))):
        life.go_on()
        if rng.random() < 0.7:
            counts = [followed.queue.refresh() for followed in eager]
            assert counts == [rings[0].drawable] * len(counts)
    drawable = life.drawable()
    assert [followed.queue.refresh() for followed in [*eager, *late]] == [len(drawable)] * len(eager + late)
    assert len({digest([ring.counters, ring.marks]) for ring in rings}) == 1
    assert_counted(rings[0])
    for several in (eager, late):
        arrays = [digest([f.places, f.firsts, f.ends, f.seen]) for f in several]
        assert arrays == arrays[:1] * len(arrays)
    if not drawable:
        return
    u = rng.random(50)
    u[0], u[1] = 0.0, np.nextafter(1.0, 0.0)
    for name in DRAWS:
        some = u[: len(drawable)] if name == "draw_distinct" else u
        drawn = [followed.ids(name, some) for followed in [*eager, *late]]
        assert drawn == drawn[:1] * len(drawn)
    assert late[0].ids("draw", in_the_middle(len(drawable))) == drawable
    assert sorted(late[0].ids("draw_distinct", rng.random(len(drawable)))) == sorted(drawable)
    assert_episodes(late[0], life, drawable)


def assert_counted(ring: Ring) -> None:
    """Check that each lane has the steps that its marks show, at most those it keeps, and nothing left to repair."""
    first, head = first_rows(ring.counters, ring.rows), ring.counters[:, HEAD]
    lanes, rows = ranges(first, head)
    steps = (ring.marks[ring.at(rows, lanes)] & STEP) > 0
    stored = np.bincount(lanes, steps, ring.lanes)
    np.testing.assert_array_equal(stored, ring.counters[:, STORED])
    assert (stored <= ring.steps).all()
    before = [ring.counters.copy(), ring.marks.copy()]
    ring.recover(np.arange(ring.lanes))
    for kept, found in zip(before, (ring.counters, ring.marks), strict=True):
        np.testing.assert_array_equal(found, kept)


def assert_episodes(followed: Followed, life: Life, drawable: list[int]) -> None:
    """Check that each stream with an anchor is an episode, within which all anchors are equally likely."""
    lanes = followed.ring.lanes
    episodes = [list(ids) for _, ids in groupby(drawable, lambda key: (key % lanes, life.stream_of[key]))]
    for number, ids in enumerate(episodes):
        u = (number + in_the_middle(len(ids))) / len(episodes)
        assert followed.ids("draw_episodes", u) == ids


@both
def test_pairs_of_different_anchors_are_equally_likely(kernels):
    """Check by chi-square at the 1e-6 level."""
    life = Life([ring_of(kernels, 3, 9, WINDOWS[0])], np.random.default_rng(5))
    followed = Followed(kernels, life.rings[0])
    for _ in range(30):
        life.go_on()
    items, rng, n = followed.queue.refresh(), np.random.default_rng(6), 6000
    counts = Counter(tuple(followed.ids("draw_distinct", rng.random(2))) for _ in range(n))
    pairs, expected = [*permutations(life.drawable(), 2)], n / items / (items - 1)
    assert set(counts) <= set(pairs)
    freedom = len(pairs) - 1
    assert sum((counts[pair] - expected) ** 2 / expected for pair in pairs) < freedom + 5 * (2 * freedom) ** 0.5 + 18


@both
def test_a_queue_that_was_never_refreshed_has_nothing(kernels):
    followed = Followed(kernels, ring_of(kernels, 2, 8, WINDOWS[0]))
    for name in DRAWS:
        assert followed.ids(name, np.zeros(0)) == []
