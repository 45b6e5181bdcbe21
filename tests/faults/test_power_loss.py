"""The power is lost after any call on files: what was durable is there, whole, and nothing else comes back.

A life is recorded, of a buffer that adds, forgets, saves and loads. For every moment of it, `power.World` knows what
the disk may show; each of these directories is made, opened and compared with what had been said to be durable. A
process may also be killed at a moment, and the power be lost while, or after, the next one puts the directory in order.

The normal run looks at some hundred directories, the long mode at more than fifty thousand.
"""

from __future__ import annotations

import importlib.util
import itertools
import random
import time
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from depth import LONG
from failing import pictured
from power import Event
from recording import Explorer, Recorder
from rollouts import leaves

from relive.trajectories import TrajectoryReplayBuffer
from relive.trajectories._catalog import NAME
from relive.trajectories._entry import Entry
from relive.trajectories._store import StoreSnapshot

KEPT = 7
AGAIN = 1 if LONG else 4  # every so manieth directory that is opened or loaded is used further
OWN = "runs/own"
LATER, LAST = 10_000, 20_000  # serial numbers of who lives there after a crash, and of who looks at it
# Of a buffer in memory, whose checkpoints are made anew, and of who comes after a kill, in a directory of plain files.
COMPRESS = None if importlib.util.find_spec("zstandard") is None else "zstd"
Found = frozenset[tuple[Any, Any]]  # ids and serial numbers; of a checkpoint, its generator's state, too

SHORT = "add 1, add 3, save first, add 5, save second, add 2, add 3, save second, load first, add 2, load second, add 3"
IN_MEMORY = "add 2, save first, add 3, save second, add 4, save second, load first, add 1, save third"


class Wanted(NamedTuple):
    """The wanted contents: all of `least`, and nothing but `most`."""

    least: Found
    most: Found

    def allows(self, found: Found) -> bool:
        return self.least <= found <= self.most


@cache
def given(serial: int) -> dict[str, Any]:
    """Make the trajectory of a serial number."""
    return pictured(serial, 1 + serial % 5 * 7)


@cache
def bytes_of(serial: int) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in leaves(given(serial))}


def contents(buffer: TrajectoryReplayBuffer, known: Found = frozenset()) -> Found:
    """Return ids and serial numbers of all contents; every byte is compared, except for those known already."""
    snapshot, found, serials = StoreSnapshot(buffer._store), [], dict(known)
    for stored in snapshot:
        id_ = stored.entry.id
        if id_ in serials:
            found.append((id_, serials[id_]))
            continue
        fields = {".".join(path): array for path, array in stored.block().fields().items()}
        serial = int(fields["code"][0, 0, 0])
        assert {name: array.tobytes() for name, array in fields.items()} == bytes_of(serial), f"{serial} is torn"
        found.append((id_, serial))
    assert found == sorted(found, key=lambda pair: pair[1]), "in the order in which they were added"
    return frozenset(found)


class Life:
    """A buffer, and what is to be found on the disk at every moment; that becomes events, too."""

    def __init__(self, recorder: Recorder, serial: int, own: str | None = OWN) -> None:
        self.recorder, self.own, self.serials = recorder, own, itertools.count(serial)
        self.serial_of: dict[int, int] = {}
        self.kept: list[tuple[int, int]] = []
        self.least: set[tuple[int, int]] = set()
        self.most: set[tuple[int, int]] = set()
        path = None if own is None else recorder.root / own
        options = {"compress": COMPRESS} if own is None or serial == LATER else {}
        self.buffer = TrajectoryReplayBuffer(path, seed=0, max_trajectories=KEPT, cache_size=2, **options)
        self.buffer.sync()  # what was more than is kept is gone then
        self._begin(contents(self.buffer))
        writer = self.buffer._writer
        if writer is not None:  # it says first what is durable, and what is forgotten
            store, written, discard = self.buffer._store, self.buffer._store.written, self.buffer._store.discard
            store.written = lambda entries: (written(entries), self._durable(entries))[0]
            store.discard = lambda ids: (self._removed(ids), discard(ids))

    def _begin(self, found: Found) -> None:
        """Begin with durable contents."""
        self.kept = sorted(found)
        self.serial_of, self.least, self.most = dict(found), set(found), set(found)
        self._tell()

    def _tell(self, *others: Wanted) -> None:
        if self.own is not None:
            wanted = Wanted(frozenset(self.least), frozenset(self.most))
            self.recorder.note("want", self.own, (wanted, *others))

    def _durable(self, entries: list[Entry]) -> None:
        self.least |= {(entry.id, self.serial_of[entry.id]) for entry in entries} & set(self.kept)
        self._tell()

    def _removed(self, ids: Sequence[int]) -> None:
        self.most -= {(id_, self.serial_of[id_]) for id_ in ids}
        self._tell()

    def add(self, count: int) -> None:
        """Add so many at once; then all of them are durable."""
        first = self.buffer.get_stats()["trajectory_counter"]
        new = [(first + k, next(self.serials)) for k in range(count)]
        with self.recorder.lock:
            self.serial_of |= dict(new)
            self.kept = [*self.kept, *new][-KEPT:]
            self.least &= set(self.kept)
            self.most |= set(new)
            self._tell()
        if self.own is None:
            return self.buffer.add_trajectories([given(serial) for _, serial in new])
        with self.buffer._writer._change:  # so that it finds all of them in its queue
            self.buffer.add_trajectories([given(serial) for _, serial in new])
        assert len(set(self.buffer.sync())) == 1
        self._begin(frozenset(self.kept))

    def save(self, name: str) -> None:
        """Save: what was saved before is there, or this."""
        self.buffer.sample(3)  # so that the generator has another state each time
        state = frozenset({*self.kept, ("draws", self.buffer._draws.state())})
        before = self.recorder.world.wanted.get(name, (Wanted(frozenset(), frozenset()),))
        self.recorder.note("want", name, (*before, Wanted(state, state)))
        self.buffer.save_checkpoint(self.recorder.root / name)
        self.recorder.note("want", name, (Wanted(state, state),))

    def load(self, name: str) -> None:
        """Load: what was there before is there, or all that was saved."""
        (wanted,) = self.recorder.world.wanted[name]
        new = frozenset(pair for pair in wanted.least if pair[0] != "draws")
        self._tell(Wanted(new, new))
        self.buffer.load_checkpoint(self.recorder.root / name)
        self._begin(new)

    def run(self, script: str) -> None:
        """Live by a script, then close."""
        for step in script.split(", "):
            what, about = step.split()
            getattr(self, what)(int(about) if about.isdigit() else about)
        self.buffer.close()


