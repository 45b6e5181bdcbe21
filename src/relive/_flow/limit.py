"""A rate limiter at work on a ring: how many items are drawn for each step that is added."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import numpy as np

from .._base import forks
from .._base.arrays import ArraySpec, Memory
from .._base.types import Int64
from .._ring.lanes import STEPS
from .._schema.step_parser import steps_in
from ..errors import ArgumentError, BufferClosed, RateLimitTimeout, event, message
from .call_lock import CallLock, held_back
from .limiter import LimiterStats, RateLimiter

Result = TypeVar("Result")

# What a storage opens for a limiter: a cache line for each of some processes, so that none of them needs a lock or an
# atomic addition. The first line has what was counted before: what a save had, and where counting began.
NAME = "ring/limiter"
_LINES = 64
SPEC = ArraySpec((_LINES, 8), np.dtype(np.int64))
_SAMPLES, _SAMPLE_WAITS, _SAMPLE_NS, _INSERT_WAITS, _INSERT_NS, BEFORE, BEGUN = range(7)
# Of a wait, in seconds: the pause between two looks, at first and at most, and when it is logged.
_FIRST, _LONGEST, _STALL = 20e-6, 0.01, 5.0
_PRESENCE = 0.5  # seconds from one look to the next whether the buffer's process is there


class WaitStopped(Exception):
    """Ends the wait of a thread that is no longer needed."""


class DrawnAhead:
    """Items that were drawn ahead and not handed out yet. They count for further draws, but not as drawn.

    Attributes:
        items: How many.
        over: Whether they were dropped.
    """

    items, over = 0, False


class Limit:
    """A `RateLimiter` at work on one ring, asked before every write and every draw.

    A waiting call polls every 10 ms or sooner: the other side may be another process. In one process the limits are
    exact. Several processes ask one by one, so each of them may be one call too far.

    Args:
        limiter: The rules.
        counters: Those of the ring's lanes, `[L, 16]`.
        memory: Has an array `NAME` as `SPEC` says.
        present: As below.
        held: As below.
        lock: Lets one thread at a time into a call of the buffer, and may be entered twice.

    Attributes:
        limiter: As above.
        least: The balance, items due for the steps that were added less those that were drawn, that draws leave.
        most: The balance up to which steps are added.
        latest: How many steps (under True) or items (under False) the last call was about that had to wait.
        present: Whether the process that made the buffer still has it; None: this one has.
        held: Whether this thread keeps all others from making calls, for which it cannot wait then.
        over: Whether the buffer was closed, which ends all waits.
        room: Steps that may surely be added, int64 `[1]`: a native call takes its own under the lock. None: another
            process may write, so that each call has to count.
    """

    def __init__(
        self,
        limiter: RateLimiter,
        counters: Int64,
        memory: Memory,
        present: Callable[[], bool] | None = None,
        held: Callable[[], bool] = lambda: False,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self.limiter, self._lock = limiter, lock or nullcontext()
        # Where no other process writes, the steps that may surely be added are not counted again for every call.
        self._private: bool = getattr(memory, "private", False)
        self._steps, self._lines = counters[:, STEPS], memory.host(NAME)
        self._samples = self._lines[: 2 if self._private else _LINES, _SAMPLES]
        self.least, self.most = limiter.least, limiter.most
        self.room = np.zeros(1, np.int64) if self._private else None
        self._adding = threading.RLock()
        self.present, self._looked, self.held = present, 0.0, held
        self.over = False
        self._ahead: list[DrawnAhead] = []
        self.latest: dict[bool, int] = {}
        if not self._lines[0, BEGUN]:
            self.begin(limiter.min_size)
        forks.tell(self)

    def _forked(self) -> None:
        """Start afresh in a child: no thread is about to add, and draws ahead of other threads are dropped."""
        self._adding, self._ahead = threading.RLock(), []

    def begin(self, counted: int) -> None:
        """Count from now on, as if `counted` of the steps had just been added and nothing been drawn."""
        steps = _total(self._steps)
        self._lines[:, _SAMPLES] = 0
        self._lines[0, [BEFORE, BEGUN]] = max(0, steps - counted), 1
        if self.room is not None:
            self.room[0] = 0

    def totals(self) -> Int64:
        """Sum all counts for a save: they become the first line of another limiter's array."""
        return np.asarray(self._lines.sum(axis=0))

    def can_insert(self, steps: int) -> bool:
        """Return True if `steps` steps may be added now."""
        inserts, samples = self.counts()
        after = inserts + steps
        return after <= self.limiter.min_size or after * self.limiter.samples_per_insert - samples <= self.most

    def can_sample(self, items: int) -> bool:
        """Return True if `items` items may be drawn now."""
        inserts, samples = self.counts()
        samples += sum(ahead.items for ahead in self._ahead if not ahead.over)
        difference = inserts * self.limiter.samples_per_insert - samples - items
        return inserts >= self.limiter.min_size and difference >= self.least

    def wait_to_insert(self, steps: int, since: float | None = None) -> float | None:
        """Wait until `steps` steps may be added: the whole of what a writer in another process has to do.

        Args:
            steps: How many a call adds.
            since: What this method returned to the same call, if it has to wait again.

        Returns:
            When the wait began; None if there was none.

        Raises:
            RateLimitTimeout: It takes longer than the limiter's `timeout`.
            ArgumentError: It would never end, and there is no timeout.
        """
        return since if self.can_insert(steps) else self._wait(_Call(self, True, steps, "ReplayBuffer.add"), since)

    def wait_to_sample(
        self,
        items: int,
        since: float | None = None,
        stopped: Callable[[], bool] | None = None,
        at: str = "ReplayBuffer.sample",
        there: Callable[[], bool] = lambda: True,
    ) -> float | None:
        """Wait until `items` items may be drawn, and `there()` says that so many can be.

        Raises:
            RateLimitTimeout, ArgumentError: As in `wait_to_insert`.
            WaitStopped: `stopped()` is true.
        """
        call = _Call(self, False, items, at, there)
        return since if call.may() else self._wait(call, since, stopped)

    def sampled(self, items: int) -> None:
        """Count `items` items as drawn, under the buffer's lock."""
        self._samples[self._line()] += items

    def drawing_ahead(self) -> DrawnAhead:
        """Return a new account of items drawn ahead; its owner changes it, under the buffer's lock."""
        self._ahead = [ahead for ahead in self._ahead if not ahead.over] + [DrawnAhead()]
        return self._ahead[-1]

    def before(self, call: Callable[..., Result], several: bool) -> Callable[..., Result]:
        """`add`, or with `several` steps `extend`, that waits first; takes keywords as these do."""
        lanes = len(self._steps)

        def limited(*wrong: Any, **step: Any) -> Result:
            steps, since = steps_in(step, lanes, several), None
            while True:
                with self._adding:
                    if self._claim(steps):
                        return call(*wrong, **step)
                since = self.wait_to_insert(steps, since)

        return limited

    @contextmanager
    def hold(self, lock: CallLock) -> Iterator[bool]:
        """Keep other threads from adding, and out of all calls under `lock`, in the order in which calls enter both."""
        with self._adding, lock.hold():
            yield True

    def report(self) -> LimiterStats:
        """Return the counts for `ReplayBuffer.stats`."""
        inserts, samples = self.counts()
        totals = self.totals().tolist()
        return LimiterStats(
            inserts=inserts,
            samples=samples,
            samples_per_insert=samples / inserts if inserts else 0.0,
            error=(inserts - self.limiter.min_size) * self.limiter.samples_per_insert - samples,
            insert_waits=totals[_INSERT_WAITS],
            insert_seconds=totals[_INSERT_NS] / 1e9,
            sample_waits=totals[_SAMPLE_WAITS],
            sample_seconds=totals[_SAMPLE_NS] / 1e9,
        )

    def counts(self) -> tuple[int, int]:
        """Count steps added and items drawn."""
        return _total(self._steps) - self._lines.item(0, BEFORE), _total(self._samples)

    def _line(self) -> int:
        """Return the line that this process counts in. Two on the same line lose a count only if both count at once."""
        return 1 if self._private else 1 + os.getpid() % (_LINES - 1)

    def _claim(self, steps: int) -> bool:
        """Count `steps` steps as added if they may be; return whether they were."""
        if self.room is None:
            return self.can_insert(steps)
        with self._lock:  # so no other call has steps that are not counted yet
            if steps <= self.room[0]:
                self.room[0] -= steps
                return True
            if not self.can_insert(steps):
                return False
            inserts, samples = self.counts()
            last = (self.most + samples) / self.limiter.samples_per_insert - 1
            self.room[0] = max(0, int(min(max(last, self.limiter.min_size), 2.0**62)) - inserts - steps)
            return True

    def _wait(self, call: _Call, since: float | None, stopped: Callable[[], bool] | None = None) -> float:
        """Wait until the limiter allows `call`, and count it. `since`: when an earlier wait for it began."""
        timeout, start = self.limiter.timeout, time.monotonic()
        if self.held():
            raise held_back(call.at)
        if timeout is None and call.endless:
            wanted, remedy = f"at most {call.most()}", "raise the limiter's `error_buffer`"
            raise ArgumentError(message(wanted, f"{call.count}", call.at, remedy))
        if not call.endless:
            self.latest[call.adds] = call.count
        begin = start if since is None else since
        logged = start - begin > _STALL
        while not call.may():
            waited = time.monotonic() - begin
            if stopped is not None and stopped():
                raise WaitStopped
            self._check_buffer(call.at)
            if timeout is not None and waited >= timeout:
                raise RateLimitTimeout(event(f"Waited for {timeout:g} s; {call.reason()}", call.at, call.remedy()))
            if waited > _STALL and not logged:
                logged = True
                self._tell(call, waited)
            pause = min(max(_FIRST, waited / 4), _LONGEST)
            time.sleep(pause if timeout is None else min(pause, timeout - waited))
        line, column = self._lines[self._line()], _INSERT_WAITS if call.adds else _SAMPLE_WAITS
        line[column] += since is None
        line[column + 1] += int((time.monotonic() - start) * 1e9)
        return begin

    def _check_buffer(self, at: str) -> None:
        """Check that the wait can end at all.

        Raises:
            BufferClosed: It was closed, or the process that made it is gone, so no draw will come.
        """
        if self.over:
            raise BufferClosed(message("an open buffer", "one that was closed meanwhile", at))
        now = time.monotonic()
        if self.present is not None and now - self._looked > _PRESENCE:
            self._looked = now
            if not self.present():
                got = "none: it ended, or closed the buffer"
                raise BufferClosed(message("the process that made the buffer", got, at))

    @staticmethod
    def _tell(call: _Call, waited: float) -> None:
        import logging

        what = f"{threading.current_thread().name} has waited for {waited:.0f} s; {call.reason()}"
        logging.getLogger("relive").warning("%s", event(what, call.at, call.remedy()))


