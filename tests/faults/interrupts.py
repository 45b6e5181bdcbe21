"""An interrupt before any line of relive's own that a call runs, and what a buffer is made of, to compare and restore.

The interpreter takes signals between instructions, but not on the way out of a `with` block: the line of `with` that is
traced there is left out.
"""

from __future__ import annotations

import ast
import dis
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import relive
from relive.storage import Ram

HOME = str(Path(relive.__file__).parent)


class Interrupt(KeyboardInterrupt):
    """Ctrl-C, by the test's own hand."""


class Recorded(Ram):
    """A storage that keeps the arrays which it handed out."""

    def open(self, spec: Any, identity: bytes) -> Any:
        memory = super(type(self), self).open(spec, identity)
        object.__setattr__(self, "arrays", [memory.host(name) for name in spec])
        return memory


class RecordedShared(relive.Shared):
    """The same in shared memory."""

    open = Recorded.open


def interrupted_at(line: int) -> Callable[[int], None]:
    """Return, for `run`, a function that raises before that line."""

    def before_line(number: int) -> None:
        if number == line:
            raise Interrupt

    return before_line


@cache
def _withs(filename: str) -> frozenset[int]:
    tree = ast.parse(Path(filename).read_text())
    return frozenset(node.lineno for node in ast.walk(tree) if isinstance(node, ast.With))


@cache
def _lines(code: CodeType) -> tuple[str, frozenset[int]]:
    """Return module and function, and the instructions at which the exit of a `with` block is traced."""
    path = Path(code.co_filename)
    entered: set[int] = set()
    ways_out: set[int] = set()
    for offset, line in dis.findlinestarts(code):
        if line in _withs(code.co_filename):
            (ways_out if line in entered else entered).add(offset if line in entered else line)
    return f"{path.stem}.{code.co_qualname}", frozenset(ways_out)


def run(call: Callable[[], object], before_line: Callable[[int], object] = lambda number: None) -> list[str]:
    """Make the call, with a call of `before_line` before each line; return the lines' modules and functions."""
    seen: list[str] = []

    def of_line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            name, ways_out = _lines(frame.f_code)
            if frame.f_lasti not in ways_out:
                before_line(len(seen))
                seen.append(name)
        return of_line

    def of_call(frame: FrameType, event: str, _: Any) -> Any:
        return of_line if frame.f_code.co_filename.startswith(HOME) else None

    before = sys.gettrace()
    sys.settrace(of_call)
    try:
        call()
    finally:
        sys.settrace(before)
    return seen


class State:
    """All that a buffer with a `Recorded` storage knows: taken, compared, and put back."""

    def __init__(self, buffer: relive.ReplayBuffer) -> None:
        self._buffer = buffer
        self._attributes = [(owner, dict(vars(owner))) for owner in _owners(buffer)]
        arrays = {id(array): array for array in _arrays(buffer, self._attributes)}
        touched = buffer._core.ring.touched  # only goes on, since readers remember what it was
        self._arrays = [(a, a.copy()) for a in arrays.values() if touched is None or not np.shares_memory(a, touched)]
        self.generator = buffer.rng.bit_generator.state
        self._watched = buffer._core.ring.kernel.watched

    def attribute(self, owner: object, name: str) -> Any:
        """Return the recorded value of an attribute."""
        return next(attributes[name] for found, attributes in self._attributes if found is owner)

    def restore(self) -> None:
        for owner, attributes in self._attributes:
            vars(owner).update(attributes)
        for array, copy in self._arrays:
            array[...] = copy
        self._buffer._core.ring.touched += 1
        self._buffer.rng.bit_generator.state = self.generator
        self._buffer._core.ring.kernel.watched = self._watched

    def holds(self) -> bool:
        """Return True if the buffer is in this state, to the last byte."""
        return (
            self._buffer.rng.bit_generator.state == self.generator
            and all(array.tobytes() == copy.tobytes() for array, copy in self._arrays)
            and all(
                _same(vars(owner)[name], value)
                for owner, attributes in self._attributes
                for name, value in attributes.items()
            )
        )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, (int, float)):
        return bool(one == other)
    return one is other


def _owners(buffer: relive.ReplayBuffer) -> Iterator[Any]:
    """Yield the buffer and every object of relive's own that it holds, however deep."""
    found: dict[int, Any] = {}
    waiting: list[Any] = [buffer]
    while waiting:
        owner = waiting.pop()
        if id(owner) not in found and type(owner).__module__.startswith("relive.") and hasattr(owner, "__dict__"):
            found[id(owner)] = owner
            waiting += vars(owner).values()
    yield from found.values()


def _arrays(buffer: relive.ReplayBuffer, attributes: list[tuple[Any, dict[str, Any]]]) -> Iterator[np.ndarray]:
    yield from buffer.storage.arrays  # type: ignore[attr-defined]
    for _, values in attributes:
        for value in values.values():
            while isinstance(value, np.ndarray) and isinstance(value.base, np.ndarray):
                value = value.base  # a kernel may have more of it
            if isinstance(value, np.ndarray):
                yield value
