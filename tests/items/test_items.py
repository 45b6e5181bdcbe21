"""Every item that relive ships keeps the promises of an item; a new one joins by one line in `ITEMS`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import storages
from depth import LONG, pairs

import relive
from relive._base.nests import paths
from relive._ring import kernels
from relive.testing import SCHEMAS, ItemContract, SequencesModel, TransitionsModel, WindowsModel
from relive.testing.streams import Anchor

GOAL = relive.Field((2,), "int64")
GOALS = relive.Schema(
    obs={"joints": relive.Field(3), "goals": {"achieved": GOAL, "desired": GOAL}},
    action=relive.Field(), reward=relive.Field(2), weight=relive.Field((), "int32"),
)  # fmt: skip
STACKED = relive.Schema(**GOALS.tree | {"obs": {"frames": relive.Field(2, stack=3), **GOALS.tree["obs"]}})


def reward(achieved: np.ndarray, desired: np.ndarray, info: dict[str, np.ndarray]) -> np.ndarray:
    """Return small numbers that differ from step to step and from goal to goal."""
    one = (achieved[:, 0] * 3 + desired[:, 1] * 7 + info["weight"] * 5) % 31
    return np.stack([one, -one], axis=-1)


def over(achieved: np.ndarray, desired: np.ndarray, info: dict[str, np.ndarray]) -> np.ndarray:
    """End about every third step's episode, under one goal or another."""
    return (achieved[:, 0] + desired[:, 1] * 2 + info["weight"]) % 3 == 0


