"""A model of what a disk may show after the power was lost, by what POSIX promises of the calls that were made before.

What has been synced is there. Of the rest anything may be on the disk: bytes written since the last sync of their file
may be there, missing, cut short, or zeros; names made, changed or removed since the last sync of their directory may be
so or not, each after those before it that share a name with it. SQLite keeps its own promises: a transaction that has
returned is there, one in flight is there or is not.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from relive.trajectories._catalog import NAME

Event = tuple[Any, ...]
Change = dict[str, int | None]  # of names in one directory: the file that each stands for now, None for no file
Cell = list[int | None]  # holds the number of a snapshot of an index, which is known when its transaction has ended
_DIRECTORY = -1


class Shape(NamedTuple):
    """Bytes of a file that a disk shows: the written ones before `hole` and from `solid` on, zeros between."""

    hole: int
    solid: int
    length: int


class State(NamedTuple):
    """One directory as a disk may show it: name, file and its bytes; and the snapshot of the index, if it has one."""

    files: frozenset[tuple[str, int, Shape]]
    index: int | None


class Archive:
    """All that was ever written, and how an index of SQLite's looked after each of its transactions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[bytearray] = []
        self.indexes: list[tuple[bytes, bytes]] = []
        self._kept: set[int] = set()

    def new(self) -> int:
        """Make a new file; return its number."""
        self.files.append(bytearray())
        return len(self.files) - 1

    def snapshot(self, path: str) -> int:
        """Record the present contents of an index and its journal; return their number."""
        parts = [Path(path + end) for end in ("", "-wal")]
        first, second = (part.read_bytes() if part.exists() else b"" for part in parts)
        self.indexes.append((first, second))
        return len(self.indexes) - 1

    def show(self, state: State, path: Path) -> None:
        """Make the directory; files that are whole are linked, so that two names of one stay two names of one."""
        path.mkdir(parents=True, exist_ok=True)
        for name, number, shape in state.files:
            data = self.files[number]
            if data and shape == Shape(len(data), len(data), len(data)):
                os.link(self._whole(number), path / name)
            else:
                zeros = bytes(shape.solid - shape.hole)
                (path / name).write_bytes(data[: shape.hole] + zeros + data[shape.solid : shape.length])
        if state.index is not None:
            for end, part in zip(("", "-wal"), self.indexes[state.index], strict=True):
                if part or not end:
                    (path / (NAME + end)).write_bytes(part)

    def _whole(self, number: int) -> Path:
        kept = self.folder / str(number)
        if number not in self._kept:
            kept.write_bytes(self.files[number])
            self._kept.add(number)
        return kept

    def unharmed(self) -> bool:
        """Return True if no file was written to after it had its name."""
        return all((self.folder / str(number)).read_bytes() == self.files[number] for number in self._kept)


class Directory:
    """Names as running processes see them, names that are on the disk, and what has happened to them in between."""

    def __init__(self) -> None:
        self.live: dict[str, int] = {}
        self.disk: dict[str, int] = {}
        self.pending: list[Change] = []
        self.indexes: list[Cell] = [[None]]  # any of these may be on the disk

    def change(self, change: Change) -> None:
        _apply(self.live, change)
        self.pending.append(change)

    def sync(self) -> None:
        self.disk, self.pending = dict(self.live), []

    def outcomes(self, limit: int, rng: random.Random) -> list[dict[str, int]]:
        """List the names that may be on the disk: all possibilities, or about `limit` of them."""
        chosen: list[tuple[list[Change], frozenset[str]]] = [([], frozenset())]
        for change in self.pending:
            taken = [([*some, change], barred) for some, barred in chosen if barred.isdisjoint(change)]
            chosen = taken + [(some, barred | change.keys()) for some, barred in chosen]
            if len(chosen) > limit:
                several = [([], frozenset()), (self.pending, frozenset()), *(self._some(rng) for _ in range(limit))]
                chosen = [(some, frozenset()) for some, _ in several]
                break
        return [_applied(self.disk, some) for some, _ in chosen]

    def _some(self, rng: random.Random) -> tuple[list[Change], frozenset[str]]:
        share, some, barred = rng.random(), [], set()
        for change in self.pending:
            if barred.isdisjoint(change) and rng.random() < share:
                some.append(change)
            else:
                barred |= change.keys()
        return some, frozenset(barred)


