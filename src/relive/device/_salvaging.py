"""Saves of device buffers that are damaged: what is whole of them becomes an ordinary buffer's."""

from __future__ import annotations

import os
from contextlib import closing

from .._disk.files import Folder, empty_folder
from ..checkpoints import _manifest
from ..checkpoints.salvage import Salvage, none_used
from ..errors import StorageError
from ._loading import loaded


def salvage(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> Salvage:
    """Write the newest save that is whole to another directory, as an ordinary buffer's.

    Raises:
        StorageError: None is whole, or `target` is not empty or cannot be written.
    """
    with closing(Folder(source)) as folder, empty_folder(target):
        skipped: list[str] = []
        for number in _manifest.numbers(folder):
            try:
                host = loaded(folder, number, "cpu", 0, iter(())).host()
            except StorageError as error:
                skipped.append(f"save {number} cannot be used: {error}")
                continue
            host.save(target)
            stored = (host.column("ids") >= 0).sum(1).tolist()
            return Salvage(number, tuple(stored), (0,) * len(stored), tuple(skipped))
        raise none_used(folder, skipped)
