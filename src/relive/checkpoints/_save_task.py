"""One save, whatever buffer it is of: files in an order in which a kill or a loss of power leaves a complete save."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .._base.frozen import Frozen
from .._base.types import Array, Int64
from .._disk.files import TEMPORARY, Folder
from .._disk.kinds import SAVES, check_kind
from .._disk.tensor_writer import TensorWriter, portions_of
from .._disk.tensors import Tensor
from ..errors import CorruptionError, StorageError, event, message
from . import _manifest
from ._checking import Checks
from ._manifest import MOST_FILES, File, Manifest
from ._saved import Saved
from ._steps import clipped, ranges_of, rows_in

STATE_FORMAT = "relive.state.1"
Allow: TypeAlias = Callable[[Folder, Sequence[Manifest]], None]


class StepsFile(Frozen):
    """A file of steps, and the ranges of rows in it, int64 `[n, 3]`."""

    file: File
    ranges: Int64


class Basis(Frozen):
    """The last save of a buffer, which the next one can build upon.

    Attributes:
        token: Names the save.
        head: The row after the newest of each lane, then.
        parts: Its files of steps.
    """

    token: str
    head: Int64
    parts: tuple[StepsFile, ...]


class SavePlace(NamedTuple):
    """The directory of a save, and the names of it.

    Attributes:
        folder: The directory.
        identity: Of the buffer.
        mark: Of the saver.
        keep: Complete saves that stay.
    """

    folder: Folder
    identity: str
    mark: str
    keep: int


class SaveTask(ABC):
    """One save, from the instant on that it saves.

    Args:
        place: The directory.
    """

    saved: Saved

    def __init__(self, place: SavePlace) -> None:
        self._start = time.perf_counter()
        self._folder, self._identity, self._mark, self._keep = place

    @abstractmethod
    def choices(self) -> dict[str, object]:
        """Return what the buffer was built from, as JSON."""

    @abstractmethod
    def take(self, basis: Basis | None) -> float:
        """Take the instant, to save what is new since `basis`; return the seconds for which calls had to wait."""

    @abstractmethod
    def contents(self) -> SaveContents:
        """Return what is to be written."""

    @abstractmethod
    def check(self) -> None:
        """Raise an error if what was written is not of one instant."""

    @abstractmethod
    def release(self) -> None:
        """Let go of the buffer, whatever came of the save."""

    def begin(self, allow: Allow, basis: Basis | None, verify: bool, damaged: set[File]) -> None:
        """Take the instant; if that fails, let go of the directory.

        Args:
            allow: Checks that the buffer may save there, given the saves of the directory.
            basis: The last save of the buffer, on which this one may build.
            verify: True to read all data of the files that are used again.
            damaged: Files that were found damaged.
        """
        folder = self._folder
        try:
            self._choices = self.choices()
            folder.lock("wait for the save that is being written there, or save to another directory")
            found = manifests_of(folder, self._identity)
            allow(folder, found)
            self._number = 1 + max([0, *_manifest.numbers(folder)])
            self._checks = Checks(folder, self._number, verify, damaged)
            stopped = self.take(self._continued(found, basis))
            self.saved = Saved(folder.path, self._number)
            self.saved.stopped = stopped
        except BaseException:
            self.release()
            folder.close()
            raise

    def end(self, error: BaseException | None = None) -> None:
        """Let go of the directory and of the buffer, whatever came of it."""
        self.release()
        self._folder.close()
        self.saved._end(error)

    def run(self) -> Basis:
        """Write the files; return what the next save can build upon."""
        folder, number = self._folder, self._number
        before = folder.sizes()
        found = self.contents()
        parts, written = list(found.kept), 0
        if found.steps is not None:
            parts.append(StepsFile(_written(folder, _manifest.steps_name(number), number, found.steps), found.new))
            written += found.steps.nbytes
        arrays = found.arrays()
        tensors = {name: Tensor.of(array.dtype, array.shape) for name, array in arrays.items()}
        portions = chain.from_iterable(portions_of(*each) for each in arrays.items())
        state = TensorWriter(tensors, portions, {"format": STATE_FORMAT})
        manifest = Manifest(
            number=number,
            identity=self._identity,
            token=self._mark + os.urandom(8).hex(),
            choices=self._choices,
            counts=found.counts,
            generator=found.generator,
            state=_written(folder, _manifest.state_name(number), number, state),
            steps=tuple(part.file for part in parts),
        )
        # The files are there for good before the manifest says that they are.
        folder.sync()
        text = manifest.dumped()
        self.check()
        folder.write(_manifest.manifest_name(number), [text])
        folder.sync()
        self._prune(manifest, before)
        self.saved._written, self.saved._total = written + state.nbytes + len(text), manifest.nbytes + len(text)
        self.saved._seconds = time.perf_counter() - self._start
        return Basis(manifest.token, found.head, tuple(parts))

    def _continued(self, found: Sequence[Manifest], basis: Basis | None) -> Basis | None:
        """Return this buffer's last save, if the directory has it and no damage is found."""
        if basis is None or all(manifest.token != basis.token for manifest in found):
            return None
        wrong = self._checks.wrong([(_manifest.steps_name(part.file.number), part.file) for part in basis.parts])
        if wrong is not None:
            what = event(f"An earlier save is damaged, and all steps are written anew ({wrong})", self._folder.path)
            logging.getLogger("relive").warning("%s", what)
        return basis if wrong is None else None

    def _prune(self, manifest: Manifest, before: dict[str, int]) -> None:
        """Delete saves beyond `keep`, and what unfinished ones left.

        Only sound ones count, so that none of these goes in favour of a damaged one.
        """
        folder = self._folder
        numbers, manifests, sound = _manifest.numbers(folder), {manifest.number: manifest}, [manifest.number]
        for number in numbers:
            if number != manifest.number and len(sound) < self._keep:
                with contextlib.suppress(StorageError):
                    manifests[number] = _manifest.read(folder, number)
                    if self._checks.wrong(manifests[number].files) is None:
                        sound.append(number)
        kept = [number for number in numbers if len(sound) < self._keep or number >= min(sound)]
        old = [name for name in before if name.endswith(".json") and _manifest.number_of(name) not in {None, *kept}]
        for name in old:
            folder.remove(name)
        if old:
            folder.sync()  # before their files go
        if not manifests.keys() >= set(kept):
            return  # which files they need is not known
        needed = {name for number in kept for name, _ in manifests[number].files}
        for name in before:
            unfinished = name.startswith(TEMPORARY)
            ours = _manifest.number_of(name.removeprefix(TEMPORARY)) is not None
            if ours and (unfinished or not (name.endswith(".json") or name in needed)):
                folder.remove(name)


