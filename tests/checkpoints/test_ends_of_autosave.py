"""Every way in which a program, or a buffer, may end while its autosave is open; and whose the directory is."""

from __future__ import annotations

import copy
import gc
import os
import subprocess
import textwrap
import threading
import time
import weakref
from collections.abc import Callable
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from autosaved import SCHEMA, add, full_disk, made
from children import run_program
from depth import eventually, some_of_each
from forking import forked

import relive
from relive._buffer import drawing
from relive._ring import kernels
from relive.checkpoints import _saving
from relive.errors import ReliveError, ReliveWarning, StorageError

HEAD = """
import atexit, faulthandler, gc, multiprocessing, os, signal, sys, threading, time
import numpy as np, relive
faulthandler.dump_traceback_later(60, exit=True)
PATH = sys.argv[1]
SCHEMA = relive.Schema(obs=relive.Field((3,)), action=relive.Field())
def step(t): return dict(obs=[t] * 3, action=0, reward=t, next_obs=[t + 1] * 3, terminated=False, truncated=False)
def fill(buffer, steps=50):
    for t in range(steps): buffer.add(**step(t))
def made(storage=None, every=100.0):
    buffer = relive.ReplayBuffer(SCHEMA, 1000, storage=storage, seed=0)
    buffer.autosave(PATH, every=every)
    return buffer
"""


def ran(program: str, path: Path, kernel: str = "native", **how: Any) -> subprocess.CompletedProcess[str]:
    environment = {"RELIVE_KERNELS": kernel} if kernel == "numpy" else {}
    return run_program(HEAD + textwrap.dedent(program), path, **environment, **how)


MAIN = "def main():\n    buffer = made()\n    fill(buffer)\n"
STEPS = "def steps():\n    buffer = made()\n    for t in range(51): yield t < 50 and buffer.add(**step(t))\n"
CLOSURE = "def outer():\n    buffer = made()\n    return lambda: fill(buffer)\n"
PROGRAMS = {
    "a local variable": MAIN + "main()",
    "an uncaught exception": MAIN + "    raise ValueError\nmain()",
    "sys.exit inside": MAIN + "    sys.exit(3)\nmain()",
    "an interrupt": MAIN + "    os.kill(os.getpid(), signal.SIGINT)\nmain()",
    "a global": "buffer = made()\nfill(buffer)",
    "a closure": CLOSURE + "outer()()",
    "a closure that stays": CLOSURE + "call = outer()\ncall()",
    "a cycle": "class Agent:\n    def __init__(self): self.buffer, self.me = made(), self\nfill(Agent().buffer)",
    "a generator": STEPS + "for _ in steps(): pass",
    "a generator that waits": STEPS + "each = steps()\nfor _ in range(50): next(each)",
    "a thread": MAIN + "threading.Thread(target=main).start()",
    "a daemon thread": "done = threading.Event()\n" + MAIN + "    done.set()\n    time.sleep(60)\n"
    "threading.Thread(target=main, daemon=True).start()\ndone.wait()",
    "a child that is forked": "buffer = made()\nfill(buffer)\nos.fork() or os._exit(0)",
    "steps added at the end": "atexit.register(lambda: fill(buffer))\nbuffer = made()",
    "batches drawn ahead": MAIN + "    next(buffer.prefetch(4))\nmain()",
    "a child of multiprocessing": "def main():\n    global kept\n    kept = made()\n    fill(kept)\n"
    "child = multiprocessing.get_context('fork').Process(target=main)\nchild.start()\nchild.join()",
    "a mapped buffer": "def main(): fill(made(relive.Mapped(PATH + '/../ring')))\nmain()",
    "a change of directory": "PATH = os.path.relpath(PATH)\n" + MAIN + "    os.chdir('/')\nmain()",
}


@pytest.mark.parametrize("shape", PROGRAMS)
def test_a_program_ends(shape: str, tmp_path: Path) -> None:
    done = ran(PROGRAMS[shape], tmp_path / "saves")
    assert len(relive.load(tmp_path / "saves", storage=relive.Ram())) == 50, done.stderr


