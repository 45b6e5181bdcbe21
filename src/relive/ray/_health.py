"""The last status of each shard: what it said, whether it answers, what went with it when it died."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from .._base.types import Bool, Float64, Int64
from ..errors import event
from ._wire import ShardStatus, ShardUnavailable, Transport

# Seconds after which a shard that has said nothing is asked for its share, and one that is missing is asked again.
SILENT, RETRY = 0.05, 0.2
_LOG = logging.getLogger("relive")
_NOTHING = ShardStatus(0.0, 0, np.inf, 0.0, 0, 0, 0, 0, 0, 0)


class Health:
    """The last status of each shard.

    Args:
        transport: How to reach them.
        clock: Seconds.

    Attributes:
        statuses: What each said last.
        missing: Which do not answer.
        heard: When each said something, by the clock.
        lost: Steps that were in a shard when it died and did not come back, as far as this caller had heard of them.
        largest: The largest raw priority that any shard has heard of.
    """

    def __init__(self, transport: Transport, clock: Callable[[], float]) -> None:
        self._transport, self._clock = transport, clock
        count = transport.shards
        self.statuses: list[ShardStatus] = [_NOTHING] * count
        self.missing: Bool = np.zeros(count, bool)
        self.heard: Float64 = np.full(count, -np.inf)
        self.lost, self.largest = 0, 0.0
        self._past = self._past_stale = 0
        self._asked: dict[int, Any] = {}
        self._tried: Float64 = np.full(count, -np.inf)
        self._gone: Bool = np.zeros(count, bool)

    def hear(self, shard: int, status: ShardStatus) -> None:
        """Take in what a shard said."""
        before = self.statuses[shard]
        if status.life > before.life and self.heard[shard] > -np.inf:
            self.lost += max(0, before.size - status.kept)
            self._past += max(0, before.added - status.kept)
            self._past_stale += before.stale
        if self.missing[shard]:
            what = f"Shard {shard} is back, with {status.size} steps"
            _LOG.warning("%s", event(what, "relive.ray"))
        self.statuses[shard], self.missing[shard] = status, False
        self.heard[shard] = self._clock()
        self.largest = max(self.largest, status.largest)

    def taken(self, shard: int, promise: Any, done: bool = True, late: str = "", status_at: int = -1) -> Any:
        """Return a shard's reply to a call, and take in the status there; None, and the shard is missing, without one.

        Args:
            shard: Its number.
            promise: The call.
            done: Whether the promise is kept or broken.
            late: Why the shard counts as missing, where it is neither.
            status_at: The status's position in the reply, if that is more than a status.
        """
        if not done:
            self.miss(shard, late)
            return None
        try:
            reply = self._transport.take(promise)
        except ShardUnavailable as error:
            self.miss(shard, str(error), error.final)
            return None
        self.hear(shard, reply if isinstance(reply, ShardStatus) else reply[status_at])
        return reply

    def miss(self, shard: int, why: str, final: bool = False) -> None:
        """Note that a shard did not answer."""
        if not self.missing[shard]:
            last = self.statuses[shard]
            left = f"; it had {last.size} steps. Draws go on with the others" if last else ""
            _LOG.warning("%s", event(f"Shard {shard} does not answer ({why}){left}", "relive.ray"))
        if final and not self._gone[shard]:
            self._gone[shard] = True
            self.lost += self.statuses[shard].size
            self.statuses[shard] = self.statuses[shard]._replace(size=0)
        self.missing[shard] = True
        self._tried[shard] = self._clock()

    @property
    def added(self) -> int:
        """Steps added to all shards, those that were lost included."""
        return self._past + sum(status.added for status in self.statuses)

    @property
    def stale(self) -> int:
        """Updates that shards dropped, in all their lives."""
        return self._past_stale + sum(status.stale for status in self.statuses)

    def look(self, asked: Collection[int] = ()) -> None:
        """Take in what shards answered, and ask those that have been silent; nothing is waited for.

        Args:
            asked: Shards that are about to say something anyway.
        """
        now = self._clock()
        if self._asked:
            self._harvest(0.0)
        since = np.where(self.missing, np.maximum(self._tried, self.heard), self.heard)
        due = np.flatnonzero((now - since > np.where(self.missing, RETRY, SILENT)) & ~self._gone)
        for shard in due.tolist():
            if shard not in asked:
                self._ask(shard)

    def hear_all(self, timeout: float, alone: float = 0.0) -> None:
        """Ask all shards, and wait for their answers: at most so long; while none answers, `alone` seconds at most."""
        for shard in np.flatnonzero(~self._gone).tolist():
            self._ask(shard)
        begun, heard = self._clock(), False
        while self._asked:
            left = begun + (timeout if heard else max(timeout, alone)) - self._clock()
            if left <= 0:
                break
            heard |= self._harvest(min(0.05, left))
        if alone > 0 and not heard:
            for shard in self._asked:
                self.miss(shard, f"no answer within {self._clock() - begun:.0f} s")

    def masses(self) -> Float64:
        """Return the totals of the shards that answer; 0 for the others."""
        return np.where(self.missing, 0.0, [status.total for status in self.statuses])

    def counts(self) -> Int64:
        """Return the numbers of their items, likewise."""
        return np.where(self.missing, 0, np.array([status.items for status in self.statuses], np.int64))

    def _ask(self, shard: int) -> None:
        if shard not in self._asked:
            self._asked[shard] = self._transport.call(shard, "share", self.largest)
            self._tried[shard] = self._clock()

    def _harvest(self, timeout: float) -> bool:
        """Take in what shards answered; return whether one did that is alive."""
        heard = False
        shards = list(self._asked)
        ready = self._transport.wait([self._asked[shard] for shard in shards], timeout)
        for shard, done in zip(shards, ready, strict=True):
            if done:
                heard |= self.taken(shard, self._asked.pop(shard)) is not None
        return heard
