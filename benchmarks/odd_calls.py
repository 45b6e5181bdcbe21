"""Odd adds and draws of one buffer, each beside the plain one."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np

from benchmarks.turns import BATCH, Arguments, Form, Pair, Size, laned, robot, turns
from benchmarks.workload import EPISODE, FRAME, OBS_SIZE, STACK, Array, blocks, frame_steps, lane_steps, single_steps


def tensors(step: Arguments) -> Arguments:
    torch = importlib.import_module("torch")
    return {**step, **{name: torch.from_numpy(step[name]) for name in ("obs", "action", "next_obs")}}


def changed(step: Arguments, names: tuple[str, ...], change: Callable[[Any], Any]) -> Arguments:
    return {**step, **{name: change(step[name]) for name in names}}


OBSERVATIONS, FLAGS = ("obs", "next_obs"), ("terminated", "truncated")
FORMS: dict[str, Callable[[Arguments], Arguments]] = {
    "reward": lambda step: changed(step, ("reward",), int),
    "flags": lambda step: changed(step, FLAGS, int),
    "list": lambda step: changed(step, ("action",), np.ndarray.tolist),
    "float64": lambda step: changed(step, OBSERVATIONS, np.float64),
    "strided": lambda step: changed(step, OBSERVATIONS, lambda obs: obs.repeat(2)[::2]),
    "priority": lambda step: {**step, "priority": 1.5},
    "tensors": tensors,
}


def added(relive: Any, size: Size, form: str) -> Pair:
    """Time an add of a step that is handed over in another form than arrays of the schema's dtypes."""
    buffer = robot(relive, size.n, sampler=relive.Prioritized())
    plain = [step._asdict() for step in single_steps(2 * EPISODE)]
    odd, steps = cycle([FORMS[form](step) for step in plain]), cycle(plain)
    return turns(size, lambda: buffer.add(**next(odd)), lambda: buffer.add(**next(steps)))


def added_to(relive: Any, size: Size, **options: Any) -> Pair:
    """Time an add to a buffer of other choices."""
    made = [robot(relive, size.n, **options), robot(relive, size.n)]
    steps = cycle([step._asdict() for step in single_steps(2 * EPISODE)])
    return turns(size, *(partial(lambda buffer: buffer.add(**next(steps)), buffer) for buffer in made))


def without_one(relive: Any, size: Size) -> Pair:
    """Time an add of 127 of 128 lanes, over one of all."""
    buffer, whole = laned(relive, size.n, 128, sampler=relive.Prioritized())
    part = cycle(
        [
            {"env_ids": np.arange(127), **{name: column[:-1] for name, column in step._asdict().items()}}
            for step in lane_steps(128, 64)
        ]
    )
    return turns(size, lambda: buffer.add(**next(part)), lambda: buffer.add(**next(whole)))


