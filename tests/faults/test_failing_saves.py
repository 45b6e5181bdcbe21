"""Saves whose calls to the system fail, and directories that are not theirs: an error, and what was saved is there."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import signal
import stat
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from depth import eventually, some, some_of_each
from failing import failing
from forking import forked
from rollouts import simple
from saved_lives import SCHEMA, build, live, numbers, only_saves, rounds_of
from system_calls import KINDS, System, counted, kind_of, no_failed_sync_is_repeated, open_files, watched

import relive
from relive._base import system
from relive.checkpoints.inspection import verify as verify_saves
from relive.errors import StorageError
from relive.testing._lives import BACK_ENDS
from relive.trajectories import TrajectoryReplayBuffer, verify

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")


@pytest.mark.parametrize(("kind", "first"), some(KINDS, 1))
@pytest.mark.parametrize(("for_good", "keep"), some(product([False, True], [1, 2]), 2))
def test_every_call_of_a_save_fails(
    for_good: bool, keep: int, kind: str, first: int, folder: Path, record_property: Any
) -> None:
    """Check for the save before or this one; the buffer continues, and saves when the fault is over."""
    found = set()

    def whole(system: System) -> None:
        buffer = build()
        for rounds in range(2):
            live(buffer, rounds)
            system.reset()
            buffer.save(folder / "whole", keep=keep)

    names = counted(whole, BACK_ENDS[-1])
    for k in [*some_of_each(range(1, len(names) + 1), kind_of(names), 2), len(names) + 1]:
        path, errors = folder / str(k), []
        with watched(BACK_ENDS[-1]) as system:
            buffer = build()
            live(buffer, 0)
            buffer.save(path, keep=keep)
            live(buffer, 1)
            system.reset()
            system.decide = verdict = failing(kind, first, k, math.inf if for_good else 1)
            try:
                buffer.save(path, keep=keep, wait=bool(k % 3)).wait()
            except StorageError as error:
                errors.append(str(error))
            failed = bool(errors)
            assert all(re.match(r"(Expected|Could not) .+ - at `.+`", error) for error in errors)
            assert failed or verdict.hit[:1] not in (["write"], ["fsync"], ["rename"])
            no_failed_sync_is_repeated(system)
            system.decide = lambda name, number: None
            rounds = rounds_of(relive.load(path), [1, 2] if failed else [2])
            found.add((failed, rounds))
            live(buffer, 2)
            buffer.save(path, keep=keep)
            assert rounds_of(relive.load(path), [3]) == 3
            only_saves(path, keep)
    assert not verdict.hit
    record_property("cases", len(names))
    assert len(names) > 30
    assert found == {(True, 1), (True, 2), (False, 2)}


def test_meta_a_failed_sync_that_is_passed_over_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = system.sync

    def careless(fd: int) -> None:
        with contextlib.suppress(OSError):
            sync(fd)

    monkeypatch.setattr(system, "sync", careless)
    with pytest.raises(AssertionError):
        test_every_call_of_a_save_fails(False, 1, "disk", 0, folder, lambda *_: None)


@pytest.mark.parametrize("code", some([errno.EIO, errno.ESTALE, errno.ENOENT], 2))
def test_every_call_of_a_load_fails(code: int, folder: Path, record_property: Any) -> None:
    buffer = build()
    live(buffer, 0)
    buffer.save(folder)
    before = open_files()
    for k in range(1, 500):
        with watched(BACK_ENDS[-1]) as system:
            system.decide = lambda name, number, k=k: code if number == k else None
            called = True
            with contextlib.suppress(StorageError):
                relive.load(folder)
                called = system._count >= k
        assert len(os.listdir("/proc/self/fd")) <= before
        if not called:
            break
    record_property("cases", k)
    assert k > 10


def test_an_error_in_the_background_is_told(folder: Path) -> None:
    """Check that `wait` tells it each time, or the next save, which then fails; the one after it is made."""
    buffer = build()
    live(buffer, 0)
    with watched(BACK_ENDS[-1]) as system:
        for told in (True, False):
            system.decide = lambda name, number: errno.ENOSPC if name == "write" else None
            saved = buffer.save(folder, wait=False)
            for call in (saved.wait,) * 2 * told + (lambda saved=saved: saved.bytes_written,) * told:
                with pytest.raises(StorageError, match="No space left"):
                    call()
            eventually(lambda saved=saved: saved.done)
            system.decide = lambda name, number: None
            if not told:
                with pytest.raises(StorageError, match="No space left"):
                    buffer.save(folder)
                with pytest.raises(StorageError, match="No space left"):
                    saved.wait()
            buffer.save(folder)
            assert rounds_of(relive.load(folder), [1]) == 1


def test_only_the_owner_can_read_it(folder: Path) -> None:
    before = os.umask(0)
    try:
        build().save(folder / "runs" / "a" / "saves")
    finally:
        os.umask(before)
    for path in (folder / "runs").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert stat.S_IMODE((folder / "runs").stat().st_mode) == 0o700


def test_directories_of_others_are_refused(folder: Path) -> None:
    buffer = build()
    buffer.save(folder / "saves")
    with pytest.raises(StorageError, match="saves of another buffer"):
        build().save(folder / "saves")
    with TrajectoryReplayBuffer(folder / "rollouts"), pytest.raises(StorageError):
        buffer.save(folder / "rollouts")
    for call in (lambda: buffer.save(folder / "rollouts"), lambda: relive.load(folder / "rollouts")):
        with pytest.raises(StorageError, match="Expected"):
            call()
    (folder / "shards").mkdir()
    (folder / "shards" / "shards.json").touch()
    for path, kind in (("rollouts", "trajectories"), ("shards", "saves of `Shards`")):
        with pytest.raises(StorageError, match=f"got {kind}"):
            buffer.save(folder / path)
    (folder / "file").touch()
    for path in ("file", "none"):
        with pytest.raises(StorageError, match="a directory"):
            relive.load(folder / path)
    with pytest.raises(StorageError, match="a directory"):
        buffer.save(folder / "file")
    assert numbers(folder / "saves") == [1]


def test_one_save_at_a_time(folder: Path) -> None:
    """Check with a second process, and with a killed one's lock."""
    buffer = build()
    buffer.save(folder)
    reading, writing = os.pipe()

    def hold() -> None:
        held = relive._disk.files.Folder(folder)
        held.lock("")
        os.write(writing, b"x")
        signal.pause()

    with forked(hold, endless=True):
        os.read(reading, 1)
        with pytest.raises(StorageError, match=r"Could not lock .* wait for the save that is being written"):
            buffer.save(folder)
        assert numbers(folder) == [1]
    assert buffer.save(folder).number == 2


