"""Shards in this process: the protocol that Ray carries, with deaths, delays and repeated calls at will."""

from __future__ import annotations

import atexit
import copy
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import relive
from relive.ray._planning import planned
from relive.ray._shard import Shard
from relive.ray._wire import ShardPlan, ShardUnavailable
from relive.ray.shards import Shards


class Ledger(dict):
    """Each shard's life."""

    def put(self, shard: int, life: int) -> None:
        self[shard] = life


class Promise:
    """A call: executed when its shard comes to it."""

    def __init__(self, shard: int, method: str, arguments: tuple[Any, ...]) -> None:
        self.shard, self.method, self.arguments = shard, method, arguments
        self.done, self.result, self.error = False, None, None


def frozen(value: Any) -> Any:
    """Copy a value as it arrives at the other side: read-only."""
    if isinstance(value, np.ndarray):
        assert value.flags.c_contiguous, "an array that is not contiguous travels element by element"
        copied = value.copy()
        copied.setflags(write=False)
        return copied
    if isinstance(value, tuple) and type(value) is not tuple:
        return type(value)(*map(frozen, value))
    if isinstance(value, list | tuple):
        return type(value)(map(frozen, value))
    return {k: frozen(v) for k, v in value.items()} if isinstance(value, dict) else copy.copy(value)


class Local:
    """Reaches shards in this process, whose calls are executed at once unless the shard is held.

    Attributes:
        objects: The shards; None: dead.
        held: Shards that execute nothing, as if they were stopped.
        until: When held shards are released by themselves.
        cut_off: Shards that cannot be reached; the number of further calls that they execute, unheard.
        seconds: The time, which passes while one waits.
        begun: When real time began to count instead; None: it does not.
        room: Bytes of the store that replies travel through.
        calls: How many calls of each method there were.
    """

    def __init__(self, plan: ShardPlan) -> None:
        self.plan, self.ledger = plan, Ledger()
        self.objects: list[Shard | None] = [Shard(plan, i, self.ledger) for i in range(plan.shards)]
        self.held: set[int] = set()
        self.until: dict[int, float] = {}
        self.cut_off: dict[int, int] = {}
        self.queues: list[list[Promise]] = [[] for _ in self.objects]
        self.room, self.begun = math.inf, None
        self.seconds, self.calls, self.lock = 0.0, dict[str, int](), threading.RLock()
        for shard in self.objects:
            assert shard is not None
            shard.ready()

    @property
    def shards(self) -> int:
        return len(self.objects)

    def clock(self) -> float:
        return self.seconds if self.begun is None else time.monotonic() - self.begun

    def store(self) -> float:
        return self.room

    def at_end(self, end: Callable[[], None]) -> None:
        atexit.unregister(end)
        atexit.register(end)

    def call(self, shard: int, method: str, *arguments: Any) -> Promise:
        with self.lock:  # writers call from a thread of their own
            self.calls[method] = self.calls.get(method, 0) + 1
            promise = Promise(shard, method, frozen(arguments))
            self.queues[shard].append(promise)
            self.run(shard)
            return promise

    def run(self, shard: int) -> None:
        while self.queues[shard] and shard not in self.held:
            promise = self.queues[shard].pop(0)
            target = self.objects[shard]
            try:
                if target is None:
                    raise ShardUnavailable("it is dead")
                if shard in self.cut_off:
                    self.cut_off[shard] -= 1
                    if self.cut_off[shard] >= 0:
                        getattr(target, promise.method)(*promise.arguments)
                    raise ShardUnavailable("it cannot be reached")
                promise.result = frozen(getattr(target, promise.method)(*promise.arguments))
            except (ShardUnavailable, relive.ReliveError) as error:
                promise.error = error
            promise.done = True

    def wait(self, promises: Sequence[Promise], timeout: float) -> list[bool]:
        if not all(promise.done for promise in promises):
            self.seconds += timeout
            for shard in [shard for shard, end in self.until.items() if end <= self.seconds]:
                self.until.pop(shard)
                self.release(shard)
            time.sleep(0.0005)
        return [promise.done for promise in promises]

    def take(self, promise: Promise) -> Any:
        if promise.error is not None:
            raise promise.error
        return promise.result

    # Faults.

    def hold(self, shard: int, seconds: float | None = None) -> None:
        self.held.add(shard)
        if seconds is not None:
            self.until[shard] = self.seconds + seconds

    def release(self, shard: int) -> None:
        self.held.discard(shard)
        self.run(shard)

    def kill(self, shard: int, executed: int = 0) -> None:
        """Kill a shard; the first `executed` of its waiting calls were executed, without a reply."""
        for promise in self.queues[shard][:executed]:
            getattr(self.objects[shard], promise.method)(*promise.arguments)
        for promise in self.queues[shard]:
            promise.error, promise.done = ShardUnavailable("it died"), True
        self.queues[shard].clear()
        self.held.discard(shard)
        self.objects[shard] = None

    def restart(self, shard: int) -> None:
        self.objects[shard] = Shard(self.plan, shard, self.ledger)
        self.objects[shard].ready()


def local_shards(schema: relive.Schema, capacity: int, *, seed: int | None = 0, **choices: Any) -> tuple[Shards, Local]:
    """Make a handle, and the shards that it reaches, in this process."""
    rng = np.random.default_rng(seed)
    source = choices.pop("source", None)
    names = ("num_envs", "shards", "item", "sampler", "save_dir", "save_every")
    given = {
        name: choices.pop(name, default) for name, default in zip(names, (1, 1, None, None, None, None), strict=True)
    }
    plan = planned(schema, capacity, **{k: given[k] for k in names[:4]}, rng=rng, save_dir=given["save_dir"])
    plan = plan.__replace__(source=source)
    lines = Local(plan)
    made = Shards.__new__(Shards)
    made._attach(plan, lines, rng, choices.pop("limiter", None))
    made._drawer.health.hear_all(1.0)
    made._limit_from_now()
    if choices:
        raise TypeError(f"unknown choices {sorted(choices)}")
    return made, lines
