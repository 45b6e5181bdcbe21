"""Every item that relive ships keeps the promises of an item; a new one joins by one line in `ITEMS`."""

from __future__ import annotations

import numpy as np
import pytest
from full_oracle import SequencesModel

import relive
from relive.testing import SCHEMAS, ItemContract, TransitionsModel

STATE = relive.Schema(**SCHEMAS["flat"].tree, state=relive.Field((3,), every=2))
# The item, its schema, its model, and the fields without a time axis where time comes first.
ITEMS = {
    "transitions": (relive.Transitions(), "nested", TransitionsModel(1, 0.99), None),
    "n-step transitions": (relive.Transitions(n_step=4, gamma=0.5), "flat", TransitionsModel(4, 0.5), None),
    "stacks": (relive.Transitions(n_step=4, gamma=0.5), "stacked", None, None),
    "sequences": (
        relive.Sequences(4, burn_in=2, gamma=0.9), "nested", SequencesModel(6, 1, 0.9), None,
    ),
    "sequences with a state": (
        relive.Sequences(3, n_step=2, gamma=0.9, starts=2), "state",
        SequencesModel(3, 2, 0.9, starts=2, state=("state",)), None,
    ),
    "sequences across episodes": (
        relive.Sequences(5, n_step=2, gamma=0.9, across_episodes=True, time_major=True), "nested",
        SequencesModel(5, 2, 0.9, across=True), (),
    ),
}  # fmt: skip


class TestItems(ItemContract):
    @pytest.fixture(autouse=True, params=ITEMS)
    def _each(self, request: pytest.FixtureRequest) -> None:
        self.item, schema, self.model, self.whole = ITEMS[request.param]
        self.schema = STATE if schema == "state" else SCHEMAS[schema]


class Faulty(relive.ReplayBuffer):
    """A buffer whose item breaks one promise, as seen from outside."""

    fault = ""

    def read(self, ids):
        batch = super().read(ids)
        fields = {name: value for name, value in batch.items() if not isinstance(value, relive.Batch)}
        if self.fault == "a discount is wrong":
            fields["discount"] = fields["discount"] * np.float32(1.01)
        if self.fault == "the newest step counts":
            fields["reward"] = fields["reward"] + np.float32(self.stats().added)
        if self.fault == "rows depend on each other":
            fields["reward"] = fields["reward"] - fields["reward"].max()
        if self.fault == "reading is counted" and len(batch.ids) > 1:
            self.rng.random(1)
        return relive.Batch(fields) if fields.keys() == batch.keys() else batch

    def sample(self, batch_size, **choices):
        batch = super().sample(batch_size, **choices)
        return relive.Batch({**batch, "obs": batch.obs + 1}) if self.fault == "sample is not read" else batch

    def extend(self, **arguments):
        if self.fault == "extend is not add":
            arguments["reward"] = np.asarray(arguments["reward"]) + 1
        return super().extend(**arguments)


FAULTS = {
    "a discount is wrong": "test_items_are_those_of_the_model",
    "the newest step counts": "test_an_item_stays_the_same_until_it_goes",
    "rows depend on each other": "test_rows_of_a_batch_do_not_depend_on_each_other",
    "reading is counted": "test_reading_draws_nothing",
    "sample is not read": "test_every_sampler_draws_what_read_gives",
    "extend is not add": "test_extend_equals_repeated_adds_on_both_back_ends",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_meta_a_broken_promise_is_found(fault: str) -> None:
    class Broken(ItemContract):
        item = relive.Transitions(n_step=2)
        schema = SCHEMAS["flat"]
        model = TransitionsModel(2, 0.99)

        def buffer(self, sampler: object = None) -> relive.ReplayBuffer:
            made = super().buffer(sampler)
            made.__class__ = type("Broken", (Faulty,), {"fault": fault})
            return made

    with pytest.raises(AssertionError):
        getattr(Broken(), FAULTS[fault])()
