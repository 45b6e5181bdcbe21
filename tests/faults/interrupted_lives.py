"""Calls that can be cut short anywhere: buffers that have lived, and what each looks like before and after a call."""

from __future__ import annotations

import ast
import copy
import dis
import gc
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

import relive
from relive.storage import Ram

BACK_ENDS = ["numpy", "native"]
LANES, ROWS = 2, 12
SCHEMA = relive.Schema(
    obs=relive.Field((2,), stack=2), action=relive.Field(), state=relive.Field((3,), "int16", every=1)
)
SAMPLERS = {
    "uniform": relive.Uniform(),
    "without replacement": relive.Uniform(replacement=False),
    "episodes": relive.Uniform(over="episodes"),
    "prioritized": relive.Prioritized(beta=relive.Anneal(0.1, 1.0, over=9), weights="buffer"),
    "prioritized without replacement": relive.Prioritized(replacement=False),
}


class Streams:
    """Two lanes of steps whose numbers never repeat; lane 1 ends an episode at every fourth step."""

    def __init__(self) -> None:
        self.now = np.array([[[0, 0], [1, 1]], [[0, 0], [1001, 1001]]], np.float32)
        self.clock = 0

    def step(self, lanes: Any = (0, 1), successor: bool = True, jump: float = 0) -> dict[str, Any]:
        lanes = list(lanes)
        self.clock += 1
        ended = np.array([lane == 1 and self.clock % 4 == 0 for lane in lanes])
        obs = self.now[lanes] + np.float32(jump)
        after = np.stack([obs[:, 1], obs[:, 1] + 1], axis=1)
        self.now[lanes] = np.where(ended[:, None, None], after + 50, after)
        number = np.full(len(lanes), self.clock, np.float32)
        state = np.full((len(lanes), 3), self.clock, np.int16)
        step = {"obs": obs, "action": number, "reward": number, "state": state}
        terminated = ended & (self.clock % 8 == 0)
        step |= {"terminated": terminated, "truncated": ended & ~terminated}
        return {**step, "next_obs": after} if successor else step


class Foreign:
    """Numbers that only Python can read."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self._values


def make(sampler: Any, storage: Any) -> relive.ReplayBuffer:
    item = relive.Transitions(n_step=2, gamma=0.5)
    return relive.ReplayBuffer(
        SCHEMA, LANES * ROWS, num_envs=LANES, item=item, sampler=sampler, storage=storage, seed=1
    )


def prioritizes(buffer: relive.ReplayBuffer) -> bool:
    return buffer.sampler.prioritizes


def lived(sampler: Any, steps: int, storage: Any = None) -> tuple[relive.ReplayBuffer, Streams]:
    """Make a buffer after some steps, updates and draws, with changes that its sampler has not taken in yet."""
    buffer, streams = make(sampler, storage or Recorded()), Streams()
    for t in range(steps):
        step = streams.step()
        buffer.add(**step, priority=[0.5, t + 1.0]) if t == 3 and prioritizes(buffer) else buffer.add(**step)
        if t % 3 == 2 and buffer.can_sample(4):
            batch = buffer.sample(4)
            if prioritizes(buffer):
                buffer.update_priorities(batch.ids, batch.reward + t)
    return buffer, streams


def calls(buffer: relive.ReplayBuffer, streams: Streams) -> dict[str, Callable[[], object]]:
    """Return calls by name, each of which can be repeated from the same state."""

    def steps(length: int) -> dict[str, Any]:
        its = copy.deepcopy(streams)
        several = [its.step() for _ in range(length)]
        return {name: np.stack([step[name] for step in several], axis=1) for name in several[0]}

    def step(*arguments: Any, **named: Any) -> dict[str, Any]:
        return copy.deepcopy(streams).step(*arguments, **named)

    newest = LANES * int(buffer._core.ring.counters[:, 0].min())
    ids = np.array([i for i in range(newest) if i < 2 or readable(buffer, i)])[[0, 1, -1, -2, -1]]
    every = step(), step(lanes=[1]), step(jump=500), step(successor=False), steps(2)
    whole, part, cut, waiting, several = every
    table: dict[str, Callable[[], object]] = {
        "add": lambda: buffer.add(**whole),
        "add, read in Python": lambda: buffer.add(**whole | {"reward": Foreign(whole["reward"])}),
        "add to one lane": lambda: buffer.add(**part, env_ids=[1]),
        "add behind a cut": lambda: buffer.add(**cut),
        "add without a successor": lambda: buffer.add(**waiting),
        "extend": lambda: buffer.extend(**several),
        "cut": buffer.cut,
        "clear": buffer.clear,
        "sample": lambda: buffer.sample(4),
        "can_sample": lambda: buffer.can_sample(3),
        "stats": buffer.stats,
    }
    if prioritizes(buffer):
        table["add with priorities"] = lambda: buffer.add(**whole, priority=np.array([0.0, 99.0]))
        errors = np.array([1.0, 2.0, 300.0, 40.0, 5.0])
        table["update_priorities"] = lambda: buffer.update_priorities(ids, errors)
        table["update_priorities, read in Python"] = lambda: buffer.update_priorities(ids, Foreign(errors))
    return table


def readable(buffer: relive.ReplayBuffer, number: int) -> bool:
    states = buffer._core.ring.locate(np.array([number]))[1]
    return states is None or not states[0]


def seen(buffer: relive.ReplayBuffer, streams: Streams) -> list[Any]:
    """Collect the caller's views of a buffer, now and after some further calls."""
    views: list[Any] = []
    further = copy.deepcopy(streams)
    for round_ in range(3):
        stats = buffer.stats()
        views += [stats.size, stats.drawable, stats.added, stats.cuts, stats.unbootstrapped, stats.ends]
        views += [stats.repeated_finals, stats.priority_quantiles]
        ids = [i for i in range(LANES * int(buffer._core.ring.counters[:, 0].max())) if readable(buffer, i)]
        views += [ids, dict(buffer.read(ids)), buffer.priorities(ids)]
        views.append(dict(buffer.sample(3)) if buffer.can_sample(3) else None)
        if prioritizes(buffer):
            views.append(buffer.update_priorities(ids[-4:], np.arange(4.0)[: len(ids)] + round_))
        buffer.add(**further.step(jump=2000))
    return views


