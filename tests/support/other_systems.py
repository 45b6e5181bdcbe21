"""What works on every system, on a Linux that lacks what another system lacks.

A program: `python other_systems.py darwin|win32|emscripten FOLDER`. relive gets a module `os` of its own, without the
names that the system has not, and whose calls refuse what it refuses; Python's own modules keep theirs.
"""

from __future__ import annotations

import concurrent.futures
import copy
import ctypes
import errno
import fcntl
import logging
import mmap
import os
import platform
import resource
import shutil
import sqlite3
import sys
import tempfile
import types
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

assert all((concurrent.futures, ctypes, logging, platform, sqlite3, tempfile, zipfile))  # of this system, before
BINARY = 1 << 30  # in Windows' flags: bytes as they are
LACKS = {
    "darwin": "posix_fadvise posix_fallocate preadv sched_getaffinity",
    "emscripten": "fork posix_fallocate posix_spawn preadv register_at_fork sched_getaffinity",
    "win32": "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK SEEK_HOLE fork fstatvfs geteuid getuid major minor "
    "posix_fadvise posix_fallocate posix_spawn pread preadv register_at_fork sched_getaffinity sysconf uname waitpid",
}
ONLY_HERE = {
    fcntl: ["F_OFD_GETLK", "F_OFD_SETLK"],
    resource: ["RUSAGE_THREAD"],
    mmap: ["MADV_HUGEPAGE", "MAP_PRIVATE", "MAP_ANONYMOUS", "MAP_POPULATE"],
}


def pretend(system: str) -> None:
    """Make this look like another system to modules that are imported from now on."""
    seen = types.ModuleType("os")
    seen.__dict__.update({name: value for name, value in vars(os).items() if name not in LACKS[system].split()})
    for module, names in ONLY_HERE.items():
        for name in names:
            delattr(module, name)
    fcntl.F_FULLFSYNC = 51  # type: ignore[attr-defined]
    if system != "darwin":
        sys.modules["fcntl"] = sys.modules["resource"] = None  # type: ignore[assignment]
    if system == "win32":
        as_windows(seen)
    sys.modules["os"], sys.platform = seen, system


