"""What the tables of bad inputs share: buffers to spoil, a good step to change, a fingerprint of everything kept."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relive

GRAMMAR = re.compile(r"Expected .+, got .+ - at `[^`]+`(: .+)?", re.DOTALL)
F = relive.Field
LANES = 2
kept: dict[str, Any] = {}
# A row of a table: its name, the exception, the call, and the text; a text that ends in "…" is only a beginning.
Case = tuple[str, type[Exception], Callable[[Any], object], str]


def assert_refused(make: Callable[[], Any], case: Case) -> None:
    """The call raises exactly this, in the one grammar, and leaves every byte and the generator as they were."""
    _, error, call, text = case
    if kept.get("make") is not make:  # what a call has left as it was takes the next one
        kept.update(make=make, thing=make())
        if isinstance(kept["thing"], relive.ReplayBuffer):
            kept["thing"].can_sample(1)  # a sampler takes in new steps in any call; that is no change of what it knows
        kept["print"] = fingerprint(kept["thing"])
    thing, before = kept["thing"], kept["print"]
    kept.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(relive.errors.ReliveError) as caught:
            call(thing)
    got = str(caught.value)
    assert type(caught.value) is error
    assert GRAMMAR.fullmatch(got), got
    assert got.startswith(text[:-1]) if text.endswith("…") else got == text, got
    assert fingerprint(thing) == before, "something changed"
    kept.update(make=make, thing=thing, print=before)


def schema() -> relive.Schema:
    """Two observations, and extras of every kind; `last` is the last column to be written."""
    return relive.Schema(
        obs={"camera": F((2, 2), "uint8"), "joints": F((3,), "float32")},
        action=F((), "int32"),
        note=F((2,), "uint8"),
        seen=F((), "bool"),
        last=F((), "float16"),
    )


def prioritized(**choices: Any) -> relive.ReplayBuffer:
    """Two lanes that have gone round, with open episodes and held successors."""
    sampler = relive.Prioritized(beta=relive.Anneal(0.4, 1.0, over=10), **choices)
    item = relive.Transitions(n_step=3)
    buffer = relive.ReplayBuffer(schema(), capacity=12, num_envs=LANES, item=item, sampler=sampler, seed=0)
    for t in range(9):
        buffer.add(**step(t, terminated=[t == 4, False], truncated=[False, t == 2]))
    buffer.update_priorities(buffer.sample(2).ids, [0.5, 2.0])
    return buffer


def uniform() -> relive.ReplayBuffer:
    """One lane of plain vectors, half full, without priorities."""
    flat = relive.Schema(obs=F((3,)), action=F((), "int64"))
    buffer = relive.ReplayBuffer(flat, capacity=8, sampler=relive.Uniform(replacement=False), seed=0)
    for t in range(4):
        buffer.add(**flat_step(t))
    return buffer


def empty() -> relive.ReplayBuffer:
    """Nothing stored yet."""
    return relive.ReplayBuffer(schema(), 12, num_envs=LANES, sampler=relive.Prioritized(), seed=0)


def tree() -> relive.SumTree:
    """Five leaves, one of them zero."""
    made = relive.SumTree(5)
    made.set(np.arange(5), [1.0, 0.0, 2.0, 0.5, 3.0])
    return made


def step(t: int = 9, **changes: Any) -> dict[str, Any]:
    """A step that `prioritized()` takes, with some of its fields changed; `...` leaves a field out."""
    good = {
        "obs": observation(t),
        "action": np.arange(LANES, dtype=np.int32),
        "reward": np.array([0.5, -1.0], np.float32),
        "next_obs": observation(t + 1),
        "terminated": np.zeros(LANES, bool),
        "truncated": np.zeros(LANES, bool),
        "note": np.full((LANES, 2), t, np.uint8),
        "seen": np.ones(LANES, bool),
        "last": np.full(LANES, t, np.float16),
    }
    return {name: value for name, value in {**good, **changes}.items() if value is not ...}


def observation(t: int, **changes: Any) -> dict[str, Any]:
    """What both lanes see at time `t`."""
    good = {"camera": np.full((LANES, 2, 2), t, np.uint8), "joints": np.full((LANES, 3), t, np.float32)}
    return {name: value for name, value in {**good, **changes}.items() if value is not ...}


def steps(length: int = 2, **changes: Any) -> dict[str, Any]:
    """The same for `extend`: `length` steps of both lanes, `[L, T, ...]`."""
    one = step()
    observations = {name: np.repeat(value[:, None], length, 1) for name, value in one["obs"].items()}
    rest = {name: np.repeat(value[:, None], length, 1) for name, value in one.items() if "obs" not in name}
    return {**rest, "obs": observations, "next_obs": observations, **changes}


def flat_step(t: int = 4, **changes: Any) -> dict[str, Any]:
    """A step that `uniform()` takes."""
    good = {
        "obs": np.full(3, t, np.float32),
        "action": t,
        "reward": 1.0,
        "next_obs": np.full(3, t + 1, np.float32),
        "terminated": False,
        "truncated": False,
    }
    return {name: value for name, value in {**good, **changes}.items() if value is not ...}


# What names a buffer in directories of saves, by chance, and knows the last of them.
SAVING = {"identity", "saver"}


def fingerprint(thing: Any) -> str:
    """A hash over every array, number and generator that `thing` and its parts hold, and over its locks being free."""
    digest = hashlib.sha256()
    seen: set[int] = set()

    def visit(path: str, value: Any) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, np.ndarray):
            digest.update(f"{path}{value.dtype}{value.shape}".encode() + value.tobytes())
        elif isinstance(value, np.random.Generator):
            digest.update(f"{path}{value.bit_generator.state}".encode())
        elif value is None or isinstance(value, int | float | str):
            seen.discard(id(value))
            digest.update(f"{path}={value!r}".encode())
        elif isinstance(value, dict):
            for key in value:
                visit(f"{path}[{key!r}]", value[key])
        elif isinstance(value, list | tuple | set):
            for position, child in enumerate(value):
                visit(f"{path}[{position}]", child)
        elif hasattr(value, "locked"):
            digest.update(f"{path} locked={value.locked()}".encode())
        elif type(value).__module__.startswith("relive") and type(value).__name__ != "Arena":
            slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
            for name in sorted({*getattr(value, "__dict__", {}), *slots} - SAVING):
                visit(f"{path}.{name}", getattr(value, name, None))

    visit("$", thing)
    return digest.hexdigest()
