"""Ctrl-C at any line of every call: the call has happened or it has not, and the buffer goes on.

Lines of every function that a call runs are interrupted; in the long mode, all of them.

`sample` may have moved the generator; then the clock of beta has moved, too.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import LONG, some, some_of_each
from interrupted_lives import (
    BACK_ENDS,
    LANES,
    ROWS,
    SAMPLERS,
    SCHEMA,
    Interrupt,
    Recorded,
    RecordedShared,
    Streams,
    Twins,
    assert_one_of,
    calls,
    interrupted_at,
    let_go,
    lived,
    prioritizes,
    run,
    seen,
)
from wild_envs import SCHEMAS

import relive
from relive._ring import kernels as _kernels
from relive.testing import OracleBuffer, TransitionsModel, assert_same_buffer
from relive.testing._lives import feed, life

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")

# What is the same for all samplers, and long: one case goes through all its lines, each other one through some others.
SHARED = ("writing.", "_step_parser.", "_arguments.", "ring.", "rows.", "_nests.", "_fields.", "_journal.")
THOROUGH = {"add behind a cut", "cut"}
CASES = [(sampler, kernels) for kernels in BACK_ENDS[::-1] for sampler in SAMPLERS]


def interrupted(twins: Twins, moments: Any) -> int:
    """Interrupt a call at one of these lines of each function; return their number."""
    chosen = some_of_each(moments, lambda at: twins.lines[at], 1)
    for at in chosen:
        twins.interrupt(at)
    return len(chosen)


@pytest.mark.parametrize(("sampler", "kernels"), CASES if LONG else CASES[: len(SAMPLERS)])
def test_a_call_interrupted_at_any_line_has_happened_or_not(sampler: str, kernels: str, record_property: Any) -> None:
    functions: set[str] = set()
    cases = 0
    for steps in (5, 23) if kernels == "native" else (11,):
        with _kernels.use(kernels):
            buffer, streams = lived(SAMPLERS[sampler], steps)
        for name in calls(buffer, streams):
            twins = Twins(buffer, streams, name)
            functions.update(twins.lines)
            writes = name.startswith(("add", "extend"))
            all_lines = not writes or (sampler == "prioritized" and steps < 23 and name in THOROUGH)
            moments: list[int] = []
            skipped = steps + 7 * list(SAMPLERS).index(sampler)
            for at, line in enumerate(twins.lines):
                skipped += line.startswith(SHARED)
                if all_lines or not line.startswith(SHARED) or skipped % 43 == 0:
                    moments.append(at)
            cases += interrupted(twins, moments)
    record_property("cases", cases)
    if sampler == "prioritized" and kernels == "numpy":
        assert {"journal.Journal.__exit__", "tree.Tree.update"} <= functions
    if kernels == "numpy":
        assert {"writing.Writing.forget_newest", "writing.Writing._drop", "ring.Ring.write"} <= functions


@pytest.mark.parametrize("how", ["loaded", "shared"])
def test_calls_of_other_buffers_are_interrupted(how: str, folder: Path, record_property: Any) -> None:
    """Interrupt calls of a loaded buffer, and of one in shared memory."""
    if how == "shared" and not _kernels.is_native():
        pytest.skip("the NumPy kernels cannot share")
    buffer, streams = lived(SAMPLERS["prioritized"], 23, RecordedShared() if how == "shared" else None)
    if how == "loaded":
        buffer.save(folder)
        buffer = relive.load(folder, storage=Recorded())
    cases = 0
    for name in calls(buffer, streams):
        twins = Twins(buffer, streams, name)
        cases += interrupted(twins, range(len(twins.lines)))
    record_property("cases", cases)
    buffer.close()


@pytest.mark.parametrize("name", ["add", "extend", "sample"])
def test_a_call_with_a_limiter_interrupted_at_any_line_has_happened_or_not(name: str) -> None:
    streams = Streams()

    def build() -> tuple[relive.ReplayBuffer, Callable[[], object]]:
        limiter = relive.RateLimiter(4, min_size=1, error_buffer=64, timeout=60)
        buffer = relive.ReplayBuffer(SCHEMA, LANES * ROWS, num_envs=LANES, limiter=limiter, seed=1)
        buffer.add(**copy.deepcopy(streams).step())
        return buffer, calls(buffer, streams)[name]

    def moved(buffer: relive.ReplayBuffer) -> int:
        counted = buffer.stats().limiter
        return counted.samples if name == "sample" else counted.inserts

    buffer, call = build()
    before, lines = moved(buffer), run(call)
    after = moved(buffer)
    for at in some_of_each(range(len(lines)), lines.__getitem__, 2):
        buffer, call = build()
        with contextlib.suppress(Interrupt):
            run(call, interrupted_at(at))
        assert moved(buffer) in (before, after)
        assert not buffer._core.lock.taken()
        thread = threading.Thread(target=buffer.sample, args=(4,))  # no lock is left behind
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        call()


@pytest.mark.slow
def test_a_save_interrupted_at_any_line_is_complete_or_not_there(folder: Path, record_property: Any) -> None:
    """Check that the buffer can be saved again, and that a load gives one of its states."""
    buffer, streams = lived(SAMPLERS["prioritized"], 23)
    buffer.save(folder)
    buffer.add(**streams.step())
    states = [relive.load(folder), pickle.loads(pickle.dumps(buffer))]
    expected = [seen(state, streams) for state in states]
    lines = run(lambda: pickle.loads(pickle.dumps(buffer)).save(folder / "elsewhere"))
    moments = some(range(0, len(lines), 251), 10)
    record_property("cases", len(moments))
    for at in moments:
        with contextlib.suppress(Interrupt):
            run(lambda: buffer.save(folder), interrupted_at(at))
        let_go(buffer)
        assert_one_of(expected, seen(relive.load(folder), streams))
    buffer.save(folder)
    np.testing.assert_equal(seen(relive.load(folder), streams), expected[1])
    np.testing.assert_equal(seen(buffer, streams), expected[1])


class Impatient:
    """Makes calls that a real signal interrupts at a random moment, twice at most, until they have happened."""

    def __init__(self, buffer: relive.ReplayBuffer) -> None:
        self.buffer, self.interrupts, self._armed = buffer, 0, False
        self._random = random.Random(0)

    def handler(self, *_: object) -> None:
        if self._armed:
            raise Interrupt

    def insist(self, job: Callable[[], object], repeatable: bool) -> None:
        for _ in range(2):
            before = self.buffer._core.ring.counters.tobytes()
            if self._attempt(job):
                return
            self.interrupts += 1
            if not repeatable and self.buffer._core.ring.counters.tobytes() != before:
                return
        job()

    def _attempt(self, job: Callable[[], object]) -> bool:
        try:
            try:
                self._armed = True
                signal.setitimer(signal.ITIMER_REAL, self._random.expovariate(1 / 150e-6) + 2e-6)
                job()
                return True
            finally:
                self._armed = False
        except Interrupt:
            self._armed = False
            return False


@contextmanager
def handled(number: int, handler: Any) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(number, before)


@pytest.mark.parametrize("sampler", some(SAMPLERS, 3))
def test_real_signals(sampler: str, record_property: Any) -> None:
    """Check that repeating interrupted calls gives the buffer of an undisturbed life."""
    item, size = relive.Transitions(n_step=2, gamma=0.5), {"capacity": 48, "num_envs": 3}
    buffer, twin = (
        relive.ReplayBuffer(SCHEMAS["frames"], **size, item=item, sampler=SAMPLERS[sampler], seed=seed)
        for seed in (1, 2)
    )
    oracle = OracleBuffer.of(buffer, TransitionsModel(2, 0.5))
    impatient, rng = Impatient(buffer), np.random.default_rng(0)
    with handled(signal.SIGALRM, impatient.handler):
        for number, call in enumerate(life(buffer, 90 if LONG else 45)):
            impatient.insist(lambda call=call: feed(buffer, call), repeatable=False)
            feed(twin, call, oracle)
            ids = np.array(list(oracle.items()) or [0])[-9:]
            if prioritizes(buffer) and oracle.items():
                errors = rng.random(len(ids))
                impatient.insist(lambda ids=ids, errors=errors: buffer.update_priorities(ids, errors), repeatable=True)
                twin.update_priorities(ids, errors)
            if twin.can_sample(4):
                impatient.insist(lambda: buffer.sample(4), repeatable=True)
            impatient.insist(lambda: buffer.can_sample(4), repeatable=True)
            impatient.insist(buffer.stats, repeatable=True)
            if number % 9 == 0:
                check(buffer, twin, oracle)
    check(buffer, twin, oracle)
    record_property("cases", impatient.interrupts)
    assert impatient.interrupts > (50 if LONG else 20)


def check(buffer: relive.ReplayBuffer, twin: relive.ReplayBuffer, oracle: OracleBuffer) -> None:
    """Check that both equal the oracle, with the same priorities, and draw the same items and weights."""
    for name in oracle.priority:  # the oracle is told of no updates
        oracle.priority[name] = 1.0
    assert_same_buffer(buffer, oracle)
    ids = list(oracle.items())
    np.testing.assert_array_equal(buffer.priorities(ids), twin.priorities(ids))
    if twin.can_sample(4):
        buffer.rng.bit_generator.state = twin.rng.bit_generator.state
        beta = 0.5 if prioritizes(buffer) else None
        ours, theirs = buffer.sample(4, beta=beta), twin.sample(4, beta=beta)
        np.testing.assert_array_equal(ours.ids, theirs.ids)
        np.testing.assert_array_equal(ours.weights, theirs.weights)


@pytest.mark.parametrize(("sampler", "name"), [("uniform", "cut"), ("prioritized", "update_priorities")])
def test_meta_half_a_change_is_found(sampler: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that without the journal's undoing some line of an interrupted call leaves neither buffer."""
    monkeypatch.setattr("relive._base.journal.Journal.__exit__", lambda *_: None)
    with _kernels.use("numpy"):
        buffer, streams = lived(SAMPLERS[sampler], 11)
    twins = Twins(buffer, streams, name)

    def lines() -> None:
        for at in some(range(len(twins.lines)), 40):
            twins.interrupt(at)

    with pytest.raises((AssertionError, IndexError)):
        lines()
