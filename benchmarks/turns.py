"""An odd form of a call and the plain one that it is held against, timed in turns in one process, by CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

from benchmarks.workload import ACTION_SIZE, OBS_SIZE, blocks, lane_steps

BATCH = 256
Arguments = dict[str, Any]


class Size(NamedTuple):
    """The amount to measure: buffers of `n` steps, `rounds` chunks of `chunk` seconds a form."""

    n: int
    rounds: int
    chunk: float

    @property
    def lanes(self) -> int:
        return 16_384 if self.n == 1_000_000 else self.n // 64


class Form(NamedTuple):
    """A call that is timed, and what has to happen before each, which is not."""

    work: Callable[[], object]
    before: Callable[[], object] | None = None


class Pair(NamedTuple):
    """The microseconds a call of the odd form and of the plain one, chunk by chunk; or bytes."""

    odd: tuple[float, ...]
    plain: tuple[float, ...] = ()


def turns(size: Size, *forms: Form | Callable[[], object]) -> Pair:
    """Time one or two forms chunk by chunk in turn."""
    made = [form if isinstance(form, Form) else Form(form) for form in forms]
    calls = [fitting(form, size.chunk) for form in made]
    found: list[list[float]] = [[] for _ in made]
    for _ in range(size.rounds):
        for form, number, into in zip(made, calls, found, strict=True):
            spent(form, max(1, number // 4))  # the other form had the caches
            into.append(spent(form, number) / number * 1e6)
    return Pair(*map(tuple, found))


def fitting(form: Form, chunk: float) -> int:
    """Return how many calls fill a chunk."""
    spent(form, 3)  # the first may make what all later ones use
    calls = 1
    while (seconds := spent(form, calls)) < chunk / 2 and calls < 1 << 16:
        calls *= 2
    return max(1, round(calls * chunk / max(seconds, 1e-9)))


def spent(form: Form, calls: int) -> float:
    work, before, clock = form.work, form.before, time.process_time
    begun = clock()
    if before is None:
        for _ in range(calls):
            work()
        return clock() - begun
    seconds = 0.0
    for _ in range(calls):
        before()
        begun = clock()
        work()
        seconds += clock() - begun
    return seconds


def robot(relive: Any, n: int, *, episode: int = 1000, more: tuple[str, ...] = (), **options: Any) -> Any:
    """Return a full buffer of steps of 17 + 6 numbers, with `more` single ones."""
    numbers = {name: relive.Field() for name in more}
    schema = relive.Schema(obs=relive.Field((OBS_SIZE,)), action=relive.Field((ACTION_SIZE,)), **numbers)
    buffer = relive.ReplayBuffer(schema, n, seed=0, **options)
    for block in blocks(n):
        ends = np.arange(len(block.reward)) % episode == episode - 1
        columns = block._asdict() | {"terminated": ends & False, "truncated": ends} | dict.fromkeys(more, block.reward)
        buffer.extend(**{name: column[None] for name, column in columns.items()})
    return buffer


def laned(relive: Any, n: int, lanes: int, **options: Any) -> tuple[Any, Iterator[Arguments]]:
    """Return a buffer of many lanes, and steps for it that end nothing."""
    schema = relive.Schema(obs=relive.Field((OBS_SIZE,)), action=relive.Field((ACTION_SIZE,)))
    buffer = relive.ReplayBuffer(schema, n, num_envs=lanes, seed=0, **options)
    off = np.zeros(lanes, bool)
    steps = cycle([step._asdict() | {"terminated": off, "truncated": off} for step in lane_steps(lanes, 4)])
    for _ in range(16):
        buffer.add(**next(steps))
    return buffer, steps
