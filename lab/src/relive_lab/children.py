"""What processes of a run inherit: how many threads they use, and that Ctrl-C is for the process that started them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextlib.contextmanager
def one_thread_each() -> Iterator[None]:
    """Let processes started inside use one thread for linear algebra, unless the user says otherwise."""
    added = [name for name in ONE_THREAD if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@contextlib.contextmanager
def children_ignore_interrupts() -> Iterator[None]:
    """Let processes started inside ignore Ctrl-C from their first instruction on, also while they still import."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
