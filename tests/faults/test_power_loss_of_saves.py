"""The power is lost after any call of a save: all saves that are there are whole, and the last acknowledged is.

Leaving out any of its syncs is found. The normal run looks at some hundred directories, the long mode at 100,000.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import plain_saves
import pytest
from depth import LONG
from power import Event
from recording import Explorer, Recorder
from saved_lives import build, live, numbers, only_saves, rounds_of

import relive

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
NAME = "runs/saves"


class Newer(NamedTuple):
    """The newest save is of that many rounds; the others are older."""

    least: int
    most: int

    def allows(self, found: tuple[int, ...]) -> bool:
        return self.least <= max(found, default=0) <= self.most and [*found] == sorted({*found}, reverse=True)


class Saves(Explorer):
    """Of a buffer that is saved three times.

    A save of which every file holds the same bytes as one that was loaded before is loaded again in every fourth case.
    """

    again = itertools.count(1)

    def __init__(self, folder: Path, limit: int, seed: int = 0) -> None:
        super().__init__(folder, limit, seed)
        self.loaded: dict[tuple[bytes | None, ...], int] = {}

    def record(self, keep: int, saves: int = 3, auto: bool = False) -> list[Event]:
        """Record the events of its life; `auto`: its autosave saves it."""

        def life(recorder: Recorder) -> None:
            buffer, path, saving = build(), recorder.root / NAME, None
            for serial in range(saves):
                live(buffer, serial)
                recorder.note("want", NAME, (Newer(serial, serial + 1),))
                if not auto:
                    buffer.save(path, keep=keep)
                elif saving is None:
                    saving = buffer.autosave(path, every=3600, keep=keep)
                else:
                    saving._again()  # what its thread calls
                recorder.note("want", NAME, (Newer(serial + 1, serial + 1),))
            buffer.close()

        return self.recorded(life)

    def seen(self, name: str, path: Path) -> tuple[int, ...]:
        """Return the rounds of each save; sometimes the buffer continues, and is saved again."""
        found = self._rounds(path)
        if found and next(self.again) % 20 == 0:
            buffer = relive.load(path)
            live(buffer, found[0])
            buffer.save(path)
            assert rounds_of(relive.load(path), [found[0] + 1])
            only_saves(path, 1)
        return found

    def _rounds(self, path: Path) -> tuple[int, ...]:
        found = []
        for number in numbers(path):
            held = plain_saves.bytes_of(path, number)
            if held not in self.loaded or next(self.again) % 4 == 0:
                rounds = self._lived(relive.load(path, number=number))
                assert self.loaded.setdefault(held, rounds) == rounds
            found.append(self.loaded[held])
        return tuple(found)

    def _lived(self, buffer: Any) -> int:
        return rounds_of(buffer, range(9, -1, -1))


SCRIPT = (
    "save 2, save 2, save 1, behind 3, load, save 3, save 3, elsewhere, save 2, behind 4, save 4, save 1, save 2, "
    "load, load, behind 2, save 3, behind 3, save 3, elsewhere, load, save 2, save 1, save 1, behind 4, save 4, save 2"
)


class Varied(Saves):
    """Of a small buffer that keeps more saves or fewer, goes on from one, and is saved elsewhere in between."""

    few = 8 if LONG else 2

    def script(self, script: str) -> list[Event]:
        """Record the events of its life."""
        return self.recorded(lambda recorder: self.go_on(recorder, script.split(", "), plain_saves.build(), 0))

    def go_on(self, recorder: Recorder, steps: Sequence[str], buffer: Any, rounds: int) -> None:
        path = recorder.root / NAME
        for step in steps:
            what, _, keep = step.partition(" ")
            if what == "load":
                buffer = relive.load(path)
            elif what == "elsewhere":
                buffer.save(recorder.root / "other")
            else:
                plain_saves.live(buffer, rounds)
                least = min((one.least for one in recorder.world.wanted.get(NAME, ())), default=rounds)
                rounds += 1
                recorder.note("want", NAME, (Newer(least, rounds),))
                buffer.save(path, keep=int(keep), wait=what == "save").wait()
                recorder.note("want", NAME, (Newer(rounds, rounds),))

    def next_one(self, recorder: Recorder) -> None:
        path = recorder.root / NAME
        buffer = relive.load(path) if numbers(path) else plain_saves.build()
        self.go_on(recorder, ["save 2", "save 1"], buffer, plain_saves.rounds_of(buffer))

    def seen(self, name: str, path: Path) -> tuple[int, ...]:
        """Return the rounds of each save."""
        return self._rounds(path)

    def _lived(self, buffer: Any) -> int:
        return plain_saves.rounds_of(buffer)


def moments(events: Sequence[Event]) -> list[int]:
    """List the moments after each change of the saves' names: a kill there leaves most to repair."""
    return [k for k, event in enumerate(events, 1) if event[:2] == ("names", NAME)]


@pytest.mark.parametrize(("keep", "auto"), [(1, False), (2, False), (1, True)])
def test_power_is_lost_once(keep: int, auto: bool, folder: Path, record_property: Any) -> None:
    explorer = Saves(folder, 16 if LONG else 6)
    explorer.explore(explorer.record(keep, auto=auto))
    explorer.ended(80 if LONG else 40, record_property)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_power_is_lost_in_many_ways(seed: int, folder: Path, record_property: Any) -> None:
    """Explore the same moments again and again, with other bytes of each file on the disk."""
    explorer = Saves(folder, 100, seed)
    events = explorer.record(1 + seed % 2, 4, auto=seed >= 2)
    for _ in range(50):
        explorer.explore(events)
    explorer.ended(1000, record_property)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, *range(4)])
def test_power_is_lost_in_a_varied_life(seed: int | None, folder: Path, record_property: Any) -> None:
    """Explore some hundred states, then more than 100,000 in all four."""
    limit, kills, least = (100, 60, 25_000) if seed is not None else (60, 7, 5000) if LONG else (8, 2, 500)
    explorer = Varied(folder, limit, seed or 0)
    events = explorer.script(SCRIPT)
    explorer.explore(events)
    explorer.recover(events, moments(events), kills)
    explorer.ended(least, record_property)


NEEDED = 7 + 6  # of the first save, which makes two directories, and of the second, which removes the first


def test_every_sync_is_needed(folder: Path) -> None:
    explorer = Saves(folder, 60)
    events = explorer.record(1, 2)
    syncs = [k for k, event in enumerate(events) if event[0] == "sync"]
    first = next(k for k, event in enumerate(events) if event == ("want", NAME, (Newer(1, 1),)))
    syncs = [k for k in syncs if k < first or events[k][1] not in ("", "runs")]
    assert len(syncs) == NEEDED
    for sync in syncs:
        with pytest.raises(AssertionError, match="the power was lost"):
            explorer.explore(events[:sync] + events[sync + 1 :])
