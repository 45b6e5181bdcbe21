"""Errors that a program handles: a save that is not there yet, and a buffer that was closed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import relive
from relive._ring import kernels

SCHEMA = relive.Schema(obs=relive.Field(), action=relive.Field())
STEP: dict[str, Any] = {"obs": 0, "action": 0, "reward": 0, "next_obs": 1, "terminated": True, "truncated": False}


@pytest.mark.parametrize("call", [relive.load, relive.kept_batches, relive.open])
def test_what_is_missing_is_a_file_that_is_not_found(call: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(relive.MissingSave, match="got none - at `") as missing:
        call(tmp_path / "nothing")
    assert isinstance(missing.value, FileNotFoundError)
    assert isinstance(missing.value, relive.StorageError)


def test_a_directory_without_a_save_has_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="a complete save of a buffer, got none"):
        relive.load(tmp_path)


def test_start_or_go_on_in_four_lines(tmp_path: Path) -> None:
    for added in (0, 1):
        try:
            buffer = relive.load(tmp_path / "saves")
        except FileNotFoundError:
            buffer = relive.ReplayBuffer(SCHEMA, 100, seed=0)
        assert len(buffer) == added
        buffer.add(**STEP)
        buffer.save(tmp_path / "saves")


def test_every_call_of_a_closed_buffer_says_so() -> None:
    buffer = relive.ReplayBuffer(SCHEMA, 100, seed=0)
    buffer.add(**STEP)
    buffer.close()
    calls: list[Callable[[], object]] = [
        lambda: buffer.add(**STEP),
        lambda: buffer.sample(1),
        lambda: buffer.update_priorities([0], [1.0]),
        lambda: len(buffer),
        buffer.stats,
        lambda: buffer.keep_batches(None),
        lambda: buffer.save("x"),
        lambda: buffer.prefetch(1),
    ]
    for call in calls:
        with pytest.raises(relive.BufferClosed, match="an open buffer, got one that was closed"):
            call()


def test_a_thread_that_waits_for_a_closed_buffer_ends() -> None:
    limiter = relive.RateLimiter(samples_per_insert=1.0, min_size=1, error_buffer=2.0)
    buffer = relive.ReplayBuffer(SCHEMA, 100, limiter=limiter, seed=0)
    ended: list[BaseException] = []

    def act() -> None:
        try:
            while True:
                buffer.add(**STEP)
        except relive.BufferClosed as error:
            ended.append(error)

    thread = threading.Thread(target=act)
    thread.start()
    time.sleep(0.2)
    buffer.close()
    thread.join(10)
    assert len(ended) == 1


@pytest.mark.skipif(not kernels.is_native(), reason="only native kernels share")
def test_a_closed_writer_says_so() -> None:
    with relive.ReplayBuffer(SCHEMA, 100, storage=relive.Shared(), seed=0) as buffer:
        writer = buffer.writer()
        with writer:
            writer.add(**STEP)
        with pytest.raises(relive.BufferClosed, match="an open writer, got one that was closed"):
            writer.add(**STEP)
