"""A small buffer that saves itself, and a disk that is full meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import relive
from relive.checkpoints import _save_task
from relive.errors import StorageError

SCHEMA = relive.Schema(obs=relive.Field((3,)), action=relive.Field())


def made(storage: Any = None, **choices: Any) -> relive.ReplayBuffer:
    return relive.ReplayBuffer(SCHEMA, 1000, storage=storage, seed=0, **choices)


def add(buffer: Any, count: int = 1) -> None:
    for i in range(count):
        buffer.add(obs=[i] * 3, action=0, reward=i, next_obs=[i + 1] * 3, terminated=False, truncated=False)


@contextmanager
def full_disk() -> Iterator[None]:
    """Let every save fail."""
    with mock.patch.object(_save_task.SaveTask, "run", side_effect=StorageError("the disk is full")):
        yield
