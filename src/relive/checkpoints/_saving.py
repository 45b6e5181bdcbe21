"""Saving a buffer again and again."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from .._base import check, forks
from .._base.types import Array, Int64
from .._buffer.core import Core
from .._buffer.saved_as import described
from .._buffer.schemas import fields_of
from .._buffer.tally import Tally
from .._disk.files import Folder
from .._ring import kernels
from ..errors import ReliveWarning, StorageError, event, message
from ._copy_on_overwrite import CopyOnOverwrite
from ._manifest import File, Manifest
from ._save_task import Basis, SaveContents, SavePlace, SaveTask, planned
from ._saved import Saved
from ._snapshot import Snapshot
from ._steps import steps_writer

STATE_FORMAT = "relive.state.1"

_CLAIM = "lock-autosave"  # locked as long as an autosave lives


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

    def save(self, kind: Callable[[SavePlace], SaveTask], path: str, keep: int, wait: bool, verify: bool) -> Saved:
        """Save by a task that `kind` makes, with the arguments of `ReplayBuffer.save`."""
        keep = check.integer(keep, "ReplayBuffer.save(keep)", minimum=1)
        check.flag(wait, "ReplayBuffer.save(wait)")
        check.flag(verify, "ReplayBuffer.save(verify)")
        with self._lock:
            last, self._behind = self._behind, None
            if last is not None:
                last._ended.wait()
                if not last._told:
                    last.wait()
            task = kind(SavePlace(Folder(path, create=True), self._identity, self._mark, keep))
            task.begin(self.check, self._basis, verify, self._damaged)
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
        """Start afresh in a child, which has no thread that saves, and no part in its saves."""
        self._lock, self._behind, self._claimed = kernels.active().Lock(), None, None
        self._known, self._mark = self.known, os.urandom(8).hex()

    def _run(self, task: SaveTask) -> None:
        try:
            self._basis = task.run()
            task.end()
        except BaseException as error:
            task.end(error)


def save(core: Core, path: str | os.PathLike[str], keep: int, wait: bool, verify: bool) -> Saved:
    """Implement `ReplayBuffer.save`."""
    folder = check.path(path, "ReplayBuffer.save(path)")
    core.lock.check_not_held("ReplayBuffer.save")
    with core.lock.alone():
        saver = saver_of(core.tally)
    return saver.save(partial(_CoreTask, core), folder, keep, wait, verify)


def saver_of(tally: Tally) -> Saver:
    """Return the saver of a buffer; make it where there is none."""
    saver = tally.saver
    if not isinstance(saver, Saver):
        tally.saver = saver = Saver(tally.identity)
    return saver


class _CoreTask(SaveTask):
    """A save of an ordinary buffer."""

    def __init__(self, core: Core, place: SavePlace) -> None:
        super().__init__(place)
        self._core = core
        self._guard: CopyOnOverwrite | None = None

    def choices(self) -> dict[str, object]:
        """Return what the buffer was built from, as JSON."""
        return choices_of(self._core)

    def take(self, basis: Basis | None) -> float:
        """Copy what changes, plan the rest, and guard the rows that are to be written."""
        core, self._snapshot = self._core, Snapshot(self._core)
        with core.lock.alone():
            begun = time.perf_counter()
            core.access.still(lambda: self._copy(basis))
            self._generator = self._snapshot.generator()
            if self._guard is not None:
                core.writer.watch(self._guard)
            return time.perf_counter() - begun

    def _copy(self, basis: Basis | None) -> Int64:
        """Copy what changes, and plan the rest; return how far lanes may go before that is written."""
        self._snapshot.take()
        self._kept, self._new = planned(self._snapshot.first, self._snapshot.head, basis)
        # It lives as long as this task, whatever ends it.
        self._guard = CopyOnOverwrite(self._core.schema, self._core.ring, self._new)
        return self._guard.limits

    def contents(self) -> SaveContents:
        """Return what is to be written; of the rows, as they were at the instant."""
        steps = None
        if self._guard is not None and len(self._new):
            steps = steps_writer(self._core.schema, self._guard, self._new)
        facts, generator = self._snapshot.facts, self._generator
        return SaveContents(self._kept, self._new, self._snapshot.head, steps, self._arrays, facts.counts, generator)

    def _arrays(self) -> Mapping[str, Array]:
        self._close()  # the rows are written
        return self._snapshot.arrays()

    def check(self) -> None:
        """Raise an error if another process wrote meanwhile."""
        self._snapshot.check()

    def release(self) -> None:
        """Let go of the rows."""
        self._close()
        self._core.access.release()

    def _close(self) -> None:
        if self._guard is not None:
            self._guard.close()


def choices_of(core: Core) -> dict[str, object]:
    """Describe the choices of a buffer as JSON."""
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
