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
TABLE: dict[str, Kind | list[Kind]] = {
    "Anneal(start)": kinds.REAL,
    "Anneal(end)": kinds.REAL,
    "Anneal(over)": COUNT,
    "Field(shape)": kinds.SHAPE,
    "Field(dtype)": kinds.DTYPE,
    "Field(stack)": kinds.FRAMES,
    "Field(pad)": kinds.PAD,
    "Field(stack_axis)": kinds.STACK_AXIS,
    "Field(every)": kinds.FRAMES,
    "Field(writable)": kinds.FIELD_FLAG,
    "Field(saved)": kinds.FIELD_FLAG,
    "Field(compress)": kinds.COMPRESS,
    "Hindsight(item)": Kind("`Transitions(...)`", (None, 5, "x", relive.Transitions, relive.Uniform(), True)),
    "Hindsight(achieved)": kinds.GOAL,
    "Hindsight(desired)": kinds.GOAL,
    "Hindsight(reward)": kinds.FUNCTION,
    "Hindsight(ratio)": SHARE,
    "Hindsight(strategy)": Kind("one of `'future'`, `'final'`, `'episode'`", ("past", None, 5, True, "Future", [1])),
    "Hindsight(terminated)": kinds.FUNCTION,
    "Mapped(path)": PATH,
    "Mixture(replay)": kinds.BUFFER,
    "Mixture(demonstrations)": kinds.BUFFER,
    "Mixture(share)": SHARE,
    "Mixture.sample(num_chunks)": COUNT,
    "Mixture.prefetch(batch_size)": COUNT,
    "Mixture.prefetch(depth)": COUNT,
    "Mixture.prefetch(to)": kinds.one_of("numpy", "torch", "jax").but(None),
    "Mixture.prefetch(device)": kinds.DEVICE,
    "Mixture.prefetch(transform)": kinds.CHANGE,
    "Mixture.update_priorities(td_error)": Kind(
        "2 finite TD errors, one per id",
        ([1.0], [1.0, np.nan]),
        lambda td: f"1 of {len(td)}",
        PriorityError,
        at="$.td_error",
    ),
    "Once(uses)": COUNT.but(kinds.HUGE),
    "Once(every)": COUNT,
    "Once(order)": kinds.one_of("oldest", "newest"),
    "Prioritized(alpha)": AT_LEAST_0,
    "Prioritized(beta)": AT_LEAST_0._replace(bad=(*AT_LEAST_0.bad, (0.4, 1.0), relive.Anneal)),
    "Prioritized(eps)": AT_LEAST_0,
    "Prioritized(weights)": kinds.one_of("batch", "buffer", "none"),
    "Prioritized(stratified)": FLAG,
    "Prioritized(replacement)": FLAG,
    "Prioritized(initial)": AT_LEAST_0,
    "Prioritized(newest)": kinds.one_of("largest", "stored"),
    "Recent(beta)": AT_LEAST_0,
    "Recent(weights)": kinds.one_of("batch", "buffer", "none"),
    "RateLimiter(samples_per_insert)": kinds.POSITIVE,
    "RateLimiter(min_size)": COUNT,
    "RateLimiter(error_buffer)": kinds.number(" >= 1", 0, 0.5).but(None, [0.5, 1.0]),
    "RateLimiter(timeout)": AT_LEAST_0.but(None),
    "ReplayBuffer(schema)": Kind(
        "a `Schema`",
        ({}, relive.Schema, None, 5, "x", relive.Field()),
        kinds.by_type,
        remedy="make one by `relive.Schema(obs=..., action=...)` or `relive.Schema.from_spaces(...)`",
    ),
    "ReplayBuffer(capacity)": COUNT,
    "ReplayBuffer(num_envs)": COUNT,
    "ReplayBuffer(item)": kinds.ITEM,
    "ReplayBuffer.ids(item)": kinds.like(repr(prioritized().item)),
    "ReplayBuffer.read(item)": kinds.like(repr(prioritized().item)),
    "ReplayBuffer(sampler)": kinds.SAMPLER,
    "ReplayBuffer(storage)": kinds.STORAGE,
    "ReplayBuffer(limiter)": kinds.LIMITER,
    "ReplayBuffer(seed)": kinds.SEED,
    "ReplayBuffer(boundaries)": SHARE,
    "ReplayBuffer(check_finite)": FLAG,
    "ReplayBuffer.add(env_ids)": [kinds.LANES, kinds.NO_LANES],
    "ReplayBuffer.add(priority)": kinds.PRIORITY,
    "ReplayBuffer.autosave(path)": PATH._replace(at="autosave(path)"),
    "ReplayBuffer.autosave(every)": kinds.number(" >= 0.1", 0, 0.05)._replace(at="autosave(every)"),
    "ReplayBuffer.autosave(keep)": COUNT._replace(at="autosave(keep)"),
    "ReplayBuffer.batches(batch_size)": COUNT,
    "ReplayBuffer.batches(shuffle)": FLAG,
    "ReplayBuffer.batches(drop_last)": FLAG,
    "ReplayBuffer.column(path)": kinds.COLUMN,
    "ReplayBuffer.cut(env_ids)": [kinds.LANES, kinds.NO_LANES],
    "ReplayBuffer.extend(env_ids)": [kinds.LANES, kinds.NO_LANES],
    "ReplayBuffer.extend(priority)": kinds.PRIORITIES,
    "ReplayBuffer.extend(time_major)": FLAG,
    "ReplayBuffer.follow(ids)": [kinds.OF_BATCH, kinds.NOT_STORED],
    "ReplayBuffer.follow(steps)": [kinds.WHOLE, kinds.STEPS, kinds.NO_STEPS],
    "ReplayBuffer.keep_batches(path)": PATH.but(None),
    "ReplayBuffer.keep_batches(last)": kinds.integer(2),
    "ReplayBuffer.dataset(batch_size)": COUNT,
    "ReplayBuffer.dataset(batches)": COUNT.but(None),
    "ReplayBuffer.dataset(transform)": kinds.CHANGE,
    "ReplayBuffer.prefetch(batch_size)": COUNT,
    "ReplayBuffer.prefetch(depth)": COUNT,
    "ReplayBuffer.prefetch(to)": kinds.one_of("numpy", "torch", "jax").but(None),
    "ReplayBuffer.prefetch(device)": kinds.DEVICE,
    "ReplayBuffer.prefetch(beta)": AT_LEAST_0.but(None),
    "ReplayBuffer.prefetch(transform)": kinds.CHANGE,
    "ReplayBuffer.priorities(ids)": [kinds.OF_BATCH, kinds.STALE, kinds.EARLY],
    "ReplayBuffer.probability(ids)": [kinds.OF_BATCH, kinds.STALE, kinds.EARLY],
    "ReplayBuffer.read(ids)": [kinds.OF_BATCH, kinds.STALE, kinds.EARLY],
    "ReplayBuffer.sample(batch_size)": COUNT.but(kinds.HUGE, kinds.HUGER),
    "ReplayBuffer.sample(beta)": AT_LEAST_0.but(None),
    "ReplayBuffer.report(path)": PATH,
    "ReplayBuffer.save(path)": PATH,
    "ReplayBuffer.save(keep)": COUNT,
    "ReplayBuffer.save(wait)": FLAG,
    "ReplayBuffer.save(verify)": FLAG,
    "ReplayBuffer.update_priorities(ids)": [kinds.OF_BATCH, kinds.NEVER_ISSUED],
    "ReplayBuffer.update_priorities(td_error)": kinds.TD_ERROR,
    "ReplayBuffer.writer(env_ids)": [kinds.LANES, kinds.NO_LANES],
    "Schema(obs)": kinds.TREE._replace(at="$.obs"),
    "Schema(action)": kinds.TREE._replace(at="$.action"),
    "Schema(reward)": kinds.TREE.but(None)._replace(at="$.reward"),
    "Schema.from_example(step)": kinds.EXAMPLE._replace(at="$"),
    "Schema.from_spaces(observation_space)": kinds.SPACE._replace(at="$.obs"),
    "Schema.from_spaces(action_space)": kinds.SPACE._replace(at="$.action"),
    "Schema.from_spaces(stack)": kinds.FRAMES._replace(at="Field(stack)"),
    "Schema.from_spaces(pad)": kinds.PAD._replace(at="Field(pad)"),
    "Schema.from_spaces(stack_axis)": kinds.STACK_AXIS._replace(at="Field(stack_axis)"),
    "Schema.from_spaces(float_dtype)": kinds.FLOATS,
    "Sequences(length)": COUNT,
    "Sequences(burn_in)": kinds.integer(0),
    "Sequences(n_step)": COUNT,
    "Sequences(gamma)": SHARE,
    "Sequences(across_episodes)": FLAG,
    "Sequences(time_major)": FLAG,
    "Sequences(step_ids)": FLAG,
    "Sequences(trim)": FLAG,
    "Shared(name)": kinds.NAME,
    "SumTree(capacity)": kinds.LEAVES,
    "SumTree.find(prefix)": [kinds.PREFIX, kinds.NUMBERS._replace(error=ArgumentError)],
    "SumTree.get(indices)": [kinds.LEAF, kinds.NO_LEAF],
    "SumTree.set(indices)": [kinds.LEAF, kinds.NO_LEAF],
    "SumTree.set(values)": kinds.VALUES,
    "Transitions(n_step)": COUNT,
    "Transitions(gamma)": SHARE,
    "Transitions(chunk)": FLAG,
    "Uniform(replacement)": FLAG,
    "Uniform(over)": kinds.one_of("steps", "episodes"),
    "Windows(pad)": kinds.one_of("repeat", "zero"),
    "Windows(n_step)": COUNT.but(None),
    "Windows(gamma)": SHARE,
    "Writer(name)": kinds.OPENED,
    "kept_batches(path)": PATH,
    "load(path)": PATH.but([1], b"a"),
    "load(number)": COUNT.but(None),
    "load(lanes)": [kinds.SAVED_LANES, kinds.NO_LANES._replace(at="$.lanes")],
    "load(capacity)": kinds.integer(2).but(None),
    "load(boundaries)": SHARE.but(None),
    "load(item)": kinds.ITEM,
    "load(sampler)": kinds.SAMPLER,
    "load(storage)": kinds.STORAGE,
    "load(limiter)": kinds.LIMITER._replace(at="ReplayBuffer(limiter)"),
    "load(seed)": kinds.SEED._replace(at="ReplayBuffer(seed)"),
    "open(name)": kinds.OPENED,
    "precision_priority(noise_variance)": kinds.VARIANCES,
    "precision_priority(td_mean_square)": kinds.POSITIVE,
    "precision_priority(floor)": kinds.POSITIVE,
    "saved_as(name)": Kind("letters, digits, `_` and `-`, at most 80", ("", 5, None, "a b", "a" * 81, b"a")),
    "sequence_priority(td)": kinds.TD_ERRORS,
    "sequence_priority(mask)": kinds.MASK,
    "sequence_priority(eta)": SHARE,
    "sequence_priority(time_major)": FLAG,
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
