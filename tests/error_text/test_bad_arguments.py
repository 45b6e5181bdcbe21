"""Arguments that must be refused, of calls beyond adding and drawing: each call with every value that it cannot take.

Saves, loads, epochs, prefetching, columns, draws at given fractions, mixtures, hindsight, storages.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refused_calls import Case, assert_refused, prioritized, uniform

import relive
from relive._buffer import drawing
from relive.errors import ArgumentError, StorageError

F = relive.Field
Call = Callable[[Any, Any], object]


def hindsight(_: Any, **choices: Any) -> object:
    return relive.Hindsight(**{"reward": np.add, **choices})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A save in `saved`, another schema's in `other`, an empty directory, a file."""
    path = tmp_path_factory.mktemp("places")
    prioritized().save(path / "saved")
    uniform().save(path / "other")
    (path / "empty").mkdir()
    (path / "file").touch()
    return path


# Where a value goes; which of the bad values are good there; the call.
INTEGERS: list[tuple[str, tuple[Any, ...], Call]] = [
    ("ReplayBuffer.save(keep)", (), lambda b, v: b.save("never made", keep=v)),
    ("load(number)", (None,), lambda b, v: relive.load("never read", number=v)),
    ("ReplayBuffer.batches(batch_size)", (), lambda b, v: b.batches(v)),
    ("ReplayBuffer.prefetch(batch_size)", (), lambda b, v: b.prefetch(v)),
    ("ReplayBuffer.prefetch(depth)", (), lambda b, v: b.prefetch(2, depth=v)),
    ("Mixture.sample(num_chunks)", (), lambda b, v: relive.Mixture(b, b).sample(v)),
]
FLAGS: list[tuple[str, tuple[Any, ...], Call]] = [
    ("ReplayBuffer.save(wait)", (), lambda b, v: b.save("never made", wait=v)),
    ("ReplayBuffer.batches(shuffle)", (), lambda b, v: b.batches(2, shuffle=v)),
    ("ReplayBuffer.batches(drop_last)", (), lambda b, v: b.batches(2, drop_last=v)),
]
NUMBERS: list[tuple[str, tuple[Any, ...], Call]] = [
    ("ReplayBuffer.prefetch(beta)", (None,), lambda b, v: b.prefetch(2, beta=v)),
    ("Shard.raise_priority(raw)", (), lambda b, v: drawing.raise_priority(b._core, v)),
]
SHARES: list[tuple[str, tuple[Any, ...], Call]] = [
    ("Mixture(share)", (), lambda b, v: relive.Mixture(b, b, share=v)),
    ("Hindsight(ratio)", (), lambda b, v: hindsight(b, ratio=v)),
]
KINDS: list[tuple[list[tuple[str, tuple[Any, ...], Call]], str, list[Any]]] = [
    (INTEGERS, "an integer >= 1", [0, -1, -(2**70), 1.0, math.nan, "1", b"1", None, True, [1], np.float32(1)]),
    (FLAGS, "`True` or `False`", [0, 1, None, "yes", [True], np.bool_(True)]),
    (NUMBERS, "a finite number >= 0", [-1, -5e-324, math.nan, math.inf, "0.5", None, True, 1j, [0.5, 1.0]]),
    (SHARES, "a finite number >= 0 and <= 1", [-0.1, 1.1, math.nan, -math.inf, "0.5", None, False, 1j, "half"]),
]
TABLE: list[Case] = [
    (f"{at} {value!r}", ArgumentError, lambda b, call=call, value=value: call(b, value),
     f"Expected {wanted}, got `{value!r}` - at `{at}`")
    for calls, wanted, values in KINDS
    for at, good, call in calls
    for value in values
    if value not in good
]  # fmt: skip


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case[0])
def test_an_argument_of_the_wrong_kind(case: Case) -> None:
    assert_refused(prioritized, case)


def lanes_error(got: str) -> str:
    return f"Expected distinct lanes from 0 to 1, got `{got}` - at `$.lanes`"


