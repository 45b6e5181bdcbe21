"""The power is lost after any call of a save: all saves that are there are whole, and the last acknowledged is.

Leaving out any of its syncs is found.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from exploring import Explorer
from power import Event
from recording import Recorder, recorded
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
    """Of a buffer that is saved three times."""

    again = itertools.count(1)
    among = range(9, -1, -1)

    def record(self, keep: int, saves: int = 3) -> list[Event]:
        """The events of its life."""
        with recorded(recorder := Recorder(self._place(), self.archive)):
            self.live(recorder, build(), keep, 0, saves)
        return recorder.events

    def live(self, recorder: Recorder, buffer: Any, keep: int, rounds: int, saves: int) -> None:
        for serial in range(rounds, rounds + saves):
            live(buffer, serial)
            recorder.note("want", NAME, (Newer(serial, serial + 1),))
            buffer.save(recorder.root / NAME, keep=keep)
            recorder.note("want", NAME, (Newer(serial + 1, serial + 1),))

    def seen(self, name: str, path: Path) -> tuple[int, ...]:
        """How many rounds each save is of; sometimes the buffer goes on, and is saved again."""
        there = numbers(path)
        found = tuple(rounds_of(relive.load(path, number=number), self.among) for number in there)
        if there and next(self.again) % 20 == 0:
            buffer = relive.load(path)
            live(buffer, found[0])
            buffer.save(path)
            assert rounds_of(relive.load(path), [found[0] + 1])
            only_saves(path, 1)
        return found


@pytest.mark.parametrize("keep", [1, 2])
def test_power_is_lost_once(keep: int, folder: Path, record_property: Any) -> None:
    explorer = Saves(folder, 16)
    explorer.explore(explorer.record(keep))
    assert len(explorer.found) > 80
    record_property("cases", len(explorer.found))
    assert explorer.archive.unharmed(), "a finished file was written to"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_power_is_lost_in_many_ways(seed: int, folder: Path, record_property: Any) -> None:
    """The same moments again and again, with other bytes of each file on the disk."""
    explorer = Saves(folder, 100, seed)
    events = explorer.record(1 + seed % 2, 4)
    for _ in range(50):
        explorer.explore(events)
    assert len(explorer.found) > 1000
    record_property("cases", len(explorer.found))


NEEDED = 7 + 6  # of the first save, which makes two directories, and of the second, which removes the first


@pytest.mark.parametrize("which", range(NEEDED))
def test_every_sync_is_needed(which: int, folder: Path) -> None:
    explorer = Saves(folder, 60)
    events = explorer.record(1, 2)
    syncs = [k for k, event in enumerate(events) if event[0] == "sync"]
    first = next(k for k, event in enumerate(events) if event == ("want", NAME, (Newer(1, 1),)))
    syncs = [k for k in syncs if k < first or events[k][1] not in ("", "runs")]
    assert len(syncs) == NEEDED
    without = [event for k, event in enumerate(events) if k != syncs[which]]
    with pytest.raises(AssertionError, match="the power was lost"):
        explorer.explore(without)
