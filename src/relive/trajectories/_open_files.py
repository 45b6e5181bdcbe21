"""Files that draws have read from, of all buffers: open for the next draw, or closed for others."""

from __future__ import annotations

import contextlib

from .._base.types import Array
from .._disk.files import let_go

_KNOWN = 1024  # files, open or closed since


class OpenFile:
    """A file that was read from, and stays open for the next draw if there are descriptors.

    Attributes:
        fd: Its descriptor, while it is open.
        checksum: That of its header and table, which the index has, too.
        draws: How many draws have read from it.
        places: Where everything is in it, as in `read_fields`, while it is open.
        rows: The bytes of narrow fields and checksums of each row, as in `FieldLayout.kept`; None until they are read.
    """

    __slots__ = ("checksum", "draws", "fd", "places", "rows")

    def __init__(self, fd: int, checksum: int) -> None:
        self.fd, self.checksum, self.draws, self.places = fd, checksum, 0, b""
        self.rows: Array | None = None


# Files of all buffers together, by source and trajectory: those that stay open, and those that were closed for others.
# Those that were used last come last. A reader takes a file out and puts it back, so no file is closed under a
# reader. There is no lock: operations of a dictionary are atomic, and a finalizer may run at any line of this module.
OPEN: dict[tuple[int, int], OpenFile] = {}
CLOSED: dict[tuple[int, int], OpenFile] = {}


def shrink(most: int) -> None:
    """Close all but the `most` files that were used last; what is known of them is kept for a bounded number."""
    with contextlib.suppress(StopIteration, RuntimeError):  # another thread has changed it, and does this, too
        while len(OPEN) > most:
            key = next(iter(OPEN))
            file = OPEN.pop(key, None)
            if file is not None:
                let_go(file.fd)
                CLOSED[key] = file
        while len(OPEN) + len(CLOSED) > _KNOWN:
            CLOSED.pop(next(iter(CLOSED)), None)


def forget(key: tuple[int, int]) -> None:
    """Close a file, if it is kept, and drop what is known of it."""
    kept = OPEN.pop(key, None)
    if kept is not None:
        let_go(kept.fd)
    CLOSED.pop(key, None)


def forget_all(number: int) -> None:
    """Close all files of a source; also once it is gone."""
    for key in (*OPEN, *CLOSED):
        if key[0] == number:
            forget(key)
