"""What every storage promises, as tests that a subclass runs."""

from __future__ import annotations

import copy

import numpy as np

from ..buffer import ReplayBuffer
from ..errors import ArgumentError, StorageError
from ..items import Item, Sequences, Transitions
from ..samplers import Prioritized, Sampler, Uniform
from ..storage import Ram, Storage
from ._lives import Call, Contract, assert_full, feed, life
from .agreement import assert_same_batch, check, refuses
from .synthetic import SCHEMAS

# A schema, an item and a sampler each: records and columns, stacks, stored priorities.
CHOICES: tuple[tuple[str, Item, Sampler], ...] = (
    ("flat", Transitions(), Uniform()),
    ("wide", Transitions(n_step=3), Prioritized()),
    ("stacked", Sequences(3, burn_in=1), Prioritized(weights="buffer")),
    ("flat", Transitions(n_step=2), Uniform(over="episodes")),
    ("stacked", Transitions(), Uniform(replacement=False)),
    ("flat", Transitions(), Prioritized(replacement=False, weights="none")),
    ("nested", Transitions(n_step=2), Prioritized(newest="stored")),
)
LANES, STEPS = 2, 12


class StorageContract(Contract):
    """The promises of a storage: subclass it under a name that pytest collects, and override `storage`.

    Only the public API of `ReplayBuffer(..., storage=...)` is used.

    >>> from relive import Ram
    >>> class TestRam(StorageContract):
    ...     def storage(self):
    ...         return Ram()
    >>> TestRam().test_a_buffer_draws_what_it_draws_in_memory()
    """

    def storage(self) -> Storage:
        """Return a fresh storage at every call, which shares nothing with those before."""
        raise NotImplementedError

    def reopen(self, buffer: ReplayBuffer) -> Storage | None:
        """Let go of `buffer` and return a storage that opens what it left; None where that cannot be done."""
        return None

    def close(self, buffer: ReplayBuffer) -> None:
        """Let go of `buffer`, which is needed no more."""

    def build(self, choice: tuple[str, Item, Sampler], storage: Storage) -> ReplayBuffer:
        """Build a buffer over `storage`: two lanes of 12 steps."""
        schema, item, sampler = choice
        fields, capacity = SCHEMAS[schema], LANES * STEPS
        return ReplayBuffer(fields, capacity, num_envs=LANES, item=item, sampler=sampler, storage=storage, seed=5)

    def calls(self, number: int) -> list[Call]:
        """Make a life that fills the lanes several times."""
        return list(life(self.build(CHOICES[number], Ram()), 40, seed=number))

    def assert_same_life(self, ours: ReplayBuffer, theirs: ReplayBuffer, calls: list[Call]) -> None:
        """Check that both draw and update alike between the same calls."""
        for call in calls:
            batches = []
            for buffer in (ours, theirs):
                feed(buffer, call)
                if buffer.can_sample(4):
                    batches.append(buffer.sample(4))
                    if buffer.sampler.prioritizes:
                        buffer.update_priorities(batches[-1].ids, np.sin(batches[-1].ids))
            check(len(batches) != 1, "only one of the two can be sampled")
            if batches:
                assert_same_batch(batches[0], batches[1])
        check(len(ours) == len(theirs), f"{len(ours)} steps are stored, not {len(theirs)}")

    def test_a_new_buffer_is_empty(self) -> None:
        """Check that a new buffer is empty, whatever the storage held before."""
        for _ in range(2):
            buffer = self.build(CHOICES[1], self.storage())
            check(len(buffer) == 0 and not buffer.can_sample(1), "a new buffer is not empty")
            for call in self.calls(1)[:5]:
                feed(buffer, call)
            self.close(buffer)

    def test_a_buffer_draws_what_it_draws_in_memory(self) -> None:
        """Check that ids, weights and bytes of a life are those of the same buffer over `Ram()`."""
        for number, choice in enumerate(CHOICES):
            buffer = self.build(choice, self.storage())
            self.assert_same_life(buffer, self.build(choice, Ram()), self.calls(number))
            self.close(buffer)

    def test_a_full_buffer_has_its_capacity(self) -> None:
        """Check that steps alone count, and that none is missing."""
        for choice in CHOICES:
            buffer = self.build(choice, self.storage())
            assert_full(buffer)
            self.close(buffer)

    def test_two_buffers_share_nothing(self) -> None:
        """Check that one buffer stays unchanged while steps are added to the other."""
        one, other = (self.build(CHOICES[1], self.storage()) for _ in range(2))
        calls = self.calls(1)
        for call in calls[:20]:
            feed(one, call)
            feed(other, call)
        rng = copy.deepcopy(other.rng)
        before = other.sample(8)
        for call in calls[20:]:
            feed(one, call)
        other.rng = rng
        assert_same_batch(other.sample(8), before)
        self.close(one)
        self.close(other)

    def test_an_impossible_size_is_refused(self) -> None:
        """Check for `ArgumentError` when the buffer is built."""
        refuses(ArgumentError, ReplayBuffer, SCHEMAS["flat"], 2**58, storage=self.storage())

    def test_a_reopened_buffer_goes_on(self) -> None:
        """Check that a buffer over the arrays of an earlier one draws the same as that, then and later."""
        for number, choice in enumerate(CHOICES):
            buffer, memory, calls = self.build(choice, self.storage()), self.build(choice, Ram()), self.calls(number)
            for few in range(0, len(calls), 5):
                self.assert_same_life(buffer, memory, calls[few : few + 5])
                storage = self.reopen(buffer)
                if storage is None:
                    break
                buffer = self.build(choice, storage)
                buffer.rng = copy.deepcopy(memory.rng)  # a generator belongs to its buffer, not to the storage
            self.close(buffer)

    def test_the_arrays_of_another_buffer_are_refused(self) -> None:
        """Check for `StorageError`, before anything changes: other sizes, another sampler."""
        first = self.build(CHOICES[0], self.storage())
        storage = self.reopen(first)
        if storage is None:
            return
        refuses(StorageError, self.build, CHOICES[1], storage)
        check(len(self.build(CHOICES[0], storage)) == 0, "a refused buffer changed what was there")