# The call gets the buffer and the directory; `@` in a text stands for the directory.
PLACES: list[tuple[str, type[Exception], Callable[[Any, Path], object], str]] = [
    ("load, a directory that is not there", StorageError, lambda b, p: relive.load(p / "none"),
     "Expected a directory, got none - at `@/none`"),
    ("load, a file", StorageError, lambda b, p: relive.load(p / "file"),
     "Expected a directory, got `Not a directory` - at `@/file`"),
    ("load, an empty directory", StorageError, lambda b, p: relive.load(p / "empty"),
     "Expected a complete save of a buffer, got none - at `@/empty`"),
    ("load, no directories", ArgumentError, lambda b, p: relive.load([]),
     "Expected at least one directory, got none - at `load(path)`"),
    ("load, a number", ArgumentError, lambda b, p: relive.load(5), "Expected a path, got `5` - at `load(path)`"),
    ("load, None", ArgumentError, lambda b, p: relive.load(None), "Expected a path, got `None` - at `load(path)`"),
    ("load, a number among directories", ArgumentError, lambda b, p: relive.load([p / "saved", 5]),
     "Expected a path, got `5` - at `load(path)`"),
    ("load, a NUL in the path", ArgumentError, lambda b, p: relive.load("a\0b"),
     "Expected a path, got `'a\\x00b'` - at `load(path)`"),
    ("load, a save that is not there", StorageError, lambda b, p: relive.load(p / "saved", number=9),
     "Expected one of the saves [1], got `9` - at `load(number)`"),
    ("load, a lane too far", ArgumentError, lambda b, p: relive.load(p / "saved", lanes=[2]), lanes_error("[2]")),
    ("load, a lane below 0", ArgumentError, lambda b, p: relive.load(p / "saved", lanes=[-1]), lanes_error("[-1]")),
    ("load, a lane twice", ArgumentError, lambda b, p: relive.load(p / "saved", lanes=[0, 0]), lanes_error("[0, 0]")),
    ("load, no lane", ArgumentError, lambda b, p: relive.load(p / "saved", lanes=[]),
     "Expected at least one lane, got none - at `$.lanes`"),
    ("load, lanes as floats", ArgumentError, lambda b, p: relive.load(p / "saved", lanes=[0.0]),
     "Expected integers of shape `(n,)`, got `float64` of shape `(1,)` - at `$.lanes`"),
    ("load, lanes as text", ArgumentError, lambda b, p: relive.load(p / "saved", lanes="0"),
     "Expected integers of shape `(n,)`, got `<U1` of shape `()` - at `$.lanes`"),
    ("load, one lane as a number", ArgumentError, lambda b, p: relive.load(p / "saved", lanes=0),
     "Expected integers of shape `(n,)`, got `int64` of shape `()` - at `$.lanes`"),
    ("load, lanes of two directories", ArgumentError, lambda b, p: relive.load([p / "saved"], lanes=[[0], [1]]),
     "Expected a list of lanes for each of 1 directories, got 2 - at `$.lanes`"),
    ("load, two schemas", ArgumentError, lambda b, p: relive.load([p / "saved", p / "other"]),
     "Expected saves of one schema, `Schema(…"),
    ("load, capacity 0", ArgumentError, lambda b, p: relive.load(p / "saved", capacity=0),
     "Expected an integer >= 2, got `0` - at `load(capacity)`"),
    ("load, a row for two lanes", ArgumentError, lambda b, p: relive.load(p / "saved", capacity=1),
     "Expected an integer >= 2, got `1` - at `load(capacity)`"),
    ("load, capacity a float", ArgumentError, lambda b, p: relive.load(p / "saved", capacity=12.0),
     "Expected an integer >= 2, got `12.0` - at `load(capacity)`"),
    ("load, capacity text", ArgumentError, lambda b, p: relive.load(p / "saved", capacity="12"),
     "Expected an integer >= 2, got `'12'` - at `load(capacity)`"),
    ("load, lanes shorter than the window", ArgumentError, lambda b, p: relive.load(p / "saved", capacity=4),
     "Expected at most 2 steps, as many as a lane keeps, got `3` - at `Transitions(n_step)`: raise `capacity` or "
     "lower `n_step`"),
    ("load, a longer window", ArgumentError,
     lambda b, p: relive.load(p / "saved", item=relive.Transitions(n_step=7)),
     "Expected at most 6 steps, as many as a lane keeps, got `7` - at `Transitions(n_step)`: raise `capacity` or "
     "lower `n_step`"),
    ("load, no item", ArgumentError, lambda b, p: relive.load(p / "saved", item="transitions"),
     "Expected an object like `Transitions(n_step=1, gamma=0.99)`, got `'transitions'` - at `load(item)`"),
    ("load, no sampler", ArgumentError, lambda b, p: relive.load(p / "saved", sampler=0.6),
     "Expected an object like `Uniform()`, got `0.6` - at `load(sampler)`"),
    ("load, a class for a sampler", ArgumentError, lambda b, p: relive.load(p / "saved", sampler=relive.Uniform),
     "Expected an object like `Uniform()`, got `<class 'relive.samplers.uniform.Uniform'>` - at `load(sampler)`"),
    ("load, no storage", ArgumentError, lambda b, p: relive.load(p / "saved", storage="ram"),
     "Expected an object like `Ram()`, got `'ram'` - at `load(storage)`"),
    ("load, no limiter", ArgumentError, lambda b, p: relive.load(p / "saved", limiter=2.0),
     "Expected a `RateLimiter`, got `2.0` - at `ReplayBuffer(limiter)`"),
    ("load, seed negative", ArgumentError, lambda b, p: relive.load(p / "saved", seed=-1),
     "Expected an integer >= 0, got `-1` - at `ReplayBuffer(seed)`"),
    ("load, seed text", ArgumentError, lambda b, p: relive.load(p / "saved", seed="0"),
     "Expected an integer >= 0, got `'0'` - at `ReplayBuffer(seed)`"),
    ("save to a file", StorageError, lambda b, p: b.save(p / "file"),
     "Expected a directory, got `Not a directory` - at `@/file`"),
    ("save below a file", StorageError, lambda b, p: b.save(p / "file" / "below"),
     "Expected a directory, got `Not a directory` - at `@/file/below`"),
    ("save to another's saves", StorageError, lambda b, p: b.save(p / "saved"),
     "Expected an empty directory, or one of this buffer's saves, got saves of another buffer - at `@/saved`: "
     "save to another directory; a buffer that goes on with these saves comes from `relive.load`"),
    ("save to a number", ArgumentError, lambda b, p: b.save(5),
     "Expected a path, got `5` - at `ReplayBuffer.save(path)`"),
    ("save to None", ArgumentError, lambda b, p: b.save(None),
     "Expected a path, got `None` - at `ReplayBuffer.save(path)`"),
    ("save to a NUL", ArgumentError, lambda b, p: b.save("a\0b"),
     "Expected a path, got `'a\\x00b'` - at `ReplayBuffer.save(path)`"),
    ("column, a number", ArgumentError, lambda b, p: b.column(5),
     "Expected one of `'obs.camera'`, `'obs.joints'`, `'action'`, `'reward'`, `'note'`, `'seen'`, `'last'`, "
     "`'terminated'`, `'truncated'`, `'ids'`, got `5` - at `ReplayBuffer.column`"),
    ("column, a mapping", ArgumentError, lambda b, p: b.column("obs"),
     "Expected one of `'obs.camera'`, `'obs.joints'`, `'action'`, `'reward'`, `'note'`, `'seen'`, `'last'`, "
     "`'terminated'`, `'truncated'`, `'ids'`, got `'obs'` - at `ReplayBuffer.column`"),
    ("column, a successor", ArgumentError, lambda b, p: b.column("next_obs.joints"),
     "Expected one of `'obs.camera'`, `'obs.joints'`, `'action'`, `'reward'`, `'note'`, `'seen'`, `'last'`, "
     "`'terminated'`, `'truncated'`, `'ids'`, got `'next_obs.joints'` - at `ReplayBuffer.column`"),
    ("draw_at, nothing", ArgumentError, lambda b, p: drawing.draw_at(b._core, []),
     "Expected numbers in [0, 1), `[B]`, got shape `(0,)` - at `Shard.draw(fractions)`"),
    ("draw_at, a number", ArgumentError, lambda b, p: drawing.draw_at(b._core, 0.5),
     "Expected numbers in [0, 1), `[B]`, got shape `()` - at `Shard.draw(fractions)`"),
    ("draw_at, 1", ArgumentError, lambda b, p: drawing.draw_at(b._core, [0.5, 1.0]),
     "Expected numbers in [0, 1), `[B]`, got `1.0` - at `Shard.draw(fractions)`"),
    ("draw_at, negative", ArgumentError, lambda b, p: drawing.draw_at(b._core, [-0.1]),
     "Expected numbers in [0, 1), `[B]`, got `-0.1` - at `Shard.draw(fractions)`"),
    ("draw_at, NaN", ArgumentError, lambda b, p: drawing.draw_at(b._core, [np.nan]),
     "Expected numbers in [0, 1), `[B]`, got `nan` - at `Shard.draw(fractions)`"),
    ("draw_at, a column", ArgumentError, lambda b, p: drawing.draw_at(b._core, [[0.5]]),
     "Expected numbers in [0, 1), `[B]`, got shape `(1, 1)` - at `Shard.draw(fractions)`"),
    ("draw_at, text", ArgumentError, lambda b, p: drawing.draw_at(b._core, ["a"]),
     "Expected numbers in [0, 1), `[B]`, got `list` - at `Shard.draw(fractions)`"),
    ("draw_at, None", ArgumentError, lambda b, p: drawing.draw_at(b._core, None),
     "Expected numbers in [0, 1), `[B]`, got `nan` - at `Shard.draw(fractions)`"),
    ("prefetch, a device of arrays", ArgumentError, lambda b, p: b.prefetch(2, device="cpu"),
     'Expected `to="torch"` or `to="jax"`, got a device, `\'cpu\'` - at `ReplayBuffer.prefetch(device)`'),
    ("prefetch, to something else", ArgumentError, lambda b, p: b.prefetch(2, to="tensorflow"),
     "Expected one of `'numpy'`, `'torch'`, `'jax'`, got `'tensorflow'` - at `ReplayBuffer.prefetch(to)`"),
    ("prefetch, to a type", ArgumentError, lambda b, p: b.prefetch(2, to=np.ndarray),
     "Expected one of `'numpy'`, `'torch'`, `'jax'`, got `<class 'numpy.ndarray'>` - at "
     "`ReplayBuffer.prefetch(to)`"),
    ("prefetch, more than memory holds", ArgumentError, lambda b, p: b.prefetch(2**60), "Expected at most …"),
    ("batches, more than 63 bits", ArgumentError, lambda b, p: b.batches(2**63),
     "Expected an integer >= 1 and < 2**63, got `9223372036854775808` - at `ReplayBuffer.batches(batch_size)`"),
    ("writer without a storage for it", ArgumentError, lambda b, p: b.writer(),
     "Expected a storage of several processes, got `Ram()` - at `writer`: build the buffer with "
     "`storage=relive.Shared(name)` or `relive.Mapped(path)`"),
    ("Mixture, no buffer", ArgumentError, lambda b, p: relive.Mixture(b, [b]),
     "Expected a buffer with `sample`, got `list` - at `Mixture(demonstrations)`"),
    ("Mixture, None", ArgumentError, lambda b, p: relive.Mixture(None, b),
     "Expected a buffer with `sample`, got `NoneType` - at `Mixture(replay)`"),
    ("Hindsight, another item", ArgumentError, lambda b, p: hindsight(b, item=relive.Sequences(2)),
     "Expected `Transitions(...)`, got `Sequences(length=2, burn_in=0, n_step=1, gamma=0.99, starts=1, "
     "across_episodes=False, time_major=False)` - at `Hindsight(item)`"),
    ("Hindsight, no function", ArgumentError, lambda b, p: hindsight(b, reward=1.0),
     "Expected a function of achieved goals, desired goals and extras, got `1.0` - at `Hindsight(reward)`"),
    ("Hindsight, no name", ArgumentError, lambda b, p: hindsight(b, achieved=""),
     "Expected the name of a field of `obs`, got `''` - at `Hindsight(achieved)`"),
    ("Hindsight, a name that is none", ArgumentError, lambda b, p: hindsight(b, desired=5),
     "Expected the name of a field of `obs`, got `5` - at `Hindsight(desired)`"),
    ("Hindsight, no strategy", ArgumentError, lambda b, p: hindsight(b, strategy="past"),
     "Expected one of `'future'`, `'final'`, `'episode'`, got `'past'` - at `Hindsight(strategy)`"),
    ("Hindsight, strategy None", ArgumentError, lambda b, p: hindsight(b, strategy=None),
     "Expected one of `'future'`, `'final'`, `'episode'`, got `None` - at `Hindsight(strategy)`"),
    ("Shared, a path", ArgumentError, lambda b, p: relive.Shared("a/b"),
     "Expected a name of letters, digits, `.`, `_` and `-`, got `'a/b'` - at `Shared(name)`"),
    ("Shared, empty", ArgumentError, lambda b, p: relive.Shared(""),
     "Expected a name of letters, digits, `.`, `_` and `-`, got `''` - at `Shared(name)`"),
    ("Shared, a number", ArgumentError, lambda b, p: relive.Shared(5),
     "Expected a name of letters, digits, `.`, `_` and `-`, got `5` - at `Shared(name)`"),
    ("Mapped, a number", ArgumentError, lambda b, p: relive.Mapped(5),
     "Expected a path, got `5` - at `Mapped(path)`"),
    ("Mapped, bytes", ArgumentError, lambda b, p: relive.Mapped(b"a"),
     "Expected a path, got `b'a'` - at `Mapped(path)`"),
    ("open, nothing there", StorageError, lambda b, p: relive.open(p / "none"),
     "Expected a shared or mapped buffer, got none - at `@/none`: make it with `ReplayBuffer(..., "
     "storage=relive.Shared(name))`, or `relive.Mapped(path)`"),
    ("open, a file of others", StorageError, lambda b, p: relive.open(p / "file"),
     "Expected a file that only its owner, you, may read and write, got another one - at `@/file`"),
    ("Writer, nothing there", StorageError, lambda b, p: relive.Writer(p / "none"),
     "Expected a shared or mapped buffer, got none - at `@/none`: make it with `ReplayBuffer(..., "
     "storage=relive.Shared(name))`, or `relive.Mapped(path)`"),
    ("Mixture, TD errors of others", relive.PriorityError,
     lambda b, p: relive.Mixture(b, b).update_priorities([0, 1], [1.0]),
     "Expected 2 finite TD errors, one per id, got 1 of 1 - at `$.td_error`"),
    ("Mixture, a TD error that is NaN", relive.PriorityError,
     lambda b, p: relive.Mixture(b, b).update_priorities([0, 1], [1.0, np.nan]),
     "Expected 2 finite TD errors, one per id, got 1 of 2 - at `$.td_error`"),
]  # fmt: skip


@pytest.mark.parametrize("case", PLACES, ids=lambda case: case[0])
def test_a_call_that_makes_no_sense(case: Any, place: Path) -> None:
    name, error, call, text = case
    assert_refused(prioritized, (name, error, lambda b: call(b, place), text.replace("@", str(place))))


def test_meta_a_refusal_that_has_changed_something_is_found() -> None:
    case = TABLE[0]
    with pytest.raises(AssertionError):
        assert_refused(prioritized, (*case[:2], lambda b: (b.sample(1), case[2](b)), case[3]))
