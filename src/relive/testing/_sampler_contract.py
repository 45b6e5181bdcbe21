"""What every sampler promises, as tests that a subclass runs."""

from __future__ import annotations

import copy
import functools
import tempfile
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from .._base.types import Int64
from .._opening import load
from .._ring import kernels
from .._ring.lanes import BOUNDARIES, rows_of
from ..batch import Batch
from ..buffer import ReplayBuffer
from ..errors import ArgumentError, NotEnoughData, SchemaError
from ..items import Transitions
from ..samplers import Sampler
from ..storage import Storage
from ._lives import BACK_ENDS, Call, Contract, Numbers, assert_full, feed, feed_step_by_step, life, told
from .agreement import assert_items, assert_same_batch, check, check_bytes, refuses
from .item_models import TransitionsModel
from .oracle import OracleBuffer
from .synthetic import GO, SCHEMAS, STAY, TERMINATED, Script, SyntheticEnvs

LANES, STEPS = 3, 16


def without_priorities(call: Call) -> Call:
    """Return the same call, whose steps are given no priorities."""
    steps = call.steps and {name: value for name, value in call.steps.items() if name != "priority"}
    return Call(call.lanes, steps)


def model() -> OracleBuffer:
    """Build the empty oracle of a contract's buffer."""
    return OracleBuffer(LANES, rows_of(STEPS, BOUNDARIES), TransitionsModel(2, 0.9), STEPS)


def lived(buffer: ReplayBuffer, calls: int, given: bool) -> Iterator[dict[int, Any]]:
    """Let an empty buffer live, with the `given` priorities or with none; yield its items after each call, by id."""
    for call, ids, items in _told(life(buffer, calls), given):
        check_bytes(feed(buffer, call), ids, "ids")
        yield items


@functools.lru_cache(maxsize=8)  # the same life has the same items for every sampler
def _told(calls: tuple[Call, ...], given: bool) -> list[tuple[Call, Int64, dict[int, Any]]]:
    oracle = model()
    shown = calls if given else map(without_priorities, calls)
    return [(call, told(oracle, call), oracle.items()) for call in shown]