def as_windows(seen: Any) -> None:
    """Refuse directories as files, names relative to them, and to move or delete what is open."""
    move, remove, sync, scan, start = os.replace, os.unlink, os.fsync, os.scandir, os.open
    flags_of, flock = fcntl.fcntl, fcntl.flock

    def closed(path: str) -> str:
        for fd in os.listdir("/proc/self/fd"):
            if os.path.realpath(f"/proc/self/fd/{fd}") == os.path.realpath(path):
                raise PermissionError(errno.EACCES, "the file is in use", path)
        return path

    def opened(path: str, flags: int, mode: int = 0o777, *, dir_fd: None = None) -> int:
        assert dir_fd is None, f"{path}: a name within a directory"
        assert flags & BINARY, f"{path}: as text"
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "a directory", path)
        return start(path, flags & ~BINARY, mode)

    def renamed(old: str, new: str, *, src_dir_fd: None = None, dst_dir_fd: None = None) -> None:
        if os.path.exists(new):
            raise FileExistsError(errno.EEXIST, "there is one", new)
        replaced(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def replaced(old: str, new: str, *, src_dir_fd: None = None, dst_dir_fd: None = None) -> None:
        assert (src_dir_fd, dst_dir_fd) == (None, None)
        move(closed(old), closed(new))

    def unlinked(path: str, *, dir_fd: None = None) -> None:
        assert dir_fd is None
        remove(closed(path))

    def synced(fd: int) -> None:
        if flags_of(fd, 3) & os.O_ACCMODE == os.O_RDONLY:  # 3: F_GETFL
            raise OSError(errno.EBADF, "open for reading")
        sync(fd)

    def listed(path: str) -> Any:
        assert isinstance(path, str), "a descriptor"
        return scan(path)

    seen.__dict__.update(open=opened, rename=renamed, replace=replaced, unlink=unlinked, remove=unlinked)
    seen.__dict__.update(fsync=synced, scandir=listed, supports_dir_fd=set(), supports_fd=set(), O_BINARY=BINARY)
    windows: Any = types.ModuleType("msvcrt")
    windows.LK_NBLCK, windows.locking = 2, lambda fd, kind, count: flock(fd, 6)  # 6: at once or not at all
    sys.modules["msvcrt"] = windows


def run(folder: Path) -> None:
    """Use buffers of every item and sampler, saves, and trajectories."""
    import relive
    from relive.trajectories import TrajectoryReplayBuffer

    vector = relive.Field(3)
    plain = relive.Schema(obs=vector, action=relive.Field())
    goals = relive.Schema(obs={"achieved_goal": vector, "desired_goal": vector}, action=relive.Field())
    items = [
        relive.Transitions(n_step=3),
        relive.Sequences(length=4),
        relive.Hindsight(reward=lambda achieved, desired, info: -np.abs(achieved - desired).sum(-1)),
    ]
    steps = np.arange(120, dtype=np.float32).reshape(2, 60, 1) + np.zeros(3, np.float32)
    uniform, prioritized = relive.Uniform(), relive.Prioritized()
    for item, sampler in zip(items, (prioritized, uniform, prioritized), strict=True):
        saves = folder / f"{type(item).__name__} {type(sampler).__name__}"
        hindsight = isinstance(item, relive.Hindsight)
        buffer = relive.ReplayBuffer(goals if hindsight else plain, 80, num_envs=2, item=item, sampler=sampler, seed=0)
        for t in range(59):
            obs, following = (
                {"achieved_goal": each, "desired_goal": each + 5} if hindsight else each
                for each in (steps[:, t], steps[:, t + 1])
            )
            ends = np.full(2, t % 20 == 19)
            buffer.add(
                obs=obs, action=[t, t], reward=[t, 1], next_obs=following, terminated=ends, truncated=~ends & False
            )
            if t == 30:
                buffer.save(saves)
        drawn = buffer.sample(8)
        if not isinstance(sampler, relive.Uniform):
            buffer.update_priorities(drawn.ids, np.ones(drawn.ids.shape))
        buffer.save(saves, verify=True)
        again = relive.load(saves, item=item)
        assert np.array_equal(again.sample(8).ids, buffer.sample(8).ids)
        assert copy.deepcopy(again).stats() == again.stats()
        with buffer.autosave(saves, every=1.0) as saving:
            buffer.clear()
        assert (saving.stats().errors, len(relive.load(saves, item=item))) == (0, 0)

    frames = np.repeat(steps.swapaxes(0, 1), 1000, axis=2)
    rollout = {"curr_obs": {"states": frames}, "rewards": np.zeros((60, 2, 1), np.float32)}
    with TrajectoryReplayBuffer(folder / "run", seed=0, max_trajectories=4, enable_cache=False) as rollouts:
        for _ in range(3):
            rollouts.add_trajectories([rollout, rollout])
            rollouts.sync()
            rollouts.sample(16)
        shutil.copytree(folder / "run", folder / "killed")
        rollouts.save_checkpoint(folder / "checkpoint")
        rollouts.save_checkpoint(folder / "checkpoint")
    assert len([*(folder / "run").glob("trajectory*")]) == 4  # none is left because a draw had it open
    os.unlink(folder / "run" / "index.sqlite")
    for place in ("run", "killed", "checkpoint"):
        with TrajectoryReplayBuffer(folder / place, seed=0) as rollouts:
            assert len(rollouts) == 4
            rollouts.load_checkpoint(folder / "checkpoint") if place == "run" else rollouts.clear()

    assert relive.ReplayBuffer(plain, 100_000).capacity == 100_000  # in memory of many pages
    for storage in (relive.Shared(), relive.Mapped(folder / "ring")):
        refused(f"{type(storage).__name__}", lambda storage=storage: relive.ReplayBuffer(plain, 80, storage=storage))
    for use in (relive.open, relive.Writer):
        refused(str(folder / "ring"), lambda use=use: use(folder / "ring"))


def refused(at: str, use: Any) -> None:
    """Check that Linux is asked for, in one sentence."""
    import relive

    try:
        use()
        said = ""
    except relive.ReliveError as error:
        said = str(error)
    assert said == f"Expected Linux, got `{sys.platform}` - at `{at}`: keep the steps in `relive.Ram()`"


if __name__ == "__main__":
    pretend(sys.argv[1])
    run(Path(sys.argv[2]))