@pytest.mark.parametrize("kind", ["plain", "in a cycle", "on a device"])
def test_a_buffer_that_nothing_holds(kind: str, tmp_path: Path) -> None:
    """Check that it is saved at once, and its memory is free."""
    threads = threading.active_count()
    if kind == "on a device":
        torch = pytest.importorskip("torch")
        buffer: Any = relive.DeviceBuffer(SCHEMA, 1000, device="cpu", seed=0)
        saving = weakref.ref(buffer.autosave(tmp_path, every=60.0))
        x, no = torch.zeros((1, 3)), torch.zeros(1, dtype=torch.bool)
        for _ in range(40):
            buffer.add(obs=x, action=x[:, 0], reward=x[:, 0], next_obs=x, terminated=no, truncated=no)
        held = saving
    else:
        buffer = made()
        buffer.autosave(tmp_path, every=60.0)
        add(buffer, 40)
        held = weakref.ref(buffer._core.ring)
    if kind == "in a cycle":
        buffer.itself = buffer
    del buffer
    gc.collect()
    assert len(relive.load(tmp_path, **({"device": "cpu"} if kind == "on a device" else {}))) == 40
    eventually(lambda: threading.active_count() == threads)
    gc.collect()
    assert held() is None


def test_a_failed_end_can_be_tried_again(tmp_path: Path) -> None:
    for close in ("saving", "buffer"):
        buffer = made()
        saving = buffer.autosave(tmp_path / close, every=60.0)
        ends = saving if close == "saving" else buffer
        add(buffer, 10)
        for _ in range(2):
            with full_disk(), pytest.raises(StorageError, match="full"):
                ends.close()
        assert not saving.closed
        add(buffer, 1)
        ends.close()
        assert saving.closed
        assert len(relive.load(tmp_path / close)) == 11
        saving.close()


@pytest.mark.parametrize("every", [1e9, 1e300])
def test_intervals_without_end(every: float, tmp_path: Path) -> None:
    with made() as buffer, buffer.autosave(tmp_path, every=every) as saving:
        add(buffer)
        time.sleep(0.05)
        assert saving._thread.is_alive()
    assert len(relive.load(tmp_path)) == 1


def test_the_directory_is_that_of_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir("other")
    buffer = made()
    with buffer.autosave("runs", every=0.1) as saving:
        later = buffer.save("by hand", wait=False)
        monkeypatch.chdir(tmp_path / "other")
        add(buffer, 20)
        eventually(lambda: saving.stats().age == 0.0)
        assert saving.path == saving.stats().path == str(tmp_path / "runs")
        assert len(relive.load(tmp_path / "runs")) == 20
        assert later.wait().path == str(tmp_path / "by hand")
        assert len(relive.load(later.path)) == 0
        add(buffer, 1)
    assert len(relive.load(tmp_path / "runs")) == 21
    assert os.listdir(".") == []


def refused(call: Callable[[Path], object], path: Path, text: str = "close the autosave") -> None:
    with pytest.raises(StorageError, match=text):
        call(path)


def test_one_autosave_a_directory(tmp_path: Path) -> None:
    first = made()
    first.save(tmp_path)
    one, two = relive.load(tmp_path), relive.load(tmp_path)
    os.symlink(tmp_path, tmp_path.with_name("link"))
    with one.autosave(tmp_path, every=60.0):
        add(one, 5)
        for other in (two, first, copy.deepcopy(one)):
            for path in (tmp_path, tmp_path.with_name("link")):
                refused(other.autosave, path, r"close the autosave .* or save to another directory")
                refused(other.save, path, "close that autosave")
        add(one, 1)
        one.save(tmp_path.with_name("link"))
        assert len(relive.load(tmp_path)) == 6
        with forked(lambda: refused(relive.load(tmp_path).autosave, tmp_path)):
            pass
    refused(two.autosave, tmp_path, "go on with `relive")
    assert len(relive.load(tmp_path)) == 6
    going_on = relive.load(tmp_path)
    with going_on.autosave(tmp_path):
        add(going_on, 1)
    assert len(relive.load(tmp_path)) == 7


def test_saves_by_hand_in_turn_are_told(tmp_path: Path) -> None:
    first = made()
    first.save(tmp_path)
    one, two = relive.load(tmp_path), relive.load(tmp_path)
    add(one, 5)
    one.save(tmp_path)
    one.save(tmp_path)
    for other in (two, first):
        with pytest.warns(ReliveWarning, match=r"of a copy of it.*takes their place"):
            other.save(tmp_path)
        other.save(tmp_path)
    with pytest.raises(StorageError, match="own saves"):
        one.autosave(tmp_path)
    assert len(relive.load(tmp_path)) == 0, "that was said"


