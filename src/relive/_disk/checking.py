"""Checking many files, one after the other: which of them are damaged, and how."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Sequence
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
    """Return whether the file is damaged, as opposed to unreadable by this process."""
    return getattr(error.__cause__, "errno", None) not in _OTHERS


def failures(
    checks: Sequence[Check], progress: Progress | None = None, needed: Callable[[], Collection[str]] | None = None
) -> list[tuple[str, str]]:
    """List the damaged files by name, each with a message.

    Args:
        checks: The files.
        progress: Called after each of them.
        needed: Names the files that are needed at the end, as another process has replaced the others; None: all.

    Raises:
        StorageError: A file cannot be read, or what is made of it not be written, for a reason that says nothing of it.
    """
    found = list[tuple[str, str]]()
    for done, check in enumerate(checks, 1):
        try:
            found.extend((check.name, text) for text in check.read())
        except StorageError as error:
            if not is_damage(error):
                raise
            found.append((check.name, str(error)))
        if progress is not None:
            progress(done, len(checks))
    names = needed() if needed is not None and found else {name for name, _ in found}
    return [each for each in found if each[0] in names]
