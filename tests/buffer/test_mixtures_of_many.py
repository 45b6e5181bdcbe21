"""Mixtures of any number of buffers, nested or not: shares exact in rows, priorities, and what buffers can do, too."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scalars import lived, step

import relive
from relive import Mixture
from relive._ring import kernels
from relive.trajectories import Prefetch, TrajectoryReplayBuffer


class Counting:
    """A source of batches that say whose they are."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def sample(self, n: int, /) -> relive.Batch:
        assert n > 0
        return relive.Batch({"of": np.full(n, self.value), "ids": np.arange(n)})


def counts(mixture: Mixture, n: int) -> list[int]:
    of = mixture.sample(n).of
    assert len(of) == n
    assert (np.diff(of) >= 0).all()
    return np.bincount(of, minlength=len(mixture.buffers)).tolist()


def made(value: float = 0.0, **choices: Any) -> relive.ReplayBuffer:
    buffer = lived(0, **{"sampler": relive.Prioritized(alpha=1.0, eps=0.0), **choices})
    for _ in range(20):
        buffer.add(**step(value, next_obs=value))
    return buffer


@pytest.mark.parametrize("kind", [float, np.float64, np.float32, np.float16])
def test_the_second_of_two_has_its_share_rounded_down(kind: Any) -> None:
    """Check exactly: 0.29 of 100 are 29 rows, and 0.58 of 50 are 29."""
    for percent in range(101):
        mixture = Mixture(Counting(0), Counting(1), share=kind(percent / 100))
        for n in (1, 7, 50, 100, 200, 256):
            assert counts(mixture, n) == [n - n * percent // 100, n * percent // 100]


@pytest.mark.parametrize(
    ("shares", "n", "rows"),
    [
        ((0.5, 0.3, 0.2), 10, [5, 3, 2]),
        ((0.5, 0.3, 0.2), 256, [128, 77, 51]),
        ((1 / 3, 1 / 3, 1 / 3), 3, [1, 1, 1]),
        ((0.1,) * 10, 16, [2, 2, 1, 2, 1, 2, 2, 1, 2, 1]),
        ((0.29, 0.58, 0.13), 100, [29, 58, 13]),
        ((0.0, 1.0, 0.0), 5, [0, 5, 0]),
        ((Fraction(1, 7), Fraction(6, 7)), 14, [2, 12]),
        ([np.float32(0.7), 0.3], 10, [7, 3]),
    ],
)
def test_shares_in_rows(shares: Any, n: int, rows: list[int]) -> None:
    mixture = Mixture(*map(Counting, range(len(shares))), shares=shares)
    assert counts(mixture, n) == rows
    assert mixture.shares == pytest.approx(tuple(map(float, shares)))


def test_more_than_two_have_equal_shares_if_none_are_given() -> None:
    assert counts(Mixture(*map(Counting, range(4))), 8) == [2, 2, 2, 2]
    assert Mixture(Counting(), Counting(1)).share == 0.5


@given(st.lists(st.integers(0, 50), min_size=2, max_size=6).filter(any), st.integers(1, 400))
def test_every_buffer_is_less_than_a_row_from_its_share(parts: list[int], n: int) -> None:
    exact = [Fraction(part, sum(parts)) for part in parts]
    rows = counts(Mixture(*map(Counting, range(len(parts))), shares=[float(share) for share in exact]), n)
    for share, found in zip(exact, rows, strict=True):
        assert abs(found - n * share) < 1
        assert (n * share).denominator > 1 or found == n * share


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ({"shares": (0.5, 0.3, 0.3)}, "Expected shares whose sum is 1, got a sum of `1.1` - at `Mixture(shares)`"),
        ({"shares": (3, 2, 5)}, "Expected a finite number >= 0 and <= 1, got `3` - at `Mixture(shares)`"),
        ({"shares": (0.5, 0.5)}, "Expected 3 shares, one per buffer, got 2 - at `Mixture(shares)`"),
        ({"shares": (1.5, -0.5, 0.0)}, "Expected a finite number >= 0 and <= 1, got `1.5` - at `Mixture(shares)`"),
        ({"shares": (0.5, np.nan, 0.5)}, "Expected a finite number >= 0 and <= 1, got `nan` - at `Mixture(shares)`"),
        ({"shares": "abc"}, "Expected 3 shares, one per buffer, got `'abc'` - at `Mixture(shares)`"),
        ({"shares": 0.5}, "Expected 3 shares, one per buffer, got `0.5` - at `Mixture(shares)`"),
        ({"share": 0.3}, "Expected `share=` of two buffers alone, got 3 buffers - at `Mixture(share)`"),
        (
            {"share": 0.3, "shares": (0.5, 0.3, 0.2)},
            "Expected `share=` of two buffers alone, got `shares=`, too - at `Mixture(share)`",
        ),
    ],
)
def test_other_shares_are_refused(choices: dict[str, Any], text: str) -> None:
    with pytest.raises(relive.ArgumentError) as caught:
        Mixture(Counting(), Counting(), Counting(), **choices)
    assert str(caught.value).startswith(text)


