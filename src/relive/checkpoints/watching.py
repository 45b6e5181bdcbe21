"""Monitoring: the saves in a directory, as a buffer goes on writing them."""

from __future__ import annotations

import contextlib
import os
import time

from .._base import check
from .._base.frozen import Frozen
from .._disk.files import Folder
from ..errors import StorageError, message
from . import _manifest


class SavesSeen(Frozen, kw_only=True):
    """The saves of a directory at one moment.

    Attributes:
        path: The directory.
        number: The newest complete save.
        saves: Complete saves there.
        age: Seconds since it was complete; what came later is lost with the process.
        interval: Seconds between the last two saves that were seen; 0 before the second one.
        nbytes: Bytes of the newest save.
        drawn: Items that the buffer had drawn by then.
        updates: Priorities that it had updated.
    """

    path: str
    number: int
    saves: int
    age: float
    interval: float
    nbytes: int
    drawn: int
    updates: int

    @property
    def late(self) -> bool:
        """True if the next save is overdue, since saves fail or the process is gone."""
        return self.interval > 0 and self.age > 5.0 + 3 * self.interval


class SavesWatch:
    """Looks at a directory of saves.

    Args:
        path: The directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = check.path(path, "relive top")
        self._number, self._at, self._interval = 0, 0.0, 0.0

    def look(self) -> SavesSeen:
        """Read the state of the saves.

        Raises:
            StorageError: The directory has none.
        """
        with contextlib.closing(Folder(self._path)) as folder:
            numbers = _manifest.numbers(folder)
            if not numbers:
                raise StorageError(message("a complete save of a buffer", "none", self._path))
            manifest = _manifest.read(folder, numbers[0])
            at = os.stat(os.path.join(self._path, _manifest.manifest_name(numbers[0]))).st_mtime
        if self._number and manifest.number > self._number:
            self._interval = (at - self._at) / (manifest.number - self._number)
        self._number, self._at = manifest.number, at
        return SavesSeen(
            path=self._path,
            number=manifest.number,
            saves=len(numbers),
            age=max(0.0, time.time() - at),
            interval=self._interval,
            nbytes=manifest.nbytes,
            drawn=manifest.counts.get("drawn", 0),
            updates=manifest.counts.get("updates", 0),
        )
