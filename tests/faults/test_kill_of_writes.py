"""A process that writes values back is killed; each value that it leaves is the old one or the new one of its step."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import eventually
from forking import forked
from killer import dying

import relive
from relive._ring import kernels
from relive.testing._lives import BACK_ENDS

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
ROWS, NEWEST, WIDTH, CALLS, LONGEST = 400, 200, 512, 10**9, 10**6
SCHEMA = relive.Schema(
    obs=relive.Field(),
    action=relive.Field((), "int64"),
    number=relive.Field((), "int64"),
    narrow=relive.Field((), "int64", writable=True),
    wide=relive.Field((WIDTH,), "int64", writable=True),
)


def steps(first: int, count: int) -> dict[str, Any]:
    number, flags = np.arange(first, first + count), np.zeros(count, bool)
    return {
        "obs": number % 1000, "action": number, "reward": number % 10, "number": number, "terminated": flags,
        "truncated": flags, "next_obs": (number + 1) % 1000, **values(number, 0),
    }  # fmt: skip


def values(numbers: np.ndarray, call: int) -> dict[str, np.ndarray]:
    narrow = numbers * CALLS + call
    return {"narrow": narrow, "wide": np.repeat(narrow[:, None], WIDTH, 1)}


def chosen(call: int, added: int) -> np.ndarray:
    """Choose the numbers of the steps that a call writes to."""
    rng = np.random.default_rng(call)
    return added - 1 - rng.integers(NEWEST, size=rng.integers(1, NEWEST))


def adds(call: int) -> bool:
    return call % 4 == 0


class Life:
    """The values of a buffer's steps: the victim writes them, and tables follow, call by call."""

    def __init__(self, folder: Path, storage: Any) -> None:
        self.folder, self.added, self.call = folder, ROWS, 0
        self.told: Counter[str] = Counter()
        self.tables = values(np.arange(ROWS), 0)
        self.log = np.memmap(folder / "log", np.int64, "w+", shape=3)  # calls begun, ended, and saved
        with relive.ReplayBuffer(SCHEMA, ROWS, storage=storage, seed=0) as buffer:
            buffer.extend(**steps(0, ROWS))
            if storage is None:
                buffer.save(folder / "saves")

    def work(self, buffer: relive.ReplayBuffer) -> None:
        """Write values, and add steps now and then, until killed."""
        added, places, numbers = self.added, buffer.column("ids")[0], buffer.column("number")[0]
        known = dict(zip(numbers[places >= 0].tolist(), places[places >= 0].tolist(), strict=True))
        for call in range(self.call + 1, LONGEST):
            self.log[0] = call
            if adds(call):
                known |= zip(range(added, added + 3), buffer.extend(**steps(added, 3)).tolist(), strict=True)
                added += 3
            else:
                which = chosen(call, added)
                written = buffer.write([known[number] for number in which.tolist()], **values(which, call))
                assert written == len(which)
            self.log[1] = call

    def follow(self, last: int) -> None:
        """Make the calls up to the last one in the tables."""
        for call in range(self.call + 1, last + 1):
            if adds(call):
                new = values(np.arange(self.added, self.added + 3), 0)
                self.tables = {name: np.concatenate([table, new[name]]) for name, table in self.tables.items()}
                self.added += 3
            else:
                which = chosen(call, self.added)
                for name, new_values in values(which, call).items():
                    self.tables[name][which] = new_values
        self.call = max(self.call, last)  # of a victim that ended no call, the last one that ended is before

    def check(self, buffer: relive.ReplayBuffer, begun: int) -> None:
        """Check all values against the tables; numbers of the call that had begun may be written or not."""
        there = buffer.column("ids")[0] >= 0
        numbers = buffer.column("number")[0][there]
        found = {name: buffer.column(name)[0][there] for name in self.tables}
        assert (np.sort(numbers)[-NEWEST:] == np.arange(numbers.max() + 1 - NEWEST, numbers.max() + 1)).all()
        old = {name: table.copy() for name, table in self.tables.items()}
        self.follow(begun)
        assert len(old["narrow"]) <= numbers.max() + 1 <= self.added
        for name, new in self.tables.items():
            was = np.concatenate([old[name], new[len(old[name]) :]])[numbers]
            assert ((found[name] == was) | (found[name] == new[numbers])).all(), name
            is_new = (found[name] == new[numbers]) & (was != new[numbers])
            self.told["values of a call that was killed"] += int(is_new.any(axis=-1).sum())
            if name == "wide":
                torn = is_new.any(1) & ~is_new.all(1)
                self.told["half old and half new"] += int(torn.sum())
                assert torn.sum() <= 1, "one row at a time"
        self.added = int(numbers.max()) + 1
        for name, table in self.tables.items():
            self.tables[name] = table[: self.added]
            self.tables[name][numbers] = found[name]


def begin(life: Life) -> None:
    """Wait until the victim is at work."""
    before = int(life.log[0])
    eventually(lambda: life.log[0] != before)


KILLS = [4, pytest.param(100, marks=pytest.mark.slow)]


@pytest.mark.skipif(not kernels.is_native(), reason="lanes are published by native kernels")
@pytest.mark.parametrize("kills", KILLS)
def test_kills_in_mid_write(kills: int, folder: Path, record_property: Any) -> None:
    """Kill writers of a mapped buffer, which is opened again: calls that ended are whole."""
    rng, path = np.random.default_rng(0), folder / "ring"
    life = Life(folder, relive.Mapped(path))
    for _ in range(kills):
        with forked(lambda: life.work(relive.open(path, seed=0)), endless=True):
            begin(life)
            time.sleep(rng.uniform(0, 0.02))
        begun, ended, _ = life.log.tolist()
        life.follow(ended)
        with relive.open(path, seed=0) as buffer:
            life.check(buffer, begun)
    record_property("cases", kills)
    print(dict(life.told))
    assert life.call > kills
    assert life.told["values of a call that was killed"] or kills < 20


@pytest.mark.parametrize("kills", KILLS)
def test_kills_between_a_write_and_a_save(kills: int, folder: Path, record_property: Any) -> None:
    """Check that a load is of one moment between two calls, not before the last complete save."""
    rng, saves = np.random.default_rng(0), folder / "saves"
    life = Life(folder, None)

    def save_by_itself() -> None:
        buffer = relive.load(saves, seed=0)
        buffer.autosave(saves, every=0.1)
        life.work(buffer)

    def save_until(fatal: int) -> None:
        buffer = relive.load(saves, seed=0)
        with dying(fatal, BACK_ENDS[-1]):  # in the first save, or a later one
            write = buffer.write

            def write_and_save(*ids: Any, **fields: Any) -> int:
                written = write(*ids, **fields)
                if life.log[0] % 5 == 1:
                    buffer.save(saves)
                    life.log[2] = life.log[0]
                return written

            buffer.write = write_and_save  # type: ignore[method-assign]
            life.work(buffer)

    for number in range(kills):
        fatal = int(rng.integers(12, 200))
        work = save_by_itself if number % 2 else lambda fatal=fatal: save_until(fatal)
        with forked(work, endless=True):
            begin(life)
            time.sleep(rng.uniform(0.1, 0.4))
        begun = int(life.log[0])
        buffer = relive.load(saves, seed=0)
        there = buffer.column("ids")[0] >= 0
        last = int((buffer.column("narrow")[0][there] % CALLS).max())
        assert life.log[2] <= last <= begun
        life.follow(last)
        life.check(buffer, life.call + adds(life.call + 1))
        assert life.told["half old and half new"] == 0
        life.log[:] = life.call, life.call, 0
    record_property("cases", kills)
    assert life.call > kills
