"""The blocks of one writer for one shard: filled, sent, acknowledged, sent again, dropped."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from .._base.types import Int64
from ..errors import ReliveError, event
from ..schema import Schema
from ._blocks import Filling, steps_of
from ._health import RETRY
from ._wire import ShardUnavailable, Transport

# Blocks without an acknowledgement at most, and seconds that a block is held back to be filled.
MOST, HELD = 8, 0.05
_LOG = logging.getLogger("relive")


class Sending:
    """A block that is being sent, or was: with the call's arguments, and its promise."""

    __slots__ = ("arguments", "filling", "promise")

    def __init__(self, filling: Filling, arguments: tuple[Any, ...]) -> None:
        self.filling, self.arguments = filling, arguments
        self.promise: Any = None


class BlockQueue:
    """What one writer has for one shard. The writer's lock is held in every call but `send`.

    Blocks count up from 1, and a shard refuses one whose predecessor it never saw, unless that one is marked as the
    first of a run. So a block that may or may not have come is sent again with all after it, in order, and lands once.

    Args:
        transport: How to reach the shard.
        shard: Its number.
        writer: Names the writer.
        schema: The fields of a step.
        lanes: The writer's lanes in the shard.
        clock: Seconds.

    Attributes:
        shard: As above.
        lanes: As above.
        down: Whether the shard does not answer.
        dropped: Steps that were dropped, as it did not answer.
        broken: Whether steps before the next one that is acknowledged may be missing in the shard.
        gaps: How often that was so.
        error: What the shard said to a block that it refused for good.
    """

    def __init__(
        self, transport: Transport, shard: int, writer: str, schema: Schema, lanes: Int64, clock: Callable[[], float]
    ) -> None:
        self._transport, self.shard, self._writer, self._clock = transport, shard, writer, clock
        self._schema, self.lanes = schema, lanes
        self._steps = steps_of(schema, len(lanes))
        self._sealed: deque[Filling] = deque()
        self._sent: deque[Sending] = deque()
        self._free: list[Filling] = []
        self._open = self._new()
        self._number = 0
        self._first, self._gap = True, False
        self.down, self._tried = False, 0.0
        self.dropped = self.gaps = 0
        self.broken = False
        self.error: ReliveError | None = None

    # Filling.

    @property
    def open(self) -> Filling:
        """The block that is being filled."""
        return self._open

    @property
    def blocks(self) -> int:
        """How many wait for an acknowledgement, or to be sent."""
        return len(self._sealed) + len(self._sent)

    @property
    def steps(self) -> int:
        """Steps that no acknowledgement came for."""
        sent = sum(sending.filling.added for sending in self._sent)
        return self._open.added + sum(filling.added for filling in self._sealed) + sent

    @property
    def busy(self) -> bool:
        """Whether something is to be sent or acknowledged, by a shard that answers."""
        return not self.down and (self.blocks > 0 or not self._open.empty)

    @property
    def must_wait(self) -> bool:
        """Whether there is no room for one more block, and the shard is there to take some."""
        return self.blocks >= MOST and not self.down

    def seal(self) -> None:
        """End the block that is being filled, if there is any. Of a shard that does not answer, the oldest goes."""
        if self._open.empty:
            return
        while self.blocks >= MOST and self._sealed:
            self._drop(self._sealed.popleft())
        if self._gap and not self._sealed:
            self._open.cut |= set(self.lanes.tolist())
            self._gap = False
        self._number += 1
        self._open.number = self._number
        self._sealed.append(self._open)
        self._open = self._new()

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

    def due(self) -> list[Sending]:
        """What is to be sent now; `send` it in this order, without the writer's lock.

        A shard that does not answer gets one block every now and then.
        """
        now = self._clock()
        if not self._open.empty and now - self._open.begun > HELD and not self.must_wait:
            self.seal()
        if self.down and (self._sent or now - self._tried < RETRY):
            return []
        begin = len(self._sent)
        while self._sealed and len(self._sent) < MOST:
            filling = self._sealed.popleft()
            arguments = (self._writer, filling.number, self._first, self.dropped, filling.block())
            self._sent.append(Sending(filling, arguments))
            self._first, self._tried = False, now
            if self.down:
                break
        return list(self._sent)[begin:]

    def send(self, due: list[Sending]) -> None:
        """Send blocks."""
        for sending in due:
            sending.promise = self._transport.call(self.shard, "add", *sending.arguments)

    def promises(self) -> list[Any]:
        """What was sent, in order."""
        return [sending.promise for sending in self._sent]

    def take(self, ready: list[bool]) -> None:
        """Take in the acknowledgements; `ready`: which of `promises` have come."""
        for done in ready:
            if not done:
                return
            filling = self._sent[0].filling
            try:
                if not self._transport.take(self._sent[0].promise):
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
        self._sealed.extendleft(sending.filling for sending in reversed(self._sent))
        self._sent.clear()
        self._first, self._tried, self.broken = True, self._clock(), True