class SaveContents(NamedTuple):
    """The contents of a save.

    Attributes:
        kept: The files of the last save that are used again.
        new: The rows that are written, int64 `[n, 3]`.
        head: The row after the newest of each lane.
        steps: Writes these rows; None: there are none.
        arrays: Returns the small arrays by name, once the rows are written.
        counts: Numbers of the buffer that are in no array.
        generator: The state of its generator.
    """

    kept: Sequence[StepsFile]
    new: Int64
    head: Int64
    steps: TensorWriter | None
    arrays: Callable[[], Mapping[str, Array]]
    counts: dict[str, int]
    generator: dict[str, Any]


def manifests_of(folder: Folder, identity: str) -> list[Manifest]:
    """Read the manifests of a directory, which have to be those of the buffer with that identity.

    Raises:
        StorageError: They are another buffer's, or all are damaged.
    """
    check_kind(folder, SAVES)
    found, damage = [], None
    for number in _manifest.numbers(folder):
        try:
            found.append(_manifest.read(folder, number))
        except CorruptionError as error:
            damage = error
    if damage is not None and not found:
        raise damage
    if found and found[0].identity != identity:
        remedy = "save to another directory; a buffer that goes on with these saves comes from `relive.load`"
        wanted = "an empty directory, or one of this buffer's saves"
        raise StorageError(message(wanted, "saves of another buffer", folder.path, remedy))
    return found


def _written(folder: Folder, name: str, number: int, writer: TensorWriter) -> File:
    folder.write(name, writer.parts(), writer.nbytes)
    return File(number, writer.nbytes, writer.checksum)


def planned(first: Int64, head: Int64, basis: Basis | None) -> tuple[list[StepsFile], Int64]:
    """Plan which files of the last save stay in use, and which rows have to be written.

    A file of which less than half is still stored is not used any more, and neither are the smallest where there are
    many; what is still stored of them is written again.
    """
    lanes = np.arange(len(head))
    if basis is None:
        return [], ranges_of(lanes, first, head)
    live = [(rows_in(clipped(part.ranges, first)), part) for part in basis.parts]
    useful = sorted((count, part.file.number) for count, part in live if 2 * count >= rows_in(part.ranges) > 0)
    most = MOST_FILES - 1
    numbers = {number for _, number in (useful if len(useful) <= most else useful[-(most // 2) :])}
    kept = [part for part in basis.parts if part.file.number in numbers]
    again = [clipped(part.ranges, first) for part in basis.parts if part.file.number not in numbers]
    new = np.concatenate([*again, ranges_of(lanes, np.maximum(basis.head, first), head)])
    return kept, np.ascontiguousarray(new[np.lexsort((new[:, 1], new[:, 0]))])
