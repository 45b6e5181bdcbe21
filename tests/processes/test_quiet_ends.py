"""A program with shared buffers says nothing at its end that it was not asked for: no leaks, however it ends."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from children import run_program
from depth import LONG

from relive._ring import kernels

pytestmark = pytest.mark.skipif(not kernels.is_native(), reason="only native kernels share")

MAKE = """
import multiprocessing, os, signal, sys, threading, time
import relive

SCHEMA = relive.Schema(obs=relive.Field(2), action=relive.Field())
STEP = dict(obs=[0, 0], action=0, reward=0, next_obs=[0, 0], terminated=False, truncated=False)


def leave(writer):
    for _ in range(5):
        writer.add(**STEP)


def write(writer):
    leave(writer)
    writer.close()


def fresh(**choices):
    return relive.ReplayBuffer(SCHEMA, 100, num_envs=2, storage=relive.Shared(), **choices)


def child(work, writer, start):
    process = multiprocessing.get_context(start).Process(target=work, args=(writer,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert len(buffer) == 6


if __name__ == "__main__":
    buffer = fresh()
    buffer.add(**{name: [value] for name, value in STEP.items()}, env_ids=[0])
"""
ENDS = {
    "closed": "buffer.close()",
    "closed by with": "with buffer: buffer.sample(1)",
    "not closed": "buffer.sample(1)",
    "dropped": "del buffer",
    "a second buffer": "other = fresh(); buffer.close()",
    "a local variable": "(lambda: fresh().num_envs)()",
    "sys.exit": "sys.exit(0)",
    "os._exit": "os._exit(0)",
    "a writer in the same process": "writer = buffer.writer([1]); writer.add(**STEP)",
    "a reader that is not closed": "reader = relive.open(buffer.storage.name); reader.sample(1)",
    "a prefetch": "batches = buffer.prefetch(1); next(batches)",
    "a limiter": "limited = fresh(limiter=relive.RateLimiter(1, 1, timeout=0)); limited.can_sample(1)",
    "a thread": "thread = threading.Thread(target=lambda: buffer.sample(1)); thread.start()",
    "a daemon": "threading.Thread(target=lambda: [buffer.sample(1) for _ in iter(int, 1)], daemon=True).start()",
    "fork": "child(write, buffer.writer([1]), 'fork')",
    "spawn": "child(write, buffer.writer([1]), 'spawn')",
    "forkserver": "child(write, buffer.writer([1]), 'forkserver')",
    "fork, a writer left open": "child(leave, buffer.writer([1]), 'fork')",
    "spawn, a writer left open": "child(leave, buffer.writer([1]), 'spawn')",
    "os.fork": "os.fork() or sys.exit(0); os.wait()",
    "os.fork, a buffer of its own": "os.fork() or (fresh(), sys.exit(0)); os.wait()",
    "os.fork, the parent first": "os.fork() or time.sleep(0.5)",
    "an exception": "raise KeyError('mine')",
    "SIGINT": "os.kill(os.getpid(), signal.SIGINT); time.sleep(5)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "mapped": "m = relive.ReplayBuffer(SCHEMA, 100, storage=relive.Mapped(sys.argv[1])); m.add(**STEP)",
    "nobody to tell": "import relive.storage.shared as s; os.close(s._Sweeper.of_this_process()._fd); buffer.close()",
}
LATE = {"forkserver", "spawn, a writer left open"}  # seconds each
ASKED = ("KeyError: 'mine'", "KeyboardInterrupt")


@pytest.mark.parametrize("end", [end for end in ENDS if LONG or end not in LATE])
def test_an_end_is_quiet(end: str, tmp_path: Path) -> None:
    """Under Python's development mode, which tells of every leak, with warnings that are errors."""
    text, flags = f"{MAKE}    {ENDS[end]}\n", ["-X", "dev", "-W", "error"]
    if "spawn" in end or end == "forkserver":  # need a file
        program = tmp_path / "program.py"
        program.write_text(text)
        command = [sys.executable, *flags, str(program), str(tmp_path / "ring")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    else:
        done = run_program(text, tmp_path / "ring", flags=flags)
    said = done.stderr
    if any(words in said for words in ASKED):
        said = re.sub(r"Traceback.*?(KeyError: 'mine'|KeyboardInterrupt)\n", "", said, flags=re.DOTALL)
    assert said == "", end
    assert done.stdout == ""
