"""Batches drawn in the background while the learner works on the previous one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from .. import _check
from ..batch import Batch
from ..errors import ArgumentError, message
from ..mixture import Sampled


class Prefetch(Iterator[Batch]):
    """Iterate over batches of `source`; a thread draws up to `ahead` of them in advance.

    Args:
        source: Anything with `sample(n)`: a `TrajectoryReplayBuffer`, a `Mixture`, a `ReplayBuffer`.
        batch_size: Rows of a batch.
        batches: How many batches to draw; None draws until `close`.
        ahead: How many batches to draw in advance, >= 1.

    If a draw fails, its error is raised in place of its batch, and the iteration ends. Leaving a `with` block, or
    `close`, stops the thread and the iteration.

    Raises:
        ArgumentError: An argument is outside its limits, or `source` has no `sample`.

    >>> import numpy as np
    >>> from relive.trajectories import Trajectory, TrajectoryReplayBuffer
    >>> buffer = TrajectoryReplayBuffer(seed=0)
    >>> buffer.add_trajectories([Trajectory(rewards=np.zeros((5, 2, 1)))])
    >>> with Prefetch(buffer, batch_size=4, batches=3) as batches:
    ...     [batch.rewards.shape for batch in batches]
    [(4, 1), (4, 1), (4, 1)]
    """

    def __init__(self, source: Sampled, batch_size: int, *, batches: int | None = None, ahead: int = 2) -> None:
        if not callable(getattr(source, "sample", None)):
            got = f"`{type(source).__name__}`"
            raise ArgumentError(message("something with `sample`", got, "Prefetch(source)"))
        self._source = source
        self._size = _check.integer(batch_size, "Prefetch(batch_size)", minimum=1)
        self._left = None if batches is None else _check.integer(batches, "Prefetch(batches)", minimum=0)
        self._ahead = _check.integer(ahead, "Prefetch(ahead)", minimum=1)
        self._ready: deque[Batch] = deque()
        self._change = threading.Condition()
        self._error: BaseException | None = None
        self._over = self._left == 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="relive-prefetch", daemon=True)
        self._thread.start()

    def __iter__(self) -> Prefetch:
        return self

    def __next__(self) -> Batch:
        with self._change:
            while not self._ready and not self._over and not self._closed:
                self._change.wait()
            if self._ready and not self._closed:
                batch = self._ready.popleft()
                self._change.notify_all()
                return batch
            error, self._error = self._error, None
        self.close()
        if error is not None:
            raise error
        raise StopIteration

    def __enter__(self) -> Prefetch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the thread, and drop batches drawn in advance. May be called twice."""
        with self._change:
            self._closed = True
            self._ready.clear()
            self._change.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._change:
                while len(self._ready) >= self._ahead and not self._closed:
                    self._change.wait()
                if self._closed or self._over:
                    return
            try:
                batch = self._source.sample(self._size)
            except BaseException as error:
                with self._change:
                    self._error, self._over = error, True
                    self._change.notify_all()
                return
            with self._change:
                self._ready.append(batch)
                if self._left is not None:
                    self._left -= 1
                    self._over = self._left == 0
                self._change.notify_all()