def anywhere(rng: object, position: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Choose a step before or after the anchor, by the anchor's position."""
    return (position * 5 + length * 3 + 2) % length


def hindsight(n_step: int, strategy: object, chunk: bool = False, ends: bool = False) -> relive.Hindsight:
    item = relive.Transitions(n_step=n_step, gamma=0.5, chunk=chunk)
    return relive.Hindsight(
        item=item, achieved="goals.achieved", desired="goals.desired", reward=reward, strategy=strategy,
        terminated=over if ends else None,
    )  # fmt: skip


@dataclass(frozen=True)
class HindsightModel:
    """Every goal is replaced, by the one half way through the steps that are asked for: what 0.5 chooses."""

    n: int
    strategy: object
    rows: int = 32  # of a lane of 16 steps
    starts: int = 1
    older: int = 0
    chunk: bool = False
    ends: bool = False

    def expand(self, anchor: Anchor) -> dict[str, object] | None:
        fields = TransitionsModel(self.n, 0.5, chunk=self.chunk).expand(anchor)
        if fields is None:
            return None
        steps, position = anchor.episode.steps, anchor.position
        after = [step.obs for step in steps[1:]] + ([] if anchor.episode.final is None else [anchor.episode.final])
        if len(after) < position + fields["steps"]:
            return fields
        oldest = max(anchor.lane.first, anchor.lane.rows - self.rows)
        stored = [i for i in range(len(after)) if steps[i].row >= oldest]
        later = [i for i in stored if i >= position]
        if self.strategy is anywhere:
            place = int(anywhere(None, np.int64(stored.index(position)), np.int64(len(stored))))
            goal = after[stored[place]]["goals"]["achieved"]
        else:
            of = {"future": later, "final": later[-1:], "episode": stored}[self.strategy]
            goal = after[of[len(of) // 2]]["goals"]["achieved"]
        window = range(position, position + fields["steps"])

        def asked(function: Callable[..., np.ndarray], i: int) -> np.ndarray:
            return function(
                after[i]["goals"]["achieved"][None], goal[None], {"weight": steps[i].extras["weight"][None]}
            )[0]

        reached = [i for i in window if self.ends and asked(over, i)]
        if reached:
            window = range(position, reached[0] + 1)
            fields |= {"steps": len(window), "next_obs": after[reached[0]], "discount": 0.0, "terminated": True}
            fields["truncated"] = steps[reached[0]].truncated
            if self.chunk:
                fields["mask"] = np.arange(self.n) < len(window)
                fields["action"] = np.where(fields["mask"], fields["action"], np.zeros_like(fields["action"]))
        for name in ("obs", "next_obs"):
            fields[name] = fields[name] | {"goals": fields[name]["goals"] | {"desired": goal}}
        factors = [0.5 * float(steps[i].extras.get("discount", 1.0)) for i in window]
        rewards = (math.prod(factors[:k]) * asked(reward, i) for k, i in enumerate(window))
        return {**fields, "reward": sum(rewards)}


def discounted(schema: relive.Schema, **field: object) -> relive.Schema:
    return relive.Schema(**schema.tree, discount=relive.Field(**field))


STATE = relive.Schema(**SCHEMAS["flat"].tree, state=relive.Field((3,), every=2))
EVERY = relive.Schema(**SCHEMAS["flat"].tree, state=relive.Field((3,), every=1))
OWN = {
    "state": STATE, "state of every step": EVERY, "goals": GOALS, "stacked goals": STACKED,
    "discounted": discounted(SCHEMAS["nested"]),
    "discounted stacks": discounted(SCHEMAS["stacked"]),
    "discounted state": discounted(STATE, dtype="float64"),
    "discounted goals": discounted(GOALS, dtype="float16"),
}  # fmt: skip


def offsets(*given: int) -> list[int]:
    """List offsets, which in a nest are a leaf; tuples are not."""
    return list(given)


def windows(schema: str, lookback: int = 0, **choices: object) -> tuple[object, ...]:
    """Make windows, and their model from the same words; `lookback`: rows before the anchor, frames included."""
    offsets = {
        (name, *names): tuple(given)
        for name in ("obs", "action", "reward", "extras")
        for names, given in paths(choices.get(name) or {})
    }
    offsets = {path[1:] if path[0] == "extras" else path: given for path, given in offsets.items()}
    model = WindowsModel(
        offsets, choices.get("pad", "repeat") == "repeat", choices.get("n_step"), choices.get("gamma", 0.99), lookback
    )
    return relive.Windows(**choices), schema, model, None


def transitions(schema: str, **choices: object) -> tuple[object, ...]:
    item = relive.Transitions(**choices)
    return item, schema, unless_stacked(schema, TransitionsModel(item.n_step, item.gamma, chunk=item.chunk)), None


def sequences(schema: str, length: int, **choices: object) -> tuple[object, ...]:
    item, state = relive.Sequences(length, **choices), ("state",) if "state" in schema else ()
    model = SequencesModel(
        length + item.burn_in, item.n_step, item.gamma, 0 if item.starts == "episodes" else item.starts,
        item.across_episodes, state, burn_in=item.burn_in, every=2, ahead=item.ahead,
    )  # fmt: skip
    return item, schema, unless_stacked(schema, model), state if item.time_major else None


def unless_stacked(schema: str, model: object) -> object:
    """Return no model for stacks: oracles of random programs know which older frames an item needs."""
    return None if "stack" in schema else model


def relabelled(n_step: int, strategy: object, schema: str = "goals", **choices: object) -> tuple[object, ...]:
    return hindsight(n_step, strategy, **choices), schema, HindsightModel(n_step, strategy, **choices), None


# The item, its schema, its model, and the fields without a time axis where time comes first.
ITEMS = {
    "transitions": transitions("nested"),
    "n-step transitions": transitions("flat", n_step=4, gamma=0.5),
    "chunks": transitions("nested", n_step=4, gamma=0.5, chunk=True),
    "chunks of one": transitions("flat", chunk=True),
    "stacks": transitions("stacked", n_step=4, gamma=0.5),
    "sequences": sequences("nested", 4, burn_in=2, gamma=0.9),
    "sequences behind a state": sequences("state", 2, burn_in=4, n_step=2, gamma=0.9, starts=4),
    "sequences of stacks, time first": sequences("stacked", 2, burn_in=3, time_major=True),
    "sequences with a state": sequences("state", 3, n_step=2, gamma=0.9, starts=2),
    "sequences across episodes": sequences(
        "nested", 5, n_step=2, gamma=0.9, across_episodes=True, time_major=True
    ),
    "episodes": sequences("nested", 7, gamma=0.9, starts="episodes"),
    "episodes, time first": sequences("stacked", 4, n_step=3, gamma=0.9, starts="episodes", time_major=True),
    "extras ahead": sequences("nested", 3, burn_in=2, n_step=2, gamma=0.9, ahead=("log_prob", "note")),
    "episodes with extras ahead": sequences(
        "wide", 5, n_step=3, gamma=0.9, starts="episodes", ahead=("hidden",), time_major=True
    ),
    "windows": windows("nested", 1, obs=offsets(-1, 0), action=offsets(*range(-1, 5))),
    "windows of zeros": windows("nested", 3, obs=offsets(0, -3, 2), reward=offsets(1, 4), pad="zero"),
    "windows by name": windows(
        "nested", 6, obs={"a": offsets(-6, -2), "b": {"d": offsets(1)}}, action={"press": offsets(*range(-2, 3))},
        extras={"note": {"x": offsets(-1, 1)}, "log_prob": offsets(-4, 0)},
    ),
    "windows with targets": windows("nested", 2, obs=offsets(-2, 0), action=offsets(0, 1), n_step=3, gamma=0.5),
    "windows of the past": windows("wide", 9, obs={"odd": offsets(*range(-9, 1))}, extras={"hidden": offsets(-3)}),
    "windows of stacks": windows("stacked", 5, obs={"camera": offsets(-2, 0), "depth": offsets(-1, 3)}),
    "windows of stacks, zeros": windows("stacked", 4, obs=offsets(-1, 1), action=offsets(-2), n_step=2, pad="zero"),
    "windows beside a state": windows("state of every step", 1, obs=offsets(-1, 0)),
    "windows with discounts": windows("discounted", 1, action=offsets(-1, 0, 1), n_step=3, gamma=0.9),
    "hindsight": relabelled(1, "future"),
    "n-step hindsight": relabelled(3, "future"),
    "hindsight with chunks": relabelled(3, "future", chunk=True),
    "hindsight from the end": relabelled(3, "final"),
    "hindsight over episodes": relabelled(2, "episode"),
    "hindsight that ends": relabelled(1, "episode", ends=True),
    "n-step hindsight that ends": relabelled(4, "future", ends=True),
    "hindsight with chunks that ends": relabelled(3, anywhere, chunk=True, ends=True),
    "hindsight anywhere": relabelled(2, anywhere),
    "stacks in hindsight that ends": relabelled(3, "final", "stacked goals", ends=True),
    "stacks in hindsight over episodes": relabelled(2, "episode", "stacked goals"),
    "discounts of steps": transitions("discounted", gamma=0.9),
    "n-step discounts": transitions("discounted", n_step=4, gamma=0.9),
    "chunks with discounts": transitions("discounted", n_step=3, gamma=1.0, chunk=True),
    "stacks with discounts": transitions("discounted stacks", n_step=2),
    "sequences with discounts": sequences("discounted", 4, burn_in=2, gamma=0.9),
    "n-step sequences with discounts": sequences(
        "discounted state", 3, n_step=3, gamma=0.9, starts=2, time_major=True
    ),
    "sequences across episodes with discounts": sequences("discounted", 5, n_step=2, gamma=0.9, across_episodes=True),
    "hindsight with discounts": relabelled(3, "future", "discounted goals", ends=True),
}  # fmt: skip


# The longest tests take every second or third item, and CI's round on NumPy kernels others.
LONGEST = {
    "test_extend_equals_repeated_adds_on_both_back_ends": 3, "test_every_sampler_draws_what_read_gives": 2,
    "test_a_batch_belongs_to_its_caller": 2,
}  # fmt: skip


class TestItems(ItemContract):
    @pytest.fixture(autouse=True, params=pairs(ITEMS, storages.NAMES), ids=" in ".join)
    def _each(self, request: pytest.FixtureRequest) -> None:
        name, self._storage = request.param
        self.item, schema, self.model, self.whole = ITEMS[name]
        test, number = request.function.__name__, [*ITEMS].index(name) + kernels.is_native()
        if not LONG and number % LONGEST.get(test, 1):
            pytest.skip("another round's part")
        if not LONG and self.model and test == "test_an_item_stays_the_same_until_it_goes":
            pytest.skip("all items of each moment are the model's")
        self.schema = {**SCHEMAS, **OWN}[schema]
        self.random = self.grows = isinstance(self.item, relive.Hindsight)

    def storage(self) -> object:
        return storages.new(self._storage)


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
            vars(made).pop("sample", None)  # the native call, which stands before the method
            return made

    with pytest.raises(AssertionError):
        getattr(Broken(), FAULTS[fault])()
