"""What do very many small trajectories cost? `python -m benchmarks.trajectory_scale 100000` prints a table."""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.base import resident
from relive.trajectories import TrajectoryReplayBuffer

GROUP = 16  # trajectories in one call of `add_trajectories`
DRAWS = 200


def rollout(k: int) -> dict[str, Any]:
    """Make a rollout of about 1 kB."""
    return {"rewards": np.full((4, 2, 1), k, np.float32), "curr_obs": {"states": np.full((4, 2, 24), k, np.float32)}}


def timed(job: Callable[[], Any]) -> tuple[float, float]:
    """Measure the seconds of the clock, and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    job()
    return time.perf_counter() - clock, time.process_time() - processor


def main() -> None:
    """Add, wait, draw, save and open; print each figure as it is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=100_000)
    parser.add_argument("--folder", type=Path, default=None, help="where files go; default the temporary folder")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        measure(folder, arguments.count)
    finally:
        shutil.rmtree(folder)


def say(what: str, figure: str) -> None:
    print(f"| {what} | {figure} |", flush=True)


def measure(folder: Path, count: int) -> None:
    say(f"{count:,} trajectories of 1 kB", "")
    say("---", "---:")
    before = resident() or 0
    buffer = TrajectoryReplayBuffer(folder / "own", seed=0, sample_window_size=0)

    def add() -> None:
        for k in range(0, count, GROUP):
            buffer.add_trajectories([rollout(j) for j in range(k, min(k + GROUP, count))])

    clock, processor = timed(add)
    waiting, _ = timed(buffer.sync)
    say("add, s (CPU s)", f"{clock:.1f} ({processor:.1f})")
    say("until all are durable, s; over the time of adding", f"{clock + waiting:.1f}; {1 + waiting / clock:.2f}")
    say("process, MB more than before", f"{((resident() or 0) - before) / 1e6:.0f}")
    for n in (1, 256, 4096):
        for _ in range(3):
            buffer.sample(n)
        times = [timed(lambda n=n: buffer.sample(n))[0] * 1e3 for _ in range(DRAWS if n < 4096 else 30)]  # type: ignore[misc]
        p50, p99 = np.quantile(times, [0.5, 0.99])
        say(f"draw {n}, ms: middle, 99th of 100", f"{p50:.2f}, {p99:.2f}")
    for name in ("first checkpoint", "the next, with nothing new"):
        clock, processor = timed(lambda: buffer.save_checkpoint(folder / "saved"))
        say(f"{name}, s (CPU s)", f"{clock:.1f} ({processor:.1f})")
    buffer.close()
    opened: list[TrajectoryReplayBuffer] = []
    clock, processor = timed(lambda: opened.append(TrajectoryReplayBuffer(folder / "own")))
    say("open, s (CPU s)", f"{clock:.2f} ({processor:.2f})")
    opened[0].close()
    for name in ("index.sqlite", "index.sqlite-wal"):
        (folder / "own" / name).unlink(missing_ok=True)
    clock, processor = timed(lambda: opened.append(TrajectoryReplayBuffer(folder / "own")))
    say("open without an index, s (CPU s)", f"{clock:.1f} ({processor:.1f})")
    if len(opened[1]) != count:
        raise SystemExit(f"{len(opened[1])} of {count} are there")
    opened[1].close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    say("most memory of the process, MB", f"{peak / 1e6:.0f}")
    say("files in the directory; descriptors allowed", f"{len(os.listdir(folder / 'own')):,}; {descriptors()}")


def descriptors() -> int:
    """Return the limit of this process."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


if __name__ == "__main__":
    main()
