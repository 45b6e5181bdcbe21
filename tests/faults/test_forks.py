"""A child that is forked at any moment works or refuses: it never waits for a thread that it does not have."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
import time
import timeit
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import eventually, soon
from storages import NAMES
from system_calls import watched

import relive
from relive.testing._lives import BACK_ENDS

FORKS = int(os.environ.get("RELIVE_FORKS", "1000"))
PATIENCE = 20  # seconds after which a child is taken to wait for ever
SCHEMA = relive.Schema(obs=relive.Field(64), action=relive.Field())
LANES = 3


def step(t: float, lanes: int = 1) -> dict[str, Any]:
    flags = np.zeros(lanes, bool)
    obs = np.full((lanes, 64), t)
    ends = {"terminated": flags, "truncated": flags}
    return {"obs": obs, "action": flags, "reward": flags, "next_obs": obs + 1, **ends}


@contextmanager
def at_work(*works: Callable[[], object]) -> Iterator[None]:
    """Let threads do `works` again and again while the block runs."""
    ended, failed = threading.Event(), []

    def repeat(work: Callable[[], object]) -> None:
        try:
            while not ended.is_set():
                work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not failed, failed


def in_a_child(work: Callable[[], object]) -> str:
    """Fork a child that does `work`; return "done", "refused", or its other end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of newer Pythons: there are threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(PATIENCE)
            work()
            code = 0
        except relive.errors.ReliveError:
            code = 2
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return {0: "done", 2: "refused"}.get(os.WEXITSTATUS(status), f"exit {os.WEXITSTATUS(status)}")


def made(storage: str, **choices: Any) -> relive.ReplayBuffer:
    store = {"ram": relive.Ram, "shared": relive.Shared}[storage]()
    buffer = relive.ReplayBuffer(
        SCHEMA, 3000, num_envs=LANES, sampler=relive.Prioritized(), storage=store, seed=0, **choices
    )
    for t in range(40):
        buffer.add(env_ids=[0, 1], **step(t, 2))
    return buffer


