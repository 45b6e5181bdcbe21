"""Batches that a background thread draws while the learner works on earlier ones."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from numpy import ndarray

from .._base import check, forks
from .._base.extras import needs
from ..batch import AnyBatch, Batch
from ..errors import ArgumentError, ReliveError, event, message
from .limit import WaitStopped

if TYPE_CHECKING:
    from typing import NamedTuple as Record
else:
    from .._base.frozen import Record

Draw = Callable[[Callable[[], bool]], Batch]


class DrawsAhead(Record):
    """A thread's draws from one source, ahead.

    Attributes:
        draw: Draws a batch, given a function that tells whether it is no longer needed.
        handed_out: Called for each batch that a caller gets.
        dropped: Called once, when what was drawn is dropped.
    """

    draw: Draw
    handed_out: Callable[[], None]
    dropped: Callable[[], None]


class Prefetched(Iterator[AnyBatch]):
    """Batches that a thread draws ahead: an iterator, and a context manager whose end stops the thread.

    The thread starts with the first batch, or when the `with` block is entered. It does not keep this object alive:
    once it is collected, the thread ends.

    Args:
        draw: Draws a batch, given a function that tells whether it is no longer needed.
        depth: How many batches wait at most.
        batches: How many there are in all; None: they never end.
        handed_out: Called for each batch that a caller gets.
        dropped: Called once, when what was drawn is dropped.
        at: The name of the call, for errors.
    """

    def __init__(
        self,
        draw: Draw,
        depth: int,
        *,
        batches: int | None = None,
        handed_out: Callable[[], None] | None = None,
        dropped: Callable[[], None] | None = None,
        at: str,
    ) -> None:
        self._worker = worker = _Worker(draw, dropped)
        self._handed_out, self._at = handed_out, at
        self._unordered, self._left = batches, batches
        for _ in range(depth):
            self._order()
        if batches == 0:
            self._worker.stop()
        # Not the atexit of `weakref`: a thread that is being stopped there has to be waited for, too.
        weakref.finalize(self, worker.stop).atexit = False

    def __iter__(self) -> Prefetched:
        return self

    def __next__(self) -> AnyBatch:
        worker = self._worker
        if worker.stopped:
            raise StopIteration
        worker.start(self._at)
        made: AnyBatch | _Failure = worker.ready.get()
        if worker.stopped or isinstance(made, _Failure):
            self.close()
            if isinstance(made, _Failure) and made.error is not None:
                if isinstance(made.error, StopIteration):  # which would look like the end of the batches
                    raise ReliveError(event("The source raised `StopIteration`", self._at)) from made.error
                raise made.error
            raise StopIteration
        if self._handed_out is not None:
            self._handed_out()
        self._order()
        if self._left is not None:
            self._left -= 1
            if not self._left:
                self.close()
        return made

    def __enter__(self) -> Prefetched:
        if not self._worker.stopped:
            self._worker.start(self._at)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the thread, and drop the batches that wait. May be called twice."""
        self._worker.stop()
        self._worker.join()

    def _order(self) -> None:
        """Order one more batch from the thread."""
        if self._unordered is not None:
            if not self._unordered:
                return
            self._unordered -= 1
        self._worker.orders.put(True)


class _Failure:
    """An error in the queue of batches, or the sign that there are no more."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class _Worker:
    """The state of the thread. A finalizer may use its queues, in whichever thread that runs."""

    def __init__(self, draw: Draw, dropped: Callable[[], None] | None) -> None:
        self._draw, self._dropped = draw, dropped
        self.orders: SimpleQueue[bool] = SimpleQueue()
        self.ready: SimpleQueue[Any] = SimpleQueue()
        self.stopped = False
        self._thread: threading.Thread | None = None
        self._process = 0

    def start(self, at: str) -> None:
        """Start the thread if it has not been started."""
        if self._thread is None:
            self._process = os.getpid()
            self._thread = threading.Thread(target=self._run, name="relive-prefetch", daemon=True)
        if self._thread.ident is None:
            _WORKERS.add(self)
            forks.tell(self)
            self._thread.start()
        elif self._process != os.getpid():
            what = "The thread that draws stayed in the process that this one was forked from"
            raise ReliveError(event(what, at, "draw ahead in the process that uses the batches"))

    def _forked(self) -> None:
        """Drop everything drawn ahead in a child, which must not hand it out."""
        if self._process and self._dropped is not None:
            self._dropped()

    def stop(self) -> None:
        """Make the thread end, and a caller that waits for a batch go on. Called by a finalizer, too."""
        if not self.stopped:
            self.stopped = True
            if self._dropped is not None:
                self._dropped()
            self.orders.put(False)
            self.ready.put(_Failure())

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread to end, unless it is this one."""
        thread = self._thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(timeout)

    def _run(self) -> None:
        while self.orders.get() and not self.stopped:
            made: Batch | _Failure
            try:
                made = self._draw(self._is_stopped)
            except WaitStopped:
                return
            except BaseException as error:
                made = _Failure(error)
            self.ready.put(made)
            if isinstance(made, _Failure):
                return

    def _is_stopped(self) -> bool:
        return self.stopped


def converter(to: Any, device: Any, at: str = "ReplayBuffer.prefetch") -> Callable[[Batch], Batch]:
    """Return the function that converts batches to another library's arrays.

    Raises:
        ArgumentError: There is no such library, or a device without one.
        MissingExtra: It is not installed.
    """
    name = check.one_of("numpy" if to is None else to, ("numpy", "torch", "jax"), f"{at}(to)")
    if name == "numpy":
        if device is not None:
            raise ArgumentError(message('`to="torch"` or `to="jax"`', f"a device, `{device!r}`", f"{at}(device)"))
        return lambda batch: batch
    # Here, not in the thread: a missing package is the caller's error, and some must be loaded by the main thread.
    with needs(name, at):
        if name == "torch":
            import torch

            place = None if device is None else torch.device(device)
            return lambda batch: batch.torch(place)
        import jax
    if device is None:
        return Batch.jax

    def put(array: Any) -> Any:
        return array if type(array) is ndarray else jax.device_put(array, device)  # ids of 64 bits stay as they are

    return lambda batch: batch.jax().map(put)


# All that may have a thread. At the end of the interpreter a thread inside a library's code would be torn down.
_WORKERS: weakref.WeakSet[_Worker] = weakref.WeakSet()


def _stop_all() -> None:
    for worker in list(_WORKERS):
        worker.stop()
    for worker in list(_WORKERS):
        worker.join(10)


atexit.register(_stop_all)
