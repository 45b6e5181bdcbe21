"""The k-th call to the system fails, for the k of calls of each kind: nothing acknowledged is lost.

In the long mode it is every k of a whole life.
A failure is a StorageError at the next call or at `flush`, never another exception and never silence. When the fault is
over the same buffer goes on, and everything is there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import eventually, some, some_of_each
from failing import Failing, failing, serials
from rollouts import simple
from system_calls import KINDS, System, counted, kind_of, no_failed_sync_is_repeated, watched

from relive.errors import StorageError
from relive.trajectories import TrajectoryReplayBuffer, verify

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
KEPT = 5
CHANGES = {"write", "fsync", "rename", "unlink", "link"}


class Life:
    """A writer's life, whose calls are repeated until they succeed."""

    def __init__(self, folder: Path, system: System, patience: int) -> None:
        self.folder, self.system, self.patience = folder, system, patience
        self.errors: list[StorageError] = []
        self.asked = self.acknowledged = 0

    def insist(self, job: Callable[[], Any]) -> Any:
        """Repeat a call that may be refused some times, after which the fault is over; return its result."""
        for attempt in range(self.patience + 20):
            if attempt == self.patience:
                self.system.decide = lambda name, number: None
            try:
                return job()
            except StorageError as error:
                self.errors.append(error)
        raise AssertionError(f"the fault is over, and still: {self.errors[-1]}")

    def open(self) -> TrajectoryReplayBuffer:
        return self.insist(
            lambda: TrajectoryReplayBuffer(self.folder / "own", max_trajectories=KEPT, enable_cache=False, seed=0)
        )

    def add(self, buffer: TrajectoryReplayBuffer, count: int) -> None:
        for _ in range(count):
            self.insist(lambda: buffer.add_trajectories([simple(self.asked, length=2)]))
            self.asked += 1

    def sync(self, buffer: TrajectoryReplayBuffer) -> None:
        reached = self.insist(buffer.flush)
        assert reached.added == reached.flushed >= reached.durable
        reached = self.insist(buffer.sync)
        assert reached.added == reached.flushed == reached.durable
        self.acknowledged = self.asked
        assert self.insist(lambda: serials(buffer)) == self.expected()

    def expected(self) -> list[int]:
        return list(range(max(self.asked - KEPT, 0), self.asked))

    def live(self) -> None:
        """Open, add beyond the limit, save twice, load, close, and open again."""
        buffer = self.open()
        self.add(buffer, 2)
        self.sync(buffer)
        self.insist(lambda: buffer.save_checkpoint(self.folder / "saved"))
        self.add(buffer, 4)
        self.sync(buffer)
        self.insist(lambda: buffer.save_checkpoint(self.folder / "saved"))
        self.insist(buffer.close)
        buffer = self.open()
        assert self.insist(lambda: serials(buffer)) == self.expected()
        self.add(buffer, 1)
        self.insist(buffer.close)
        self.check()

    def check(self) -> None:
        """Check, without faults, the directory and the checkpoint."""
        self.system.decide = lambda name, number: None
        with self.open() as again:
            assert serials(again) == self.expected()
        assert verify(self.folder / "own") == verify(self.folder / "saved") == []
        with TrajectoryReplayBuffer() as loaded:
            loaded.load_checkpoint(self.folder / "saved")
            assert serials(loaded) == list(range(1, 6))
        names = {name for name in os.listdir(self.folder / "own") if name.startswith(("trajectory", ".tmp"))}
        assert len(names) == KEPT, "nothing is left behind"


@pytest.mark.parametrize(("kind", "first"), some(KINDS, 1))
@pytest.mark.parametrize("patience", [1, 3], ids=["once", "for some time"])
def test_every_call_fails(kind, first, patience, folder, record_property):
    """Fail once, each kind after each other one, or from the k-th call on until three of the caller's are refused."""
    names = counted(lambda system: Life(folder / "whole", system, patience).live())
    behind = [
        before if name in CHANGES and patience == 1 else "" for before, name in zip(["", *names], names, strict=False)
    ]
    moments = some_of_each(range(1, len(names) + 1, patience), lambda k: (names[k - 1], behind[k - 1]), 1)
    told = reached = 0
    for k in moments:
        verdict = failing(kind, first, k, 1 if patience == 1 else np.inf)
        with watched() as system:
            life = Life(folder / str(k), system, patience)
            system.decide = verdict
            life.live()
            no_failed_sync_is_repeated(system)
        reached += bool(verdict.hit)
        told += bool(life.errors)
        assert all(re.match(r"(Expected|Could not) .+ - at `.+`", str(error)) for error in life.errors)
        if verdict.hit[:1] in (["write"], ["fsync"], ["rename"]):
            assert life.errors, f"nobody was told that {verdict.hit} failed"
            code = getattr(verdict.verdict, "code", verdict.verdict)
            assert any(os.strerror(code) in str(error) for error in life.errors)
    record_property("cases", reached)
    assert len(names) > 100
    assert reached > 0.9 * len(moments)
    assert told > reached / 10


