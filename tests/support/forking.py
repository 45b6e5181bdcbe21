"""Children of a test that do something meanwhile."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def forked(work: Callable[[], object], endless: bool = False) -> Iterator[int]:
    """Let a child, whose id the block gets, do `work` meanwhile; `endless` work is killed where the block ends."""
    child = os.fork()
    if child == 0:
        if endless and sys.platform == "linux":  # should this process be killed, the child goes with it
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(code)
    try:
        yield child
    finally:
        if endless:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    assert status == (signal.SIGKILL if endless else 0)
