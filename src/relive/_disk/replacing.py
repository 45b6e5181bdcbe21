"""Single files that take the place of others, wherever they are."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

from .._base import system
from .files import TEMPORARY


@contextlib.contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """Open a new file, which is synced and takes the place of `path` when the block ends without an error."""
    fd, temporary = tempfile.mkstemp(prefix=TEMPORARY, dir=os.path.dirname(os.path.abspath(path)))
    try:
        with open(fd, "w+b") as file:
            yield file
            file.flush()
            system.sync(fd)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
