"""Taking what can be read from a damaged save."""

from __future__ import annotations

import os
from contextlib import closing

import numpy as np

from .._base.frozen import Frozen
from .._buffer.saved_as import built, not_given
from .._buffer.undrawn import Undrawn
from .._disk.files import Folder, empty_folder
from .._disk.json_files import damaged
from ..errors import StorageError, event, message
from ..items import Item
from ..samplers import GONE, Prioritized, Sampler
from ..storage import Ram
from . import _manifest
from ._loading import Loading
from ._mending import Mended
from ._reading import OpenSave
from ._saving import save as save_core
from .inspection import on_device


class Salvage(Frozen):
    """The result of a salvage.

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

    An item of the user's own, or one with a function, is not needed: which steps it starts at is saved. What is written
    is loaded with `item=`, like what was saved.

    Args:
        source: The directory of saves; it is not changed.
        target: The directory to write, new or empty.
        item: Another item than the saved one.
        sampler: The saved sampler, if it is of a class of the user's own, or another one. None: the saved one, or
            `Prioritized()` where that is one of earlier versions.

    Raises:
        StorageError: No save can be used, or `target` is not empty or cannot be written. Or a `DeviceBuffer` saved: of
            these `relive salvage` in a terminal writes the newest one that is whole, as an ordinary buffer's.
        ArgumentError: A sampler of the user's own was saved and is not given.

    >>> import tempfile, relive
    >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000)
    >>> source, target = tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> saved = buffer.save(source)
    >>> salvage(source, target).lost
    (0,)
    """
    if on_device(source):
        wanted, remedy = "saves of a `ReplayBuffer`", "the command `relive salvage` writes the newest one that is whole"
        raise StorageError(message(wanted, "saves of a `DeviceBuffer`", os.fspath(source), remedy))
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
                choices = item or _saved_item(save), sampler or _saved_sampler(save, skipped)
                core = Loading([save], lanes, None, None, *choices, Ram()).core(None, alone=True)
                core.tally.renew()
                save_core(core, target, keep=1, wait=True, verify=False)
                stored, lost = (tuple(each.tolist()) for each in (save.stored, save.lost))
                return Salvage(number, stored, lost, (*skipped, *save.problems))
        raise none_used(folder, skipped)


def none_used(folder: Folder, skipped: list[str]) -> StorageError:
    """Return the error about a directory of which no save can be used, for the reasons `skipped`."""
    return StorageError(event("No save can be used", folder.path, skipped[0] if skipped else "none is complete"))


def _saved_item(save: OpenSave) -> Item:
    """Return the item of a save, or an `Undrawn` one where it cannot be made."""
    facts = save.manifest.choices["item"]
    with damaged(save.at):
        made: Item | None = built("item", facts)
    return Undrawn(facts, save.window) if made is None else made


def _saved_sampler(save: OpenSave, problems: list[str]) -> Sampler:
    """Return the sampler of a save, or `Prioritized()` for one that is gone, which is noted as a problem.

    It is refused where it cannot be made, since only it can read what it kept.
    """
    facts = save.manifest.choices["sampler"]
    with damaged(save.at):
        made: Sampler | None = built("sampler", facts)
    if made is None and facts["kind"] in GONE:
        problems.append(
            f"`{facts['kind']}` is gone: what is written draws by `Prioritized()`, from the same priorities"
        )
        return Prioritized()
    if made is None:
        remedy = "from Python: `relive.checkpoints.salvage.salvage(source, target, sampler=...)` with an equal one"
        raise not_given("sampler", facts, "salvage(sampler)", remedy)
    return made