def ending(relive: Any, size: Size) -> Pair:
    """Time an add of many lanes in which one ends, over one without an end."""
    buffer, steps = laned(relive, 4 * size.n, size.lanes)
    flags = cycle([np.arange(size.lanes) == lane for lane in range(0, size.lanes, max(1, size.lanes // 64))])
    return turns(
        size, lambda: buffer.add(**next(steps) | {"truncated": next(flags)}), lambda: buffer.add(**next(steps) | {})
    )


def cut(relive: Any, size: Size) -> Pair:
    """Time a cut of one of many lanes that has a new step."""
    buffer, _ = laned(relive, 4 * size.n, size.lanes)
    off, one = np.zeros(1, bool), np.zeros(1, np.int64)
    steps = cycle([step._asdict() | dict.fromkeys(FLAGS, off) for step in lane_steps(1, 64)])
    return turns(size, Form(lambda: buffer.cut(one), lambda: buffer.add(env_ids=one, **next(steps))))


def after_all(relive: Any, size: Size) -> Pair:
    """Time a draw after an add of all lanes, over one after none: nanoseconds an item that came."""
    buffer, steps = laned(relive, 4 * size.n, size.lanes)
    odd, plain = turns(
        size, Form(lambda: buffer.sample(BATCH), lambda: buffer.add(**next(steps))), lambda: buffer.sample(BATCH)
    )
    return Pair(tuple(each / size.lanes for each in odd), tuple(each / size.lanes for each in plain))


def length(relive: Any, size: Size) -> Pair:
    many, one = laned(relive, 4 * size.n, size.lanes)[0], robot(relive, size.n // 10)
    return turns(size, lambda: len(many), lambda: len(one))


def drawn(relive: Any, size: Size, batch: int, plain: Arguments | None = None, **options: Any) -> Pair:
    """Time a draw from a buffer of other choices, over one of plain ones."""
    made = [robot(relive, size.n // 10, **options), robot(relive, size.n // 10, **plain or {})]
    return turns(size, *(partial(lambda buffer: tuple(buffer.sample(batch).values()), buffer) for buffer in made))


def cycled(relive: Any, size: Size, batch: int, sampler: Any) -> Pair:
    """Time a draw and its update by another sampler with priorities."""
    batch, random = min(batch, size.n // 80), np.random.default_rng(0)
    errors = cycle([random.random(batch) + 0.1 for _ in range(16)])

    def turn(buffer: Any) -> None:
        buffer.update_priorities(buffer.sample(batch).ids, next(errors))

    made = [robot(relive, size.n // 10, sampler=each) for each in (sampler, relive.Prioritized())]
    return turns(size, *(partial(turn, buffer) for buffer in made))


def mixture(relive: Any, size: Size, batch: int) -> Pair:
    one, other = robot(relive, size.n), robot(relive, size.n)
    both = relive.Mixture(one, other)
    return turns(size, lambda: both.sample(batch), lambda: one.sample(batch))


def epoch(relive: Any, size: Size) -> Pair:
    """Time a batch of a whole epoch, its opening included, over a draw."""
    buffer = robot(relive, size.n // 10)
    few = size._replace(rounds=min(size.rounds, 10))
    odd, plain = turns(few, lambda: sum(1 for _ in buffer.batches(BATCH)), lambda: buffer.sample(BATCH))
    return Pair(tuple(each * BATCH / len(buffer) for each in odd), plain)


def opening(relive: Any, size: Size) -> Pair:
    buffer = robot(relive, size.n)
    return turns(size._replace(rounds=min(size.rounds, 10)), lambda: next(buffer.batches(BATCH)))


def stats(relive: Any, size: Size) -> Pair:
    buffer = robot(relive, size.n, sampler=relive.Prioritized())
    random, batch = np.random.default_rng(0), min(4_096, size.n // 8)
    for _ in range(100):
        buffer.update_priorities(buffer.sample(batch).ids, random.random(batch))
    return turns(size._replace(rounds=min(size.rounds, 20)), buffer.stats)


def jax(relive: Any, size: Size) -> Pair:
    """Time a batch as JAX arrays, over `asarray` of each of its fields."""
    asarray = importlib.import_module("jax.numpy").asarray
    buffer = robot(relive, size.n)
    return turns(
        size,
        lambda: list(buffer.sample(BATCH).jax().values()),
        lambda: [asarray(values) for values in buffer.sample(BATCH).values()],
    )


def hindsight(relive: Any, size: Size, batch: int) -> Pair:
    def reward(achieved: Array, desired: Array, _: Mapping[str, Any]) -> Array:
        return -(np.abs(achieved - desired).max(axis=-1) > 0.05).astype(np.float32)

    def nested(obs: Array) -> Arguments:
        return {"observation": obs[None], "achieved_goal": obs[None, :, :3], "desired_goal": obs[None, :, 3:6]}

    shapes = {
        "observation": relive.Field((OBS_SIZE,)),
        **dict.fromkeys(("achieved_goal", "desired_goal"), relive.Field((3,))),
    }
    made = []
    for item in (relive.Hindsight(reward=reward), relive.Transitions()):
        buffer = relive.ReplayBuffer(
            relive.Schema(obs=shapes, action=relive.Field((6,))), size.n // 10, item=item, seed=0
        )
        for block in blocks(size.n // 10):
            ends = (np.arange(len(block.reward)) % 50 == 49)[None]
            columns = {"action": block.action[None], "reward": block.reward[None], "truncated": ends}
            buffer.extend(obs=nested(block.obs), next_obs=nested(block.next_obs), terminated=ends & False, **columns)
        made.append(buffer)
    return turns(size, *(partial(lambda buffer: buffer.sample(batch), buffer) for buffer in made))


def stacked(relive: Any, size: Size) -> Pair:
    """Time 16 sequences of 80 stacks of four frames, over such of single frames."""
    made = []
    for stack in (STACK, None):
        obs = relive.Field(FRAME, "uint8", stack=stack, pad="first") if stack else relive.Field(FRAME, "uint8")
        schema = relive.Schema(obs=obs, action=relive.Field((), "int64"))
        buffer = relive.ReplayBuffer(schema, size.n // 100 or 1, item=relive.Sequences(min(80, size.n // 400)), seed=0)
        for step, _ in zip(cycle(frame_steps()), range(buffer.capacity)):
            columns = step._asdict()
            buffer.add(**columns if stack else changed(columns, OBSERVATIONS, lambda obs: obs[-1]))
        made.append(buffer)
    few = size._replace(rounds=min(size.rounds, 20))
    return turns(few, *(partial(lambda buffer: tuple(buffer.sample(16).values()), buffer) for buffer in made))
