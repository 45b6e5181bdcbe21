"""RLinf's directories: recognised, opened, and written so that RLinf loads them."""

import os

from ..._base.memory import Arena
from ..._disk.files import Folder
from ...errors import StorageError
from .._catalog import ATTEMPTS
from ..formats import Checkpoints, Format, Loaded
from ._listing import INDEXES
from ._load import examined, opened
from ._write import write


def _holds(path: str) -> bool:
    return any(os.path.lexists(os.path.join(path, name)) for name in INDEXES)


def _opened(folder: Folder, arena: Arena, share: tuple[int, int], allow_pickle: bool, complete: bool) -> Loaded:
    del complete  # RLinf's own checkpoints list files that they do not have
    for left in reversed(range(ATTEMPTS)):
        try:
            return opened(folder, arena, share, allow_pickle)
        except StorageError as error:  # the first file may just have been removed by another process
            if not (left and isinstance(error.__cause__, FileNotFoundError)):
                raise
    raise AssertionError


FORMAT = Format(name="pt", title="RLinf's", holds=_holds, checkpoints=Checkpoints(_opened, write), examined=examined)
