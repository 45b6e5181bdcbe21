"""Taking what can be read from a damaged save."""

from __future__ import annotations

import os
from contextlib import closing

import numpy as np

from .._files import Folder, empty_folder
from .._frozen import Frozen
from ..errors import StorageError, event
from ..items import Item
from ..samplers import Sampler
from ..storage import Ram
from . import _manifest
from ._loading import Loading
from ._mending import Mended


class Salvage(Frozen):
    """What was salvaged.

    Attributes:
        number: The save that was used.
        stored: Steps of each lane in it.
        lost: How many of them could not be used.
        problems: What was damaged, with file and offset.

    `salvage` has an example.
    """

    number: int
    stored: tuple[int, ...]
    lost: tuple[int, ...]
    problems: tuple[str, ...]


def salvage(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    item: Item | None = None,
    sampler: Sampler | None = None,
) -> Salvage:
    """Write a sound save of all steps in a damaged one that can be read.

    Steps whose bytes are damaged are dropped, their streams cut there. Whatever can still be drawn is what it was, with
    the id and the priority it had. The newest save whose manifest and small arrays are sound is used.

    Args:
        source: The directory of saves; it is not changed.
        target: The directory to write, new or empty.
        item: The saved item, if it is of a class of the user's own.
        sampler: Likewise.

    Raises:
        StorageError: No save can be used, or `target` is not empty or cannot be written.
        ArgumentError: An item or a sampler of the user's own was saved and is not given.

    >>> import tempfile, relive
    >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000)
    >>> source, target = tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> saved = buffer.save(source)
    >>> salvage(source, target).lost
    (0,)
    """
    with closing(Folder(source)) as folder, empty_folder(target):
        skipped: list[str] = []
        for number in _manifest.numbers(folder):
            try:
                save = Mended(folder, number)
            except StorageError as error:
                skipped.append(f"save {number} cannot be used: {error}")
                continue
            with save:
                lanes = [np.arange(len(save.lanes))]
                buffer = Loading([save], lanes, None, item, sampler, Ram()).buffer(None, alone=True)
                buffer._rename()
                buffer.save(target)
                return Salvage(number, tuple(save.stored), tuple(save.lost), (*skipped, *save.problems))
        raise StorageError(event("No save can be used", folder.path, skipped[0] if skipped else "none is complete"))
