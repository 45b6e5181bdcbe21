"""Two threads of which one goes on only where the other one stands still, so that every run is the same."""

from __future__ import annotations

import gc
import re
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import gymnasium
import numpy as np

from relive.errors import ArgumentError, message

from .pipelines import _loops

_LOOK, _PATIENCE = 0.002, 10.0  # seconds from one look at a thread to the next, and until it counts as hung
# Looks at which a thread sleeps and has not moved since the one before: then it waits for a lock. A thread that waits
# for the interpreter wakes up every 5 ms. Only Linux says whether a thread sleeps; elsewhere it gets more time instead.
_LOOKS = 6 if sys.platform == "linux" else 25
_STATE = re.compile(r"^(?:State|\w*ctxt_switches):\s*(.*)$", re.MULTILINE)
# Nothing is stored there: the doctor itself, but for its pipelines, the standard library and what steps environments.
_OWN, _STANDARD = str(Path(__file__).parent), str(Path(re.__file__).parents[1])
_PASSED = ("<", str(Path(gymnasium.__file__).parent), str(Path(np.__file__).parent))


@cache
def _stores(path: str) -> bool:
    """Return whether the code of a file may store steps."""
    standard = path.startswith(_STANDARD) and "site-packages" not in path
    return not (standard or path.startswith(_PASSED) or str(Path(path).parent) == _OWN or path == _loops.__file__)


class _Over(BaseException):
    """Ends what a thread works at."""


class Beside:
    """A thread that works from one gate to the next, each time when it is told to.

    Args:
        work: What it does; it calls its argument at each gate.
    """

    def __init__(self, work: Callable[[Callable[[], None]], None]) -> None:
        self._work, self._over, self._ended = work, False, False
        self._go, self._idle = threading.Semaphore(0), threading.Event()
        self._error: BaseException | None = None
        self._waiting: list[str] | None = None  # its state when it was found waiting
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._work(self._ready)
        except _Over:
            pass
        except BaseException as error:  # raised by `finish`, in the other thread
            self._error = error
        finally:
            self._ended = True
            self._idle.set()

    def _ready(self) -> None:
        self._idle.set()
        self._go.acquire()
        if self._over:
            raise _Over

    def __enter__(self) -> Beside:
        self._thread.start()
        self.finish()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over = True
        self._go.release()
        self._thread.join(_PATIENCE)

    def turn(self) -> bool:
        """Let it go on to its next gate, unless it waits for something that the calling thread has.

        Returns:
            Whether it has arrived there.
        """
        if self._ended:
            return False
        if self._waiting is None:
            self._idle.clear()
            self._go.release()
        elif not self._idle.is_set() and self._waiting == self._state():
            return False
        self._waiting, same, before = None, 0, list[str]()
        while not self._idle.wait(_LOOK):
            state = self._state()
            same = same + 1 if state == before and state[0].startswith("S") else 0
            before = state
            if same == _LOOKS:
                self._waiting = state
                return False
        return True

    def finish(self) -> None:
        """Wait until it has arrived at a gate.

        Raises:
            ArgumentError: It does not arrive; it raised.
        """
        if not self._idle.wait(_PATIENCE):
            got = f"one that goes on for {_PATIENCE:g} s"
            raise ArgumentError(message("calls that end while no other call is made", got, "relive.doctor"))
        self._waiting = None
        if self._error is not None:
            raise self._error

    def _state(self) -> list[str]:
        """Return whether it sleeps, and how often it was woken up."""
        if sys.platform != "linux":
            return ["S"]
        return _STATE.findall(Path(f"/proc/self/task/{self._thread.native_id}/status").read_text())


class Lines:
    """Calls a function before each line of Python that this thread runs inside the block.

    Args:
        pause: The function.

    Attributes:
        on: Whether it is called now.
        passed: How often it was called.
    """

    def __init__(self, pause: Callable[[], None]) -> None:
        self._pause, self.on, self.passed, self._at = pause, True, 0, ("", 0)

    @property
    def at(self) -> str:
        """Position of the next line, in words."""
        return f"before line {self._at[1]} of {Path(self._at[0]).name}"

    def __enter__(self) -> Lines:
        self._outer, self._collects = sys.gettrace(), gc.isenabled()
        gc.disable()  # finalizers of other objects would run here, and their lines would count
        sys.settrace(self._trace)
        return self

    def __exit__(self, *raised: object) -> None:
        sys.settrace(self._outer)
        if self._collects:
            gc.enable()

    def _trace(self, frame: FrameType, event: str, value: Any) -> Any:
        return self._line if _stores(frame.f_code.co_filename) else None

    def _line(self, frame: FrameType, event: str, value: Any) -> Any:
        if event == "line" and self.on:
            self.passed += 1
            self._at = frame.f_code.co_filename, frame.f_lineno
            self._pause()
        return self._line
