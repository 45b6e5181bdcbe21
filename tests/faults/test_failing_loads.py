"""A load into a directory that is in use, refused or killed at every call: the directory holds the old or the new."""

from __future__ import annotations

import contextlib
import errno
import os
import traceback
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from depth import LONG, some, some_of_each
from failing import failing, serials
from rollouts import simple
from system_calls import KINDS, System, counted, watched

from relive.errors import StorageError
from relive.trajectories import TrajectoryReplayBuffer, verify

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
OLD, NEW = [0, 1, 2, 3, 4], [10, 11, 12]
FORMATS = ["pt", "safetensors"]


@pytest.fixture(params=FORMATS)
def checkpoint(request: pytest.FixtureRequest, folder: Path) -> Path:
    """Make a checkpoint with the ids 0 to 2, which some of the old ones have, too."""
    with TrajectoryReplayBuffer(trajectory_format=request.param) as buffer:
        buffer.add_trajectories([simple(serial, length=2) for serial in NEW])
        buffer.save_checkpoint(folder / "saved")
    return folder / "saved"


def lived(path: Path) -> TrajectoryReplayBuffer:
    buffer = TrajectoryReplayBuffer(path, seed=0, sample_window_size=0, cache_size=0)
    buffer.add_trajectories([simple(serial, length=2) for serial in OLD])
    buffer.sync()
    return buffer


def reopened(path: Path) -> list[int]:
    """Open the directory again; return its serials, and check that nothing unfinished is left."""
    with TrajectoryReplayBuffer(path, seed=0, sample_window_size=0) as buffer:
        found = serials(buffer)
        assert len(buffer) == len(found)
        buffer.add_trajectories([simple(99, length=2)])
        buffer.sync()
        assert serials(buffer) == [*found, 99]
    assert verify(path) == []
    names = [name for name in os.listdir(path) if not name.startswith(("lock", "index.sqlite"))]
    assert len(names) == len(found) + 1, "nothing is left behind"
    return found


@pytest.mark.parametrize(("kind", "first"), some(KINDS, 1))
@pytest.mark.parametrize(("checkpoint", "patience"), some(product(FORMATS, [1, 3]), 3), indirect=["checkpoint"])
def test_every_call_of_a_load_fails(
    patience: int, kind: str, first: int, checkpoint: Path, folder: Path, record_property: Any
) -> None:
    """Check that the buffer keeps its trajectories, or asks for another load; so does the next one there."""
    seen: set[tuple[Any, ...]] = set()
    names = counted(lambda system: loaded_once(folder / "whole", checkpoint, system))
    moments = some_of_each(range(1, len(names) + 1, patience), lambda k: names[k - 1], 2)
    for k in [*moments, len(names) + 1]:
        with watched() as system, lived(folder / str(k)) as buffer:
            system.reset()
            system.decide = verdict = failing(kind, first, k, patience)
            outcome: Any = NEW
            try:
                buffer.load_checkpoint(checkpoint)
            except StorageError:
                outcome = None
            system.decide = lambda name, number: None
            if outcome is None:
                outcome = told(buffer)
            if k % 2 and outcome == "half loaded":
                buffer.load_checkpoint(checkpoint)
                outcome = "loaded again"
            if outcome != "half loaded":
                assert serials(buffer) == (OLD if outcome == OLD else NEW)
                left = [name for name in os.listdir(folder / str(k)) if name.startswith(".tmp")]
                assert not left or len(verdict.hit) > 1, "tidied up, unless that failed, too"
        assert reopened(folder / str(k)) == (OLD if outcome == OLD else NEW)
        seen.add(tuple(outcome))
    record_property("cases", len(moments))
    assert not verdict.hit
    assert len(names) > 20
    assert seen == {tuple(OLD), tuple(NEW), tuple("half loaded"), tuple("loaded again")}


def loaded_once(path: Path, checkpoint: Path, system: System) -> None:
    with lived(path) as buffer:
        system.reset()
        buffer.load_checkpoint(checkpoint)
        system.decide = lambda name, number: None


def told(buffer: TrajectoryReplayBuffer) -> Any:
    """Return a buffer's serials after a load that failed, and after the fault is over."""
    try:
        return serials(buffer)
    except StorageError:
        for call in (lambda: buffer.sample(1), lambda: buffer.add_trajectories([simple(5, length=2)]), buffer.sync):
            with pytest.raises(StorageError, match="The last load was interrupted"):
                call()
        return "half loaded"


def test_a_load_is_killed_at_calls_that_change_something(checkpoint: Path, folder: Path, record_property: Any) -> None:
    seen = []
    names = counted(lambda system: loaded_once(folder / "whole", checkpoint, system))
    moments = [k for k, name in enumerate(names, 1) if LONG or name in ("write", "fsync", "rename", "unlink", "link")]
    for k in [*some_of_each(moments, lambda k: names[k - 1], 2), len(names) + 1]:
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                killed_at(k, folder / str(k), checkpoint)
                os._exit(0)
            traceback.print_exc()
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) in (0, 9), "ended in another way"
        seen.append(reopened(folder / str(k)))
    assert not status, "the last one had nothing to die of"
    record_property("cases", len(seen))
    assert len(names) > 20
    last = seen.index(NEW)
    assert last > 3
    assert seen == [OLD] * last + [NEW] * (len(seen) - last), "before the index changes all is old, then all is new"


def killed_at(k: int, path: Path, checkpoint: Path) -> None:
    warnings.simplefilter("ignore")
    with watched() as system:
        buffer = lived(path)
        system.reset()
        system.decide = lambda name, number: os._exit(9) if number == k else None  # type: ignore[func-returns-value]
        buffer.load_checkpoint(checkpoint)
        system.decide = lambda name, number: None


def test_a_finished_file_that_cannot_be_read_is_not_given_up(folder: Path) -> None:
    """Check that a flushed file's name does not go to the next trajectory, by which it would be lost."""
    with lived(folder / "whole") as buffer:
        (folder / "own").mkdir()
        for name in os.listdir(folder / "whole"):
            if name.startswith("trajectory"):
                os.link(folder / "whole" / name, folder / "own" / name)
        assert len(buffer) == len(OLD)
    for k in some(range(1, 4 * len(OLD)), 7):
        with watched() as system:
            reads = iter(range(1, 1000))
            system.decide = lambda name, _, k=k, reads=reads: (
                errno.EIO if name == "pread" and next(reads) == k else None
            )
            with pytest.raises(StorageError, match="Input/output error"):
                TrajectoryReplayBuffer(folder / "own")
    assert reopened(folder / "own") == OLD
