"""Ctrl-C as a wish to stop soon, not as an exception in the middle of an update."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

INTERRUPTED = 130  # exit status of a command that Ctrl-C ended


@contextlib.contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Give an event that the first Ctrl-C sets; a second one raises KeyboardInterrupt.

    Outside the main thread, where no signal arrives, the event stays unset.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def on_signal(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def children_deaf_to_interrupts() -> Iterator[None]:
    """Processes started inside ignore Ctrl-C from their first instruction on, also while they still import."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
