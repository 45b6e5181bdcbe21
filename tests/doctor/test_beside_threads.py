"""The doctor finds items that two threads have mixed, in every run the same, and nothing where a lock is right."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from depth import some_of_each
from gymnasium.vector import AutoresetMode
from sizes import with_sizes
from styles import Loop

from relive._ring import kernels
from relive.doctor import Item, Report, examine, pipelines
from relive.doctor._interleave import Beside, Lines
from relive.doctor._pipeline import Patient
from relive.doctor._threads import table_e
from relive.errors import ArgumentError

NAMES = ("obs", "reward", "bootstrap", "next_obs")
IN_ADD, IN_DRAW = "draws in mid-add", "adds in mid-draw"
# Where the buffer has its lock, and what is wrong then.
LOCKS = {
    "whole calls": set(),
    "whole calls, which may be nested": set(),
    "nowhere": {IN_ADD, IN_DRAW},
    "each write and read": {IN_ADD, IN_DRAW},
    "adds alone": {IN_ADD, IN_DRAW},
    "adds and drawn positions": {IN_DRAW},
}


class Columns(Loop):
    """Arrays that are written one after the other, and read likewise."""

    modes, lanes, threads = ("same_step",), 2, True

    def __init__(self, locks: str) -> None:
        super().__init__()
        lock = threading.RLock() if "nested" in locks else threading.Lock()
        open_, whole = contextlib.nullcontext(), "whole" in locks
        self._add = lock if whole or "adds" in locks else open_
        self._draw = lock if whole else open_
        self._choose = lock if "positions" in locks else open_
        self._each = lock if "each" in locks else open_

    def begin(self) -> None:
        self._capacity, self._count = self.lanes * self.rows, 0
        self._stored = {name: np.zeros(self._capacity) for name in NAMES}

    def add(self, lane: int, obs: Any, reward: float, terminated: bool, truncated: bool, final: Any) -> None:
        step = obs, reward, 0.5 * (not terminated), final
        with self._add:
            for name, value in zip(NAMES, step, strict=True):
                with self._each:
                    self._stored[name][self._count % self._capacity] = np.ravel(value)[0]
            self._count += 1

    def items(self) -> Item:
        filled = np.arange(min(self._count, self._capacity))
        return Item(*(self._stored[name][filled] for name in NAMES))

    def sample(self, n: int) -> Item:
        with self._draw:
            with self._choose:
                at = self.rng.integers(min(self._count, self._capacity), size=n)
            found = []
            for name in NAMES:
                with self._each:
                    found.append(self._stored[name][at])
            return Item(*found)


def torn(report: Report) -> dict[str, str]:
    return {finding.probe: finding.example for finding in report.findings if finding.table == "E"}


@pytest.mark.parametrize("locks", some_of_each(LOCKS, lambda locks: len(LOCKS[locks]), 1))
def test_mixed_items_are_found_in_each_run(locks: str) -> None:
    report = examine(lambda: Columns(locks), n_steps=1)
    again = table_e(Patient(lambda: Columns(locks), "again"), AutoresetMode.SAME_STEP, (1,), ())
    assert torn(report).keys() == LOCKS[locks]
    assert len(report.findings) == len(LOCKS[locks])
    assert [check for check in report.checks if check.table == "E"] == again
    assert {check.probe for check in again} == {IN_ADD, IN_DRAW}
    for finding in report.findings:
        assert "lock" in finding.remedy
        assert "before line" in finding.example
        assert "test_beside_threads.py: obs" in finding.example


def test_finalizers_that_the_garbage_collector_calls_do_not_count() -> None:
    class Old:
        pass

    def passed(garbage: bool) -> int:
        gc.collect()
        if garbage:
            old = Old()
            old.itself = old
            weakref.finalize(old, lambda: [1 for _ in range(9)])
            del old
        kept = []
        with Lines(lambda: None) as lines:
            for _ in range(5_000):
                kept.append([])
        return lines.passed

    assert passed(garbage=True) == passed(garbage=False)
    assert gc.isenabled()


def test_an_exception_of_a_draw_in_mid_add_is_found() -> None:
    class Moving(Columns):
        def add(self, *step: Any) -> None:
            kept, self._stored = self._stored, {}
            self._stored = kept
            super().add(*step)

    report = examine(lambda: Moving("whole calls"), n_steps=1)
    assert "`sample` raises `KeyError: 'obs'`" in torn(report)[IN_ADD]


def test_faults_that_need_no_threads_do_not_count() -> None:
    class Wrong(Columns):
        def items(self) -> Item:
            found = super().items()
            return found._replace(next_obs=found.next_obs + 1)

        def sample(self, n: int) -> Item:
            found = super().sample(n)
            return found._replace(next_obs=found.next_obs + 1)

    report = examine(lambda: Wrong("whole calls"), n_steps=1)
    assert {finding.table for finding in report.findings} >= {"A"}
    assert not torn(report)
    assert torn(examine(lambda: Wrong("nowhere"), n_steps=1)).keys() == {IN_ADD, IN_DRAW}


def test_the_table_is_for_buffers_that_are_used_from_threads() -> None:
    class Alone(Columns):
        threads = False

    class Drawless(Columns):
        sample = None

    assert {check.table for check in examine(lambda: Alone("nowhere"), n_steps=1).checks} == {"A", "B", "F"}
    report = examine(lambda: Drawless("nowhere"), n_steps=1)
    assert {check.table for check in report.checks} == {"A", "B"}
    assert any("and `threads = True`" in reason for reason in report.skipped)


class Open:
    """A lock that lets everyone in."""

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *raised: object) -> None: ...

    def taken(self) -> bool:
        return False

    def attempt(self) -> bool:
        return True

    still = attempt

    def forked(self) -> None: ...


@pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
@pytest.mark.parametrize("locked", [True, False])
def test_a_buffer_of_relive_is_whole_because_of_its_lock(locked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check with NumPy kernels, between whose lines another thread can run."""
    with with_sizes(lines=12), kernels.use("numpy"):
        if not locked:
            monkeypatch.setattr(kernels.active(), "Lock", Open)
        checks = table_e(Patient(pipelines.named("relive"), "relive"), AutoresetMode.SAME_STEP, (1,), ())
    assert {check.probe: bool(check.wrong) for check in checks} == {IN_ADD: False, IN_DRAW: not locked}


@with_sizes(patience=0.05)
def test_a_thread_that_does_not_come_back_is_named() -> None:
    over = threading.Event()

    def work(ready: Any) -> None:
        ready()
        over.wait(60)

    with Beside(work) as other:
        assert not other.turn()
        assert not other.turn()
        with pytest.raises(ArgumentError, match="Expected calls that end while no other call is made, got one that"):
            other.finish()
        over.set()


def test_what_a_thread_raises_is_raised_by_the_one_that_waits_for_it() -> None:
    def work(ready: Any) -> None:
        ready()
        raise KeyError("here")

    with Beside(work) as other:
        other.turn()
        with pytest.raises(KeyError, match="here"):
            other.finish()
        assert not other.turn()
