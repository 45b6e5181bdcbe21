"""Every parameter of the public interface refuses what it cannot take, in the same words, and changes nothing."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import parameters as kinds
import pytest
from gymnasium import spaces
from parameters import AT_LEAST_0, COUNT, FLAG, PATH, SHARE, Kind
from refused_calls import Case, assert_refused, prioritized, schema, step, steps, tree

import relive
from relive.errors import ArgumentError, PriorityError

GIVEN: dict[str, dict[str, Any]] = {
    "Anneal": {"start": 0.4, "end": 1.0, "over": 10},
    "Hindsight": {"reward": np.add},
    "Mixture": {"replay": prioritized(), "demonstrations": prioritized()},
    "Mixture.prefetch": {"batch_size": 2},
    "Mixture.update_priorities": {"ids": [0, 1]},
    "RateLimiter": {"samples_per_insert": 1.0, "min_size": 1},
    "ReplayBuffer": {"schema": schema(), "capacity": 10},
    "ReplayBuffer.autosave": {"path": "@never made"},
    "ReplayBuffer.batches": {"batch_size": 2},
    "ReplayBuffer.dataset": {"batch_size": 2},
    "ReplayBuffer.extend": steps(3),
    "ReplayBuffer.add": step(),
    "ReplayBuffer.follow": {"ids": [12, 14], "steps": 1},
    "ReplayBuffer.prefetch": {"batch_size": 2},
    "ReplayBuffer.read": {"ids": [12, 14]},
    "Recent": {"share": 0.25},
    "ReplayBuffer.sample": {"batch_size": 2},
    "ReplayBuffer.keep_batches": {"path": "@never made"},
    "ReplayBuffer.report": {"path": "@never made"},
    "ReplayBuffer.save": {"path": "@never made"},
    "ReplayBuffer.update_priorities": {"ids": [12, 14], "td_error": [1.0, 1.0]},
    "Windows": {"obs": (0,)},
    "Schema": {"obs": relive.Field(), "action": relive.Field()},
    "Schema.from_spaces": {"observation_space": spaces.Box(0, 1, (3,)), "action_space": spaces.Discrete(2), "stack": 3},
    "Sequences": {"length": 4},
    "SumTree.set": {"indices": [0, 1], "values": [1.0, 1.0]},
    "load": {"path": "@saved"},
    "open": {"name": "@none"},
    "precision_priority": {"noise_variance": [1.0], "td_mean_square": 1.0},
    "sequence_priority": {"td": [[1.0]], "mask": [[True]]},
}
THINGS = {
    "ReplayBuffer": prioritized,
    "SumTree": tree,
    "Mixture": lambda: relive.Mixture(prioritized(), prioritized()),
}
# The kinds of each parameter, by the name that errors have for it.
ALIKE: list[tuple[Kind | list[Kind], str]] = [
    (
        COUNT,
        "Anneal(over) Mixture.sample(num_chunks) Mixture.prefetch(batch_size,depth) Once(every) "
        "RateLimiter(min_size) ReplayBuffer(capacity,num_envs) ReplayBuffer.batches(batch_size) "
        "ReplayBuffer.dataset(batch_size) ReplayBuffer.prefetch(batch_size,depth) ReplayBuffer.save(keep) "
        "Sequences(length,n_step) Transitions(n_step)",
    ),
    (
        FLAG,
        "Prioritized(stratified,replacement) ReplayBuffer(check_finite) ReplayBuffer.batches(shuffle,drop_last) "
        "ReplayBuffer.extend(time_major) ReplayBuffer.save(wait,verify) "
        "Sequences(across_episodes,time_major,step_ids,trim) Transitions(chunk) Uniform(replacement) "
        "sequence_priority(time_major)",
    ),
    (
        SHARE,
        "Hindsight(ratio) Mixture(share) ReplayBuffer(boundaries) Sequences(gamma) Transitions(gamma) "
        "Windows(gamma) sequence_priority(eta)",
    ),
    (PATH, "Mapped(path) ReplayBuffer.report(path) ReplayBuffer.save(path) kept_batches(path)"),
    (AT_LEAST_0, "Prioritized(alpha,eps,initial) Recent(beta)"),
    (
        [kinds.LANES, kinds.NO_LANES],
        "ReplayBuffer.add(env_ids) ReplayBuffer.cut(env_ids) ReplayBuffer.extend(env_ids) ReplayBuffer.writer(env_ids)",
    ),
    (kinds.CHANGE, "Mixture.prefetch(transform) ReplayBuffer.dataset(transform) ReplayBuffer.prefetch(transform)"),
    (kinds.POSITIVE, "RateLimiter(samples_per_insert) precision_priority(td_mean_square,floor)"),
    (AT_LEAST_0.but(None), "RateLimiter(timeout) ReplayBuffer.prefetch(beta) ReplayBuffer.sample(beta)"),
    (COUNT.but(None), "ReplayBuffer.dataset(batches) Windows(n_step) load(number)"),
    (
        [kinds.OF_BATCH, kinds.STALE, kinds.EARLY],
        "ReplayBuffer.priorities(ids) ReplayBuffer.probability(ids) ReplayBuffer.read(ids)",
    ),
    (kinds.REAL, "Anneal(start,end)"),
    (kinds.FRAMES, "Field(stack,every)"),
    (kinds.FIELD_FLAG, "Field(writable,saved)"),
    (kinds.GOAL, "Hindsight(achieved,desired)"),
    (kinds.FUNCTION, "Hindsight(reward,terminated)"),
    (kinds.BUFFER, "Mixture(replay,demonstrations)"),
    (kinds.DEVICE, "Mixture.prefetch(device) ReplayBuffer.prefetch(device)"),
    (kinds.one_of("batch", "buffer", "none"), "Prioritized(weights) Recent(weights)"),
    (kinds.ITEM, "ReplayBuffer(item) load(item)"),
    (kinds.SAMPLER, "ReplayBuffer(sampler) load(sampler)"),
    (kinds.STORAGE, "ReplayBuffer(storage) load(storage)"),
    (kinds.OPENED, "Writer(name) open(name)"),
]
TABLE: dict[str, Kind | list[Kind]] = {
    f"{owner}({name})": kind
    for kind, parameters in ALIKE
    for owner, names in re.findall(r"([\w.]+)\(([\w,]+)\)", parameters)
    for name in names.split(",")
}
TABLE |= {
    "Field(shape)": kinds.SHAPE,
    "Field(dtype)": kinds.DTYPE,
    "Field(pad)": kinds.PAD,
    "Field(stack_axis)": kinds.STACK_AXIS,
    "Field(compress)": kinds.COMPRESS,
    "ReplayBuffer(limiter)": kinds.LIMITER,
    "ReplayBuffer(seed)": kinds.SEED,
    "ReplayBuffer.add(priority)": kinds.PRIORITY,
    "ReplayBuffer.column(path)": kinds.COLUMN,
    "ReplayBuffer.extend(priority)": kinds.PRIORITIES,
    "ReplayBuffer.keep_batches(path)": PATH.but(None),
    "ReplayBuffer.keep_batches(last)": kinds.integer(2),
    "ReplayBuffer.update_priorities(td_error)": kinds.TD_ERROR,
    "Schema.from_spaces(float_dtype)": kinds.FLOATS,
    "Sequences(burn_in)": kinds.integer(0),
    "Shared(name)": kinds.NAME,
    "SumTree(capacity)": kinds.LEAVES,
    "SumTree.set(values)": kinds.VALUES,
    "load(boundaries)": SHARE.but(None),
    "precision_priority(noise_variance)": kinds.VARIANCES,
    "sequence_priority(td)": kinds.TD_ERRORS,
    "sequence_priority(mask)": kinds.MASK,
    "Hindsight(item)": Kind("`Transitions(...)`", (None, 5, "x", relive.Transitions, relive.Uniform(), True)),
    "Hindsight(strategy)": Kind("one of `'future'`, `'final'`, `'episode'`", ("past", None, 5, True, "Future", [1])),
    "Mixture.prefetch(to)": kinds.one_of("numpy", "torch", "jax").but(None),
    "Mixture.update_priorities(td_error)": Kind(
        "2 finite TD errors, one per id",
        ([1.0], [1.0, np.nan]),
        lambda td: f"1 of {len(td)}",
        PriorityError,
        at="$.td_error",
    ),
    "Once(uses)": COUNT.but(kinds.HUGE),
    "Once(order)": kinds.one_of("oldest", "newest"),
    "Prioritized(beta)": AT_LEAST_0._replace(bad=(*AT_LEAST_0.bad, (0.4, 1.0), relive.Anneal)),
    "Prioritized(newest)": kinds.one_of("largest", "stored"),
    "RateLimiter(error_buffer)": kinds.number(" >= 1", 0, 0.5).but(None, [0.5, 1.0]),
    "ReplayBuffer(schema)": Kind(
        "a `Schema`",
        ({}, relive.Schema, None, 5, "x", relive.Field()),
        kinds.by_type,
        remedy="make one by `relive.Schema(obs=..., action=...)` or `relive.Schema.from_spaces(...)`",
    ),
    "ReplayBuffer.ids(item)": kinds.like(repr(prioritized().item)),
    "ReplayBuffer.read(item)": kinds.like(repr(prioritized().item)),
    "ReplayBuffer.autosave(path)": PATH._replace(at="autosave(path)"),
    "ReplayBuffer.autosave(every)": kinds.number(" >= 0.1", 0, 0.05)._replace(at="autosave(every)"),
    "ReplayBuffer.autosave(keep)": COUNT._replace(at="autosave(keep)"),
    "ReplayBuffer.follow(ids)": [kinds.OF_BATCH, kinds.NOT_STORED],
    "ReplayBuffer.follow(steps)": [kinds.WHOLE, kinds.STEPS, kinds.NO_STEPS],
    "ReplayBuffer.prefetch(to)": kinds.one_of("numpy", "torch", "jax").but(None),
    "ReplayBuffer.sample(batch_size)": COUNT.but(kinds.HUGE, kinds.HUGER),
    "ReplayBuffer.update_priorities(ids)": [kinds.OF_BATCH, kinds.NEVER_ISSUED],
    "Schema(obs)": kinds.TREE._replace(at="$.obs"),
    "Schema(action)": kinds.TREE._replace(at="$.action"),
    "Schema(reward)": kinds.TREE.but(None)._replace(at="$.reward"),
    "Schema.from_example(step)": kinds.EXAMPLE._replace(at="$"),
    "Schema.from_spaces(observation_space)": kinds.SPACE._replace(at="$.obs"),
    "Schema.from_spaces(action_space)": kinds.SPACE._replace(at="$.action"),
    "Schema.from_spaces(stack)": kinds.FRAMES._replace(at="Field(stack)"),
    "Schema.from_spaces(pad)": kinds.PAD._replace(at="Field(pad)"),
    "Schema.from_spaces(stack_axis)": kinds.STACK_AXIS._replace(at="Field(stack_axis)"),
    "SumTree.find(prefix)": [kinds.PREFIX, kinds.NUMBERS._replace(error=ArgumentError)],
    "SumTree.get(indices)": [kinds.LEAF, kinds.NO_LEAF],
    "SumTree.set(indices)": [kinds.LEAF, kinds.NO_LEAF],
    "Uniform(over)": kinds.one_of("steps", "episodes"),
    "Windows(pad)": kinds.one_of("repeat", "zero"),
    "load(path)": PATH.but([1], b"a"),
    "load(lanes)": [kinds.SAVED_LANES, kinds.NO_LANES._replace(at="$.lanes")],
    "load(capacity)": kinds.integer(2).but(None),
    "load(limiter)": kinds.LIMITER._replace(at="ReplayBuffer(limiter)"),
    "load(seed)": kinds.SEED._replace(at="ReplayBuffer(seed)"),
    "saved_as(name)": Kind("letters, digits, `_` and `-`, at most 80", ("", 5, None, "a b", "a" * 81, b"a")),
}
# What is refused elsewhere, and where.
ELSEWHERE = {
    "ReplayBuffer.(add|extend)": "test_bad_steps.py",
    "Schema.*extras": "test_particular_calls.py",
    ".*can_sample|Anneal.at": "answers whatever it is asked",
    "Mixture": "buffer/test_mixture.py, test_mixtures_of_many.py",
    "Schema.from_spaces.compress": "checkpoints/test_compressed.py",
    "load.device": "device",
    "ReplayBuffer.write": "buffer/test_write.py",
    "Writer": "processes: another process's buffer refuses as its own",
    "open": "likewise",
    "Blend|Recent.(mean_age|share)": "samplers/test_what_is_drawn.py",
    "(Batch|KeptBatch|Saved|Autosave|Stats|Followed)": "made by relive",
    "Sequences.(starts|ahead)": "items/test_episodes.py",
    "Windows.(obs|action|reward|extras)": "items/test_windows.py",
    "(Transitions|Sequences|Windows|Hindsight)[.]": "called by relive",
    "(Uniform|Prioritized|Recent|Once|Ram|Shared|Mapped)[.]": "called by relive",
}


def cases(parameter: str, given: dict[str, Any]) -> Iterator[Case]:
    """The calls that the table has for a parameter."""
    name, argument = parameter.rstrip(")").split("(")
    owner, _, method = name.partition(".")
    listed = TABLE[parameter]
    for kind in [listed] if isinstance(listed, Kind) else listed:
        for value in kind.bad:

            def call(thing: Any, value: Any = value) -> object:
                function = getattr(thing or getattr(relive, owner), method) if method else getattr(relive, owner)
                called = {**given, argument: value}
                if inspect.signature(function).parameters[argument].kind is inspect.Parameter.POSITIONAL_ONLY:
                    return function(called.pop(argument), **called)
                return function(**called)

            yield f"{parameter} {value!r}", kind.error, call, kind.text(value, parameter)


@pytest.mark.parametrize("parameter", TABLE)
def test_what_a_parameter_does_not_take(parameter: str, place: Path) -> None:
    name = parameter.partition("(")[0]
    with_places = {
        k: str(place / v[1:]) if isinstance(v, str) and v[0] == "@" else v for k, v in GIVEN.get(name, {}).items()
    }
    make = THINGS.get(name.partition(".")[0], lambda: None) if "." in name else lambda: None
    surprises = []
    for case in cases(parameter, with_places):
        try:
            assert_refused(make, case)
        except (Exception, pytest.fail.Exception) as error:
            surprises.append(f"{case[0]}: {error!r}"[:400])
    assert not surprises, "\n".join(surprises)


def public() -> Iterator[str]:
    """Every parameter of what `relive` exports, and of the methods of that, as errors write it."""
    for name in relive.__all__:
        thing = getattr(relive, name)
        names = [each for each in vars(thing) if each[0] != "_"] if inspect.isclass(thing) else []
        for function in [name, *(f"{name}.{each}" for each in names if inspect.isroutine(getattr(thing, each)))]:
            if function == name and inspect.isclass(thing) and issubclass(thing, Exception):
                continue
            found = thing if function == name else getattr(thing, function.partition(".")[2])
            yield from (f"{function}({each})" for each in inspect.signature(found).parameters if each != "self")


def test_every_public_parameter_is_in_the_table() -> None:
    known = re.compile("|".join(ELSEWHERE))
    missing = [each for each in public() if each not in TABLE and not known.match(each)]
    assert not missing, "say what it refuses in TABLE, or where in ELSEWHERE"