def test_what_is_no_copy_of_another(tmp_path: Path, recwarn: Any) -> None:
    buffer = made()
    for _ in range(4):
        add(buffer)
        buffer.save(tmp_path, keep=9)
    earlier = relive.load(tmp_path, number=2)
    add(earlier)
    with earlier.autosave(tmp_path, keep=9):
        pass
    twin = copy.deepcopy(earlier)
    twin.save(tmp_path, keep=9)
    twin.save(tmp_path.with_name("other"))
    twin.save(tmp_path, keep=9)
    again = relive.load(tmp_path)
    again.save(tmp_path.with_name("other"))
    assert not recwarn.list or all("copy" in str(each.message) for each in recwarn.list)
    assert len(relive.load(tmp_path)) == 3


def test_another_buffer_that_saves_meanwhile_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Save as one of an earlier version does, which knows nothing of claims: its saves stay."""
    buffer = made()
    buffer.save(tmp_path)
    other, saving = relive.load(tmp_path), buffer.autosave(tmp_path, every=0.1)
    with monkeypatch.context() as earlier:
        earlier.setattr(_saving.Saver, "check", lambda *_: None)
        add(other, 9)
        other.save(tmp_path)
    add(buffer, 2)
    eventually(lambda: saving.stats().errors > 1)
    assert "own saves" in saving.stats().error
    assert saving.stats().age > 0
    with pytest.raises(StorageError, match="own saves"):
        saving.close()
    assert any("own saves" in record.getMessage() for record in caplog.records)
    assert len(relive.load(tmp_path)) == 9
    monkeypatch.setattr(_saving.Saver, "check", lambda *_: None)  # so that it can end
    saving.close()


def moves(buffer: relive.ReplayBuffer) -> dict[str, Any]:
    """Return the calls that change a save, by name."""
    batches = buffer.prefetch(4, depth=2)
    return {
        "batches": lambda: next(buffer.batches(4)),
        "prefetch": lambda: batches.__enter__() and time.sleep(0.1),
        "handed out": lambda: (next(batches), batches.close()),
        "rng": lambda: buffer.rng.random(),
        "another rng": lambda: setattr(buffer, "rng", np.random.default_rng(7)),
        "sample": lambda: buffer.sample(4),
        "raise_priority": lambda: drawing.raise_priority(buffer._core, 123.0),
        "update": lambda: buffer.update_priorities(buffer.sample(2).ids, [1.0, 2.0]),
        "write": lambda: buffer.write([0], value=[3.0]),
        "cut": buffer.cut,
        "clear": buffer.clear,
    }


def test_whatever_changes_a_save_is_saved(tmp_path: Path) -> None:
    schema = relive.Schema(obs=relive.Field((3,)), action=relive.Field(), value=relive.Field(writable=True))
    beta = relive.Anneal(0.4, 1.0, over=100)
    limiter = relive.RateLimiter(samples_per_insert=1.0, min_size=1, error_buffer=1e4)
    buffer = relive.ReplayBuffer(schema, 100, sampler=relive.Prioritized(beta=beta), limiter=limiter, seed=0)
    for t in range(20):
        flags = {"terminated": False, "truncated": False}
        buffer.add(obs=[t] * 3, action=0, value=0, reward=t, next_obs=[t + 1] * 3, **flags)
    with buffer.autosave(tmp_path, every=60.0) as saving:
        for name, move in moves(buffer).items():
            saving._again()
            assert saving.stats().age == 0.0, name
            move()
            assert saving.stats().age > 0.0, name
            number = saving.stats().number
            saving._again()
            assert saving.stats().number == number + 1, name
            loaded = relive.load(tmp_path)
            assert loaded.stats().limiter == buffer.stats().limiter, name
            assert loaded.rng.bit_generator.state == buffer.rng.bit_generator.state, name
            if name not in ("cut", "clear"):
                twin = copy.deepcopy(buffer)
                batch, again = twin.sample(8), loaded.sample(8)
                assert (batch.ids == again.ids).all(), name
                assert (batch.weights == again.weights).all(), name
        assert saving._again() > 0
        assert saving.stats().number == number + 1, "nothing has changed"


HANDLERS = """
    goal = relive.Field((2,))
    def reward(achieved, desired, info):
        until = time.monotonic() + 0.15
        while time.monotonic() < until: pass
        return np.zeros(len(achieved))
    def draws(buffer):
        until = time.monotonic() + 0.2
        while time.monotonic() < until: buffer.sample(32)
    def hindsight():
        schema = relive.Schema(obs={"achieved_goal": goal, "desired_goal": goal}, action=relive.Field())
        buffer = relive.ReplayBuffer(schema, 1000, item=relive.Hindsight(reward=reward), seed=0)
        obs = lambda t: {"achieved_goal": [t, t], "desired_goal": [0, 0]}
        for t in range(50):
            buffer.add(obs=obs(t), action=0, reward=0, next_obs=obs(t + 1), terminated=False, truncated=t == 49)
        return buffer, lambda: buffer.sample(32)
    def limited():
        limiter = relive.RateLimiter(samples_per_insert=1.0, min_size=1, error_buffer=(-10.0, 100.0))
        buffer = relive.ReplayBuffer(SCHEMA, 1000, limiter=limiter, seed=0)
        fill(buffer, 50)
        return buffer, lambda: buffer.sample(58)
    def mapped():
        buffer = relive.ReplayBuffer(SCHEMA, 1000, storage=relive.Mapped(PATH + "-ring"), seed=0)
        fill(buffer, 50)
        return buffer, lambda: draws(buffer)
    def plain():
        buffer = relive.ReplayBuffer(SCHEMA, 1000, seed=0)
        fill(buffer, 50)
        return buffer, lambda: draws(buffer)
    def by_hand():
        from relive.checkpoints import _save_task
        buffer = relive.ReplayBuffer(SCHEMA, 1000, seed=0)
        fill(buffer, 50)
        run = _save_task.SaveTask.run
        def slow(self):
            if threading.current_thread() is threading.main_thread(): time.sleep(0.2)
            return run(self)
        _save_task.SaveTask.run = slow
        return buffer, lambda: buffer.save(PATH + "-other")
    buffer, call = globals()[SHAPE]()
    saving = buffer.autosave(PATH, every=EVERY)
    if SHAPE != "limited":
        buffer.rng.random()
    refused = []
    def stop(*_):
        try: (saving if CLOSES == "saving" else buffer).close()
        except relive.ReliveError as error: refused.append(str(error))
        if LEAVES: raise SystemExit(5)
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    def main():
        with saving:
            if SHAPE == "limited": threading.Timer(0.2, lambda: fill(buffer, 20)).start()
            try: call()
            except relive.ReliveError as error: refused.append(str(error))
    main()
