"""Waits for a limiter: who wakes whom, what ends them, what they say, and that they change nothing."""

from __future__ import annotations

import inspect
import itertools
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from depth import eventually, some, soon
from forked_storage import Forked
from forking import forked
from test_limiter import passes, state

import relive
from relive._flow import limit
from relive._ring import kernels
from relive.checkpoints._filling import fill_limiter

LANES = 2


def make(limiter: relive.RateLimiter, **choices: object) -> relive.ReplayBuffer:
    schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    return relive.ReplayBuffer(schema, 1000, num_envs=LANES, limiter=limiter, seed=0, **choices)


def add(buffer: relive.ReplayBuffer, **changes: object) -> np.ndarray:
    zeros, flags = np.zeros(LANES), np.zeros(LANES, bool)
    step = {"obs": zeros, "action": zeros, "reward": zeros, "next_obs": zeros}
    return buffer.add(**{**step, "terminated": flags, "truncated": flags, **changes})


def fill(buffer: relive.ReplayBuffer) -> None:
    """Add until the limiter does not allow more."""
    while buffer._core.limit.can_insert(LANES):
        add(buffer)


def calls_of(buffer: relive.ReplayBuffer, steps: int = 1) -> dict[str, Callable[[], object]]:
    """Return the calls that may wait."""
    zeros, flags = np.zeros((LANES, steps)), np.zeros((LANES, steps), bool)
    columns = dict.fromkeys(("obs", "action", "reward", "next_obs"), zeros)
    columns |= {"terminated": flags, "truncated": flags}
    return {
        "add": lambda: add(buffer),
        "extend": lambda: buffer.extend(**columns),
        "sample": lambda: buffer.sample(4),
        "prefetch": lambda: next(buffer.prefetch(4)),
    }


@pytest.mark.parametrize("rate", [0.5, 6.0])
def test_threads_keep_within_the_band(rate: float) -> None:
    limiter = relive.RateLimiter(rate, min_size=20, error_buffer=40, timeout=20)
    buffer, done, errors = make(limiter), [], []

    def draw() -> None:
        for _ in range(60):
            buffer.sample(8)
            errors.append(buffer.stats().limiter.error)
        done.append(True)

    def write() -> None:
        while len(done) < 2:
            add(buffer)
            errors.append(buffer.stats().limiter.error)

    with ThreadPoolExecutor() as pool:
        working = [pool.submit(work) for work in (draw, draw, write, write)]
        while not all(each.done() for each in working):
            time.sleep(0.001)
            if len(done) == 2 and buffer.can_sample(1):
                buffer.sample(1)  # for a writer who waits
    for each in working:
        each.result()
    found = buffer.stats().limiter
    assert found.samples >= 60 * 8 * 2
    assert min(errors[90:]) >= -40
    assert max(errors) <= 40
    assert found.inserts == pytest.approx(20 + found.samples / rate, abs=40 / rate)
    assert found.insert_waits + found.sample_waits > 0
    assert found.insert_seconds + found.sample_seconds > 0


