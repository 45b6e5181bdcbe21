"""RLinf's directories: recognised, opened, and written so that RLinf loads them."""

import os

from ..._base.memory import Arena
from ..._disk.files import Folder
from ..formats import Checkpoints, Examined, Format, Loaded
from ._examine import described, verified
from ._listing import INDEXES
from ._load import opened
from ._write import write


def _holds(path: str) -> bool:
    return any(os.path.lexists(os.path.join(path, name)) for name in INDEXES)


def _opened(folder: Folder, arena: Arena, share: tuple[int, int], allow_pickle: bool, complete: bool) -> Loaded:
    del complete  # RLinf's own checkpoints list files that they do not have
    return Loaded(*opened(folder, arena, share, allow_pickle))


FORMAT = Format(
    name="pt",
    title="RLinf's",
    holds=_holds,
    checkpoints=Checkpoints(_opened, write),
    examined=Examined(described, verified),
)
