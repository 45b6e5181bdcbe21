"""Kills writers at random moments, and at given calls to the system; opens what they leave, and compares.

``python killer.py FOLDER COUNT SEED`` prints one JSON line of counts; it ends with an exception if anything is lost or
torn. The oracle is here, outside the victim, fed by a pipe: what was handed to the buffer, what had been flushed, and
what had been saved when the victim died.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "trajectories"))

from rollouts import leaves, simple
from system_calls import watched

from relive.errors import NotEnoughData
from relive.trajectories import TrajectoryReplayBuffer
from relive.trajectories._snapshot import Snapshot

LIVES = 12  # in one directory
KEEP = {"max_trajectories": 7, "cache_size": 3, "queue_bytes": 20_000}


@lru_cache(maxsize=4096)
def given(serial: int) -> dict[str, Any]:
    """The trajectory of a serial number: some bytes, or some hundred thousand."""
    return simple(serial, length=30 if serial % 11 == 0 else 1 + serial % 4, cells=400)


def live(folder: Path, options: dict[str, Any], serial: int, pipe: int, seed: int, fatal: int | None) -> None:
    """Add, flush and save until killed. Says what it is about to do (lower case) and what it has done (upper case)."""
    rng = np.random.default_rng(seed)

    def say(what: str, number: int) -> None:
        os.write(pipe, f"{what}{number}\n".encode())

    calls = itertools.count(1)

    def before(name: str, args: tuple[Any, ...]) -> None:
        if next(calls) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    with watched() as system:
        system.before = before
        buffer = TrajectoryReplayBuffer(folder / "own", seed=seed, **options)
        while True:
            count = int(rng.integers(1, 5))
            say("a", serial + count)
            buffer.add_trajectories([given(serial + k) for k in range(count)])
            serial += count
            choice = rng.integers(0, 6)
            if choice < 3:
                buffer.flush()
                say("F", serial)
            if choice == 2:
                say("s", serial)
                buffer.save_checkpoint(folder / "saved")
                say("S", serial)
            if choice == 3:
                buffer.sample(10)


class Oracle:
    """What one directory may and must hold."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self.folder, self.options = folder, options
        self.handed = self.flushed = self.next = 0
        self.saving: list[int] = []
        self.saved = False
        self.told: Counter[str] = Counter()

    def hear(self, text: str) -> None:
        for line in text.splitlines():
            number = int(line[1:])
            if line[0] == "a":
                self.handed = number
            elif line[0] == "F":
                self.flushed = number
            elif line[0] == "s":
                self.saving.append(number)
            else:
                self.saving, self.saved = [number], True

    def check(self) -> None:
        """Open what was left: at once, whole, with all that was flushed; and the checkpoint: the old one or the new."""
        unfinished = [name for name in self.names("own") if name.startswith(".tmp")]
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            begin = time.process_time()  # others may keep the cores
            buffer = TrajectoryReplayBuffer(self.folder / "own", seed=0, **self.options)
            took = time.process_time() - begin
        texts = " ".join(str(w.message) for w in said)
        assert took < 1, f"opening took {took} s"
        assert not unfinished or f"{len(unfinished)} partial file" in texts, texts
        assert "left out" not in texts, texts
        self.told["unfinished"] += len(unfinished)
        self.told["adopted"] += "indexed" in texts
        self.told["slowest ms"] = max(self.told["slowest ms"], round(1000 * took))
        with buffer:
            self.next = self.compare(buffer, self.flushed)
            for _ in range(3):
                buffer.add_trajectories([given(self.next)])
                self.next += 1
            buffer.sync()
            assert self.compare(buffer, self.next) == self.next
        names = [name for name in self.names("own") if name.startswith("trajectory")]
        assert len(names) == len(buffer), "files of nobody's are left"
        self.handed = self.flushed = self.next
        if self.saving:
            self.check_saved()

    def check_saved(self) -> None:
        with TrajectoryReplayBuffer(seed=0) as loaded:
            if not (self.folder / "saved" / "index.sqlite").exists():
                assert not self.saved
                return
            loaded.load_checkpoint(self.folder / "saved")
            end = self.compare(loaded, 0, exact=False)
            assert end in self.saving, f"a checkpoint of {end}, saved were {self.saving}"
            self.saving = [end]

    def names(self, folder: str) -> list[str]:
        path = self.folder / folder
        return os.listdir(path) if path.exists() else []

    def compare(self, buffer: TrajectoryReplayBuffer, least: int, *, exact: bool = True) -> int:
        """Every trajectory is read and compared, and so are rows; they follow each other. Returns the next serial."""
        snapshot, found = Snapshot(buffer._store), []
        for stored in snapshot:
            fields = {".".join(path): array for path, array in stored.block().fields().items()}
            serial = int(fields["code"][0, 0, 0])
            wanted = dict(leaves(given(serial)))
            assert fields.keys() == wanted.keys()
            assert all(array.tobytes() == wanted[name].tobytes() for name, array in fields.items()), f"{serial} is torn"
            found.append(serial)
        snapshot.release()
        end = found[-1] + 1 if found else 0
        assert found == list(range(end - len(found), end)), found
        assert least <= end <= self.handed + 3 or not exact, (least, end, self.handed)
        most = self.options.get("max_trajectories")
        assert len(found) == (end if most is None else min(end, most)) or not exact, (found, most)
        self.told["trajectories"] += len(found)
        try:
            batch = dict(leaves(buffer.sample(30)))
        except NotEnoughData:
            assert not found
            return end
        for k, (serial, t, b) in enumerate(batch["code"].tolist()):
            for name, array in leaves(given(serial)):
                assert batch[name][k].tobytes() == array[t, b].tobytes(), f"a torn row of {serial}"
        return end


def kill_one(oracle: Oracle, rng: np.random.Generator, count: int) -> None:
    """One life: at every other time it ends at a call to the system, else after some milliseconds."""
    reading, writing = os.pipe()
    fatal = int(rng.integers(1, 120)) if count % 2 else None
    seed = int(rng.integers(2**31))
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            live(oracle.folder, oracle.options, oracle.next, writing, seed, fatal)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writing)
    if fatal is None:
        time.sleep(float(rng.uniform(0, 0.06)))
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"the writer ended by itself: {status}"
    assert os.WTERMSIG(status) == signal.SIGKILL
    oracle.hear(text[: text.rfind("\n") + 1])
    oracle.check()


def main(folder: Path, count: int, seed: int) -> None:
    rng, told = np.random.default_rng(seed), Counter({"kills": count})
    oracle = None
    for k in range(count):
        if k % LIVES == 0:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            oracle = Oracle(folder, KEEP if k // LIVES % 2 else {"enable_cache": False})
            oracle.told = told
        kill_one(oracle, rng, k)
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
