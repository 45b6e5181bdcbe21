"""Every sampler that relive ships keeps the promises of a sampler; a new one joins by a line in `shipped.py`."""

from __future__ import annotations

import numpy as np
import pytest
import storages
from depth import pairs
from shipped import SAMPLERS

import relive
from relive._ring import kernels
from relive._ring.lanes import CLEARED
from relive.testing import SamplerContract
from relive.testing._lives import BACK_ENDS
from relive.testing.agreement import assert_same_batch


class TestSamplers(SamplerContract):
    @pytest.fixture(autouse=True, params=pairs(SAMPLERS, storages.NAMES), ids=" in ".join)
    def _each(self, request: pytest.FixtureRequest) -> None:
        name, self._storage = request.param
        self.sampler = SAMPLERS[name]

    def storage(self) -> object:
        return storages.new(self._storage)

    def test_both_back_ends_draw_the_same(self) -> None:
        """Check to the last bit, before and after the ring went round."""
        draws = []
        for name in BACK_ENDS:
            with kernels.use(name):
                draws.append(self.draws(self.buffer()))
        for one, other in zip(draws[0], draws[-1], strict=True):
            assert_same_batch(one, other)


class Faulty(relive.ReplayBuffer):
    """A buffer whose sampler breaks one promise, as seen from outside."""

    fault = ""

    def sample(self, batch_size, **choices):
        if self.fault == "not enough data is served" and not super().can_sample(batch_size):
            return relive.Batch({"ids": np.zeros(batch_size, np.int64), "weights": np.ones(batch_size, np.float32)})
        batch = super().sample(batch_size, **choices)
        fields = dict(batch.items())
        if self.fault == "the generator is asked twice":
            self.rng.random(batch_size)
        if self.fault == "draws depend on something else":
            fields["ids"] = np.random.default_rng().permutation(fields["ids"])
        if self.fault == "an overwritten id is drawn":
            fields["ids"] = np.where(fields["ids"] > 300, 0, fields["ids"])
        if self.fault == "an item is never drawn":
            fields = dict(self.read(np.where(batch.ids % 7 == 3, batch.ids[0], batch.ids)).items())
        if self.fault == "weights are not finite":
            fields["weights"] = np.full(batch_size, np.nan, np.float32)
        if self.fault == "weights exceed 1":
            fields["weights"] = fields["weights"] * 2
        if self.fault == "the batch is not what the ids name":
            fields["obs"] = np.roll(fields["obs"], 1, axis=0)
        if self.fault == "an id repeats":
            fields["ids"] = np.full_like(fields["ids"], fields["ids"][0])
        return relive.Batch(fields)

    def can_sample(self, batch_size):
        able = super().can_sample(batch_size)
        return True if self.fault == "can_sample is too sure" else able and self.fault != "can_sample is too modest"

    def update_priorities(self, ids, td_error):
        if self.fault == "a refused update changes something" and not np.isfinite(td_error).all():
            super().update_priorities(ids, np.nan_to_num(td_error))
        if self.fault == "an overwritten id is updated":
            super().update_priorities(ids, td_error)
            return len(ids)
        if self.fault == "the first duplicate counts" and len(ids):
            return super().update_priorities(ids[::-1], td_error[::-1])
        return super().update_priorities(ids, td_error)

    def clear(self):
        if self.fault != "clear does nothing":
            super().clear()
        if self.fault == "clear leaves the largest priority":
            self._core.ring.counters[:, CLEARED] = 0

    def extend(self, **arguments):
        if self.fault == "extend is not add" and arguments.get("priority") is None:
            arguments["reward"] = np.asarray(arguments["reward"]) + 1
        if self.fault == "a zero is a small priority" and arguments.get("priority") is not None:
            arguments["priority"] = np.maximum(arguments["priority"], 1e-3)
        return super().extend(**arguments)


FAULTS = {
    "not enough data is served": ["test_an_empty_buffer_refuses", "test_can_sample_tells_the_truth"],
    "the generator is asked twice": ["test_uniforms_come_from_one_call_a_draw"],
    "draws depend on something else": ["test_the_same_seed_and_calls_give_the_same_draws"],
    "an overwritten id is drawn": ["test_draws_are_items_that_can_be_drawn"],
    "an item is never drawn": ["test_every_item_is_drawn_sooner_or_later"],
    "weights are not finite": ["test_weights_are_finite_and_positive"],
    "weights exceed 1": ["test_weights_are_finite_and_positive"],
    "the batch is not what the ids name": ["test_draws_are_items_that_can_be_drawn"],
    "an id repeats": ["test_without_replacement_nothing_repeats"],
    "can_sample is too sure": ["test_can_sample_tells_the_truth"],
    "can_sample is too modest": ["test_can_sample_tells_the_truth"],
    "a refused update changes something": ["test_refused_calls_change_nothing"],
    "an overwritten id is updated": ["test_priorities_name_their_step"],
    "the first duplicate counts": ["test_priorities_name_their_step"],
    "extend is not add": ["test_extend_equals_repeated_adds"],
    "a zero is a small priority": ["test_priorities_name_their_step"],
    "clear does nothing": ["test_a_cleared_buffer_begins_again"],
    "clear leaves the largest priority": ["test_a_cleared_buffer_begins_again"],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_meta_a_broken_promise_is_found(fault: str) -> None:
    class Broken(SamplerContract):
        sampler = relive.Prioritized(alpha=0.3, replacement=fault != "an id repeats")

        def buffer(self, seed: int = 1) -> relive.ReplayBuffer:
            made = super().buffer(seed)
            made.__class__ = type("Broken", (Faulty,), {"fault": fault})
            for name in ("extend", "sample", "update_priorities"):  # native calls, which stand before the methods
                vars(made).pop(name, None)
            return made

    for name in FAULTS[fault]:
        with pytest.raises(AssertionError):
            getattr(Broken(), name)()


def test_a_sampler_may_leave_items_out_on_purpose() -> None:
    class Selective(SamplerContract):
        sampler = relive.Uniform()
        draws_all = False

        def buffer(self, seed: int = 1) -> relive.ReplayBuffer:
            made = super().buffer(seed)
            made.__class__ = type("Selective", (Faulty,), {"fault": "an item is never drawn"})
            vars(made).pop("sample", None)
            return made

    Selective().test_every_item_is_drawn_sooner_or_later()
    Selective().test_draws_are_items_that_can_be_drawn()
    Selective().test_can_sample_tells_the_truth()