class Lives(Explorer):
    """Of a buffer that adds, forgets, saves and loads."""

    again = itertools.count()

    def record(self, script: str, own: str | None = OWN) -> list[Event]:
        """Record the events of a life."""
        return self.recorded(lambda recorder: Life(recorder, 0, own).run(script))

    def kind(self, name: str) -> bool:
        return name == OWN

    def seen(self, name: str, path: Path) -> Found:
        return self._opened(path) if name == OWN else self._loaded(path)

    def next_one(self, recorder: Recorder) -> None:
        before = dict(recorder.world.wanted)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            life = Life(recorder, LATER)
        life.add(2)
        for name, wanted in before.items():
            saved = {pair for one in wanted for pair in one.most}
            if name != OWN and all(dict(saved).get(id_, serial) == serial for id_, serial in life.kept):
                life.save(name)
        life.buffer.close()

    def _opened(self, path: Path) -> Found:
        """Open a buffer in its directory; return its contents, and sometimes add to them."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            begin = time.process_time()  # others may keep the cores, and a virtual machine may stand still
            buffer = TrajectoryReplayBuffer(path, seed=0, cache_size=0)
            took = time.process_time() - begin
        assert took < 10, f"opening took {took} s"
        assert not any("left out" in str(one.message) for one in said), "the index names what is not there"
        with buffer:
            found = contents(buffer)
            if next(self.again) % AGAIN:
                return found
            buffer.add_trajectories([given(LAST), given(LAST + 1)])
            buffer.sync()
        with warnings.catch_warnings(), TrajectoryReplayBuffer(path, seed=0, cache_size=0) as buffer:
            warnings.simplefilter("error")
            new = contents(buffer, known=found)
        assert found < new
        assert {serial for _, serial in new - found} == {LAST, LAST + 1}
        left = [each.name for each in path.iterdir() if not each.name.startswith((NAME, "lock"))]
        assert len(left) == len(new), f"something is left behind: {left}"
        return found

    def _loaded(self, path: Path) -> Found:
        """Load a checkpoint; return its contents, and sometimes save it there again, with one more."""
        if not (path / NAME).exists():
            with TrajectoryReplayBuffer(path, seed=0) as buffer:
                assert not contents(buffer), "what an interrupted save left is taken for trajectories"
            return frozenset()
        with TrajectoryReplayBuffer(seed=1) as buffer:
            buffer.load_checkpoint(path)
            found, state = contents(buffer), buffer._draws.state()
            if next(self.again) % AGAIN:
                return found | {("draws", state)}
            buffer.add_trajectories([given(LAST)])
            buffer.save_checkpoint(path)
        with TrajectoryReplayBuffer(seed=1) as buffer:
            buffer.load_checkpoint(path)
            new = contents(buffer, known=found)
        assert found < new
        assert {serial for _, serial in new - found} == {LAST}
        return found | {("draws", state)}


def moments(events: Sequence[Event]) -> list[int]:
    """List the moments after each change of names, and within each transaction: a kill there leaves most to repair."""
    first = next(k for k, event in enumerate(events) if event[:2] == ("want", OWN))
    return [k for k, event in enumerate(events, 1) if k > first and event[0] in ("names", "begin")]


def script(rng: random.Random) -> str:
    """Write a long life; after each load, whose ids are used again, it saves somewhere else."""
    steps = []
    for phase in range(4):
        for _ in range(rng.randint(2, 4)):
            steps += [f"add {rng.randint(1, 6)}", f"save saved{phase}"][: rng.randint(1, 2)]
        steps += [f"save saved{phase}", f"load saved{rng.randint(0, phase)}"]
    return ", ".join([*steps, "add 4"])


@pytest.mark.slow
def test_power_is_lost_once(folder: Path, record_property: Any) -> None:
    explorer = Lives(folder, 6 if LONG else 2)
    explorer.explore(explorer.record(SHORT))
    explorer.explore(explorer.record(IN_MEMORY, own=None))
    explorer.ended(700 if LONG else 200, record_property)


def test_power_is_lost_after_a_kill(folder: Path, record_property: Any) -> None:
    """Check that an opened directory is not built on names that need not be on the disk yet."""
    explorer = Lives(folder, 4 if LONG else 2)
    events = explorer.record(SHORT)
    explorer.recover(events, moments(events), 7 if LONG else 2)
    explorer.ended(350 if LONG else 80, record_property)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_power_is_lost_in_long_lives(seed: int, folder: Path, record_property: Any) -> None:
    """Explore more than 50,000 states in all three."""
    explorer = Lives(folder, 40, seed)
    events = explorer.record(script(random.Random(seed)))
    explorer.explore(events)
    explorer.recover(events, moments(events), 30)
    explorer.ended(17_000, record_property)
