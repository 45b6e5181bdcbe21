"""Saving a buffer: the files in an order in which a kill or a loss of power leaves a complete save behind."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import warnings
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from .._base import check, forks
from .._base.frozen import Frozen
from .._base.types import Int64
from .._buffer.core import Core, Tally
from .._buffer.saved_as import described
from .._buffer.schemas import fields_of
from .._disk.files import TEMPORARY, Folder
from .._disk.kinds import SAVES, check_kind
from .._disk.tensor_writer import TensorWriter, portions_of
from .._disk.tensors import Tensor
from .._ring import kernels
from ..errors import CorruptionError, ReliveWarning, StorageError, event, message
from . import _manifest
from ._checking import Checks
from ._copy_on_overwrite import CopyOnOverwrite
from ._manifest import MOST_FILES, File, Manifest
from ._saved import Saved
from ._snapshot import Snapshot
from ._steps import clipped, ranges_of, rows_in, steps_writer

STATE_FORMAT = "relive.state.1"
_CLAIM = "lock-autosave"  # locked as long as an autosave lives


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


class Saver:
    """Saves one buffer, again and again. It does not hold the buffer, which holds it: memory goes with `del buffer`.

    Copies of a buffer have its identity, so each saver marks the tokens of its saves: where the newest save in a
    directory is neither its own nor known, a copy goes on there, too, or a program that was started twice.

    Args:
        name: The buffer's identity.
        basis: The save that it was loaded from.
        known: Tokens of saves that were in the directory then.
    """

    def __init__(self, name: str, basis: Basis | None = None, known: Iterable[str] = ()) -> None:
        self._identity, self._basis, self._known = name, basis, {*known}
        self._mark = os.urandom(8).hex()
        self._claimed: Folder | None = None  # the directory of the buffer's autosave
        self._behind: Saved | None = None  # the last save that no call waited for
        self._damaged: set[File] = set()  # files that were found damaged
        self._lock = kernels.active().Lock()
        forks.tell(self)

    @property
    def taken(self) -> bool:
        """True in a thread that is in the middle of a save."""
        return self._lock.taken()

    @property
    def known(self) -> set[str]:
        """Tokens of saves that the buffer goes on from, with or without this saver."""
        return self._known if self._basis is None else {*self._known, self._basis.token}

    def claim(self, path: str) -> None:
        """Keep all other buffers from saving to a directory, until `release` or the end of the process.

        Raises:
            StorageError: Another one has claimed it.
        """
        folder = Folder(path, create=True)
        try:
            remedy = (
                "close the autosave that another buffer has there, or end its program; or save to another directory"
            )
            folder.lock(remedy, _CLAIM)
        except BaseException:
            folder.close()
            raise
        self._claimed = folder

    def release(self) -> None:
        """Let others save to the directory that was claimed."""
        claimed, self._claimed = self._claimed, None
        if claimed is not None:
            claimed.close()

    def check(self, folder: Folder, found: Sequence[Manifest]) -> None:
        """Check that no other buffer goes on with the saves in a directory, `found`, the newest first.

        Raises:
            StorageError: One has an autosave there; or this one has, and another one has saved there meanwhile.
        """
        at, claimed = folder.path, self._claimed is not None and os.path.samefile(self._claimed.path, folder.path)
        if not claimed and folder.locked(_CLAIM):
            remedy = "close that autosave, or end its program; or save to another directory"
            raise StorageError(message("a directory of this buffer's", "the autosave of another buffer", at, remedy))
        token = found[0].token if found else self._mark
        if not token.startswith(self._mark) and token not in self.known:
            got = f"save {found[0].number} of a copy of it: another program, or another buffer, saved there meanwhile"
            remedy = "save to another directory, or go on with `relive.load(path)`"
            if claimed:
                raise StorageError(message("this buffer's own saves", got, at, remedy))
            what = f"Expected this buffer's own saves, got {got}. This save takes their place"
            warnings.warn(event(what, at, remedy), ReliveWarning, stacklevel=6)

    def save(self, core: Core, path: str, keep: int, wait: bool, verify: bool) -> Saved:
        """`ReplayBuffer.save`."""
        keep = check.integer(keep, "ReplayBuffer.save(keep)", minimum=1)
        check.flag(wait, "ReplayBuffer.save(wait)")
        check.flag(verify, "ReplayBuffer.save(verify)")
        with self._lock:
            last, self._behind = self._behind, None
            if last is not None:
                last._ended.wait()
                if not last._told:
                    last.wait()
            task = _Task(core, Folder(path, create=True), self._identity, self._mark, keep)
            task.begin(self, self._basis, verify, self._damaged)
            if wait:
                self._run(task)
                return task.saved.wait()
            try:
                threading.Thread(target=self._run, args=(task,), name="relive-save").start()
            except BaseException as error:
                task.end(error)
                raise
            self._behind = task.saved
            return task.saved

    def _forked(self) -> None:
        """In a child: the thread that saves is not there, and what it saves is not the child's."""
        self._lock, self._behind, self._claimed = kernels.active().Lock(), None, None
        self._known, self._mark = self.known, os.urandom(8).hex()

    def _run(self, task: _Task) -> None:
        try:
            self._basis = task.run()
            task.end()
        except BaseException as error:
            task.end(error)


