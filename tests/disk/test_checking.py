"""The loop of `verify` and `salvage`: what is damage, and what is not."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest

from relive._disk.checking import Check, failures
from relive._disk.files import reported
from relive.errors import CorruptionError, StorageError


def failing(code: int) -> list[str]:
    with reported("x", "read the file"):
        raise OSError(code, os.strerror(code))


def places() -> Iterator[str]:
    yield "one place"
    raise CorruptionError("and the rest")


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EIO, errno.ELOOP])
def test_every_file_is_checked(code: int) -> None:
    done: list[tuple[int, int]] = []
    checks = [Check("a", lambda: failing(code)), Check("b", list), Check("c", places)]
    found = list(failures(checks, lambda *at: done.append(at)))
    reason = f"Could not read the file ({os.strerror(code)}) - at `x`"
    assert found == [("a", reason), ("c", "one place"), ("c", "and the rest")]
    assert done == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EMFILE, errno.ENOSPC])
def test_a_file_is_not_damaged_because_a_process_may_not_read_it(code: int) -> None:
    with pytest.raises(StorageError, match="Could not read the file"):
        list(failures([Check("a", lambda: failing(code))]))
