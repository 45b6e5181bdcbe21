"""`hold`: several calls of one thread see one state, and nothing that waits for another thread begins in between."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scalars import SCHEMA, lived, step
from whole_rows import native

import relive
from relive._ring import kernels
from relive.testing._lives import BACK_ENDS

STEP = step()
HELD = "Expected a call that may wait for other threads, got one inside a `with buffer.hold.*leave the block first"


@pytest.fixture(params=BACK_ENDS)
def buffer(request: pytest.FixtureRequest) -> Any:
    with kernels.use(request.param):
        yield lived(1, sampler=relive.Prioritized())


def waits_for_the_end(buffer: relive.ReplayBuffer, call: Callable[[], object]) -> None:
    """The call comes after the block, whatever this thread calls in it."""
    done = threading.Event()

    def run() -> None:
        call()
        done.set()

    thread = threading.Thread(target=run)
    with buffer.hold():
        thread.start()
        time.sleep(0.05)
        state = buffer.ids().tolist(), buffer.stats().added, len(buffer)
        for _ in range(20):
            buffer.read(buffer.sample(8).ids)
            time.sleep(0.001)
        assert (buffer.ids().tolist(), buffer.stats().added, len(buffer)) == state
        assert not done.is_set()
    thread.join()


@pytest.mark.parametrize("name", ["add", "extend", "sample", "update_priorities", "stats", "clear", "prefetch", "hold"])
def test_calls_of_other_threads_wait(buffer: relive.ReplayBuffer, name: str) -> None:
    def hold() -> None:
        with buffer.hold():
            buffer.add(**STEP)

    calls: dict[str, Callable[[], object]] = {
        "add": lambda: buffer.add(**STEP),
        "extend": lambda: buffer.extend(**{name: np.repeat(value, 2) for name, value in STEP.items()}),
        "sample": lambda: buffer.sample(2),
        "update_priorities": lambda: buffer.update_priorities([0], [1.0]),
        "stats": buffer.stats,
        "clear": buffer.clear,
        "prefetch": lambda: next(buffer.prefetch(4)),
        "hold": hold,
    }
    waits_for_the_end(buffer, calls[name])


def test_the_thread_sees_its_own_changes_and_may_nest(buffer: relive.ReplayBuffer) -> None:
    with buffer.hold():
        ids = buffer.add(**STEP)
        with buffer.hold():
            assert buffer.update_priorities(ids, [3.0]) == 1
        buffer.cut()
        assert buffer.priorities(ids).tolist() == pytest.approx([3.0])
        assert buffer.can_sample(2)
        assert len(list(buffer.batches(1))) == 2
    waits_for_the_end(buffer, lambda: buffer.add(**STEP))


def assert_another_thread_can(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def test_an_exception_ends_the_block(buffer: relive.ReplayBuffer) -> None:
    for error in (ValueError, KeyboardInterrupt, relive.StaleId):
        with pytest.raises(error), buffer.hold():
            raise error("in the block")
    assert_another_thread_can(lambda: buffer.add(**STEP))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="a Unix signal")
def test_interrupts_leave_nothing_behind(buffer: relive.ReplayBuffer) -> None:
    """Wherever they come, before, in and behind blocks, the lock is free in the end."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for turn in range(400):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 * (1 + turn % 40))
                while True:
                    with buffer.hold():
                        buffer.ids()
                        with buffer.hold():
                            buffer.sample(1)
            except KeyboardInterrupt:
                pass
            assert not buffer._core.lock.reentrant.held()
            assert not buffer._core.lock.taken()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    waits_for_the_end(buffer, lambda: buffer.add(**STEP))


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="a Unix signal")
def test_a_handler_may_call_in_a_block_and_not_in_a_call(buffer: relive.ReplayBuffer) -> None:
    found: list[Any] = []

    def handle(*_: Any) -> None:
        try:
            with buffer.hold():
                found.append(buffer.sample(1).ids.tolist())
        except relive.ReliveError as error:
            found.append(str(error))

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with buffer.hold():
            os.kill(os.getpid(), signal.SIGUSR1)
            assert found == [[0]]

        class Interrupted:
            def random(self, size: Any) -> Any:
                os.kill(os.getpid(), signal.SIGUSR1)
                return np.zeros(size)

        buffer.rng = Interrupted()  # type: ignore[assignment]
        for block in (nullcontext(), buffer.hold()):
            found.clear()
            with block:
                buffer.sample(1)
            assert found
            assert all("inside another call of the same thread" in each for each in found)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_waits_for_other_threads_is_refused(buffer: relive.ReplayBuffer, tmp_path: Path) -> None:
    limited = lived(4, limiter=relive.RateLimiter(1.0, min_size=4, error_buffer=8.0))
    with buffer.hold(), limited.hold():
        for call in (buffer.close, lambda: buffer.save(tmp_path / "a"), lambda: buffer.autosave(tmp_path / "b")):
            with pytest.raises(relive.ReliveError, match=HELD):
                call()
        with pytest.raises(relive.ReliveError, match=HELD):
            limited.sample(50)
        assert len(limited.sample(2).ids) == 2
        with pytest.raises(relive.ReliveError, match=HELD):
            _ = [limited.add(**STEP) for _ in range(100)]
    assert not list(tmp_path.iterdir())
    assert_another_thread_can(lambda: limited.sample(2) and limited.add(**STEP))
    buffer.save(tmp_path / "a")
    buffer.close()
    with pytest.raises(relive.ReliveError, match="one that was closed"):
        buffer.hold()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
def test_a_fork_in_a_block_is_one_in_both_processes(buffer: relive.ReplayBuffer) -> None:
    with buffer.hold():
        child = os.fork()
        if not child:
            good = buffer.ids().tolist() == [0] and buffer._core.lock.reentrant.held()
            os._exit(0 if good else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert buffer.ids().tolist() == [0]


@native
def test_writers_of_other_processes_go_on() -> None:
    with relive.ReplayBuffer(SCHEMA, 100, num_envs=2, storage=relive.Shared()) as shared, shared.hold():
        child = os.fork()
        if not child:
            with relive.Writer(shared.storage.name, [1]) as writer:
                writer.add(**STEP)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert shared.ids().tolist() == [1]