def save(core: Core, path: str | os.PathLike[str], keep: int, wait: bool, verify: bool) -> Saved:
    """`ReplayBuffer.save`."""
    folder = check.path(path, "ReplayBuffer.save(path)")
    with core.lock.alone():
        saver = saver_of(core.tally)
    return saver.save(core, folder, keep, wait, verify)


def saver_of(tally: Tally) -> Saver:
    """Return the saver of a buffer; make it where there is none."""
    saver = tally.saver
    if not isinstance(saver, Saver):
        tally.saver = saver = Saver(tally.identity)
    return saver


def manifests_of(folder: Folder, identity: str) -> list[Manifest]:
    """The saves of a directory, which have to be those of the buffer with that identity.

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


class _Task:
    """One save, from the instant on that it saves."""

    def __init__(self, core: Core, folder: Folder, name: str, mark: str, keep: int) -> None:
        self._start = time.perf_counter()
        self._core, self._folder, self._identity, self._mark, self._keep = core, folder, name, mark, keep

    def begin(self, saver: Saver, basis: Basis | None, verify: bool, damaged: set[File]) -> None:
        """Take the snapshot; if that fails, the directory is let go of."""
        core, folder = self._core, self._folder
        try:
            self._choices = choices_of(core)
            folder.lock("wait for the save that is being written there, or save to another directory")
            found = manifests_of(folder, self._identity)
            saver.check(folder, found)
            self._number = 1 + max([0, *_manifest.numbers(folder)])
            self._checks = Checks(folder, self._number, verify, damaged)
            basis = self._continued(found, basis)
            self._snapshot = Snapshot(core)
            with core.lock.alone():
                begun = time.perf_counter()
                core.access.still(lambda: self._take(basis))
                self._generator = self._snapshot.generator()
                core.writer.watch(self._guard)
                stopped = time.perf_counter() - begun
            self.saved = Saved(folder.path, self._number)
            self.saved.stopped = stopped
        except BaseException:
            core.access.release()
            folder.close()
            raise

    def _take(self, basis: Basis | None) -> Int64:
        """Copy what changes, and plan the rest; how far lanes may go before that is written."""
        self._snapshot.take()
        self._kept, self._new = _planned(self._snapshot, basis)
        # It lives as long as this task, whatever ends it.
        self._guard = CopyOnOverwrite(self._core.schema, self._core.ring, self._new)
        return self._guard.limits

    def end(self, error: BaseException | None = None) -> None:
        """Let go of the directory and of the buffer's rows, whatever came of it."""
        self._guard.close()
        self._core.access.release()
        self._folder.close()
        self.saved._end(error)

    def run(self) -> Basis:
        """Write the files; what the next save can build upon."""
        folder, number = self._folder, self._number
        before = self._folder.sizes()
        parts, written = list(self._kept), 0
        if len(self._new):
            writer = steps_writer(self._core.schema, self._guard, self._new)
            parts.append(StepsFile(_written(folder, _manifest.steps_name(number), number, writer), self._new))
            written += writer.nbytes
        self._guard.close()
        arrays = self._snapshot.arrays()
        tensors = {name: Tensor.of(array.dtype, array.shape) for name, array in arrays.items()}
        portions = chain.from_iterable(portions_of(*each) for each in arrays.items())
        state = TensorWriter(tensors, portions, {"format": STATE_FORMAT})
        manifest = Manifest(
            number=number,
            identity=self._identity,
            token=self._mark + os.urandom(8).hex(),
            choices=self._choices,
            counts=self._snapshot.facts.counts,
            generator=self._generator,
            state=_written(folder, _manifest.state_name(number), number, state),
            steps=tuple(part.file for part in parts),
        )
        # The files are there for good before the manifest says that they are.
        folder.sync()
        text = manifest.dumped()
        self._snapshot.check()
        folder.write(_manifest.manifest_name(number), [text])
        folder.sync()
        self._prune(manifest, before)
        self.saved._written, self.saved._total = written + state.nbytes + len(text), manifest.nbytes + len(text)
        self.saved._seconds = time.perf_counter() - self._start
        return Basis(manifest.token, self._snapshot.head, tuple(parts))

    def _continued(self, found: Sequence[Manifest], basis: Basis | None) -> Basis | None:
        """The save that this buffer made last, if the directory has it, and nothing is seen to be wrong with it."""
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


