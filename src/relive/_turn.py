"""Who may use a buffer at this moment."""

from __future__ import annotations

import threading
from types import TracebackType

from .errors import ReliveError, message


class Turn:
    """Lets one thread at a time into a `with` block, and none of them twice.

    A signal handler may call the buffer in the middle of another call of the same thread. Waiting would never end, and
    going on would change what the outer call works on, so such calls are refused. Calls that only look, and native
    ones that run to their end, take `lock` alone.

    Attributes:
        lock: Held inside the block; re-entrant.
        busy: Whether a block is being run.
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
        """Why a call inside another one is refused."""
        got = "one inside another call of the same thread"
        remedy = "set a flag in the signal handler and call when that call has returned; `stats()` is allowed"
        return ReliveError(message("a call of its own", got, "ReplayBuffer", remedy))
