"""One call of a buffer at a time."""

from __future__ import annotations

import threading
from types import TracebackType

from .errors import ReliveError, message


class Turn:
    """Lets one thread at a time into a `with` block, and refuses a second entry of the same thread.

    A signal handler may call the buffer in the middle of another call of the same thread. Waiting would be a deadlock,
    and going on would change data under the outer call, so such calls are refused. Calls that only read, and native
    ones that run to their end, take `lock` alone.

    Attributes:
        lock: Held inside the block; re-entrant.
        busy: Whether a thread is inside the block.
    """

    __slots__ = ("busy", "lock")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.busy = False

    def __enter__(self) -> None:
        self.lock.acquire()
        if self.busy:
            self.lock.release()
            raise self.refusal()
        self.busy = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.busy = False
        self.lock.release()

    @staticmethod
    def refusal() -> ReliveError:
        """The error of a call inside another one."""
        got = "one from inside another call of the same thread"
        remedy = "set a flag in the signal handler, and call once that call has returned; `stats()` is allowed"
        return ReliveError(message("one call at a time", got, "ReplayBuffer", remedy))
