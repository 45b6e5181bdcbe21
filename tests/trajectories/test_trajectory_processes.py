"""What becomes of a buffer beyond its calls: scripts that end, buffers that are dropped, forks, few descriptors,
places that may only be read, and disks that are full.

Each life is a script in a process of its own: limits, mounts and ends of processes are not those of the tests.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from children import run_program
from depth import some
from made import files, filled
from rollouts import simple
from system_calls import open_files, watched

import relive
from relive.errors import ArgumentError
from relive.trajectories import TrajectoryReplayBuffer, inspect

UNSHARED = ["unshare", "-m" if os.geteuid() == 0 else "-Urm"]
SOURCE = str(Path(relive.__file__).resolve().parents[1])
BEGIN = """
    import errno, gc, os, resource, sys, threading, time
    import numpy as np
    from relive.trajectories import TrajectoryReplayBuffer, convert, inspect, verify
    def one(k, size=1000): return {"rewards": np.full((5, 1, size // 20), k, np.float32)}
"""


def run(script: str, *arguments: object, limit: str = "", mounted: str = "", code: int = 0) -> str:
    """Run a script, under a limit of the shell's or with a mount of its own; return what it said.

    It must end within a minute, with that code.
    """
    text = textwrap.dedent(BEGIN) + textwrap.dedent(script)
    if limit or mounted:
        command = ["sh", "-c", " && ".join(filter(None, [limit, mounted, 'exec "$@"'])), "sh"]
        command = [*UNSHARED, *command] if mounted else command
        command += [sys.executable, "-c", text, *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    else:
        done = run_program(text, *arguments, loaded=["relive.trajectories"])
    assert done.returncode == code, done.stderr
    return done.stderr


@pytest.fixture(scope="session")
def mounts() -> None:
    try:
        subprocess.run([*UNSHARED, "mount", "-t", "tmpfs", "none", "/mnt"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no mounts of one's own here")


# The end of a process, and of a buffer --------------------------------------------------------------------------------


@pytest.mark.parametrize("end", some(["", "raise SystemExit(0)", "del buffer, other; gc.collect()"], 2))
def test_what_waits_is_written_when_nobody_closes(end, folder):
    """Check also for a message, unless the script waited for it."""
    script = """
        other, buffer = (TrajectoryReplayBuffer(f"{sys.argv[1]}/{name}") for name in ("other", "own"))
        for each in (other, buffer):
            each.add_trajectories([one(k, 100_000) for k in range(30)])
            each is buffer or each.sync()
        del each
    """
    said = run(textwrap.dedent(script) + end, folder)
    assert "was not closed: 30 trajectories" in said
    assert said.count("was not closed") == 1
    for name in ("own", "other"):
        assert len(files(folder / name)) == inspect(folder / name).trajectories == 30


@pytest.mark.slow
@pytest.mark.parametrize("cycle", [False, True])
def test_a_dropped_buffer_lets_go(cycle, folder):
    """Check for its thread, its lock and its descriptors, as in a cell of a notebook that is run again."""
    before = open_files(), threading.active_count()
    for k in range(5):
        buffer = filled(folder, [k], cache_size=0)
        reader = TrajectoryReplayBuffer(cache_size=0)
        reader.load_checkpoint(folder)
        for each in (buffer, reader):
            each.sample(4)
            each.itself = each if cycle else None
        del buffer, reader, each
        gc.collect()
    assert (open_files(), threading.active_count()) <= before
    assert inspect(folder).trajectories == 5


def test_a_buffer_that_its_own_thread_collects(folder):
    """Check that the writing thread does not wait for itself in a collection of garbage, which may begin anywhere."""
    run(
        """
        from relive._base import system
        real = os.fsync
        class System:
            def __getattr__(self, name): return getattr(os, name)
            def fsync(self, fd): gc.collect(); real(fd)
        gc.disable()
        system.os = System()
        buffer = TrajectoryReplayBuffer(sys.argv[1])
        buffer.itself = buffer
        buffer.add_trajectories([one(k) for k in range(3)])
        del buffer
        while threading.active_count() > 1: time.sleep(0.001)
        """,
        folder,
    )
    assert inspect(folder).trajectories == 3


def test_a_fork_refuses_and_hangs_nobody(folder):
    """Check a child: its draws would repeat the parent's, locks may be held, and it has no writing thread."""
    run(
        """
        from relive.errors import ReliveError
        buffer = TrajectoryReplayBuffer(sys.argv[1], seed=0, cache_size=0)
        buffer.add_trajectories([one(k) for k in range(5)])
        buffer.sync()
        buffer.sample(5)
        hold, go = os.pipe()
        if not os.fork():
            os.close(go)
            jobs = [lambda: buffer.sample(3), lambda: buffer.add_trajectories([one(1)]), buffer.flush, buffer.sync,
                    buffer.get_stats, buffer.clear, buffer.clear_cache, buffer.refresh, buffer.list_trajectory_ids,
                    buffer.iter_trajectory_metadata, lambda: buffer.get_trajectory_info(0),
                    lambda: buffer.load_trajectory(0), lambda: buffer.save_checkpoint(sys.argv[1] + "/x")]
            for job in jobs:
                try:
                    job()
                except ReliveError as error:
                    assert "its child" in str(error)
                else:
                    raise AssertionError("a forked child may use it")
            buffer.close()
            with TrajectoryReplayBuffer(seed=1) as own:
                own.load_checkpoint(sys.argv[1])
                assert own.sample(3).rewards.shape == (3, 50)
            os.read(hold, 1)
            sys.exit(0)  # with all that an interpreter does at its end
        buffer.add_trajectories([one(5)])
        buffer.close()
        with TrajectoryReplayBuffer(sys.argv[1], max_trajectories=4) as again:  # while the child still lives
            assert len(again) == 4
            again.add_trajectories([one(6)])
        os.close(go)
        assert os.wait()[1] == 0
        with TrajectoryReplayBuffer(sys.argv[1]) as again:
            assert again._store.index.records["id"].tolist() == [3, 4, 5, 6]
        """,
        folder,
    )


def test_a_killed_parent_leaves_no_lock_with_its_child(folder):
    run(
        """
        buffer = TrajectoryReplayBuffer(sys.argv[1])
        wait, ready = os.pipe()
        if os.fork():
            os.read(wait, 1)
            os.kill(os.getpid(), 9)
        os.close(1), os.close(2)
        os.write(ready, b"!")
        time.sleep(20)
        """,
        folder,
        code=-9,
    )
    TrajectoryReplayBuffer(folder).close()


def test_a_buffer_is_not_copied():
    import copy
    import pickle

    for job in (copy.deepcopy, copy.copy, pickle.dumps):
        with pytest.raises(ArgumentError, match="a path or a checkpoint"):
            job(TrajectoryReplayBuffer())


# Limits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "count", "cached"), some([(64, 100, 0), (64, 200, 3), (1024, 1200, 0)], 1))
def test_few_descriptors_are_enough(limit, count, cached, folder):
    """Draw from more files than may be open, by two buffers, also where others leave none: those kept open close."""
    run(
        """
        count = int(sys.argv[2])
        buffer = TrajectoryReplayBuffer(sys.argv[1] + "/a", sample_window_size=0, cache_size=int(sys.argv[3]), seed=0)
        buffer.add_trajectories([one(k, 40) for k in range(count)])
        buffer.save_checkpoint(sys.argv[1] + "/b")
        other = TrajectoryReplayBuffer(sample_window_size=0, seed=1)
        other.load_checkpoint(sys.argv[1] + "/b")
        for drawing in (buffer, other) * 2:
            assert len(np.unique(drawing.sample(20 * count).rewards)) == count
        convert(sys.argv[1] + "/b", sys.argv[1] + "/c")
        few = 0.9 * resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert len(os.listdir("/proc/self/fd")) < few
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            assert error.errno == errno.EMFILE
        for drawing in (buffer, other) * 10:
            drawing.sample(5)
        for fd in taken:
            os.close(fd)
        buffer.close()
        other.close()
        """,
        folder,
        count,
        cached,
        limit=f"ulimit -n {limit}",
    )


# Places that may only be read, and full ones --------------------------------------------------------------------------

READS = """
    for state in ("closed", "open", "killed"):
        path, place = f"{sys.argv[1]}/{state}", f"{sys.argv[2]}/{state}{os.geteuid()}"
        def listed(): return sorted((name, os.stat(f"{path}/{name}").st_size) for name in os.listdir(path))
        before = listed()
        assert inspect(path).trajectories == 3 and verify(path) == []
        buffer = TrajectoryReplayBuffer(seed=0)
        buffer.load_checkpoint(path)
        assert len(np.unique(buffer.sample(300).code[:, 0])) == 3
        assert convert(path, place) == 3
        assert listed() == before
"""


@pytest.mark.parametrize("how", ["mode", "mount"])
def test_a_place_that_may_only_be_read_is_read(how, folder, mounts):
    """Read as another user, and on a mount: its writer has closed it, still has it open, or was killed."""
    path = folder / "made"
    buffer = filled(path / "open", range(3))
    shutil.copytree(path / "open", path / "killed")
    shutil.copytree(path / "open", path / "closed")
    TrajectoryReplayBuffer(path / "closed").close()
    if how == "mode":
        folder.chmod(0o777)
        for file in [path, *path.rglob("*")]:
            file.chmod(0o555 if file.is_dir() else 0o444)
        # First as root, who may import what is still to be imported, and whom modes do not concern.
        script = (READS + "\n    os.setegid(65534); os.seteuid(65534)\n") * (os.geteuid() == 0) + READS
        run(script, path, folder)
    else:
        run(READS, path, folder, mounted=f"mount --bind {path} {path} && mount -o remount,ro,bind {path}")
    buffer.close()


def test_a_full_disk_recovers_by_what_is_removed(mounts):
    """Check that one call raises, and then each new trajectory replaces the oldest; the remedy of the error works."""
    run(
        """
        def fill(room):
            free = os.statvfs("/mnt")
            with open("/mnt/filler", "wb") as file:
                file.write(bytes(free.f_bavail * free.f_bsize - room))
        buffer, last = TrajectoryReplayBuffer("/mnt/own", max_trajectories=6, seed=0, cache_size=0), 6
        buffer.add_trajectories([one(k, 1_000_000) for k in range(6)])
        for room in map(int, sys.argv[1:]):
            buffer.sync()
            fill(room)
            refused, first, last = 0, last, last + 12
            for k in range(first, last):
                for _ in range(3):
                    try:
                        buffer.add_trajectories([one(k, 1_000_000)])
                        buffer.sync()
                        break
                    except OSError as error:
                        refused += 1
            assert refused <= 2, refused
            assert sorted(set(buffer.sample(500).rewards[:, 0].tolist())) == list(range(last - 6, last))
            assert len(os.listdir("/mnt/own")) <= 6 + 4, os.listdir("/mnt/own")
            os.unlink("/mnt/filler")
        buffer.close()
        with TrajectoryReplayBuffer("/mnt/own") as again:
            assert len(again) == 6
            fill(0)
            again.add_trajectories([one(0, 1_000_000)])
            try:
                again.sync()
            except OSError as error:
                assert "call `flush()`" in str(error)
            time.sleep(0.1)  # it has been tried again, in vain
            os.unlink("/mnt/filler")
            assert again.flush().flushed == again.sync().durable == 7
        """,
        *some([0, 300_000, 700_000], 2),
        mounted="mount -t tmpfs -o size=10m none /mnt",
    )


def test_a_file_that_cannot_be_deleted_hinders_nobody(folder, caplog):
    """Check that it is told once, and that the next one to open the directory tries again."""
    with watched() as system:
        buffer = TrajectoryReplayBuffer(folder, max_trajectories=3)

        def before(name: str, args: tuple[object, ...]) -> None:
            if name == "unlink" and "trajectory_000000000001" in str(args[0]) and ".tmp" not in str(args[0]):
                raise PermissionError(1, "Operation not permitted")

        system.before = before
        for k in range(12):
            buffer.add_trajectories([simple(k)])
        assert buffer.sync() == (12, 12, 12)
        buffer.close()
        assert [record.message.count("trajectory_000000000001") for record in caplog.records] == [1]
        system.before = lambda name, args: None
        assert [file.name for file in files(folder)] == [f"trajectory_{k:012d}.safetensors" for k in (1, 9, 10, 11)]
    with pytest.warns(match="deleted 1 file of removed"):
        TrajectoryReplayBuffer(folder).close()
    assert len(files(folder)) == 3