def choices_of(core: Core) -> dict[str, object]:
    """What a buffer was built from, as JSON."""
    choices = core.choices
    limiter = {} if core.limit is None else {"limiter": described(core.limit.limiter)}
    return {
        "schema": fields_of(core.schema),
        "num_envs": choices.num_envs,
        "rows": choices.rows,
        "steps": choices.steps,
        "boundaries": choices.boundaries,
        "item": described(core.item),
        "sampler": described(core.sampler),
        "storage": described(core.storage),
        **limiter,
        "window": core.ring.window.facts,
        "digest": choices.identity.hex(),
    }


def _written(folder: Folder, name: str, number: int, writer: TensorWriter) -> File:
    folder.write(name, writer.parts(), writer.nbytes)
    return File(number, writer.nbytes, writer.checksum)


def _planned(snapshot: Snapshot, basis: Basis | None) -> tuple[list[StepsFile], Int64]:
    """The files of the last save that go on being used, and the rows that have to be written.

    A file of which less than half is still stored is not used any more, and neither are the smallest where there are
    many; what is still stored of them is written again.
    """
    lanes = np.arange(len(snapshot.head))
    if basis is None:
        return [], ranges_of(lanes, snapshot.first, snapshot.head)
    live = [(rows_in(clipped(part.ranges, snapshot.first)), part) for part in basis.parts]
    useful = sorted((count, part.file.number) for count, part in live if 2 * count >= rows_in(part.ranges) > 0)
    most = MOST_FILES - 1
    numbers = {number for _, number in (useful if len(useful) <= most else useful[-(most // 2) :])}
    kept = [part for part in basis.parts if part.file.number in numbers]
    again = [clipped(part.ranges, snapshot.first) for part in basis.parts if part.file.number not in numbers]
    new = np.concatenate([*again, ranges_of(lanes, np.maximum(basis.head, snapshot.first), snapshot.head)])
    return kept, np.ascontiguousarray(new[np.lexsort((new[:, 1], new[:, 0]))])
