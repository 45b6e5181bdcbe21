"""Checking many files, one after the other: which of them are damaged, and how."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ..errors import StorageError

Progress = Callable[[int, int], None]  # called with the number of files checked so far, and of all
# Reasons for which a call fails although the file that is read may be sound.
_OTHERS = {
    errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EROFS,
    errno.EFBIG,
}  # fmt: skip


class Check(NamedTuple):
    """One file to be checked.

    Attributes:
        name: The file.
        read: Reads it; returns what is damaged, or raises the first.
    """

    name: str
    read: Callable[[], Iterable[str]]


def is_damage(error: StorageError) -> bool:
    """Return True if the file is damaged, False if this process may not read it, or cannot write."""
    return getattr(error.__cause__, "errno", None) not in _OTHERS


def failures(checks: Sequence[Check], progress: Progress | None = None) -> Iterator[tuple[str, str]]:
    """Yield the name of each damaged file with a message.

    Raises:
        StorageError: A file cannot be read, or what is made of it not be written, for a reason that says nothing of it.
    """
    for done, check in enumerate(checks, 1):
        try:
            yield from ((check.name, text) for text in check.read())
        except StorageError as error:
            if not is_damage(error):
                raise
            yield check.name, str(error)
        if progress is not None:
            progress(done, len(checks))
