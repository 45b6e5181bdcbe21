"""Batches drawn in the background."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from depth import eventually

import relive
from relive.errors import ReliveError
from relive.trajectories import Prefetch, TrajectoryReplayBuffer


class Numbers:
    """A source that counts its draws, and fails at one of them."""

    def __init__(self, fails_at=None):
        self.draws, self.fails_at = 0, fails_at

    def sample(self, n):
        self.draws += 1
        if self.draws == self.fails_at:
            raise relive.StorageError("the disk is gone")
        return relive.Batch({"number": np.full(n, self.draws)})


def alive():
    return [thread for thread in threading.enumerate() if thread.name == "relive-prefetch"]


def test_it_ends_after_as_many_batches_as_asked_for():
    source = Numbers()
    assert [batch.number[0] for batch in Prefetch(source, 2, batches=5)] == [1, 2, 3, 4, 5]
    assert source.draws == 5
    assert not alive()


def test_no_batches_are_none():
    assert list(Prefetch(Numbers(), 2, batches=0)) == []


def test_it_draws_ahead_but_not_further():
    source = Numbers()
    with Prefetch(source, 1, ahead=3) as batches:
        eventually(lambda: source.draws == 3)
        time.sleep(0.05)
        assert source.draws == 3
        next(batches)
        eventually(lambda: source.draws == 4)
    assert not alive()


def test_an_error_comes_where_its_batch_would_have_come_and_ends_it():
    batches = Prefetch(Numbers(fails_at=3), 1, ahead=5)
    assert [next(batches).number[0], next(batches).number[0]] == [1, 2]
    with pytest.raises(relive.StorageError, match="the disk is gone"):
        next(batches)
    with pytest.raises(StopIteration):
        next(batches)
    assert not alive()


def test_a_source_that_is_exhausted_is_an_error_and_no_end():
    class Exhausted:
        def sample(self, n):
            raise StopIteration

    with Prefetch(Exhausted(), 4) as batches, pytest.raises(ReliveError, match="`StopIteration`"):
        next(batches)


def test_a_buffer_that_has_nothing_says_so_instead_of_waiting():
    with pytest.raises(relive.NotEnoughData):
        next(Prefetch(TrajectoryReplayBuffer(), 4))


def test_close_ends_it_at_any_time_and_twice_does_no_harm():
    batches = Prefetch(Numbers(), 1)
    batches.close()
    batches.close()
    assert list(batches) == []
    assert not alive()


def test_close_from_elsewhere_wakes_one_that_waits():
    class Stuck:
        going = threading.Event()

        def sample(self, n):
            self.going.wait(30)
            return relive.Batch({})

    source = Stuck()
    batches = Prefetch(source, 1)
    seen = []
    waiting = threading.Thread(target=lambda: seen.append(list(batches)))
    waiting.start()
    closing = threading.Thread(target=batches.close)
    closing.start()
    source.going.set()
    waiting.join(30)
    closing.join(30)
    assert seen == [[]]
    assert not alive()


@pytest.mark.parametrize(
    ("arguments", "at"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 1, "batches": -1}, "batches"),
        ({"batch_size": 1, "ahead": 0}, "ahead"),
    ],
)
def test_bad_arguments_are_refused(arguments, at):
    with pytest.raises(relive.ArgumentError, match=rf"Prefetch\({at}\)"):
        Prefetch(Numbers(), **arguments)
    with pytest.raises(relive.ArgumentError, match="Expected something with `sample`, got `list`"):
        Prefetch([], 1)


def test_batches_are_those_of_the_source_in_order():
    def filled():
        buffer = TrajectoryReplayBuffer(seed=4)
        buffer.add_trajectories([{"rewards": np.arange(40.0).reshape(20, 2, 1)}])
        return buffer

    source = filled()
    expected = [source.sample(8).rewards for _ in range(6)]
    for batch, rewards in zip(Prefetch(filled(), 8, batches=6), expected, strict=True):
        np.testing.assert_array_equal(batch.rewards, rewards)