def test_a_buffer_further_on_that_is_none_is_named() -> None:
    with pytest.raises(relive.ArgumentError, match=r"Mixture\(others\[0\]\)"):
        Mixture(Counting(), Counting(), [])  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", ["flat", "first", "last"])
def test_priorities_reach_every_buffer(shape: str) -> None:
    """Check three next to each other, and two in a mixture of their own."""
    parts = [made(value) for value in range(3)]
    mixtures = {
        "flat": Mixture(*parts, shares=(0.5, 0.3, 0.2)),
        "first": Mixture(Mixture(parts[1], parts[2], share=0.3), parts[0], share=0.4),
        "last": Mixture(parts[0], Mixture(parts[1], parts[2], share=0.3), share=0.6),
    }
    for n in (1, 2, 7, 100):
        batch = mixtures[shape].sample(n)
        assert mixtures[shape].update_priorities(batch.ids, batch.reward[:, None] + 10.0) == n
        for value, part in enumerate(parts):
            ids = batch.ids[batch.reward == value]
            assert part.priorities(ids).tolist() == [value + 10.0] * len(ids)
    assert sum(part.stats().updates for part in parts) == 110


def test_a_wrapper_of_ones_own_gets_its_priorities() -> None:
    class Wrapper:
        def __init__(self) -> None:
            self.inner, self.got = made(1.0), []

        def sample(self, n: int, /) -> relive.Batch:
            return self.inner.sample(n)

        def update_priorities(self, ids: Any, td_error: Any) -> None:
            self.got += list(zip(ids.tolist(), td_error.tolist(), strict=True))

    wrapper = Wrapper()
    mixture = Mixture(made(), wrapper, share=0.25)
    batch = mixture.sample(8)
    assert mixture.update_priorities(batch.ids, np.arange(8.0)) is None  # the wrapper does not say how many
    assert wrapper.got == list(zip(batch.ids[6:].tolist(), [6.0, 7.0], strict=True))


def test_nothing_changes_where_a_priority_of_an_inner_part_is_refused() -> None:
    parts = [made(value) for value in range(3)]
    mixture = Mixture(parts[0], Mixture(parts[1], parts[2]))
    batch = mixture.sample(8)
    for wrong in ([1.0] * 7 + [np.nan], [1.0] * 7, np.ma.masked_equal([1.0] * 7 + [9.0], 9.0)):
        with pytest.raises(relive.PriorityError):
            mixture.update_priorities(batch.ids, wrong)
    assert [part.stats().updates for part in parts] == [0, 0, 0]


def test_buffers_without_priorities_are_passed_over() -> None:
    uniform, trajectories = made(sampler=relive.Uniform()), TrajectoryReplayBuffer(seed=0)
    trajectories.add_trajectories([{"reward": np.zeros((5, 2), np.float32), "ids": np.zeros((5, 2), np.int64)}])
    mixture = Mixture(uniform, made(), trajectories, shares=(0.25, 0.5, 0.25))
    batch = mixture.sample(8)
    assert set(batch) == {"reward", "ids"}
    assert mixture.update_priorities(batch.ids, np.ones(8)) == 4


def test_what_it_says_of_itself() -> None:
    parts = [made(), made(sampler=relive.Uniform(replacement=False)), TrajectoryReplayBuffer(seed=0)]
    mixture = Mixture(*parts, shares=(0.5, 0.25, 0.25))
    assert repr(mixture) == f"Mixture({parts[0]!r}, {parts[1]!r}, {parts[2]!r}, shares=(0.5, 0.25, 0.25))"
    assert not mixture.can_sample(8)
    parts[2].add_trajectories([{"reward": np.zeros((5, 2), np.float32)}])
    assert mixture.can_sample(8)
    assert mixture.can_sample(80)
    assert not mixture.can_sample(84)
    assert not mixture.can_sample(0)
    assert not mixture.can_sample("8")
    mixture.sample(8)
    stats = mixture.stats()
    assert (stats[0].drawn, stats[1].drawn, stats[2]["num_trajectories"]) == (4, 2, 1)
    assert Mixture(Counting(), mixture).stats() == (None, mixture.stats())
    assert Mixture(Counting(), Counting()).can_sample(5)