class SamplerContract(Contract):
    """The promises of a sampler: subclass it under a name that pytest collects, and set `sampler`.

    Attributes:
        sampler: The sampler under test.
        draws_all: Whether every item with a positive priority is drawn sooner or later. False for a sampler that
            leaves items out on purpose.

    Only the public API is used. `storage` may be overridden, and `buffer` to add choices to the buffer under test.

    >>> from relive import Uniform
    >>> class TestWithoutRepeats(SamplerContract):
    ...     sampler = Uniform(replacement=False)
    >>> TestWithoutRepeats().test_weights_are_finite_and_positive()
    """

    sampler: Sampler
    draws_all: bool = True

    def storage(self) -> Storage | None:
        """Return a new storage for each buffer; None: `Ram`."""
        return None

    def buffer(self, seed: int = 1) -> ReplayBuffer:
        """Build an empty buffer with the sampler under test: three lanes of 16 steps, two-step transitions."""
        item, capacity = Transitions(n_step=2, gamma=0.9), LANES * STEPS
        choices: Any = {"item": item, "sampler": self.sampler, "storage": self.storage(), "seed": seed}
        return ReplayBuffer(SCHEMAS["flat"], capacity, num_envs=LANES, **choices)

    def filled(self, seed: int = 1) -> tuple[ReplayBuffer, list[int]]:
        """Build a buffer whose lanes were filled several times, and list its items; all priorities are of new ones."""
        buffer = self.buffer(seed)
        *_, items = lived(buffer, 30, given=False)
        return buffer, [*items]

    def test_a_full_buffer_has_its_capacity(self) -> None:
        """Check that steps alone count, and that none is missing."""
        assert_full(self.buffer())

    def test_draws_are_items_that_can_be_drawn(self) -> None:
        """Check that nothing is drawn before it is complete or after it is overwritten, and batches equal `read`'s."""
        buffer = self.buffer()
        for items in lived(buffer, 50, given=True):
            check(buffer.stats().drawable == len(items), "`stats().drawable` is not the number of items")
            if not buffer.can_sample(5):
                continue
            batch = buffer.sample(5)
            missing = set(batch.ids.tolist()) - set(items)
            check(not missing, f"ids {sorted(missing)} were drawn, which are not complete or overwritten")
            assert_items(batch, [items[key] for key in batch.ids.tolist()])
            assert_same_batch(batch, buffer.read(batch.ids), without=("weights",))
            if self.sampler.prioritizes:
                applied = buffer.update_priorities(batch.ids, np.sin(batch.ids))
                check(applied == 5, f"{applied} of 5 updates were applied")

    def test_can_sample_tells_the_truth(self) -> None:
        """Check that `can_sample(n)` is True exactly if `sample(n)` succeeds, from the empty buffer on."""
        buffer = self.buffer()
        for items in map(len, chain([()], lived(buffer, 25, given=False))):
            for n in (1, 2, max(items, 1), items + 1):
                claimed = buffer.can_sample(n)
                try:
                    buffer.sample(n)
                except NotEnoughData:
                    check(not claimed, f"can_sample({n}) is True, and sample({n}) raises")
                else:
                    check(claimed, f"can_sample({n}) is False, and sample({n}) succeeds")
                possible = items >= (1 if self.sampler.replacement else n)
                surely = self.draws_all and not self.consumes
                check(claimed is possible if surely else possible or not claimed, f"can_sample({n}): {claimed}")

    def test_every_item_is_drawn_sooner_or_later(self) -> None:
        """Check that all items that can be drawn are, in a few hundred batches."""
        buffer, ids = self.filled()
        size = 1 if self.consumes else 8  # so that nothing is left
        drawn = {key for _ in range(400) if buffer.can_sample(size) for key in buffer.sample(size).ids.tolist()}
        missing = {*ids} - drawn
        check(not missing or not self.draws_all, f"ids {sorted(missing)} were never drawn")

    def test_without_replacement_nothing_repeats(self) -> None:
        """Check that a batch may be the whole buffer, and no more than that."""
        buffer, ids = self.filled()
        if self.sampler.replacement:
            return
        n = len(ids) if self.draws_all else 2
        check(len(set(buffer.sample(n).ids.tolist())) == n, "an id repeats in a batch without replacement")

    def test_weights_are_finite_and_positive(self) -> None:
        """Check that weights are at most 1, too, unless the sampler has `weights="none"`."""
        buffer, _ = self.filled()
        for size in (1, 4, 8):
            weights = buffer.sample(size).weights
            check(weights.shape == (size,) and weights.dtype == np.float32, "weights are not float32 of shape `[B]`")
            check(np.isfinite(weights).all() and (weights > 0).all(), f"weights {weights}")
            if getattr(self.sampler, "weights", "batch") != "none":
                check(weights.max() <= 1, f"a weight of {weights.max()}")

    def test_the_same_seed_and_calls_give_the_same_draws(self) -> None:
        """Check ids and weights, also between additions and updates; another seed gives others."""
        draws = [self.draws(self.buffer(seed)) for seed in (1, 1, 2)]
        for one, other in zip(draws[0], draws[1], strict=True):
            assert_same_batch(one, other)
        differ = self.consumes or any(
            (one.ids != other.ids).any() for one, other in zip(draws[0], draws[2], strict=True)
        )
        check(differ, "another seed draws the same ids")

    def test_both_back_ends_draw_the_same(self) -> None:
        """Check native and NumPy kernels for the same ids and bytes, and weights to 1e-6."""
        draws = []
        for name in BACK_ENDS:
            with kernels.use(name):
                draws.append(self.draws(self.buffer()))
        for one, other in zip(draws[0], draws[-1], strict=True):
            assert_same_batch(one, other, rtol=1e-6)

    def draws(self, buffer: ReplayBuffer) -> list[Batch]:
        """Collect the draws of a life with updates."""
        batches = []
        for call in life(buffer, 25):
            feed(buffer, call)
            if buffer.can_sample(4):
                batches.append(buffer.sample(4))
                if self.sampler.prioritizes:
                    buffer.update_priorities(batches[-1].ids, np.sin(batches[-1].ids))
        return batches

    def test_extend_equals_repeated_adds(self) -> None:
        """Check for the same items with the same priorities; the order of draws may differ."""
        together, one_by_one = self.buffer(), self.buffer()
        for items, call in zip(lived(together, 25, given=False), life(together, 25), strict=True):
            feed_step_by_step(one_by_one, without_priorities(call))
            ids = [*items]
            if ids:
                assert_same_batch(together.read(ids), one_by_one.read(ids))
                np.testing.assert_array_equal(together.priorities(ids), one_by_one.priorities(ids))
            check(together.can_sample(3) is one_by_one.can_sample(3), "`can_sample` differs")

    def test_a_saved_buffer_goes_on(self) -> None:
        """Check that one that was loaded, or copied, draws the same as the saved one, then and later."""
        (buffer, _), calls = self.filled(), list(life(self.buffer(), 12, seed=2))
        with tempfile.TemporaryDirectory() as path:
            for few in range(0, len(calls), 4):
                buffer.save(path)
                twins = [load(path, item=buffer.item, sampler=buffer.sampler), copy.deepcopy(buffer)]
                for call in calls[few : few + 4]:
                    batches = []
                    for each in (buffer, *twins):
                        feed(each, without_priorities(call))
                        if not each.can_sample(4):
                            continue
                        batches.append(each.sample(4))
                        if self.sampler.prioritizes:
                            each.update_priorities(batches[-1].ids, np.sin(batches[-1].ids))
                    for other in batches[1:]:
                        assert_same_batch(batches[0], other)

    def test_a_cleared_buffer_begins_again(self) -> None:
        """Check that nothing is left to draw; then steps come and go as in a new buffer, with its priorities."""
        buffer, oracle, new, names = self.buffer(), model(), self.buffer(), dict[int, int]()
        for call in map(without_priorities, life(buffer, 30)):
            feed(buffer, call, oracle)
        buffer.sample(3)
        if self.sampler.prioritizes:
            buffer.update_priorities(sorted(oracle.drawable)[:2], [50.0, 70.0])
            script = Script([GO], [STAY], give_next=True, priorities=[90.0])  # which no call has asked for yet
            feed(buffer, Call([0], SyntheticEnvs(buffer.schema, LANES).rollout([0], 2, script)), oracle)
        buffer.clear()
        oracle.clear()
        check(not buffer.can_sample(1), "a cleared buffer can be sampled")
        refuses(NotEnoughData, buffer.sample, 3)
        for call in map(without_priorities, life(buffer, 40, seed=1)):
            names |= zip(feed(buffer, call, oracle).ravel().tolist(), feed(new, call).ravel().tolist(), strict=True)
            check(buffer.can_sample(3) is new.can_sample(3), "`can_sample` differs")
            drawn = set(buffer.sample(3).ids.tolist()) if buffer.can_sample(3) else set()
            if self.consumes and new.can_sample(3):
                new.sample(3)
            check(drawn <= oracle.drawable, f"ids {sorted(drawn - oracle.drawable)} were drawn")
            ids = sorted(oracle.drawable)
            ours, theirs = buffer.priorities(ids), new.priorities([names[key] for key in ids])
            np.testing.assert_array_equal(ours, theirs, err_msg="priorities; see `Ring.cleared`")

    def test_an_empty_buffer_refuses(self) -> None:
        """Check for `NotEnoughData`, without a move of the generator or a count."""
        buffer = self.buffer()
        before = copy.deepcopy(buffer.rng.bit_generator.state)
        check(not buffer.can_sample(1), "an empty buffer can be sampled")
        refuses(NotEnoughData, buffer.sample, 3)
        check(buffer.rng.bit_generator.state == before, "a refused draw moved the generator")
        check(buffer.stats().drawn == 0, "a refused draw was counted")

    def test_refused_calls_change_nothing(self) -> None:
        """Check that refused additions, draws and updates leave the buffer equal to a twin that never got them."""
        (buffer, ids), (twin, _) = self.filled(), self.filled()
        envs = SyntheticEnvs(buffer.schema, LANES)
        good = envs.rollout(list(range(LANES)), 2, Script([GO], [STAY], give_next=True))
        refuses(SchemaError, buffer.extend, **{**good, "truncated": np.full((LANES, 2), 2)})
        refuses(ArgumentError, buffer.extend, **good, env_ids=[0, 0, 1])
        refuses(ArgumentError, buffer.sample, 0)
        if self.sampler.prioritizes:
            refuses(ValueError, buffer.update_priorities, ids[:2], [5.0, np.nan])
            refuses(ValueError, buffer.extend, **good, priority=np.full((LANES, 2), -1.0))
        else:
            check(buffer.update_priorities(ids[:2], [5.0, 2.0]) == 0, "a sampler without priorities took some")
            refuses(ArgumentError, buffer.extend, **good, priority=np.ones((LANES, 2)))
        for _ in range(5):
            assert_same_batch(buffer.sample(4), twin.sample(4))

    def test_priorities_name_their_step(self) -> None:
        """Check that updates of overwritten ids are dropped, the last of duplicates counts, and 0 means never."""
        if not self.sampler.prioritizes:
            return
        buffer, ids = self.filled()
        check(buffer.update_priorities([0, *ids[:2]], [9.0, 1.0, 2.0]) == 2, "an update of an overwritten id counts")
        buffer.update_priorities([ids[2], ids[2]], [7.0, 3.0])
        buffer.update_priorities([ids[3]], [3.0])
        twice, once = buffer.priorities(ids[2:4])
        check(twice == once, "of two updates of one id the last does not count")
        fresh = self.buffer()
        script = Script([TERMINATED], [STAY], give_next=True, priorities=[0.0, 1.0, 1.0, 0.0])
        new = fresh.extend(**SyntheticEnvs(fresh.schema, LANES).rollout([0], 4, script), env_ids=[0])
        drawn = {key for _ in range(100) for key in fresh.sample(1).ids.tolist()}
        check((fresh.priorities(new[0, [0, 3]]) == 0).all(), "a priority of zero is another one")
        index, expected = fresh._core.index, set(new[0, 1:3].tolist())
        if index.probability is not None:  # other members of a blend draw them all the same
            expected = set(new[0, fresh.probability(new[0]) > 0].tolist())
        surely = drawn == expected or (index.give_back is not None and drawn > expected)
        check(surely, f"ids {drawn} were drawn, two of them with a priority of zero")

    def test_uniforms_come_from_one_call_a_draw(self) -> None:
        """Check for one `rng.random(n)` a draw and nothing else; its extreme numbers are as good as any."""
        buffer, ids = self.filled()
        for edge in (0.0, 0.5, 1.0 - 2.0**-53):
            buffer.rng = numbers = Numbers(edge)
            for size in (1, 6):
                check(set(buffer.sample(size).ids.tolist()) <= {*ids}, f"a wrong draw from {edge}")
            as_many = len(numbers.calls) == 2 and numbers.calls[0] >= 1 and numbers.calls[1] >= 6
            check(as_many or self.consumes, f"calls of `rng.random` with {numbers.calls}, not one for each of 1 and 6")

    def test_draws_follow_the_stated_probability(self) -> None:
        """Check that `probability` sums to 1, and that items are drawn so often; for a sampler that has it."""
        buffer, ids = self.filled()
        if buffer._core.index.probability is None:
            return
        if self.sampler.prioritizes:
            buffer.update_priorities(ids[::2], np.linspace(0.1, 3.0, len(ids[::2])))
        chances = buffer.probability(ids)
        check(abs(chances.sum() - 1) < 1e-9, f"probabilities whose sum is {chances.sum()}")
        size = 256 if self.sampler.replacement else 1
        drawn = np.concatenate([buffer.sample(size).ids for _ in range(40_000 // size if size > 1 else 4_000)])
        counts, expected = np.bincount(np.searchsorted(ids, drawn), minlength=len(ids)), chances * len(drawn)
        far = np.abs(counts - expected) - 5.5 * np.sqrt(expected) - 6
        check(
            (far <= 0).all(),
            f"id {ids[int(far.argmax())]} was drawn {counts[far.argmax()]} times, not as often as said",
        )

    @property
    def consumes(self) -> bool:
        """True for a sampler that uses items up."""
        return bool(getattr(self.sampler, "consumes", False))