class World:
    """Directories after some events: what is on the disk for sure, and what may be."""

    def __init__(self, archive: Archive, events: Sequence[Event] = ()) -> None:
        self.archive = archive
        self.directories: dict[str, Directory] = {"": Directory()}
        self.written: dict[int, int] = {}
        self.synced: dict[int, int] = {}
        self.wanted: dict[str, Any] = {}
        for event in events:
            self.apply(event)

    def apply(self, event: Event) -> None:
        """Go on by one event."""
        kind, about, *more = event
        if kind == "names":
            self.directories[about].change(*more)
        elif kind == "directory":
            above, _, name = about.rpartition("/")
            self.directories[above].change({name: _DIRECTORY})
            self.directories[about] = Directory()
        elif kind == "write":
            self.written[about] = self.written.get(about, 0) + more[0]
        elif kind == "sync" and isinstance(about, int):
            self.synced[about] = self.written.get(about, 0)
        elif kind == "sync":
            self.directories[about].sync()
        elif kind == "begin":
            self.directories[about].indexes.append(*more)
        elif kind == "end":
            self.directories[about].indexes = [*more]
        else:
            self.wanted[about] = more[0]

    def states(self, name: str, limit: int, rng: random.Random) -> Iterator[State]:
        """Yield the states of a directory that the disk may show if the power is lost now."""
        if name not in self.directories or not self._is_named(name):
            yield State(frozenset(), None)
        if name not in self.directories:
            return
        here = self.directories[name]
        for names in here.outcomes(limit, rng):
            loose = sorted({file for file in names.values() if len(self._shapes(file, rng)) > 1})
            # Every shape of every file that is loose, in several combinations.
            columns = [rng.sample(self._shapes(file, rng), 5) for file in loose]
            shown = [dict(zip(loose, row, strict=True)) for row in zip(*columns, strict=True)] or [{}]
            for shapes, cell in product(shown, here.indexes):
                files = ((each, file, shapes.get(file) or self._whole(file)) for each, file in names.items())
                yield State(frozenset(files), cell[0])

    def living(self, name: str) -> State:
        """Return the state for a process that opens the directory after a kill, without a loss of power.

        It sees the transaction that was in flight, too, which then need not be on the disk.
        """
        files = ((each, file) for each, file in self.directories[name].live.items() if file != _DIRECTORY)
        return State(
            frozenset((each, file, self._whole(file)) for each, file in files), self.directories[name].indexes[-1][0]
        )

    def _is_named(self, name: str) -> bool:
        above, _, last = name.rpartition("/")
        return not name or (last in self.directories[above].disk and self._is_named(above))

    def _whole(self, file: int) -> Shape:
        length = self.written.get(file, 0)
        return Shape(length, length, length)

    def _shapes(self, file: int, rng: random.Random) -> list[Shape]:
        """List all shapes of a file: itself; if it was written to since it was synced, less or other bytes, too."""
        kept, length = self.synced.get(file, 0), self.written.get(file, 0)
        if kept == length:
            return [Shape(length, length, length)]
        cut = rng.randint(kept, length)
        hole, solid = sorted((rng.randint(kept, length), rng.randint(kept, length)))
        lost = [Shape(kept, kept, kept), Shape(kept, length, length), Shape(cut, cut, cut), Shape(hole, solid, length)]
        return [Shape(length, length, length), *lost]


def _apply(names: dict[str, int], change: Change) -> None:
    for name, file in change.items():
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file


def _applied(names: dict[str, int], changes: list[Change]) -> dict[str, int]:
    names = dict(names)
    for change in changes:
        _apply(names, change)
    return names
