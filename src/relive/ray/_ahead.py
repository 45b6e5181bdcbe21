"""Draws one by one, and batches that are asked for before they are needed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeAlias

from .._base.types import UInt32
from .._flow.transform import Transform
from ..batch import Batch
from ..errors import NotEnoughData, StorageError
from ._drawing import Drawer, Request
from ._pace import Pace

# A batch that was asked for, and what its `rng` starts from.
Asked: TypeAlias = tuple[Request, UInt32]


class ShardDraws:
    """What one handle draws, one call after the other, as fast as its limiter allows.

    Args:
        drawer: Draws.
        pace: Its limiter, or None.

    Attributes:
        drawer: As above.
        pace: As above.
        lock: Held during a call.
        prefetching: How many prefetches are open.
    """

    def __init__(self, drawer: Drawer, pace: Pace | None) -> None:
        self.drawer, self.pace = drawer, pace
        self.lock = threading.RLock()
        self.prefetching = 0

    def one(self, size: int, beta: float | None) -> Batch:
        """A batch, as `Shards.sample` returns it."""
        with self.lock:
            if self.pace is not None:
                self.pace.wait(size, "Shards.sample")
            return self._collected(self.drawer.ask(size, beta))

    def next_of(
        self, requests: deque[Asked], size: int, depth: int, beta: float | None, transform: Transform
    ) -> tuple[Batch, UInt32]:
        """The next of some batches that were asked for, of which there are `depth` afterwards, and its seed."""
        with self.lock:
            if not requests:
                if self.pace is not None:
                    self.pace.wait(size, "Shards.prefetch")
                seed = transform.seed(self.drawer.rng)
                requests.append((self.drawer.ask(size, beta), seed))
            self._fill(requests, size, depth, beta, transform)
            request, seed = requests.popleft()
            batch = self._collected(request)
            self._fill(requests, size, depth, beta, transform)
            return batch, seed

    def _fill(self, requests: deque[Asked], size: int, depth: int, beta: float | None, transform: Transform) -> None:
        """Ask for as many as may be; what stands in the way of more is an error only when there is none."""
        while len(requests) < depth:
            if self.pace is not None and not self.pace.may(size * (len(requests) + 1)):
                return
            seed = transform.seed(self.drawer.rng)
            try:
                requests.append((self.drawer.ask(size, beta, alone=0.0), seed))
            except (NotEnoughData, StorageError):
                return

    def _collected(self, request: Request) -> Batch:
        batch = self.drawer.collect(request)
        if self.pace is not None:
            self.pace.drawn(request.n)
        return batch


class Ahead(Iterator[Batch]):
    """Batches of shards, `depth` of which are always asked for: an iterator, and a context manager.

    No thread is needed: the shards work while the learner does. Batches come in the order in which they were asked for.

    Args:
        draws: The handle's.
        size: Items of a batch.
        depth: How many are asked for ahead.
        beta: As in `Shards.sample`.
        transform: What a caller makes of them.
        convert: What is made of these.
    """

    def __init__(
        self,
        draws: ShardDraws,
        size: int,
        depth: int,
        beta: float | None,
        transform: Transform,
        convert: Callable[[Batch], Batch],
    ) -> None:
        self._draws, self._size, self._depth, self._beta = draws, size, depth, beta
        self._transform, self._convert = transform, convert
        self._requests: deque[Asked] = deque()
        self._begun = self._closed = self._looked = False

    def __iter__(self) -> Ahead:
        return self

    def __next__(self) -> Batch:
        if self._closed:
            raise StopIteration
        self._begin()
        try:
            batch, seed = self._draws.next_of(self._requests, self._size, self._depth, self._beta, self._transform)
            if not self._looked:
                self._looked = True
                self._draws.drawer.check_store(batch, self._depth)
            return self._convert(self._transform(batch, seed))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Ahead:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Drop what was asked for. May be called twice."""
        if self._begun and not self._closed:
            self._draws.prefetching -= 1
        self._closed = True
        self._requests.clear()

    def _end(self) -> None:
        """Close, and send the updates that would have gone with the next draw."""
        self.close()
        with self._draws.lock:
            self._draws.drawer.settle()

    def _begin(self) -> None:
        if not self._begun and not self._closed:
            self._begun = True
            self._draws.prefetching += 1
