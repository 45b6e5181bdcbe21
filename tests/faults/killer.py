"""Kills writers at random moments, and at given calls to the system; opens what they leave, and compares.

The oracle is here, outside the victim, fed by a pipe: what was handed to the buffer, what had been flushed, and what
had been saved when the victim died.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import shutil
import signal
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from failing import pictured
from forking import forked
from rollouts import leaves
from saved_lives import build, live, numbers, only_saves, rounds_of
from system_calls import watched

import relive
from relive.errors import NotEnoughData
from relive.testing._lives import BACK_ENDS
from relive.trajectories import TrajectoryReplayBuffer
from relive.trajectories._store import StoreSnapshot

LIVES = 12  # in one directory
COMPRESS = None if importlib.util.find_spec("zstandard") is None else "zstd"
KEEP = {"max_trajectories": 7, "cache_size": 3, "queue_bytes": 20_000, "compress": COMPRESS}


@lru_cache(maxsize=4096)
def given(serial: int) -> dict[str, Any]:
    """Make the trajectory of a serial number: some bytes, or some hundred thousand."""
    return pictured(serial, 30 if serial % 11 == 0 else 1 + serial % 4, 400)


class Pipe:
    """A pipe by which a victim announces an act (lower case), and reports it as done (upper case)."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def say(self, what: str, number: int) -> None:
        os.write(self.fd, f"{what}{number}\n".encode())


@contextlib.contextmanager
def dying(fatal: int | None, back_end: str) -> Iterator[None]:
    """Be killed at that call to the system."""
    calls = itertools.count(1)

    def before(name: str, args: tuple[Any, ...]) -> None:
        if next(calls) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    with watched(back_end) as system:
        system.before = before
        yield


def add(folder: Path, options: dict[str, Any], serial: int, pipe: Pipe, seed: int, fatal: int | None) -> None:
    """Add, flush and save until killed."""
    rng, say = np.random.default_rng(seed), pipe.say
    with dying(fatal, "numpy"):
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


class Saves:
    """The contents that a directory of saves may and must have: rounds of a buffer's life, and the save before."""

    def __init__(self, folder: Path, keep: int, rash: bool) -> None:
        self.folder, self.keep, self.rash = folder / "saves", keep, rash
        self.saving, self.saved, self.rounds = 0, 0, 0
        self.told: Counter[str] = Counter()

    def live(self, pipe: Pipe, seed: int, fatal: int | None) -> None:
        """Save every round or two until killed, after having loaded what was saved before."""
        rng, rounds = np.random.default_rng(seed), self.rounds
        buffer = relive.load(self.folder) if rounds else build()
        with dying(fatal, BACK_ENDS[-1]):  # in the first save, or the second
            while True:
                for _ in range(int(rng.integers(1, 3))):
                    live(buffer, rounds)
                    rounds += 1
                pipe.say("s", rounds)
                if self.rash:
                    pipe.say("S", rounds)
                buffer.save(self.folder, keep=self.keep, wait=bool(rng.integers(2))).wait()
                pipe.say("S", rounds)

    def hear(self, text: str) -> None:
        for line in text.splitlines():
            self.saving = int(line[1:])
            self.saved = self.saving if line[0] == "S" else self.saved

    def check(self) -> None:
        """Load what was left; save again, after which nothing else is there."""
        assert self.saved or not self.rounds
        if self.folder.exists():
            self.told["unfinished"] += any(name.startswith(".tmp") for name in os.listdir(self.folder))
        if not self.folder.exists() or not numbers(self.folder):
            assert not self.saved, "a save was lost"
            return
        among = range(self.saving, -1, -1)
        found = [rounds_of(relive.load(self.folder, number=number), among) for number in numbers(self.folder)]
        assert found[0] in (self.saved, self.saving), f"a save was lost: {found}, {self.saved}, {self.saving}"
        assert found == sorted(found, reverse=True)
        self.told["saves"] += len(found)
        buffer = relive.load(self.folder)
        live(buffer, found[0])
        buffer.save(self.folder, keep=self.keep)
        only_saves(self.folder, self.keep)
        self.rounds = self.saving = self.saved = found[0] + 1
        assert rounds_of(relive.load(self.folder), [self.rounds]) == self.rounds


class Oracle:
    """The contents that one directory of trajectories may and must have."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self.folder, self.options = folder, options
        self.handed = self.flushed = self.next = 0
        self.saving: list[int] = []
        self.saved = False
        self.told: Counter[str] = Counter()

    def live(self, pipe: Pipe, seed: int, fatal: int | None) -> None:
        add(self.folder, self.options, self.next, pipe, seed, fatal)

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
                assert not self.saved, "a checkpoint was lost"
                return
            loaded.load_checkpoint(self.folder / "saved")
            end = self.compare(loaded, 0, exact=False)
            assert end in self.saving, f"a checkpoint of {end}, saved were {self.saving}"
            self.saving = [end]

    def names(self, folder: str) -> list[str]:
        path = self.folder / folder
        return os.listdir(path) if path.exists() else []

    def compare(self, buffer: TrajectoryReplayBuffer, least: int, *, exact: bool = True) -> int:
        """Read and compare every trajectory, and rows; they follow each other. Return the next serial."""
        snapshot, found = StoreSnapshot(buffer._store), []
        for stored in snapshot:
            fields = {".".join(path): array for path, array in stored.block().fields().items()}
            serial = int(fields["code"][0, 0, 0])
            wanted = dict(leaves(given(serial)))
            assert fields.keys() == wanted.keys()
            assert all(array.tobytes() == wanted[name].tobytes() for name, array in fields.items()), f"{serial} is torn"
            found.append(serial)
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


def kill_one(oracle: Oracle | Saves, rng: np.random.Generator, count: int) -> None:
    """Live one life: at every other time it ends at a call to the system, else after some milliseconds."""
    reading, writing = os.pipe()
    fatal = None
    if count % 2:
        fatal = int(rng.integers(1, 120)) if isinstance(oracle, Oracle) else 12 + 5 * (count // 2) % 27
    seed = int(rng.integers(2**31))
    with forked(lambda: oracle.live(Pipe(writing), seed, fatal), endless=True) as child:
        os.close(writing)
        if fatal is None:
            time.sleep(float(rng.uniform(0, 0.06)))
            os.kill(child, signal.SIGKILL)
        with os.fdopen(reading, "rb") as pipe:
            text = pipe.read().decode()
    oracle.hear(text[: text.rfind("\n") + 1])
    oracle.check()


def killed(folder: Path, count: int, seed: int, what: str = "rollouts") -> Counter[str]:
    """Count the results of a number of kills; fail if anything is lost or torn.

    Of `rollouts`, of `saves`, or of `rash saves`, which are acknowledged before they are there.
    """
    rng, told = np.random.default_rng(seed), Counter({"kills": count})
    oracle = None
    for k in range(count):
        if k % LIVES == 0:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            odd = k // LIVES % 2
            rollouts, rash = what == "rollouts", what == "rash saves"
            options = KEEP if odd else {"enable_cache": False}
            oracle = Oracle(folder, options) if rollouts else Saves(folder, 1 + odd, rash)
            oracle.told = told
        kill_one(oracle, rng, k)
    return told