"""


SHAPES = ("hindsight", "limited", "mapped", "plain", "by_hand")
CLOSED = [*product(SHAPES, (0.1, 100.0), ("saving", "buffer"), (False, True))]


@pytest.mark.parametrize(("shape", "every", "closes", "leaves"), some_of_each(CLOSED, itemgetter(0), 2))
def test_a_handler_closes(shape: str, every: float, closes: str, leaves: bool, tmp_path: Path) -> None:
    """Check that it does not wait for ever for the interrupted call, and that the last save is not lost."""
    head = f"SHAPE, EVERY, CLOSES, LEAVES = {shape!r}, {every}, {closes!r}, {leaves}\n"
    kernel = "native" if kernels.is_native() else "numpy"
    done = ran(head + textwrap.dedent(HANDLERS), tmp_path / "saves", kernel)
    assert "Timeout" not in done.stderr, done.stderr
    assert done.returncode in (0, 5), done.stderr
    extra = {"item": relive.Hindsight(reward=lambda a, d, i: np.zeros(len(a)))} if shape == "hindsight" else {}
    assert len(relive.load(tmp_path / "saves", storage=relive.Ram(), **extra)) >= 50, done.stderr


def test_a_handler_closes_with_numpy_kernels(tmp_path: Path) -> None:
    head = "SHAPE, EVERY, CLOSES, LEAVES = 'plain', 0.1, 'saving', False\n"
    done = ran(head + textwrap.dedent(HANDLERS), tmp_path / "saves", "numpy")
    assert done.returncode == 0, done.stderr
    assert len(relive.load(tmp_path / "saves")) == 50


def test_a_call_inside_a_call_ends_it_later(tmp_path: Path) -> None:
    buffer = made()
    saving = buffer.autosave(tmp_path, every=60.0)
    add(buffer, 5)
    with buffer._core.lock.reentrant:  # as in the middle of a call
        saving.close()
        with pytest.raises(ReliveError, match="inside another call"):
            buffer.close()
        assert not saving.closed
    eventually(lambda: saving.closed)
    assert len(relive.load(tmp_path)) == 5
    buffer.close()