@pytest.mark.parametrize("cache", [0, 9])
def test_reads_fail(cache, folder):
    """Fail reads of single rows and of whole files: the error names the file, and the next draw is right."""
    with TrajectoryReplayBuffer(folder, seed=0) as buffer:
        add(buffer, 3)
    with watched() as system, TrajectoryReplayBuffer(folder, seed=0, cache_size=cache) as buffer:
        for k in range(1, 10):
            buffer._store.cache.ids.clear()
            buffer._store.blocks.clear()
            reads = iter(range(1, 10**6))
            system.decide = lambda name, number, k=k, reads=reads: (
                errno.EIO if name in ("pread", "preadv") and next(reads) == k else None
            )
            with pytest.raises(StorageError, match="Input/output error"):
                buffer.sample(80)
            system.decide = lambda name, number: None
            assert serials(buffer) == [0, 1, 2]


@pytest.mark.parametrize("size", [0, 1, 7, 4096])
def test_short_writes_are_continued(size, folder):
    """Check that a write of no bytes is a full disk, not a reason to try for ever."""
    with watched() as system:
        life = Life(folder, system, 2)
        system.decide = lambda name, number: [size] if name == "write" else None
        life.live()
        assert any("no byte" in str(error) for error in life.errors) if size == 0 else not life.errors
        assert system.names().count("write") > 30 or size > 7


@pytest.mark.parametrize("mode", ["memory", "disk"])
def test_an_interrupted_save_leaves_the_checkpoint_that_was_there(mode, folder, record_property):
    """Interrupt the second save at calls of each kind: the first checkpoint or the second is loaded, whole."""
    seen = set()

    def interrupted(k: float, system: System) -> bool:
        """Let all calls fail from the k-th on; return True if the save has failed."""
        own, saved = folder / f"own{k}" if mode == "disk" else None, folder / f"saved{k}"
        with TrajectoryReplayBuffer(own, max_trajectories=3) as buffer:
            add(buffer, 3)
            buffer.save_checkpoint(saved)
            add(buffer, 2, 3)
            buffer.sync()
            system.reset()
            system.decide = system.decide if k == np.inf else Failing(errno.EIO, int(k), np.inf)
            with contextlib.suppress(StorageError):
                buffer.save_checkpoint(saved)
                k = np.inf
            system.decide = lambda name, number: None
            for again in (False, True):
                if again:
                    buffer.save_checkpoint(saved)
                with TrajectoryReplayBuffer(seed=1) as loaded:
                    loaded.load_checkpoint(saved)
                    found = serials(loaded)
                seen.add(tuple(found))
                assert found in ([[2, 3, 4]] if again or k == np.inf else [[0, 1, 2], [2, 3, 4]])
        return k != np.inf

    names = counted(lambda system: interrupted(np.inf, system))
    seen.clear()
    moments = [*some_of_each(range(1, len(names) + 1), kind_of(names), 1), len(names) + 1]
    for k in moments:
        with watched() as system:
            failed = interrupted(k, system)
    record_property("cases", len(moments))
    assert not failed, "the last one had nothing to fail of"
    assert len(names) > 10
    assert seen == {(0, 1, 2), (2, 3, 4)}


def add(buffer: TrajectoryReplayBuffer, count: int, first: int = 0) -> None:
    buffer.add_trajectories([simple(first + k, length=2) for k in range(count)])


