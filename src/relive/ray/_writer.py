"""Adding steps to shards, from any process."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _check
from .._arguments import lanes_of, raw_priorities
from .._step_parser import Step, StepParser
from .._types import Float64, Int64
from ..errors import ArgumentError, ReliveError, event, message
from ._blocks import Filling
from ._queue import HELD, Queue
from ._wire import Gone, Lines, Plan

# Seconds between two looks at what was acknowledged, and of waiting after which it is said for whom.
_LOOK, _IDLE, _STALL = 0.005, 0.5, 5.0
_CLOSING = 10.0  # seconds for what is held back when a writer ends
_LOG = logging.getLogger("relive")


class Writer:
    """Adds steps to the shards of its lanes; made by `Shards.writer`, and can be sent to other processes.

    Steps are copied into blocks and sent in the background, 32 at a time, or after 50 ms. `add` returns at once, unless
    8 blocks wait for a shard: then it waits for that one. It does not wait for a shard that is dead: the oldest of
    its blocks are dropped and counted, and what comes after them begins with a cut.

    A lane has one writer at a time; where another one goes on, its stream is cut.

    A writer that is dropped, or whose process ends, sends what it holds, for 10 seconds at most; steps that could not
    be sent are counted in the log.
    """

    def __init__(self, plan: Plan, lines: Lines, lanes: Int64, clock: Callable[[], float] = time.monotonic) -> None:
        self._plan, self._lines, self._lanes, self._clock = plan, lines, lanes, clock
        self._name = os.urandom(8).hex()
        self._parser = StepParser(plan.schema)
        self._every = np.arange(len(lanes))
        self._changed = threading.Condition()
        self._closed = self._left = False
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None
        shards = lanes % plan.shards
        # Of each shard: its queue, and which of the writer's lanes are in it.
        self._queues: list[tuple[Queue, Int64, Int64 | slice]] = []
        self._place = np.zeros(len(lanes), np.int64)
        for shard in np.unique(shards).tolist():
            mine = np.flatnonzero(shards == shard)
            queue = Queue(lines, shard, self._name, plan.schema, lanes[mine], clock)
            self._place[mine] = np.arange(len(mine))
            self._queues.append((queue, mine, _sliced(mine)))

    @property
    def env_ids(self) -> tuple[int, ...]:
        """The lanes, in the order in which `add` takes their steps."""
        return tuple(self._lanes.tolist())

    @property
    def num_envs(self) -> int:
        """How many lanes it writes."""
        return len(self._lanes)

    @property
    def schema(self) -> Any:
        """What one step holds."""
        return self._plan.schema

    def add(self, *, env_ids: Any = None, priority: Any = None, **step: Any) -> None:
        """Add one step of each of the writer's lanes, or of `env_ids` among them, as `ReplayBuffer.add` does.

        Returns nothing: an id exists once the step is in its shard.

        Raises:
            SchemaError, ArgumentError, PriorityError: As `ReplayBuffer.add`; nothing has been added.
            ReliveError: The writer is closed, or a shard refused an earlier block.
        """
        which = self._which(env_ids)
        canonical = self._parser.step(_in_order(step), (len(which),), 1)
        raw = raw_priorities(priority, (len(which),), self._plan.sampler)
        with self._changed:
            self._begin()
            self._put(canonical, raw, which)

    def extend(self, *, env_ids: Any = None, priority: Any = None, time_major: bool = False, **steps: Any) -> None:
        """Add several steps of each of the writer's lanes, or of `env_ids` among them, as `ReplayBuffer.extend` does.

        Returns nothing, and raises, as `add` does.
        """
        which = self._which(env_ids)
        _check.flag(time_major, "Writer.extend(time_major)")
        steps = _in_order(steps)
        lead = self._parser.lead(steps, len(which), time_major)
        canonical = self._parser.step(steps, lead.shape, 1 if lead.flat else 0).mapped(lead.lane_major)
        given = raw_priorities(priority, lead.shape, self._plan.sampler)
        raw = None if given is None else lead.lane_major(given)
        with self._changed:
            self._begin()
            for t in range(canonical.terminated.shape[1]):
                one = canonical.mapped(lambda array, t=t: array[:, t])  # type: ignore[misc]
                self._put(one, None if raw is None else raw[:, t], which)

    def cut(self, env_ids: Any = None) -> None:
        """End the streams of the writer's lanes, or of `env_ids` among them; see `ReplayBuffer.cut`."""
        which = self._which(env_ids)
        with self._changed:
            self._begin()
            for queue, mine, _ in self._queues:
                lanes = self._lanes[which[np.isin(which, mine)]]
                if len(lanes):
                    self._seal(queue)
                    self._mark(queue.open)
                    queue.open.cut |= set(lanes.tolist())
            self._changed.notify_all()

    def flush(self, timeout: float | None = None) -> int:
        """Send what is held back, and wait until every shard that answers has it.

        Args:
            timeout: Seconds after which to give up; None: never.

        Returns:
            How many steps are not in their shard: 0 where all is well; else those for shards that do not answer, or
            did not in time.
        """
        limit = None if timeout is None else self._clock() + _check.real(timeout, "Writer.flush(timeout)", low=0.0)
        with self._changed:
            if self._thread is None:
                return 0
            self._raise()
            for queue, _, _ in self._queues:
                self._seal(queue, limit)
            self._changed.notify_all()
            while any(queue.busy for queue, _, _ in self._queues):
                if limit is not None and self._clock() >= limit:
                    break
                self._changed.wait(_LOOK)
                if self._failure is not None:
                    break
            self._raise()
            return sum(queue.steps for queue, _, _ in self._queues)

    @property
    def dropped(self) -> int:
        """Steps that were dropped, since their shard did not answer."""
        return sum(queue.dropped for queue, _, _ in self._queues)

    @property
    def gaps(self) -> int:
        """How often a shard may have lost steps between two of the writer's: it died, or blocks were dropped."""
        return sum(queue.gaps for queue, _, _ in self._queues)

    def lane_steps(self) -> Int64:
        """Steps that each of the writer's lanes was ever given, int64 `[L]`, in the order of `env_ids`.

        Items of `Sequences(starts=k)` start at the steps whose number in their lane is a multiple of k. Flushes before,
        and waits for a shard that is slow. Lanes of one that does not answer have 0; `gaps` grows once it does.
        """
        self.flush()
        found = np.zeros(len(self._lanes), np.int64)
        asked = [self._lines.call(queue.shard, "lane_steps", queue.lanes) for queue, _, _ in self._queues]
        while not all(self._lines.wait(asked, _STALL)):
            self._raise()
        for (queue, mine, _), promise in zip(self._queues, asked, strict=True):
            try:
                found[mine] = self._lines.take(promise)
            except Gone:
                queue.broken = True
        return found

    def close(self) -> None:
        """Flush, and end the thread that sends. A second call does nothing; others raise a `ReliveError`."""
        if self._closed:
            return
        try:
            self.flush(timeout=_CLOSING)
        finally:
            with self._changed:
                self._closed = True
                self._changed.notify_all()
            thread = self._thread
            if thread is not None and thread is not threading.current_thread():
                thread.join(5.0)

    def __del__(self) -> None:
        if getattr(self, "_thread", None) is not None and not self._closed:
            try:  # not here: garbage is collected in the middle of anything, which may have the lock
                threading.Thread(target=self._abandon, name="relive-writer").start()
            except RuntimeError:  # no new threads, at the end of the process
                self._abandon()

    def _abandon(self) -> None:
        """Send what is held back, in place of the writer's thread, and end: nobody closed the writer, which is gone."""
        limit, dropped, why = self._clock() + _CLOSING, self.dropped, ""
        with self._changed:
            self._left = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        try:
            while self._failure is None and self._clock() < limit:
                with self._changed:
                    for queue, _, _ in self._queues:
                        if not queue.must_wait and not queue.open.empty:
                            queue.seal()
                    if not any(queue.busy for queue, _, _ in self._queues):
                        break
                self._work()
        except Exception as error:
            why = f" ({type(error).__name__}: {error})"
        self._closed = True
        self._tell(self.dropped - dropped, why)

    def _end(self, limit: float) -> None:
        """The process ends: send what is held back, until `limit`, and stop the thread, which must not be torn down."""
        dropped, why = self.dropped, ""
        try:
            self.flush(max(0.0, limit - self._clock()))
        except Exception as error:
            why = f" ({type(error).__name__}: {error})"
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._tell(self.dropped - dropped, why)

    def _tell(self, dropped: int, why: str) -> None:
        lost = sum(queue.steps for queue, _, _ in self._queues) + dropped
        if lost:
            what = f"A writer of lanes {self.env_ids[:5]} was not closed, and {lost} steps could not be sent{why}"
            _LOG.warning("%s", event(what, "Writer", "call `close()`, or use `with`"))

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        if self._thread is not None:
            remedy = "send a new one, `shards.writer(env_ids)`, and use it where it arrives"
            raise ReliveError(message("a writer that has added nothing yet", f"`{self!r}`", "pickle", remedy))
        return Writer, (self._plan, self._lines, self._lanes)

    def __repr__(self) -> str:
        return f"Writer(env_ids={self.env_ids}{', closed' if self._closed else ''})"

    # Under the lock.

    def _begin(self) -> None:
        """Start the thread that sends; complain about what cannot go on."""
        if self._closed:
            raise ReliveError(message("an open writer", "one that was closed", "Writer"))
        self._raise()
        if self._thread is None:
            self._thread = threading.Thread(target=_run, args=(weakref.ref(self),), name="relive-writer", daemon=True)
            self._thread.start()
            _WRITERS.add(self)

    def _fail(self, error: Exception) -> None:
        """Nothing is sent any more; let every further call say why."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _raise(self) -> None:
        if self._failure is not None:
            what = f"The thread that sends failed with {type(self._failure).__name__}: {self._failure}"
            raise ReliveError(event(what, "Writer")) from self._failure
        for queue, _, _ in self._queues:
            if queue.error is not None:
                error, queue.error = queue.error, None
                raise error

    def _which(self, env_ids: Any) -> Int64:
        """The positions among the writer's lanes that a call is about."""
        if env_ids is None:
            return self._every
        lanes = lanes_of(env_ids, self._plan.num_envs)
        at = np.argsort(self._lanes, kind="stable")
        found = at[np.minimum(np.searchsorted(self._lanes, lanes, sorter=at), len(at) - 1)]
        if (self._lanes[found] != lanes).any():
            wrong = int(lanes[self._lanes[found] != lanes][0])
            raise ArgumentError(message(f"lanes of the writer, {self.env_ids}", f"`{wrong}`", "$.env_ids"))
        return np.asarray(found)

    def _put(self, step: Step, raw: Float64 | None, which: Int64) -> None:
        kind, parts = (step.next_values is not None, raw is not None), self._parts(which)
        for queue, _, _ in parts:  # first, since this may wait, and be interrupted
            if queue.open.full or queue.open.kind not in (None, kind):
                self._seal(queue)
        for queue, of, at in parts:
            self._mark(queue.open)
            queue.open.kind = kind
            queue.open.put(step, raw, of, at)
            if queue.open.full and not queue.must_wait:
                queue.seal()
                self._changed.notify_all()

    def _parts(self, which: Int64) -> list[tuple[Queue, Int64 | slice, Int64 | None]]:
        """The queues of some lanes, where these are in the call, and where in the queue's block; None: all in order."""
        if which is self._every:
            return [(queue, sliced, None) for queue, _, sliced in self._queues]
        chosen = [(queue, np.flatnonzero(np.isin(which, mine))) for queue, mine, _ in self._queues]
        return [(queue, of, self._place[which[of]]) for queue, of in chosen if len(of)]

    def _mark(self, filling: Filling) -> None:
        if filling.empty:
            filling.begun = self._clock()
            self._changed.notify_all()

    def _seal(self, queue: Queue, limit: float | None = None) -> None:
        """End a queue's block; waits where the shard is slow."""
        since, warned = self._clock(), False
        while queue.must_wait and not queue.open.empty:
            if limit is not None and self._clock() >= limit:
                return
            self._changed.notify_all()
            self._changed.wait(_LOOK)
            self._raise()
            if not warned and self._clock() - since > _STALL:
                warned = True
                what = f"A writer has waited for {_STALL:.0f} s for the shard of lanes {queue.lanes.tolist()[:5]}"
                _LOG.warning("%s", event(what, "Writer.add", "see `stats()`; the shard is slow or stopped"))
        queue.seal()

    def _work(self) -> bool:
        """What the thread does in one round; whether it goes on."""
        with self._changed:
            due = [(queue, queue.due()) for queue, _, _ in self._queues]
        for queue, blocks in due:
            queue.send(blocks)
        with self._changed:
            sent = [(queue, queue.promises()) for queue, _, _ in self._queues]
            flying = [promise for _, promises in sent for promise in promises]
            if self._closed and not any(queue.busy for queue, _, _ in self._queues):
                return False
            if not flying:
                idle = all(queue.open.empty for queue, _, _ in self._queues)
                self._changed.wait(_IDLE if idle else HELD / 2)
                return not self._closed
        ready = self._lines.wait(flying, _LOOK)
        with self._changed:
            begin = 0
            for queue, promises in sent:
                queue.take(ready[begin : begin + len(promises)])
                begin += len(promises)
            self._changed.notify_all()
        return True


def _run(writer: Callable[[], Writer | None]) -> None:
    """The thread of a writer, which ends when nobody has the writer any more."""
    while True:
        known = writer()
        if known is None or known._left:
            return
        try:
            if not known._work():
                return
        except Exception as error:  # or a flush would wait for ever
            known._fail(error)
            return
        del known


def _in_order(step: dict[str, Any]) -> dict[str, Any]:
    """The fields in the order in which they are checked, whatever order they were given in."""
    return {**dict.fromkeys(("obs", "action", "reward", "next_obs", "terminated", "truncated")), **step}


def _sliced(positions: Int64) -> Int64 | slice:
    """As a slice, where they are equally far apart."""
    steps = np.diff(positions)
    if len(positions) > 1 and (steps == steps[0]).all():
        return slice(int(positions[0]), int(positions[-1]) + 1, int(steps[0]))
    return positions


_WRITERS: weakref.WeakSet[Writer] = weakref.WeakSet()


def _stop_all() -> None:
    """At the interpreter's end no thread may be inside a library that is being torn down."""
    limits = {writer: writer._clock() + _CLOSING for writer in list(_WRITERS) if not writer._closed}
    for writer, limit in limits.items():
        writer._end(limit)


atexit.register(_stop_all)
