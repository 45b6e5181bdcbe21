"""Calls that must be refused for reasons of their own: choices that do not fit each other, steps, files, data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from refused_calls import (
    F,
    assert_refused,
    empty,
    flat_step,
    observation,
    prioritized,
    schema,
    step,
    steps,
    tree,
    uniform,
)

import relive
from relive._buffer import drawing
from relive.errors import ArgumentError, MissingSave, NotEnoughData, PriorityError, SchemaError, StaleId, StorageError

# The call gets the thing and the directory; `@` in a text stands for the directory, `…` at its end for any rest.
Row = tuple[type[Exception], Callable[[Any, Path], object], str]
NEW = "make it with `ReplayBuffer(..., storage=relive.Shared(name))`, or `relive.Mapped(path)`"
LEAF = "a finite value in [0, 3.59539e+307]"
LANE = "as many as a lane keeps"
SHORTER = "raise `capacity` or lower"
AXES = "NumPy's arrays have at most 64; a batch of sequences needs two of them, a stack one"
NOT_THERE = "one of `obs`, `action`, `reward`, `note`, `seen`, `last`, `next_obs`, `terminated`, `truncated`"
NONE = "the buffer is empty: add steps first; `can_sample` says when there are enough"
NO_PRIORITIES = "a sampler with priorities, got `Uniform()`"
ADD = "add it to the schema, such as `{name}=relive.Field()`"
FIELD = "such as `relive.Field((3,))`"
SB3 = "a `Schema` and a capacity, got the arguments of Stable-Baselines3's buffers - at `ReplayBuffer`: use "
FLAT = {"action": F(), "obs": F()}
TAKEN = ["next_obs", "terminated", "truncated", "weights", "ids", "steps", "priority", "env_ids", "time_major", "keys"]
BOX = spaces.Box(0, 1, (84, 84))


def build(capacity=40, stack=None, state=None, item=None, reward=None):
    """A buffer of one lane with stacks of frames, or state that is kept at some steps."""
    extras = {} if state is None else {"state": F((2,), every=state)}
    fields = relive.Schema(obs=F((2,), stack=stack), action=F(), reward=reward, **extras)
    return relive.ReplayBuffer(fields, capacity, item=item, seed=0)


def good(t=0, **changes):
    """One step of a stream with stacks of three frames."""
    obs = np.full((3, 2), t) + np.arange(3)[:, None]
    ends = {"terminated": False, "truncated": False}
    return {"obs": obs, "action": 0.5, "reward": 1.0, "next_obs": obs + 1, **ends, "state": np.zeros(2), **changes}


def running():
    """Ten steps of a stream, of which every second starts a sequence of three."""
    buffer = build(stack=3, state=2, item=relive.Sequences(3, starts=2))
    for t in range(10):
        buffer.add(**good(t))
    return buffer


# fmt: off
CHOICES: list[Row] = [
    (SchemaError, lambda _, p: F((), "longdouble"), "`float64` or smaller, got `…"),
    (SchemaError, lambda _, p: F((), np.clongdouble), "`complex128` or smaller, got `…"),
    (SchemaError, lambda _, p: F((1,) * 63), f"at most 62 axes, got 63 - at `Field(shape)`: {AXES}"),
    (SchemaError, lambda _, p: F((1,) * 62, stack=1), f"at most 61 axes, got 62 - at `Field(shape)`: {AXES}"),
    (SchemaError, lambda _, p: relive.Schema(obs={"a": F(), "b": {}}, action=F()),
     f"a `Field` or a mapping of fields, got an empty mapping - at `obs.b`: {FIELD}"),
    (SchemaError, lambda _, p: relive.Schema(obs={"a": {"b": "float32"}}, action=F()),
     f"a `Field` or a mapping of fields, got `'float32'` - at `obs.a.b`: {FIELD}"),
    *((SchemaError, lambda _, p, name=name: relive.Schema(obs={name: F()}, action=F()),
       f"a name without dots or a leading underscore, got `{name!r}` - at `obs`") for name in (0, "a.b", "_a")),
    (SchemaError, lambda _, p: relive.Schema(**FLAT, reward={"a": F()}),
     "a single `Field`, got a mapping - at `reward`"),
    *((SchemaError, lambda _, p, name=name: relive.Schema(**FLAT, **{name: F()}),
       f"a field name that is free, got `{name}` - at `{name}`: relive gives that name a meaning of its own; "
       "choose another") for name in (*TAKEN, "all_prev_action")),
    (SchemaError, lambda _, p: relive.Schema(**FLAT, discount=F(2)),
     "a `Field` of one floating number, which is not written later, got `Field((2,), 'float32')` - at `discount`"),
    (SchemaError, lambda _, p: relive.Schema(obs=F(), action=F((), stack=2)),
     "`stack=` in fields of `obs` only, got `Field((), 'float32', stack=2, pad='zero')` - at `action`"),
    (SchemaError, lambda _, p: relive.Schema(obs=F((), every=4), action=F()),
     "`every=` in extras only, got `Field((), 'float32', every=4)` - at `obs`"),
    (SchemaError, lambda _, p: relive.Schema.from_spaces(BOX, spaces.Discrete(2), stack=4),
     "4 frames along axis 0, got shape `(84, 84)` - at `obs`"),
    (SchemaError, lambda _, p: relive.Schema.from_example({"obs": np.zeros(3)}),
     "an example value, got nothing - at `action`"),
    (SchemaError, lambda _, p: relive.Schema.from_example({"obs": "x", "action": 1}),
     "a numeric array, got `<U1` - at `obs`"),
    (SchemaError, lambda _, p: relive.Schema.from_example({"obs": [[1], [1, 2]], "action": 1}),
     "an array, got `list` - at `obs`: …"),
    (ArgumentError, lambda _, p: relive.RateLimiter(8, 100, 7.9),
     "a finite number >= 8, got `7.9` - at `RateLimiter(error_buffer)`"),
    (ArgumentError, lambda _, p: relive.RateLimiter(0.1, 100, 0.5),
     "a finite number >= 1, got `0.5` - at `RateLimiter(error_buffer)`"),
    (ArgumentError, lambda _, p: relive.Prioritized(beta=relive.Anneal(0.4, -1.0, over=10)),
     "a finite number >= 0, got `-1.0` - at `Prioritized(beta)`"),
    (ArgumentError, lambda _, p: relive.Uniform(over="episodes", replacement=False),
     "`replacement=True` with `over='episodes'`, got `False` - at `Uniform(replacement)`: without replacement, long "
     "episodes would be drawn more and more often within a batch"),
    (ArgumentError, lambda _, p: relive.ReplayBuffer(
        10, BOX, spaces.Discrete(2), device="cpu", n_envs=1, optimize_memory_usage=False),
     f"{SB3}`relive.sb3.ReplayBuffer`"),
    (ArgumentError, lambda _, p: relive.ReplayBuffer(
        buffer_size=10, observation_space=spaces.Dict({}), action_space=spaces.Discrete(2), device="auto"),
     f"{SB3}`relive.sb3.ReplayBuffer`"),
    (ArgumentError, lambda _, p: relive.ReplayBuffer(schema(), 10, num_envs=11),
     "a capacity of at least one step for each of 11 lanes, got `10` - at `ReplayBuffer(capacity)`"),
    *((ArgumentError, lambda _, p, shape=shape: relive.ReplayBuffer(relive.Schema(obs=F(shape), action=F()), 10),
       "at most …") for shape in ((2**33, 2**31), (2**40, 2**40))),
    (ArgumentError, lambda _, p: relive.ReplayBuffer(schema(), 10**14), "at most …"),
    (ArgumentError, lambda _, p: relive.ReplayBuffer(schema(), 10, seed=np.random.RandomState(0)),
     "an integer >= 0, got `…"),
    (ArgumentError, lambda _, p: relive.ReplayBuffer(schema(), 12, num_envs=2, item=relive.Transitions(n_step=7)),
     f"at most 6 steps, {LANE}, got `7` - at `Transitions(n_step)`: {SHORTER} `n_step`"),
    (ArgumentError, lambda _, p: build(reward=F((), "int32"), item=relive.Transitions(n_step=2)),
     "a `float32` or `float64` reward to discount over steps, got `int32` - at `reward`: state `reward=Field(...)` "
     "in the schema"),
    (ArgumentError, lambda _, p: build(state=4),
     "fields that are kept at every step, at any of which a transition may start, got `every=4` - at `state`: use "
     "`every=1`, or `Sequences(starts=...)`"),
    (ArgumentError, lambda _, p: build(capacity=4, stack=4, item=relive.Transitions(n_step=2)),
     f"at most 4 steps, {LANE}, got `5` (2 steps and 3 older frames) - at `Transitions(n_step)`: {SHORTER} `n_step`"),
    (ArgumentError, lambda _, p: build(capacity=8, item=relive.Sequences(6, burn_in=2)),
     f"at most 8 steps, {LANE}, got `9` (8 + 0 steps, and 1 before them) - at `Sequences(length)`: {SHORTER} `length`"),
    (ArgumentError, lambda _, p: build(capacity=8, stack=4, item=relive.Sequences(4, n_step=3)),
     f"at most 8 steps, {LANE}, got `9` (4 + 2 steps, and 3 before them) - at `Sequences(length)`: {SHORTER} `length`"),
    *((ArgumentError, lambda _, p, starts=starts: build(state=4, item=relive.Sequences(2, starts=starts)),
       f"`starts` to be a multiple of 4, the steps at which `state` is kept, got `{starts}` - at "
       "`Sequences(starts)`: say `Sequences(starts=4)`, so that no item starts without its state")
      for starts in (1, 2)),
    (StorageError, lambda _, p: relive.load(p / "file"), "a directory, got a file - at `@/file`"),
    (ArgumentError, lambda _, p: relive.load([]), "at least one directory, got none - at `load(path)`"),
    (ArgumentError, lambda _, p: relive.load([p / "saved", 5]), "a path, got `5` - at `load(path)`"),
    (StorageError, lambda _, p: relive.load(p / "saved", number=9),
     "one of the saves [1], got `9` - at `load(number)`"),
    (ArgumentError, lambda _, p: relive.load(p / "saved", lanes=[]), "at least one lane, got none - at `lanes`"),
    (ArgumentError, lambda _, p: relive.load(p / "saved", lanes=[2]),
     "distinct lanes from 0 to 1, got `[2]` - at `lanes`"),
    (ArgumentError, lambda _, p: relive.load([p / "saved"], lanes=[[0], [1]]),
     "a list of lanes for each of 1 directories, got 2 - at `lanes`"),
    (ArgumentError, lambda _, p: relive.load([p / "saved", p / "other"]), "saves of one schema, `Schema(…"),
    (ArgumentError, lambda _, p: relive.load(p / "saved", capacity=4),
     f"at most 2 steps, {LANE}, got `3` - at `Transitions(n_step)`: {SHORTER} `n_step`"),
    (MissingSave, lambda _, p: relive.Writer(p / "none"), f"a shared or mapped buffer, got none - at `@/none`: {NEW}"),
    (StorageError, lambda _, p: relive.open(p / "file"),
     "a file that only its owner, you, may read and write, got another one - at `@/file`"),
]
PRIORITIZED: list[Row] = [
    (SchemaError, lambda b, p: b.add(), "a value, got nothing - at `obs`: every step needs `obs`"),
    (SchemaError, lambda b, p: b.add(**step(), lats=np.zeros(2)),
     f"{NOT_THERE}, got `lats` - at `lats`: did you mean `last`?"),
    (SchemaError, lambda b, p: b.add(**step(), discount=np.ones(2)),
     f"{NOT_THERE}, got `discount` - at `discount`: {ADD.format(name='discount')}"),
    *((SchemaError, lambda b, p, name=name, value=value: b.add(**step(**{name: value})),
       f"a mapping with the key `camera`, got `{type(value).__name__}` - at `{name}`")
      for name in ("obs", "next_obs") for value in (np.zeros((2, 3)), [1, 2])),
    *((SchemaError, lambda b, p, name=name: b.add(**step(**{name: observation(9, depth=np.zeros(2))})),
       f"one of `camera`, `joints`, got `depth` - at `{name}.depth`") for name in ("obs", "next_obs")),
    (SchemaError, lambda b, p: b.add(**step(note=[[1, 2], [3]])), "an array, got `list` - at `note`: …"),
    (SchemaError, lambda b, p: b.add(**step(action=1)),
     "shape `(2,)`, got shape `()` - at `action`"),
    (SchemaError, lambda b, p: b.add(**step(action=[0, 2**70])),
     "`int32` of shape `(2,)`, got `object` of shape `(2,)` - at `action`"),
    (ArgumentError, lambda b, p: b.add(**step(), env_ids=np.array([0, 2**64 - 1], np.uint64)),
     "integers below 2**63, got `18446744073709551615` - at `env_ids`"),
    (SchemaError, lambda b, p: b.add(**step(), env_ids=[1]),
     "shape `(2, 2)`, got shape `(2, 2, 2)` - at `obs.camera`: 2 environments need `ReplayBuffer(num_envs=2)`, and no "
     "`env_ids`"),
    (PriorityError, lambda b, p: b.add(**step(), priority=[[1.0], [1.0, 2.0]]),
     "an array of numbers, got `list` - at `priority`: …"),
    (SchemaError, lambda b, p: b.extend(**steps(0)),
     "leading axes `[L, T]` with T >= 1, got shape `(2, 0)` - at `reward`"),
    (SchemaError, lambda b, p: b.extend(**steps(3), time_major=True),
     "shape `(2, 2, 2, 2)`, got shape `(2, 3, 2, 2)` - at `obs.camera`"),
    (SchemaError, lambda b, p: b.extend(**steps(3, next_obs=steps(2)["obs"])),
     "shape `(2, 3, 2, 2)`, got shape `(2, 2, 2, 2)` - at `next_obs.camera`"),
    (PriorityError, lambda b, p: b.update_priorities([12, 14], 1.0),
     "TD errors of shape `(2,)`, one per id, got shape `()` - at `td_error`"),
    (PriorityError, lambda b, p: b.update_priorities([12, 14], [[1.0], [np.nan]]),
     "a finite TD error, got `nan` (1 of 2) - at `td_error[1]`: check the loss"),
    (PriorityError, lambda b, p: b.update_priorities([12, 14], [[1.0], [1.0, 2.0]]),
     "an array of numbers, got `list` - at `td_error`: …"),
    (PriorityError, lambda b, p: b.update_priorities([0, 14], [np.nan, 1.0]),
     "a finite TD error, got `nan` (1 of 2) - at `td_error[0]`: check the loss"),
    (ArgumentError, lambda b, p: b.sample(2, beta=relive.Anneal(0.4, 1.0, over=3)),
     "a finite number >= 0, got `Anneal(start=0.4, end=1.0, over=3)` - at `ReplayBuffer.sample(beta)`"),
    (ArgumentError, lambda b, p: b.prefetch(2**60), "at most …"),
    (ArgumentError, lambda b, p: b.writer(),
     "a storage of several processes, got `Ram()` - at `writer`: build the buffer with `storage=relive.Shared(name)` "
     "or `relive.Mapped(path)`"),
    (StorageError, lambda b, p: b.save(p / "file"), "a directory, got a file - at `@/file`"),
    (StorageError, lambda b, p: b.save(p / "file" / "below"), "a directory, got a file - at `@/file/below`"),
    (StorageError, lambda b, p: b.save(p / "saved"),
     "an empty directory, or one of this buffer's saves, got saves of another buffer - at `@/saved`: save to another "
     "directory; a buffer that goes on with these saves comes from `relive.load`"),
    *((ArgumentError, lambda b, p, value=value: drawing.draw_at(b._core, value),
       f"numbers in [0, 1), `[B]`, got {got} - at `Shard.draw(fractions)`") for value, got in (
           ([], "shape `(0,)`"), (0.5, "shape `()`"), ([0.5, 1.0], "`1.0`"), ([-0.1], "`-0.1`"), ([np.nan], "`nan`"),
           ([[0.5]], "shape `(1, 1)`"), (["a"], "`list`"), (None, "`nan`"))),
    *((ArgumentError, lambda b, p, value=value: drawing.raise_priority(b._core, value),
       f"a finite number >= 0, got `{value!r}` - at `Shard.raise_priority(raw)`")
      for value in (-1, np.inf, "0.5", None, True)),
]
UNIFORM: list[Row] = [
    (SchemaError, lambda b, p: b.add(**flat_step(action=[1, 2])),
     "shape `()`, got shape `(2,)` - at `action`: 2 environments need `ReplayBuffer(num_envs=2)`, and no `env_ids`"),
    (SchemaError, lambda b, p: b.add(**flat_step(action=2**64)),
     "`int64` of shape `()`, got `object` of shape `()` - at `action`"),
    (ArgumentError, lambda b, p: b.add(**flat_step(), env_ids=[1]),
     "distinct lanes from 0 to 0, got `1` - at `env_ids`"),
    (ArgumentError, lambda b, p: b.add(**flat_step(), priority=1.0),
     f"{NO_PRIORITIES} - at `priority`: use `Prioritized()`"),
    (NotEnoughData, lambda b, p: b.sample(5),
     "at least 5 drawable items, got 4 - at `ReplayBuffer.sample`: add more steps, lower `batch_size`, or draw with "
     "replacement"),
]
EMPTY: list[Row] = [
    *((NotEnoughData, lambda b, p, n=n: b.sample(n),
       f"at least 1 drawable item, got 0 - at `ReplayBuffer.sample`: {NONE}")
      for n in (1, 256)),
    (StaleId, lambda b, p: b.read([0]),
     "ids of drawable items, got `0`, never issued (1 of 1) - at `ReplayBuffer.read`"),
]
RUNNING: list[Row] = [
    *((SchemaError, lambda b, p, name=name, shape=shape: b.add(**good(**{name: np.zeros(shape)})),
       f"shape `(3, 2)`, got shape `{shape}` - at `{name}`")
      for name, shape in (("obs", (2,)), ("obs", (4, 2)), ("next_obs", (2, 3)))),
    (StaleId, lambda b, p: b.read([4, 2]),
     "ids of drawable items, got `4`, not a step at which items start (2 of 2) - at `ReplayBuffer.read`"),
    (StaleId, lambda b, p: b.read([9]),
     "ids of drawable items, got `9`: its window is not complete yet (1 of 1) - at `ReplayBuffer.read`"),
]
TREES: list[Row] = [
    (ArgumentError, lambda t, p: t.set([[0], [1, 2]], [1.0, 1.0]),
     "integers, got a ragged nest of lists - at `SumTree.set(indices)`"),
    (ArgumentError, lambda t, p: t.get([[0, 1], [2, -7]]),
     "an index in [0, 5), got `-7` (1 of 4) - at `SumTree.get(indices)[1, 1]`"),
    (ArgumentError, lambda t, p: t.get(np.uint64(2**64 - 1)),
     "an index in [0, 5), got `18446744073709551615` - at `SumTree.get(indices)`"),
    (PriorityError, lambda t, p: t.set([0, 1], [[1.0], [2.0, 3.0]]),
     "numbers, got `[[1.0], [2.0, 3.0]]` - at `SumTree.set(values)`"),
    (PriorityError, lambda t, p: t.set([0, 1], np.nan), f"{LEAF}, got `nan` - at `SumTree.set(values)`"),
    (ArgumentError, lambda t, p: t.find([[1.0, 2.0], [7.0, 8.0]]),
     "a prefix in [0, 6.5], got `7.0` (2 of 4) - at `SumTree.find(prefix)[1, 0]`"),
    (NotEnoughData, lambda t, p: relive.SumTree(5).find(0.0),
     "at least 1 positive leaf, got 0 - at `SumTree.find`: set some values first"),
    *((ArgumentError, lambda t, p, index=index: t.get(index),
       f"an index in [0, 5), got `{index}` - at `SumTree.get(indices)`") for index in (5, -1)),
]
# fmt: on
TABLES = {
    lambda: None: CHOICES,
    prioritized: PRIORITIZED,
    uniform: UNIFORM,
    empty: EMPTY,
    running: RUNNING,
    tree: TREES,
}


@pytest.mark.parametrize(("make", "row"), [(make, row) for make, rows in TABLES.items() for row in rows])
def test_refused(make: Callable[[], Any], row: Row, place: Path) -> None:
    error, call, text = row
    text = f"Expected {text}".replace("@", str(place))
    assert_refused(make, (text, error, lambda thing: call(thing, place), text))


def test_meta_a_refusal_that_has_changed_something_is_found() -> None:
    with pytest.raises(AssertionError, match="something changed"):
        test_refused(
            prioritized, (ArgumentError, lambda b, _: (b.sample(1), b.sample(0)), "an integer >= 1, got…"), Path()
        )
