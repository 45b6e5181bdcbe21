"""Adding steps to shards, from any process."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from .._base import check
from .._base.check import lanes_of, raw_priorities
from .._base.types import Float64, Int64
from .._schema.step_parser import ParsedStep, StepParser
from ..errors import ArgumentError, ReliveError, message
from ._blocks import Filling
from ._sending import STALL, BlockQueue, Sender
from ._wire import ShardPlan, ShardUnavailable, Transport, sliced


class Writer:
    """Adds steps to the shards of its lanes; made by `Shards.writer`, and can be sent to other processes.

    Steps are copied into blocks and sent in the background, 32 at a time, or after 50 ms. `add` returns at once, unless
    8 blocks wait for a shard: then it waits for that one. It does not wait for a shard that is dead: the oldest of
    its blocks are dropped and counted, and what comes after them begins with a cut.

    A lane has one writer at a time; where another one goes on, its stream is cut.

    A writer that is dropped, or whose process ends, sends what it holds, for 10 seconds at most; steps that could not
    be sent are counted in the log.
    """

    def __init__(
        self, plan: ShardPlan, transport: Transport, lanes: Int64, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._plan, self._transport, self._lanes, self._clock = plan, transport, lanes, clock
        self._name = os.urandom(8).hex()
        self._parser = StepParser(plan.schema)
        self._every = np.arange(len(lanes))
        shards = lanes % plan.shards
        # Of each shard: its queue, and which of the writer's lanes are in it.
        self._queues: list[tuple[BlockQueue, Int64, Int64 | slice]] = []
        self._place = np.zeros(len(lanes), np.int64)
        for shard in np.unique(shards).tolist():
            mine = np.flatnonzero(shards == shard)
            queue = BlockQueue(transport, shard, self._name, plan.schema, lanes[mine], clock)
            self._place[mine] = np.arange(len(mine))
            self._queues.append((queue, mine, sliced(mine)))
        self._sender = Sender(transport, [queue for queue, _, _ in self._queues], lanes.tolist(), clock)
        weakref.finalize(self, self._sender.leave).atexit = False

    @property
    def env_ids(self) -> tuple[int, ...]:
        """The lanes, in the order in which `add` takes their steps."""
        return tuple(self._lanes.tolist())

    @property
    def num_envs(self) -> int:
        """The number of lanes that it writes."""
        return len(self._lanes)

    @property
    def schema(self) -> Any:
        """The schema of a step."""
        return self._plan.schema

    def add(self, *, env_ids: Any = None, priority: Any = None, **step: Any) -> None:
        """Add one step of each of the writer's lanes, or of `env_ids` among them, as `ReplayBuffer.add` does.

        Returns nothing: an id exists once the step is in its shard.

        Raises:
            SchemaError, ArgumentError, PriorityError: As `ReplayBuffer.add`; nothing has been added.
            ReliveError: The writer is closed, or a shard refused an earlier block.
        """
        which = self._which(env_ids)
        canonical = self._parser.step(step, (len(which),), 1)
        raw = raw_priorities(priority, (len(which),), self._plan.sampler)
        with self._sender.changed:
            self._sender.begin()
            self._put(canonical, raw, which)

    def extend(self, *, env_ids: Any = None, priority: Any = None, time_major: bool = False, **steps: Any) -> None:
        """Add several steps of each of the writer's lanes, or of `env_ids` among them, as `ReplayBuffer.extend` does.

        Returns nothing, and raises, as `add` does.
        """
        which = self._which(env_ids)
        check.flag(time_major, "Writer.extend(time_major)")
        lead = self._parser.lead(steps, len(which), time_major)
        canonical = self._parser.step(steps, lead.shape, 1 if lead.flat else 0).mapped(lead.lane_major)
        given = raw_priorities(priority, lead.shape, self._plan.sampler)
        raw = None if given is None else lead.lane_major(given)
        with self._sender.changed:
            self._sender.begin()
            for t in range(canonical.terminated.shape[1]):
                one = canonical.mapped(lambda array, t=t: array[:, t])  # type: ignore[misc]
                self._put(one, None if raw is None else raw[:, t], which)

    def cut(self, env_ids: Any = None) -> None:
        """End the streams of the writer's lanes, or of `env_ids` among them; see `ReplayBuffer.cut`."""
        which = self._which(env_ids)
        with self._sender.changed:
            self._sender.begin()
            for queue, mine, _ in self._queues:
                lanes = self._lanes[which[np.isin(which, mine)]]
                if len(lanes):
                    self._sender.seal(queue)
                    self._mark(queue.open)
                    queue.open.cut |= set(lanes.tolist())
            self._sender.changed.notify_all()

    def flush(self, timeout: float | None = None) -> int:
        """Send what is held back, and wait until every shard that answers has it.

        Args:
            timeout: Seconds after which to give up; None: never.

        Returns:
            How many steps are not in their shard, 0 where all is well; else those for shards that do not answer, or
            did not in time.
        """
        return self._sender.flush(None if timeout is None else check.real(timeout, "Writer.flush(timeout)", low=0.0))

    @property
    def dropped(self) -> int:
        """Steps that were dropped, since their shard did not answer."""
        return self._sender.dropped

    @property
    def gaps(self) -> int:
        """The times that a shard may have lost steps between two of the writer's: it died, or blocks were dropped."""
        return sum(queue.gaps for queue, _, _ in self._queues)

    def lane_steps(self) -> Int64:
        """Return the steps that each of the writer's lanes was ever given, int64 `[L]`, in the order of `env_ids`.

        Items of `Sequences(starts=k)` start at the steps whose number in their lane is a multiple of k. Flushes before,
        and waits for a shard that is slow. Lanes of one that does not answer have 0; `gaps` grows once it does.
        """
        self.flush()
        found = np.zeros(len(self._lanes), np.int64)
        asked = [self._transport.call(queue.shard, "lane_steps", queue.lanes) for queue, _, _ in self._queues]
        while not all(self._transport.wait(asked, STALL)):
            self._sender.check()
        for (queue, mine, _), promise in zip(self._queues, asked, strict=True):
            try:
                found[mine] = self._transport.take(promise)
            except ShardUnavailable:
                queue.broken = True
        return found

    def close(self) -> None:
        """Flush, and end the thread that sends. A second call does nothing; others raise a `ReliveError`."""
        self._sender.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        if self._sender.begun:
            remedy = "send a new one, `shards.writer(env_ids)`, and use it where it arrives"
            raise ReliveError(message("a writer that has added nothing yet", f"`{self!r}`", "pickle", remedy))
        return Writer, (self._plan, self._transport, self._lanes)

    def __repr__(self) -> str:
        return f"Writer(env_ids={self.env_ids}{', closed' if self._sender.closed else ''})"

    # Under the lock.

    def _which(self, env_ids: Any) -> Int64:
        """Return the positions among the writer's lanes that a call is about."""
        if env_ids is None:
            return self._every
        lanes = lanes_of(env_ids, self._plan.num_envs)
        at = np.argsort(self._lanes, kind="stable")
        found = at[np.minimum(np.searchsorted(self._lanes, lanes, sorter=at), len(at) - 1)]
        if (self._lanes[found] != lanes).any():
            wrong = int(lanes[self._lanes[found] != lanes][0])
            raise ArgumentError(message(f"lanes of the writer, {self.env_ids}", f"`{wrong}`", "$.env_ids"))
        return np.asarray(found)

    def _put(self, step: ParsedStep, raw: Float64 | None, which: Int64) -> None:
        kind, parts = (step.next_values is not None, raw is not None), self._parts(which)
        for queue, _, _ in parts:  # first, since this may wait, and be interrupted
            if queue.open.full or queue.open.kind not in (None, kind):
                self._sender.seal(queue)
        for queue, of, at in parts:
            self._mark(queue.open)
            queue.open.kind = kind
            queue.open.put(step, raw, of, at)
            if queue.open.full and not queue.must_wait:
                queue.seal()
                self._sender.changed.notify_all()

    def _parts(self, which: Int64) -> list[tuple[BlockQueue, Int64 | slice, Int64 | None]]:
        """List the queues of lanes, their positions in the call, and in the queue's block; None: all in order."""
        if which is self._every:
            return [(queue, sliced, None) for queue, _, sliced in self._queues]
        chosen = [(queue, np.flatnonzero(np.isin(which, mine))) for queue, mine, _ in self._queues]
        return [(queue, of, self._place[which[of]]) for queue, of in chosen if len(of)]

    def _mark(self, filling: Filling) -> None:
        if filling.empty:
            filling.begun = self._clock()
            self._sender.changed.notify_all()