class _Call:
    """A call that waits: it adds `count` steps, or it draws as many items."""

    def __init__(self, limit: Limit, adds: bool, count: int, at: str, there: Callable[[], bool] = lambda: True) -> None:
        self.limit, self.adds, self.count, self.at, self.there = limit, adds, count, at, there
        # How far it moves the balance, in items.
        self.items = count * limit.limiter.samples_per_insert if adds else count
        self.endless = self.items > limit.most - limit.least
        self.what = f"{count} steps" if adds else f"{count} items"

    def may(self) -> bool:
        """Return True if the limiter allows the call now."""
        if self.adds:
            return self.limit.can_insert(self.count)
        return self.limit.can_sample(self.count) and self.there()

    def most(self) -> str:
        """Describe the largest call that the limiter can ever allow."""
        limiter = self.limit.limiter
        width = limiter.most - limiter.least
        return f"{int(width / limiter.samples_per_insert)} steps a call" if self.adds else f"{int(width)} items a call"

    def reason(self) -> str:
        """Describe the condition that the call waits for."""
        (inserts, samples), limiter = self.limit.counts(), self.limit.limiter
        rate = limiter.samples_per_insert
        if self.adds:
            missing = math.ceil((inserts + self.count) * rate - samples - self.limit.most)
            wanted = f"{max(1, missing)} more items have to be drawn before {self.what} are added"
        elif self.limit.can_sample(self.count):
            wanted = f"too few items are left for {self.what}: more items have to be added"
        else:
            behind = math.ceil((self.limit.least + samples + self.count - inserts * rate) / rate)
            missing = max(1, limiter.min_size - inserts, behind)
            wanted = f"{missing} more steps have to be added before {self.what} are drawn"
        return f"{inserts} steps are added and {samples} items drawn, and {wanted}"

    def remedy(self) -> str:
        """Return the remedy for the error's message."""
        if self.endless:
            return f"the limiter allows no more than {self.most()}; raise its `error_buffer`"
        other = _Call(self.limit, not self.adds, self.limit.latest.get(not self.adds, 0), self.at)
        if other.count and not other.may():
            pair = f"calls of {self.what} and of {other.what}"
            return f"neither can go on: {pair} need an `error_buffer` of {(self.items + other.items) / 2:g}"
        return f"{'draw' if self.adds else 'add'} in another thread or process"


def _total(counts: Int64) -> int:
    """Sum the counts. NumPy takes a microsecond for any."""
    return sum(counts.tolist()) if len(counts) <= 32 else int(counts.sum())