def test_a_save_that_is_replaced_while_it_is_opened(folder: Path) -> None:
    """Check that a load meanwhile gets the next one."""
    buffer = build()
    live(buffer, 0)
    buffer.save(folder)
    live(buffer, 1)
    with watched(BACK_ENDS[-1]) as system:
        left = ["state"]

        def before(name: str, args: tuple[object, ...]) -> None:
            if name == "open" and str(args[0]).startswith("state") and left:
                left.clear()
                buffer.save(folder)

        system.before = before
        assert rounds_of(relive.load(folder), [2]) == 2


def test_names_that_files_use_themselves_are_refused() -> None:
    for name in ("__metadata__", "a.b", "relive/ranges", ""):
        with pytest.raises(relive.SchemaError, match="an identifier without a leading underscore"):
            relive.Schema(**SCHEMA.tree, **{name: relive.Field()})


def test_files_that_a_network_file_system_keeps_are_left_alone(folder: Path) -> None:
    """Check with NFS's names for files that are deleted while open."""
    buffer = build()
    for path in (folder / "saves", folder / "rollouts"):
        path.mkdir()
        (path / ".nfs000000000012ab0000000001").write_bytes(b"left")
    for round_of in range(3):
        live(buffer, round_of)
        buffer.save(folder / "saves", keep=2)
        assert rounds_of(relive.load(folder / "saves"), [round_of + 1]) == round_of + 1
        with TrajectoryReplayBuffer(folder / "rollouts", max_trajectories=2) as rollouts:
            rollouts.add_trajectories([simple(round_of, length=2)])
            rollouts.sync()
            assert len(rollouts) == min(round_of + 1, 2)
    assert verify_saves(folder / "saves") == verify(folder / "rollouts") == []
    for path in (folder / "saves", folder / "rollouts"):
        assert (path / ".nfs000000000012ab0000000001").read_bytes() == b"left"