def test_items_with_time_first_are_joined_along_the_batch() -> None:
    """Check that their batch is the second axis, except for recurrent state and ids."""
    schema = relive.Schema(obs={"a": relive.Field((2,))}, action=relive.Field(), h=relive.Field((3,), every=2))
    parts = []
    for value in range(3):
        item = relive.Sequences(4, starts=2, time_major=True)
        part = relive.ReplayBuffer(schema, 100, item=item, seed=0)
        obs, none = {"a": np.full((20, 2), value)}, np.zeros(20)
        part.extend(obs=obs, action=none, reward=none + value, next_obs=obs, terminated=none > 0, truncated=none > 0,
                    h=np.full((20, 3), value))  # fmt: skip
        parts.append(part)
    batch = Mixture(parts[0], Mixture(parts[1], parts[2])).sample(8)
    wanted = [0, 0, 0, 0, 1, 1, 2, 2]
    assert batch.obs.a.shape == (4, 8, 2)
    assert batch.h.shape == (8, 3)
    assert batch.weights.shape == (8,)
    assert (batch.obs.a[..., 0] == wanted).all()
    assert batch.h[:, 0].tolist() == wanted
    ordinary = relive.ReplayBuffer(schema, 100, item=relive.Sequences(4, starts=2), seed=0)
    with pytest.raises(relive.ArgumentError, match="give their items the same `time_major`"):
        Mixture(parts[0], ordinary)


def test_batches_that_are_no_mappings_are_refused() -> None:
    class Tuples:
        def sample(self, n: int, /) -> Any:
            return (np.zeros(n),)

    with pytest.raises(relive.ArgumentError, match=r"mix adapters' `.relive`"):
        Mixture(Counting(), Tuples()).sample(4)


def test_prefetched_batches_count_when_they_are_handed_out() -> None:
    manual = [made(value, seed=value) for value in range(3)]
    parts = [made(value, seed=value) for value in range(3)]
    mixture = Mixture(parts[0], Mixture(parts[1], parts[2]), share=0.5)
    with mixture.prefetch(8, depth=3) as batches:
        for _ in range(4):
            batch, wanted = next(batches), Mixture(manual[0], Mixture(manual[1], manual[2])).sample(8)
            assert batch.ids.tolist() == wanted.ids.tolist()
            assert batch.reward.tolist() == [0, 0, 0, 0, 1, 1, 2, 2]
    assert [part.stats().drawn for part in parts] == [16, 8, 8]
    with pytest.raises(relive.ArgumentError, match=r"Mixture.prefetch\(depth\)"):
        mixture.prefetch(8, depth=0)
    with pytest.raises(relive.ArgumentError, match=r"Mixture.prefetch\(to\)"):
        mixture.prefetch(8, to="tensorflow")


def test_a_transform_repeats() -> None:
    def noisy(batch: relive.Batch, rng: np.random.Generator) -> relive.Batch:
        return relive.Batch({**batch, "noise": rng.random(len(batch.ids))})

    def mixture() -> Mixture:
        return Mixture(*(made(value, seed=value) for value in range(3)))

    with mixture().prefetch(6, transform=noisy) as ahead, Prefetch(mixture(), 6, transform=noisy) as other:
        for _ in range(3):
            assert next(ahead).noise.tolist() == next(other).noise.tolist()
    with pytest.raises(relive.ArgumentError, match=r"Mixture.prefetch\(transform\)"):
        Mixture(made(), Counting()).prefetch(4, transform=noisy)


def test_leaving_a_prefetch_ends_the_wait_for_a_limiter() -> None:
    limited = made(limiter=relive.RateLimiter(samples_per_insert=1.0, min_size=10, error_buffer=30))
    mixture = Mixture(made(), limited)
    assert mixture.can_sample(20)
    assert not mixture.can_sample(200)
    with mixture.prefetch(20, depth=1) as batches:
        taken = [next(batches) for _ in range(3)]
    assert len(taken) == 3
    assert limited.stats().drawn == 30


@pytest.mark.skipif("_native" not in kernels.active().__name__, reason="several processes need the extension")
def test_a_reader_of_shared_memory_mixes() -> None:
    storage = relive.Shared()
    with made(1.0, storage=storage), relive.open(storage.address, seed=5) as reader:
        mixture = Mixture(made(), reader, made(2.0))
        with mixture.prefetch(9) as batches:
            batch = next(batches)
        assert batch.reward.tolist() == [0] * 3 + [1] * 3 + [2] * 3
        assert mixture.update_priorities(batch.ids, np.ones(9)) == 9


@pytest.mark.parametrize("time_major", [False, True])
def test_batches_of_other_lengths_are_refused_at_once(time_major: bool) -> None:
    item = relive.Sequences(5, time_major=time_major, trim=True)
    trimmed, plain = (made(item=each) for each in (item, item.__replace__(trim=False)))
    wanted = "Expected an item whose batches all have one length, got `Sequences"
    for buffers, name in (((trimmed, plain), "replay"), ((plain, plain, trimmed), r"others\[0\]")):
        with pytest.raises(relive.ArgumentError, match=rf"{wanted}.*Mixture\({name}\).*leave out `trim`"):
            Mixture(*buffers)
    assert Mixture(plain, plain).sample(4).mask.shape == ((5, 4) if time_major else (4, 5))