@pytest.mark.parametrize("waits", ["sample", "add"])
def test_a_wait_ends_within_50_ms(waits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        time.sleep(seconds)

    monkeypatch.setattr(limit, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    buffer = make(relive.RateLimiter(2, min_size=4, error_buffer=8, timeout=30))
    calls, other = calls_of(buffer), {"sample": "add", "add": "sample"}[waits]
    if waits == "add":
        fill(buffer)
    else:
        add(buffer), add(buffer), buffer.sample(8)
    with ThreadPoolExecutor() as pool:
        for _ in range(2):
            pauses.clear()
            waiting = pool.submit(calls[waits])
            eventually(lambda: pauses)
            time.sleep(0.15)
            assert not waiting.done()
            calls[other]()
            waiting.result(30)
            assert max(pauses) <= 0.02  # however long it takes
    found = buffer.stats().limiter
    counts = (found.sample_waits, found.insert_waits)
    assert counts == ((2, 0) if waits == "sample" else (0, 2))
    assert found.sample_seconds + found.insert_seconds >= 0.3


@pytest.mark.parametrize("waits", ["sample", "add", "extend"])
@pytest.mark.parametrize("ends", ["timeout", "interrupt"])
def test_a_wait_that_is_ended_changes_nothing(waits: str, ends: str) -> None:
    limiter = relive.RateLimiter(2, min_size=4, error_buffer=8, timeout=0.1 if ends == "timeout" else 20)
    buffer = make(limiter)
    add(buffer) if waits == "sample" else fill(buffer)
    call, before, begin = calls_of(buffer)[waits], state(buffer), time.monotonic()
    if ends == "timeout":
        with pytest.raises(relive.RateLimitTimeout, match=r"^Waited for 0.1 s; .* - at `ReplayBuffer\.") as caught:
            call()
        assert {TimeoutError, relive.ReliveError} <= set(type(caught.value).__mro__)
        assert time.monotonic() - begin >= 0.1
    else:
        handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            with pytest.raises(KeyboardInterrupt):
                call()
        finally:
            signal.signal(signal.SIGALRM, handler)
    assert state(buffer) == before
    add(buffer) if waits == "sample" else buffer.sample(4)
    call()


def test_a_stall_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + seconds))
    monkeypatch.setattr(limit, "time", clock)
    buffer = make(relive.RateLimiter(2, min_size=4, error_buffer=6, timeout=8))
    with caplog.at_level(logging.WARNING, "relive"):
        fill(buffer)
        with pytest.raises(relive.RateLimitTimeout):
            add(buffer)
        with pytest.raises(
            relive.RateLimitTimeout, match="neither can go on: calls of 11 items and of 2 steps need an "
        ):
            buffer.sample(11)
    texts = [record.getMessage() for record in caplog.records if record.name == "relive"]
    assert texts == [
        "MainThread has waited for 5 s; 6 steps are added and 0 items drawn, and 2 more items have to be drawn before "
        "2 steps are added - at `ReplayBuffer.add`: draw in another thread or process",
        "MainThread has waited for 5 s; 6 steps are added and 0 items drawn, and 1 more steps have to be added before "
        "11 items are drawn - at `ReplayBuffer.sample`: neither can go on: calls of 11 items and of 2 steps need an "
        "`error_buffer` of 7.5",
    ]


def test_a_wait_that_could_never_end_is_refused() -> None:
    buffer = make(relive.RateLimiter(2, min_size=4, error_buffer=2))
    add(buffer), add(buffer)
    with pytest.raises(relive.ArgumentError) as caught:
        buffer.sample(5)
    assert str(caught.value) == (
        "Expected at most 4 items a call, got 5 - at `ReplayBuffer.sample`: raise the limiter's `error_buffer`"
    )
    with pytest.raises(relive.ArgumentError, match=r"^Expected at most 2 steps a call, got 4 - at "):
        calls_of(buffer, steps=2)["extend"]()
    assert buffer.stats().limiter.inserts == 4


def test_what_is_wrong_is_refused_without_a_wait() -> None:
    buffer = make(relive.RateLimiter(1, min_size=2, error_buffer=50))
    for call in (lambda: buffer.add(env_ids=3), lambda: buffer.extend(), lambda: add(buffer, action=np.zeros((9, 9)))):
        with pytest.raises(relive.ReliveError, match=r"^Expected "):
            call()
    with pytest.raises(TypeError, match="takes values by name"):
        buffer.add(1)
    assert buffer.stats().limiter.inserts == 0