def test_an_error_is_told_before_anything_is_added(folder):
    """Check that the call that raises has added nothing; earlier additions are written once that is possible."""
    with watched() as system, TrajectoryReplayBuffer(folder) as buffer:
        system.decide = lambda name, number: errno.ENOSPC if name == "write" else None
        buffer.add_trajectories([simple(0)])
        with pytest.raises(StorageError, match="No space left on device"):
            buffer.sync()
        for _ in range(3):
            before = len(buffer)
            while True:  # the writer tries again in the background, and needs its time to fail
                try:
                    buffer.add_trajectories([simple(before)])
                except StorageError:
                    break
            assert buffer.get_stats()["added"] == len(buffer)
            assert buffer.get_stats()["flushed"] == buffer.get_stats()["durable"] == 0
        with pytest.raises(StorageError):
            buffer.close()
        eventually(lambda: buffer._writer._error is not None)
        system.decide = lambda name, number: None
        added = len(buffer)  # and now it closes, although the last attempt has failed
    with TrajectoryReplayBuffer(folder) as again:
        assert len(again) == added


def test_a_full_queue_and_a_full_disk_do_not_wait_for_each_other(folder):
    with watched() as system, TrajectoryReplayBuffer(folder, queue_bytes=0) as buffer:
        system.decide = lambda name, number: errno.ENOSPC if name == "write" else None
        add(buffer, 3)  # takes all or nothing, and does not hang
        with pytest.raises(StorageError):
            buffer.sync()
        system.decide = lambda name, number: None
        assert buffer.sync() == (3, 3, 3)
        assert serials(buffer) == [0, 1, 2]


class FailingDatabase(sqlite3.Connection):
    """A connection whose k-th statement fails; None: none does, and none is counted."""

    k: int | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.statements: list[str] = []

    def _count(self, text: str) -> None:
        if self.k is not None:
            self.statements.append(text)
            if len(self.statements) == self.k:
                raise sqlite3.OperationalError("disk I/O error")

    def execute(self, text: str, *args: Any) -> Any:
        self._count(text)
        return super().execute(text, *args)

    def executemany(self, text: str, *args: Any) -> Any:
        self._count(text)
        return super().executemany(text, *args)


def test_statements_of_the_index_fail(folder, record_property, monkeypatch):
    """Fail statements of each kind, also the COMMIT, after which the transaction must not stay open."""

    real, made = sqlite3.connect, list[FailingDatabase]()

    def connect(*args: Any, **kwargs: Any) -> FailingDatabase:
        db = real(*args, **kwargs, factory=FailingDatabase)
        if "check_same_thread" in kwargs:  # what writes, and not what looks
            made.append(db)
        return db

    monkeypatch.setattr(sqlite3, "connect", connect)

    def lived(k: int) -> tuple[list[str], int]:
        made.clear()
        with TrajectoryReplayBuffer(folder / str(k), max_trajectories=3, seed=0, enable_cache=False) as buffer:
            (db,), told = made, 0
            db.k = k
            for serial in range(5):
                for call in (lambda serial=serial: add(buffer, 1, serial), buffer.sync):
                    for _ in range(3):
                        try:
                            call()
                            break
                        except StorageError as error:
                            told += "disk I/O error" in str(error)
            assert serials(buffer) == [2, 3, 4]
        with TrajectoryReplayBuffer(folder / str(k), seed=0) as again:
            assert serials(again) == [2, 3, 4]
        return db.statements, told

    statements, _ = lived(0)
    moments = some_of_each(range(1, len(statements) + 1), lambda k: statements[k - 1], 2)
    assert all(lived(k)[1] for k in moments)
    record_property("cases", len(moments))
    assert len(statements) > 20
    assert "COMMIT" in statements


@contextlib.contextmanager
def files_of_at_most(nbytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("limit", some([0, 100, 3000, 20_000, 40_000], 3))
def test_files_that_may_not_grow(limit, folder):
    """Set the system's own limit, which cuts writes short first, then refuses them; it holds for the index, too."""
    with TrajectoryReplayBuffer(folder, seed=0, enable_cache=False) as buffer:
        add(buffer, 3)
        buffer.sync()
        added = 3
        with files_of_at_most(limit):
            for _ in range(12):
                with contextlib.suppress(StorageError):
                    buffer.add_trajectories([simple(added, length=2)])
                    added += 1
                    buffer.sync()
            assert set(serials(buffer)) == set(range(added))
        with contextlib.suppress(StorageError):
            buffer.sync()  # may still tell of the last failure
        assert buffer.sync() == (added,) * 3
    with TrajectoryReplayBuffer(folder, seed=0) as again:
        assert serials(again) == list(range(added))
    assert verify(folder) == []