def assert_one_of(views: list[list[Any]], ours: list[Any]) -> None:
    """Check that a buffer looks like one of two."""
    try:
        np.testing.assert_equal(ours, views[0])
    except AssertionError:
        np.testing.assert_equal(ours, views[1])


def let_go(buffer: relive.ReplayBuffer) -> None:
    """Check that no lock and no guard of a save stays."""
    gc.collect()  # what an interrupt leaves may refer to itself
    guard: Any = buffer._core.writer._watching()
    assert guard is None or (guard.limits > 2**62).all(), "nobody has to ask it any more"
    assert not buffer._core.lock.taken()


class Twins:
    """A buffer, and what it looks like where the call has not happened, and where it has."""

    def __init__(self, buffer: relive.ReplayBuffer, streams: Streams, name: str) -> None:
        self.buffer, self.streams, self.name = buffer, streams, name
        self.call = calls(buffer, streams)[name]
        self.before = State(buffer)
        self.lines = run(self.call)
        self.after, self.draws = State(buffer), self._draws()
        self.views = []
        for state in (self.before, self.after):
            state.restore()
            self.views.append(seen(buffer, streams))
        self.before.restore()
        self.known = [self.before, self.after]

    def interrupt(self, at: int) -> None:
        """Interrupt the call at a line; afterwards it has happened or it has not."""
        with pytest.raises(Interrupt):
            run(self.call, interrupted_at(at))
        self.settle()

    def settle(self) -> None:
        """See that the call has happened or has not, and go back to before it."""
        assert not self.buffer._core.lock.taken(), "the lock is held"
        if not any(state.holds() for state in self.known):
            self.known.append(State(self.buffer))  # looked at once
            if self.name == "sample":
                self.check_sample()
            else:
                assert_one_of(self.views, seen(self.buffer, self.streams))
        self.before.restore()

    def check_sample(self) -> None:
        """Check that the generator moved at most together with beta's clock, and that nothing else did."""
        moved = self.buffer.rng.bit_generator.state != self.before.generator
        self.buffer.rng.bit_generator.state = self.before.generator
        if prioritizes(self.buffer):
            assert self._draws() == self.draws or not moved
            self.buffer._core.index._weighing._draws[0] = self.draws - 1  # type: ignore[attr-defined]
        np.testing.assert_equal(seen(self.buffer, self.streams), self.views[0])

    def _draws(self) -> float:
        """Return the clock of beta."""
        index: Any = self.buffer._core.index
        return float(index._weighing._draws[0]) if prioritizes(self.buffer) else 0.0


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

    def restore(self) -> None:
        for owner, attributes in self._attributes:
            vars(owner).update(attributes)
        for array, kept in self._arrays:
            array[...] = kept
        self._buffer._core.ring.touched += 1
        self._buffer.rng.bit_generator.state = self.generator
        self._buffer._core.ring.kernel.watched = self._watched

    def holds(self) -> bool:
        """Return True if the buffer is in this state, to the last byte."""
        return (
            self._buffer.rng.bit_generator.state == self.generator
            and all(array.tobytes() == kept.tobytes() for array, kept in self._arrays)
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