@pytest.mark.skipif("_native" not in kernels.active().__name__, reason="these are the native kernels' calls")
def test_steps_are_written_by_the_native_kernels() -> None:
    plain, limited = make(None), make(relive.RateLimiter(1, min_size=100))
    for buffer in (plain, limited):
        add(buffer)
        assert buffer.stats().slow_adds == 0
    assert type(plain.add).__name__ == "Call"  # nobody is asked
    assert plain.stats().limiter is None
    assert inspect.signature(limited.add) == inspect.signature(plain.add)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_a_writer_in_another_process_waits_and_is_waited_for() -> None:
    limiter = relive.RateLimiter(2, min_size=10, error_buffer=20, timeout=20)
    buffer = make(limiter, storage=Forked())
    with forked(lambda: [add(buffer) for _ in range(100)]):
        eventually(lambda: not buffer._core.limit.can_insert(LANES))
        time.sleep(0.05)  # now it waits
        for _ in range(96):
            buffer.sample(4)
            assert abs(buffer.stats().limiter.error) <= 20
    found = buffer.stats().limiter
    assert (found.inserts, found.samples) == (200, 384)
    assert found.insert_waits > 0  # the child's


@pytest.mark.parametrize("width", [8, (0.0, 16.0)], ids=str)
def test_a_limiter_is_saved_with_its_buffer(width: float | tuple[float, float], tmp_path: Path) -> None:
    buffer = make(relive.RateLimiter(2, min_size=4, error_buffer=width, timeout=0))
    fill(buffer)
    buffer.sample(5)
    buffer.save(tmp_path)
    counted = buffer.stats().limiter
    for choices in ({}, {"capacity": 40}, {"sampler": relive.Prioritized()}):
        loaded = relive.load(tmp_path, **choices)
        assert (loaded.limiter, loaded.stats().limiter) == (buffer.limiter, counted)
        add(loaded)
        assert not passes(lambda loaded=loaded: add(loaded))
    changed = relive.load(tmp_path, limiter=relive.RateLimiter(3, min_size=5))
    assert (changed.stats().limiter.inserts, changed.stats().limiter.samples) == (5, 0)
    assert relive.load(tmp_path, lanes=[1]).stats().limiter.inserts == len(buffer) / 2 == 4
    assert "RateLimiter(samples_per_insert=2.0, min_size=4," in repr(buffer)


@pytest.mark.parametrize(
    "totals",
    [np.zeros(8), np.zeros(7, np.int64), np.array([-1, 0, 0, 0, 0, 0, 1, 0]), np.array([0, 0, 0, 0, 0, 1, 1, 0]),
     np.zeros(8, np.int64), np.array([2**62, 0, 0, 0, 0, 0, 1, 0])],
    ids=["floats", "too short", "negative", "begun before its steps", "not begun", "too many"],
)  # fmt: skip
def test_counts_that_no_limiter_has_are_refused(totals: np.ndarray) -> None:
    memory = relive.Ram().open({limit.NAME: limit.SPEC}, b"")
    with pytest.raises(ValueError, match="invalid counts of a limiter"):
        fill_limiter(memory, totals, steps=0)
    assert not memory.host(limit.NAME).any()


def refused(call: Callable[[], object]) -> str:
    """Return the error of a call that waits."""
    with ThreadPoolExecutor() as pool, pytest.raises(relive.ReliveError) as caught:
        pool.submit(call).result()
    return str(caught.value)


@pytest.mark.parametrize("storage", [relive.Ram, relive.Shared])
@pytest.mark.parametrize("waits", ["add", "extend", "sample", "prefetch", "writer"])
def test_closing_ends_all_waits(waits: str, storage: type) -> None:
    """Check for an error, as later calls have; waiting calls have changed nothing."""
    if storage is relive.Shared and not kernels.is_native():
        pytest.skip("needs the extension")
    if waits == "writer" and storage is relive.Ram:
        pytest.skip("nobody else writes to it")
    buffer = make(relive.RateLimiter(1, min_size=10, error_buffer=(6, 14), timeout=30), storage=storage())
    ring, calls = buffer._core.ring, calls_of(buffer)
    wanted = "Expected an open buffer"
    if waits == "writer":
        writer = buffer.writer()
        calls["writer"], wanted = lambda: add(writer), "Expected the process that made the buffer, got none"
    while waits in ("add", "extend", "writer") and ring.stored < 14:
        calls["writer" if waits == "writer" else "add"]()
    stored = ring.stored
    threading.Timer(0.05, buffer.close).start()
    text = refused(calls[waits])
    assert text.startswith(wanted), text
    assert ring.stored == stored


