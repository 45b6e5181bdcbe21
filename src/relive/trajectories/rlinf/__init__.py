"""RLinf's directories: recognised, opened, and written so that RLinf loads them."""

import os

from ..._base.forks import importing
from ..._base.memory import Arena
from ..._disk.checking import Progress
from ..._disk.files import Folder
from ...errors import StorageError
from .._catalog import ATTEMPTS
from .._index import Table
from ..formats import Checkpoints, Examined, Format, Loaded
from ._listing import INDEXES
from ._load import opened
from ._write import write


def _holds(path: str) -> bool:
    return any(os.path.lexists(os.path.join(path, name)) for name in INDEXES)


def _opened(folder: Folder, arena: Arena, share: tuple[int, int], allow_pickle: bool, complete: bool) -> Loaded:
    del complete  # RLinf's own checkpoints list files that they do not have
    for left in reversed(range(ATTEMPTS)):
        try:
            return Loaded(*opened(folder, arena, share, allow_pickle))
        except StorageError as error:  # the first file may just have been removed by another process
            if not (left and isinstance(error.__cause__, FileNotFoundError)):
                raise
    raise AssertionError


# What starts processes is imported when one is started: a buffer needs none.


def _described(folder: Folder, fields: bool) -> tuple[Table, list[str], tuple[str, ...]]:
    with importing:
        from ._examine import described
    return described(folder, fields)


def _verified(folder: Folder, progress: Progress | None) -> list[tuple[str, str]]:
    with importing:
        from ._examine import verified
    return verified(folder, progress)


FORMAT = Format(
    name="pt",
    title="RLinf's",
    holds=_holds,
    checkpoints=Checkpoints(_opened, write),
    examined=Examined(_described, _verified),
)