@pytest.mark.parametrize("forks", [7, pytest.param(FORKS // 2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("storage", [name for name in NAMES if name != "mapped"])
def test_a_child_works_or_refuses(storage: str, forks: int, folder: Path, record_property: Any) -> None:
    record_property("cases", forks)
    buffer = made(storage, limiter=relive.RateLimiter(1, 1, error_buffer=1e12))
    t, saves = [40.0], list[relive.Saved]()

    def add() -> None:
        t[0] += 1
        buffer.add(env_ids=[0, 1], **step(t[0], 2))

    def draw() -> None:
        batch = buffer.sample(random.choice((1, 64, 3000)))
        buffer.update_priorities(batch.ids, np.ones(len(batch.ids)))

    def save() -> None:
        with contextlib.suppress(relive.errors.ReliveError):  # a child may have written meanwhile
            saves.append(buffer.save(folder / "parent", wait=random.random() < 0.5))

    def draw_ahead() -> None:
        with buffer.prefetch(256) as batches:
            for _ in range(5):
                next(batches)

    def child() -> None:
        own = relive.load(folder / "first") if storage == "ram" and random.random() < 0.2 else buffer
        own.add(env_ids=[2], **step(0.0))
        own.save(folder / f"child-{os.getpid()}")
        with own.prefetch(64) as batches:
            assert len(next(batches).ids) == 64
        assert own.sample(1000).obs.shape == (1000, 64)
        own.read(own.sample(1).ids)
        own.update_priorities([0], [2.0])
        assert len(list(own.batches(500))) >= 1
        own.cut([2])
        assert len(own) == own.stats().size

    buffer.save(folder / "first")
    results = []
    with at_work(add, draw, draw, save, draw_ahead):
        for _ in range(forks):
            time.sleep(random.random() * 0.003)
            results.append(in_a_child(child))
    with contextlib.suppress(relive.errors.ReliveError):
        saves[-1].wait()
    buffer.close()
    # Others draw with samplers of their own: a child of the creator refuses to.
    assert set(results) == ({"done"} if storage == "ram" else {"refused"})


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("_buffer.prefetching", lambda buffer, _: buffer.prefetch(4).close()),
        ("checkpoints._saving", relive.ReplayBuffer.save),
    ],
)
def test_a_fork_waits_for_an_import(module: str, call: Callable[..., object], folder: Path) -> None:
    """Check that a child does not wait for a module that a thread of its parent was importing."""
    buffer, begun = made("ram"), threading.Event()
    buffer.save(folder / "first")

    class Slow:
        def find_spec(self, name: str, path: object, target: object = None) -> None:
            if name == f"relive.{module}":
                begun.set()
                time.sleep(0.2)

    def parent() -> None:  # a process of its own, since the module stays twice in one
        sys.modules.pop(f"relive.{module}", None)
        sys.meta_path.insert(0, Slow())
        thread = threading.Thread(target=call, args=(buffer, folder / "parent"))
        thread.start()
        assert begun.wait(PATIENCE)
        assert in_a_child(lambda: call(buffer, folder / "child")) == "done"
        thread.join()

    assert in_a_child(parent) == "done"


def test_a_child_that_is_forked_while_a_save_is_written_saves(folder: Path) -> None:
    """Check that the child neither waits for the parent's save nor copies rows for it."""
    go_on, buffer = threading.Event(), made("ram")

    def child() -> None:
        go_on.set()
        for t in range(4000):
            buffer.add(env_ids=[0], **step(t))
        saved = buffer.save(folder / "child", wait=False).wait(60)
        assert saved.done
        with pytest.raises(relive.errors.ReliveError, match="stayed in the process that this one was forked from"):
            saving.wait()
        with pytest.raises(relive.errors.StorageError, match="is being written there"):
            buffer.save(folder / "parent")

    with watched(BACK_ENDS[-1]) as system:
        system.before = lambda name, _: go_on.wait() if name == "write" else None
        saving = buffer.save(folder / "parent", wait=False)
        try:
            assert in_a_child(child) == "done"
            assert not saving.done
        finally:
            go_on.set()
        saving.wait()
    assert len(relive.load(folder / "parent")) == 80
    assert len(relive.load(folder / "child")) == 40 + 1000


def test_two_threads_fork_at_the_same_time() -> None:
    buffers, forks = [made("ram") for _ in range(3)], []

    def fork() -> None:
        forks.append(1)
        try:
            assert in_a_child(lambda: [buffer.sample(8) for buffer in buffers]) == "done"
        except RuntimeError as error:  # `filelock`, where something has imported it, lets one thread fork at a time
            if "filelock" not in str(error):
                raise

    with at_work(fork, fork, *(lambda buffer=buffer: buffer.sample(500) for buffer in buffers)):
        eventually(lambda: len(forks) > 12)


def test_a_signal_handler_forks_in_the_middle_of_a_call() -> None:
    buffer, results = made("ram"), []

    def handler(*_: object) -> None:
        results.append(in_a_child(buffer.stats))
        signal.setitimer(signal.ITIMER_REAL, 0.003)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.003)
        while len(results) < 5:
            buffer.sample(1000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert set(results) == {"done"}
    assert buffer.add(env_ids=[2], **step(0.0)).tolist() == [2]


def test_calls_of_a_child_cost_what_they_cost() -> None:
    """Check that it does not wait for threads of the parent that waited for the lock."""
    buffer = made("ram")

    def child() -> None:
        buffer.sample(8)
        soon(lambda: timeit.timeit(lambda: buffer.sample(8), number=10), 0.025)  # each of them gave way for 5 ms

    with at_work(*[lambda: buffer.sample(64)] * 4):
        for _ in range(2):
            assert in_a_child(child) == "done"
