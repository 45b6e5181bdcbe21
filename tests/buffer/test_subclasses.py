"""Subclasses of `ReplayBuffer`, which nothing needs: copies have what they add, and all draws are those of `sample`."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scalars import lived, step

import relive
from relive.testing.agreement import assert_same_batch


class Counting(relive.ReplayBuffer):
    """With attributes of every kind, some of which are there before the buffer is."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.early = {"a": [1]}
        super().__init__(*arguments, **named)
        self.calls, self.itself, self.number = [0], self, 3

    def sample(self, batch_size: int, **named: Any) -> relive.Batch:
        self.calls[0] += 1
        batch = super().sample(batch_size, **named)
        return relive.Batch({**batch, "reward": batch.reward + 100.0})


class Slotted(relive.ReplayBuffer):
    __slots__ = ("held",)


class Stated(relive.ReplayBuffer):
    def __getstate__(self) -> Any:
        return {"told": self.told}  # type: ignore[attr-defined]

    def __setstate__(self, state: Any) -> None:
        self.told = [*state["told"], "set"]


def build(kind: type[relive.ReplayBuffer], **named: Any) -> Any:
    return lived(kind=kind, **named)


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy, "copy": copy.copy,
    **{f"pickle {p}": lambda b, p=p: pickle.loads(pickle.dumps(b, p)) for p in (2, 4, 5)},
}  # fmt: skip


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("sampler", [relive.Uniform(), relive.Prioritized()])
def test_copies_have_what_a_subclass_adds(how: str, sampler: Any) -> None:
    buffer = build(Counting, sampler=sampler)
    buffer.note, buffer.sampled = "mine", np.arange(3)
    made = COPIES[how](buffer)
    assert type(made) is Counting
    assert (made.early, made.number, made.note, made.sampled.tolist()) == ({"a": [1]}, 3, "mine", [0, 1, 2])
    assert made.itself is (buffer if how == "copy" else made)
    assert_same_batch(made.sample(8), buffer.sample(8))
    made.add(**step())
    assert (len(made), len(buffer)) == (51, 50), "it has calls of the buffer that it was copied from"
    again = COPIES[how](made)
    assert (len(again), again.note) == (51, "mine")


@pytest.mark.parametrize("how", COPIES)
def test_copies_of_other_shapes_of_subclasses(how: str) -> None:
    slotted, stated, plain = build(Slotted), build(Stated), build(relive.ReplayBuffer)
    slotted.held, stated.told, plain.note = 5, ["x"], 7
    assert COPIES[how](slotted).held == 5
    assert COPIES[how](stated).told == ["x", "set"]
    assert COPIES[how](plain).note == 7
    assert_same_batch(COPIES[how](plain).sample(8), plain.sample(8))
    del plain.note
    assert len(build(relive.ReplayBuffer).__reduce_ex__(5)) == 2


def test_a_method_that_a_user_has_put_there_stays() -> None:
    buffer = build(relive.ReplayBuffer)
    buffer.sample = twice
    made = copy.deepcopy(buffer)
    assert made.sample is twice
    with made.prefetch(4) as batches:
        assert next(batches) == "twice 4"


@pytest.mark.parametrize("how", COPIES)
def test_copies_with_a_limiter(how: str) -> None:
    """Copy a buffer whose calls are functions that wait first."""
    limiter = relive.RateLimiter(samples_per_insert=10, min_size=20, error_buffer=1000)
    for kind in (Counting, relive.ReplayBuffer):
        buffer = build(kind, limiter=limiter)
        buffer.note = 7
        made = COPIES[how](buffer)
        made.add(**step())
        assert (len(made), len(buffer), made.note) == (51, 50, 7)


def twice(n: int) -> str:
    return f"twice {n}"


@pytest.mark.parametrize("limited", [False, True])
def test_prefetch_calls_a_sample_of_ones_own(limited: bool) -> None:
    named = {"limiter": relive.RateLimiter(samples_per_insert=10, min_size=20, error_buffer=1000)} if limited else {}
    buffer, usual = build(Counting, **named), build(relive.ReplayBuffer, **named)
    with buffer.prefetch(8) as batches, usual.prefetch(8) as others:
        for _ in range(4):
            batch, other = next(batches), next(others)
            assert np.array_equal(batch.reward, other.reward + 100)
            assert np.array_equal(batch.ids, other.ids)
    assert buffer.calls[0] >= 4
    assert buffer.stats().drawn == 8 * buffer.calls[0]


def test_prefetch_of_a_sample_of_ones_own_takes_all_arguments() -> None:
    buffer = build(Counting, sampler=relive.Prioritized())
    seen = []

    def noted(batch: relive.Batch, rng: np.random.Generator) -> relive.Batch:
        seen.append(rng.random())
        return batch

    with buffer.prefetch(8, depth=1, to="torch", beta=1.0, transform=noted) as batches:
        assert next(batches)["reward"].min() >= 100
    assert len(set(seen)) == len(seen) >= 1
    buffer.close()
    with pytest.raises(relive.ReliveError):
        buffer.prefetch(8)


def test_prefetch_waits_with_a_limiter_and_can_be_left() -> None:
    buffer = build(Counting, limiter=relive.RateLimiter(samples_per_insert=1, min_size=1000))
    with buffer.prefetch(8) as batches:
        assert batches is not None
    assert buffer.calls[0] == 0
