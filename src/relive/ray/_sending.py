"""Blocks of a writer in flight to shards: filled, sent, acknowledged, sent again, dropped; and their thread."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

from .._base import forks
from .._base.types import Int64
from ..errors import BufferClosed, ReliveError, event, message
from ..schema import Schema
from ._blocks import STEPS, Filling, steps_of
from ._health import RETRY
from ._wire import ShardUnavailable, Transport

# Blocks without an acknowledgement at most, and seconds that a block is held back to be filled.
MOST, HELD = 8, 0.05
# Seconds between two looks at what was acknowledged, and of waiting after which it is said for whom.
LOOK, STALL = 0.005, 5.0
CLOSING = 10.0  # seconds for what is held back when a writer ends
_IDLE, _GRACE = 0.5, 2.0  # seconds between two looks at whether the writer is there; for a call that is under way
_LOG = logging.getLogger("relive")
Due = tuple[Filling, tuple[Any, ...]]  # a block to send, and the arguments of the call


class BlockQueue:
    """The blocks of one writer for one shard. The writer's lock is held in every call but `send`.

    Blocks count up from 1, and a shard refuses one whose predecessor it never saw, unless that one is marked as the
    first of a run. So a block that may or may not have come is sent again with all after it, in order, and lands once.

    Args:
        transport: How to reach the shard.
        shard: Its number.
        writer: Names the writer.
        schema: The fields of a step.
        lanes: The writer's lanes in the shard.
        clock: Seconds.
        longest: Steps of a block, at most.

    Attributes:
        shard: As above.
        lanes: As above.
        open: The block that is being filled.
        down: Whether the shard does not answer.
        dropped: Steps that were dropped, as it did not answer.
        broken: Whether steps before the next one that is acknowledged may be missing in the shard.
        gaps: How often that was so.
        error: What the shard said to a block that it refused for good.
    """

    def __init__(
        self,
        transport: Transport,
        shard: int,
        writer: str,
        schema: Schema,
        lanes: Int64,
        clock: Callable[[], float],
        longest: int = STEPS,
    ) -> None:
        self._transport, self.shard, self._writer, self._clock = transport, shard, writer, clock
        self._schema, self.lanes = schema, lanes
        self._steps = min(longest, steps_of(schema, len(lanes)))
        self._sealed: deque[Filling] = deque()
        self._sent: deque[Filling] = deque()
        self._free: list[Filling] = []
        self.open = self._new()
        self._number = 0
        self._first, self._gap = True, False
        self.down, self._tried = False, 0.0
        self.dropped = self.gaps = 0
        self.broken = False
        self.error: ReliveError | None = None

    # Filling.

    @property
    def blocks(self) -> int:
        """The number that wait for an acknowledgement, or to be sent."""
        return len(self._sealed) + len(self._sent)

    @property
    def steps(self) -> int:
        """Steps that no acknowledgement came for."""
        return sum(filling.added for filling in (self.open, *self._sealed, *self._sent))

    @property
    def busy(self) -> bool:
        """True if something is to be sent or acknowledged, by a shard that answers."""
        return not self.down and (self.blocks > 0 or not self.open.empty)

    @property
    def must_wait(self) -> bool:
        """True if there is no room for one more block, and the shard is there to take some."""
        return self.blocks >= MOST and not self.down

    def seal(self) -> None:
        """End the block that is being filled, if there is any. Of a shard that does not answer, the oldest goes."""
        if self.open.empty:
            return
        while self.blocks >= MOST and self._sealed:
            self._drop(self._sealed.popleft())
        if self._gap and not self._sealed:
            self.open.cut |= set(self.lanes.tolist())
            self._gap = False
        self._number += 1
        self.open.number = self._number
        self._sealed.append(self.open)
        self.open = self._new()

    def _drop(self, filling: Filling) -> None:
        self.dropped += filling.added
        self.broken = True
        if self._sealed:
            self._sealed[0].cut |= set(self.lanes.tolist())
        else:
            self._gap = True
        self._first = True
        self._give_back(filling)

    def _new(self) -> Filling:
        return self._free.pop() if self._free else Filling(self._schema, self.lanes, self._steps)

    def _give_back(self, filling: Filling) -> None:
        filling.clear()
        self._free.append(filling)

    # Sending.

    def due(self) -> list[Due]:
        """Return the blocks to send now; `send` them in this order, without the writer's lock.

        A shard that does not answer gets one block every now and then.
        """
        now = self._clock()
        if not self.open.empty and now - self.open.begun > HELD and not self.must_wait:
            self.seal()
        if self.down and (self._sent or now - self._tried < RETRY):
            return []
        due = list[Due]()
        while self._sealed and len(self._sent) < MOST:
            filling = self._sealed.popleft()
            due.append((filling, (self._writer, filling.number, self._first, self.dropped, filling.block())))
            self._sent.append(filling)
            self._first, self._tried = False, now
            if self.down:
                break
        return due

    def send(self, due: list[Due]) -> None:
        """Send blocks."""
        for filling, arguments in due:
            filling.promise = self._transport.call(self.shard, "add", *arguments)

    def promises(self) -> list[Any]:
        """Return the promises of the blocks that were sent, in order."""
        return [filling.promise for filling in self._sent]

    def take(self, ready: list[bool]) -> None:
        """Take in the acknowledgements; `ready`: which of `promises` have come."""
        for done in ready:
            if not done:
                return
            filling = self._sent[0]
            try:
                if not self._transport.take(filling.promise):
                    self._again()
                    return
            except ShardUnavailable as error:
                self._again()
                if not self.down:
                    self.down = True
                    what = f"Shard {self.shard} does not answer a writer ({error})"
                    _LOG.warning("%s", event(what, "relive.ray", f"it keeps {MOST} blocks, and drops older ones"))
                return
            except ReliveError as error:  # the shard cannot take it, now or later
                self.error = self.error or error
                self.dropped += filling.added
                self.broken = True
            if self.down:
                self.down = False
                _LOG.warning("%s", event(f"Shard {self.shard} answers a writer again", "relive.ray"))
            self._sent.popleft()
            self._give_back(filling)
            self.gaps, self.broken = self.gaps + self.broken, False

    def _again(self) -> None:
        """Put all that was sent back in front."""
        self._sealed.extendleft(reversed(self._sent))
        self._sent.clear()
        self._first, self._tried, self.broken = True, self._clock(), True


class Sender:
    """Sends the blocks of one writer, in a thread of its own.

    The thread knows the queues, not the writer: nothing that is kept by the thread, or by an error on its way, keeps a
    writer that its user has dropped.

    Args:
        transport: How to reach the shards.
        queues: What is sent.
        lanes: The writer's lanes, for what is said.
        clock: Seconds.

    Attributes:
        changed: The lock of the queues; notified of every change.
        begun: Whether the thread was started.
        closed: Whether the writer takes nothing more.
    """

    def __init__(
        self, transport: Transport, queues: Sequence[BlockQueue], lanes: Sequence[int], clock: Callable[[], float]
    ) -> None:
        self._transport, self._queues, self._lanes, self._clock = transport, queues, lanes, clock
        self.changed = threading.Condition()
        self.closed = False
        self._left = self._told = False
        self._failure: Exception | None = None
        self._limit: float | None = None
        self._dropped = 0
        self._thread: threading.Thread | None = None

    @property
    def begun(self) -> bool:
        """True once the thread was started."""
        return self._thread is not None

    @property
    def dropped(self) -> int:
        """Steps that were dropped, since their shard did not answer."""
        return sum(queue.dropped for queue in self._queues)

    def begin(self) -> None:
        """Start the thread; complain about what cannot go on. Under the lock."""
        if self.closed:
            raise BufferClosed(message("an open writer", "one that was closed", "Writer"))
        self.check()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="relive-writer", daemon=True)
            self._thread.start()
            forks.tell(self)
            _SENDERS.add(self)
            self._transport.at_end(stop_all)  # the thread must not be inside of a library that is being torn down

    def check(self) -> None:
        """Raise what ended the thread, or what a shard said to a block that it refused. Under the lock."""
        if isinstance(self._failure, ReliveError):
            raise self._failure
        if self._failure is not None:
            what = f"The thread that sends failed with {type(self._failure).__name__}: {self._failure}"
            raise ReliveError(event(what, "Writer")) from self._failure
        for queue in self._queues:
            if queue.error is not None:
                error, queue.error = queue.error, None
                raise error

    def seal(self, queue: BlockQueue, limit: float | None = None) -> None:
        """End a queue's block; waits where the shard is slow. Under the lock."""
        since, warned = self._clock(), False
        while queue.must_wait and not queue.open.empty:
            if limit is not None and self._clock() >= limit:
                return
            self.changed.notify_all()
            self.changed.wait(LOOK)
            self.check()
            if not warned and self._clock() - since > STALL:
                warned = True
                what = f"A writer has waited for {STALL:.0f} s for the shard of lanes {queue.lanes.tolist()[:5]}"
                _LOG.warning("%s", event(what, "Writer.add", "see `stats()`; the shard is slow or stopped"))
        queue.seal()

    def flush(self, timeout: float | None) -> int:
        """Send what is held back, and wait for it; return how many steps no acknowledgement came for."""
        limit = None if timeout is None else self._clock() + timeout
        with self.changed:
            if self._thread is None:
                return 0
            self.check()
            for queue in self._queues:
                self.seal(queue, limit)
            self.changed.notify_all()
            while self._busy and not (limit is not None and self._clock() >= limit):
                self.changed.wait(LOOK)
                if self._failure is not None:
                    break
            self.check()
            return self._steps

    def close(self) -> None:
        """Flush, and end the thread."""
        if self.closed:
            return
        try:
            self.flush(CLOSING)
        except BaseException:
            self._told = True
            raise
        finally:
            with self.changed:
                self._limit, self._dropped = self._clock(), self.dropped
                self.closed = self._left = True
                self.changed.notify_all()
            if self._thread is not None:
                self._thread.join(5.0)

    def leave(self) -> None:
        """Let the thread send what is held back, say what it could not send, and end.

        Neither waits nor takes a lock: the garbage collector calls it in the middle of anything.
        """
        self.closed = self._left = True

    def join(self) -> None:
        """Wait for the thread, after `leave`."""
        with self.changed:
            self.changed.notify_all()
        if self._thread is not None:
            self._thread.join(CLOSING + _GRACE)
            if self._thread.is_alive():  # in a call that does not return
                self._tell()

    def _forked(self) -> None:
        """Refuse what needs the thread and the connections to the shards, which are the parent's."""
        self.changed = threading.Condition()
        if self._thread is not None:
            wanted = "a writer that this process made"
            self._failure = ReliveError(message(wanted, "one of the process that forked it", "Writer"))

    # The thread.

    def _run(self) -> None:
        try:
            while self.work():
                pass
        except Exception as error:  # or a flush would wait for ever
            with self.changed:
                self._failure = error
                self.changed.notify_all()
                while not self._left:
                    self.changed.wait(_IDLE)
        self._tell()

    def work(self) -> bool:
        """Work one round; return whether there is another one."""
        with self.changed:
            if self._left and not self._ending():
                return False
            due = [(queue, queue.due()) for queue in self._queues]
        for queue, blocks in due:
            queue.send(blocks)
        with self.changed:
            sent = [(queue, queue.promises()) for queue in self._queues]
            flying = [promise for _, promises in sent for promise in promises]
            if not flying:
                if not self._left:
                    idle = all(queue.open.empty for queue in self._queues)
                    self.changed.wait(_IDLE if idle else HELD / 2)
                return True
        ready = self._transport.wait(flying, LOOK)
        with self.changed:
            begin = 0
            for queue, promises in sent:
                queue.take(ready[begin : begin + len(promises)])
                begin += len(promises)
            self.changed.notify_all()
        return True

    def _ending(self) -> bool:
        """Return whether something is left to send, and time for it."""
        if self._limit is None:
            self._limit, self._dropped = self._clock() + CLOSING, self.dropped
        for queue in self._queues:
            if not queue.must_wait:
                queue.seal()
        return self._busy and self._clock() < self._limit

    @property
    def _busy(self) -> bool:
        return any(queue.busy for queue in self._queues)

    @property
    def _steps(self) -> int:
        return sum(queue.steps for queue in self._queues)

    def _tell(self) -> None:
        """Say once what could not be sent."""
        lost = self._steps + (self.dropped - self._dropped if self._limit is not None else 0)
        if lost and not self._told:
            self._told = True
            why = "" if self._failure is None else f" ({type(self._failure).__name__}: {self._failure})"
            what = f"A writer of lanes {tuple(self._lanes[:5])} has ended, and {lost} steps could not be sent{why}"
            _LOG.warning("%s", event(what, "Writer", "their shards do not answer: see `stats()`"))


_SENDERS: WeakSet[Sender] = WeakSet()


def stop_all() -> None:
    """End every thread, each after it has sent what it holds."""
    senders = list(_SENDERS)
    for sender in senders:
        sender.leave()
    for sender in senders:
        sender.join()
