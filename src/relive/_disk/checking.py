"""Checking many files, one after the other: which of them are damaged, and how."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeVar

from ..errors import StorageError, event

S = TypeVar("S")
T = TypeVar("T")
ATTEMPTS = 100  # to read what another process changes meanwhile
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


def failures(checks: Sequence[Check], progress: Progress | None = None) -> Iterator[tuple[str, str]]:
    """Yield the damaged files by name, each with a message.

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


def lasting(
    checks: Sequence[Check], needed: Callable[[], AbstractSet[str]], progress: Progress | None = None
) -> list[tuple[str, str]]:
    """List the damaged files, each with a message, that are `needed` still; the others were replaced meanwhile.

    Raises:
        StorageError: As for `failures`.
    """
    found = [*failures(checks, progress)]
    names = needed() if found else set()
    return [each for each in found if each[0] in names]


def replaced(look: Callable[[], S], read: Callable[[S], T]) -> T:
    """Read what is there; again, if it cannot be read since another process has just replaced it.

    Args:
        look: Says what is there.
        read: Called with that.

    Raises:
        StorageError: It cannot be read, and is there still.
    """
    while True:
        before = look()
        try:
            return read(before)
        except StorageError:
            if look() == before:
                raise


def unchanged(signature: Callable[[], object], read: Callable[[], T], at: str) -> T:
    """Read what another process may be writing, until its signature is the same before and after.

    Raises:
        StorageError: It changes every time.
        Exception: As `read`, where nothing has changed: half of what is being written may look like anything.
    """
    for _ in range(ATTEMPTS):
        before = signature()
        try:
            found = read()
        except Exception:
            if signature() == before:
                raise
        else:
            if signature() == before:
                return found
    raise StorageError(event("Another process keeps changing the index", at))
