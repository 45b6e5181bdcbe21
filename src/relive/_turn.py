"""Who may use a buffer at this moment."""

from __future__ import annotations

from contextlib import AbstractContextManager

from . import _kernels
from .errors import ReliveError, message


class Turn:
    """One thread at a time, and no call inside another one of the same thread.

    A signal handler may call the buffer in the middle of a call of its own thread. Waiting would never end, and going
    on would change what the outer call works on, so such calls are refused: ask `taken()`, then enter `lock`. Calls
    that only look need not ask.

    Nothing says that a call is being made but the lock itself, which C code takes and gives back: between an entry and
    its exit, wherever a KeyboardInterrupt is raised, nothing can be left behind.

    Attributes:
        lock: Re-entrant.
        taken: Whether this thread is inside a call.
    """

    __slots__ = ("lock", "taken")

    def __init__(self) -> None:
        self.lock = _kernels.active().Lock()
        self.taken = self.lock.taken

    def alone(self) -> AbstractContextManager[bool]:
        """The lock, for a `with` block that refuses to be entered twice.

        Raises:
            ReliveError: This thread is inside a call.
        """
        if self.taken():
            raise self.refusal()
        return self.lock

    @staticmethod
    def refusal() -> ReliveError:
        """Why a call inside another one is refused."""
        got = "one inside another call of the same thread"
        remedy = "set a flag in the signal handler, and call when that call has returned; only `stats()`, "
        remedy += "`can_sample()` and `len()` may be called at any time"
        return ReliveError(message("a call of its own", got, "ReplayBuffer", remedy))
