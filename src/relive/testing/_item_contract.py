"""What every item promises, as tests that a subclass runs."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np

from .._ring import kernels
from ..batch import Batch
from ..buffer import ReplayBuffer
from ..errors import StaleId
from ..items import Item
from ..samplers import Prioritized, Sampler, Uniform
from ..schema import Schema
from ..storage import Storage
from ._lives import BACK_ENDS, Contract, Numbers, assert_full, feed, feed_step_by_step, life
from .agreement import assert_same_batch, assert_same_buffer, check, check_bytes, refuses
from .item_models import ItemModel
from .nests import leaves
from .oracle import OracleBuffer
from .synthetic import SCHEMAS

LANES, STEPS = 2, 16


class ItemContract(Contract):
    """The promises of an item: subclass it under a name that pytest collects, and set `item`.

    Attributes:
        item: The item under test. At most 16 steps of a lane may be needed for one.
        schema: A schema that the item works with.
        model: The item expanded step by step, an `ItemModel` as `relive.testing.TransitionsModel`. With it every field
            of every item is compared, as `assert_items` does; without it, only what holds for any item, and the
            schema must not have stacks.
        whole: For a time-major item, its fields without a time axis; see `assert_items`.
        random: Whether the item draws numbers from `rng` itself. The promises then hold for given numbers: the
            contract's generator gives 0.5 all the time.
        grows: Whether an item may change as later steps of its stream come, as hindsight goals do.

    Only the public API is used. `storage` may be overridden, and `buffer` to add choices to the buffer under test.

    >>> from relive import Transitions
    >>> from relive.testing import TransitionsModel
    >>> class TestThreeSteps(ItemContract):
    ...     item = Transitions(n_step=3, gamma=0.9)
    ...     model = TransitionsModel(n=3, gamma=0.9)
    >>> TestThreeSteps().test_items_are_those_of_the_model()
    """

    item: Item
    schema: Schema = SCHEMAS["nested"]
    model: ItemModel | None = None
    whole: Iterable[str] | None = None
    random: bool = False
    grows: bool = False

    def storage(self) -> Storage | None:
        """Return a new storage for each buffer; None: `Ram`."""
        return None

    def buffer(self, sampler: Sampler | None = None) -> ReplayBuffer:
        """Build an empty buffer with the item under test: two lanes of 16 steps."""
        choices: Any = {"item": self.item, "sampler": sampler, "storage": self.storage(), "seed": 3}
        buffer = ReplayBuffer(self.schema, LANES * STEPS, num_envs=LANES, **choices)
        if self.random:
            buffer.rng = Numbers(0.5)
        return buffer

    def filled(self, buffer: ReplayBuffer, twin: ReplayBuffer | None = None) -> list[int]:
        """Fill the lanes several times, those of `twin` step by step; return the ids that `buffer` can read."""
        ids: set[int] = set()
        for call in life(buffer, 22):
            ids |= set(feed(buffer, call).ravel().tolist())
            if twin is not None:
                feed_step_by_step(twin, call)
        return sorted(ids.intersection(buffer.ids().tolist()))

    def test_a_full_buffer_has_its_capacity(self) -> None:
        """Check that steps alone count, and that none is missing."""
        assert_full(self.buffer())

    def test_items_are_those_of_the_model(self) -> None:
        """Check the drawable set and every field after every call: ends, cuts, wraps, lanes at different speeds."""
        if self.model is None:
            return
        buffer = self.buffer()
        oracle = OracleBuffer.of(buffer, self.model)
        for number, call in enumerate(life(buffer, 20)):
            feed(buffer, call, oracle)
            assert_same_buffer(buffer, oracle, self.whole, number)

    def test_an_item_stays_the_same_until_it_goes(self) -> None:
        """Check that the same id reads the same bytes from its first moment to its last, and never comes back."""
        buffer, seen = self.buffer(), dict[int, Batch]()
        waiting, gone = set[int](), set[int]()
        for call in life(buffer, 30):
            waiting |= set(feed(buffer, call).ravel().tolist())
            newest = max(waiting, default=0)
            waiting = {key for key in waiting if key > newest - 2 * LANES * STEPS}
            for key in sorted(waiting | set(seen)):
                try:
                    batch = buffer.read([key])
                except StaleId:
                    gone |= {key} if seen.pop(key, None) else set()
                else:
                    check(key not in gone, f"id {key} was refused, and can be read again")
                    if not self.grows:
                        assert_same_batch(batch, seen.get(key, batch))
                    seen[key] = batch
        check(gone, "no item came and went: give the contract a schema that the item works with")

    def test_rows_of_a_batch_do_not_depend_on_each_other(self) -> None:
        """Check any ids in any order, with repeats: every row equals its id read alone."""
        buffer = self.buffer()
        ids = np.random.default_rng(0).choice(self.filled(buffer), 11)
        batch, smaller = buffer.read(ids), buffer.read(ids[:7])
        np.testing.assert_array_equal(batch.ids, ids)
        check((batch.weights == 1).all() and batch.weights.dtype == np.float32, "`read` gives float32 weights of 1")
        alone = [buffer.read([key]) for key in ids.tolist()]
        for name in batch:
            for array, less, *rows in zip(*(leaves(each[name]) for each in (batch, smaller, *alone)), strict=True):
                axis = [size for size, other in zip(array.shape, less.shape, strict=True)].index(11)
                check(less.shape[axis] == 7, f"{name}: shapes {array.shape} and {less.shape} of 11 and 7 items")
                check_bytes(array, np.concatenate(rows, axis=axis), name)

    def test_every_sampler_draws_what_read_gives(self) -> None:
        """Check that drawn and read items are the same, for every sampler."""
        for sampler in (Uniform(), Uniform(over="episodes"), Uniform(replacement=False), Prioritized()):
            buffer = self.buffer(sampler)
            ids = self.filled(buffer)
            batch = buffer.sample(min(8, len(ids)))
            check(set(batch.ids.tolist()) <= set(ids), f"{sampler} draws items that cannot be read")
            assert_same_batch(batch, buffer.read(batch.ids), without=("weights",))

    def test_reading_draws_nothing(self) -> None:
        """`read` moves neither the generator nor a count, and refuses ids that cannot be drawn."""
        buffer = self.buffer()
        refuses(StaleId, buffer.read, [0])
        ids = self.filled(buffer)
        if not self.random:
            before = copy.deepcopy(buffer.rng.bit_generator.state)
            buffer.read(ids)
            check(buffer.rng.bit_generator.state == before, "`read` moved the generator")
        check(buffer.stats().drawn == 0, "`read` was counted as a draw")
        for key in (-1, 0, max(ids) + 100 * LANES):  # never issued, overwritten, to come
            refuses(StaleId, buffer.read, [ids[0], key])

    def test_a_batch_belongs_to_its_caller(self) -> None:
        """Write into each array in turn: neither another one nor the buffer changes."""
        buffer = self.buffer()
        ids = self.filled(buffer)[:5]
        before = buffer.read(ids)
        known = [(name, array) for name in before for array in leaves(before[name])]
        for which, (written, _) in enumerate(known):
            spoilt = buffer.read(ids)
            arrays = [array for name in spoilt for array in leaves(spoilt[name])]
            if arrays[which].flags.writeable:
                arrays[which][...] = arrays[which] == 0
                for place, (array, (name, right)) in enumerate(zip(arrays, known, strict=True)):
                    if place != which:
                        check_bytes(array, right, f"{name}, after a write to {written}")
        assert_same_batch(buffer.read(ids), before)

    def test_extend_equals_repeated_adds_on_both_back_ends(self) -> None:
        """Check for the same items, copies to the byte; between native and NumPy kernels sums to 1e-6."""
        together, one_by_one = self.buffer(), self.buffer()
        ids = self.filled(together, one_by_one)
        check(together.stats().drawable == one_by_one.stats().drawable, "the sets of items differ")
        batch = together.read(ids)
        assert_same_batch(batch, one_by_one.read(ids))
        for name in BACK_ENDS[:1] if kernels.is_native() else BACK_ENDS[1:]:  # the other one
            with kernels.use(name):
                other = self.buffer()
                check(self.filled(other) == ids, f"the {name} kernels have other items")
            assert_same_batch(batch, other.read(ids), rtol=1e-6)