@pytest.mark.skipif(not kernels.is_native(), reason="needs the extension")
@pytest.mark.parametrize(("storage", "how"), some([*itertools.product(["shared", "mapped"], ["killed", "closed"])], 2))
def test_a_writer_whose_buffer_is_gone_is_told_within_a_second(storage: str, how: str, folder: Path) -> None:
    tries = itertools.count()
    soon(lambda: told_after(storage, how, folder / f"{next(tries)}"), 1.0)


def told_after(storage: str, how: str, path: Path) -> float:
    """Time how long a writer waits for a buffer that is gone."""
    store = relive.Shared() if storage == "shared" else relive.Mapped(path)
    ready, there = os.pipe()

    def child() -> None:
        buffer = make(relive.RateLimiter(1, min_size=10, error_buffer=4, timeout=30), storage=store)
        os.write(there, b"x")
        time.sleep(0.1)  # by then the writer waits
        if how == "closed":
            buffer.close()
            time.sleep(20)
        os.kill(os.getpid(), signal.SIGKILL)

    with forked(child, endless=True), open(ready, "rb"), open(there, "wb"):
        os.read(ready, 1)
        with relive.Writer(store.address) as writer:
            begin = time.monotonic()
            assert "got none: it ended, or closed the buffer" in refused(lambda: [add(writer) for _ in range(100)])
            return time.monotonic() - begin - 0.1


@pytest.mark.parametrize(("rate", "size", "limits"), [(0.3, 7, (2.2, 9.0)), (4, 3, (13, 30))])
def test_limits_above_the_start(rate: float, size: int, limits: tuple[float, float], tmp_path: Path) -> None:
    """Check that they are refused, as in Reverb; a save with some loads as an equivalent limiter."""
    words = rf"Expected a lower limit <= .*, {rate * size:g}, got .*: draws would wait for `min_size=(\d+)`"
    with pytest.raises(relive.errors.ArgumentError, match=words) as refused:
        relive.RateLimiter(rate, size, error_buffer=limits)
    remedy = int(re.search(words, str(refused.value)).group(1))  # type: ignore[union-attr]
    assert rate * (remedy - 1) < limits[0] <= rate * remedy
    assert relive.RateLimiter(rate, size, error_buffer=(rate * size, rate * size + 30)).least == rate * size
    old = relive.RateLimiter(rate, size, timeout=0)
    vars(old).update(error_buffer=limits)
    before = make(old)
    for _ in range(2):
        add(before)
    before.save(tmp_path)
    after = relive.load(tmp_path)
    assert after.limiter == relive.RateLimiter(rate, remedy, error_buffer=limits, timeout=0)
    for n in (1, 3, 1, 2, 5) * 8:
        may = [(buffer.can_sample(n), buffer._core.limit.can_insert(LANES)) for buffer in (before, after)]
        assert may[0] == may[1]
        for buffer in (before, after):
            if may[0][1]:
                add(buffer)
            if may[0][0]:
                buffer.sample(n)
    assert before.stats().drawn == after.stats().drawn > 0


@pytest.mark.parametrize("wrong", [(1, 2), (1,), (1, 2, 30), (5, 1), (0, float("inf")), ("a", 9), (float("nan"), 9)])
def test_wrong_pairs_are_refused(wrong: object) -> None:
    with pytest.raises(relive.errors.ArgumentError, match=r"RateLimiter\(error_buffer\)"):
        relive.RateLimiter(2, 10, error_buffer=wrong)
