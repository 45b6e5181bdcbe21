"""Every directory that a disk may show after the power was lost at some moment of a life, looked at once."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from power import Archive, Event, State, World
from recording import Recorder, recorded


class Explorer:
    """Makes all states of all moments, and looks at each once."""

    few = 2  # new states behind a write, of which most are of a file that nobody reads yet

    def __init__(self, folder: Path, limit: int, seed: int = 0) -> None:
        self.folder, self.limit, self.rng = folder, limit, random.Random(seed)
        (folder / "files").mkdir(parents=True)
        self.archive = Archive(folder / "files")
        self.found: dict[tuple[Any, State], Any] = {}
        self._serial = itertools.count()

    def explore(self, events: Sequence[Event], first: int = 0) -> None:
        """Lose the power at every moment after the first ones."""
        world = World(self.archive, events[:first])
        for number, event in enumerate(events[first:], first):
            world.apply(event)
            for name, wanted in world.wanted.items():
                for state in self._chosen(name, world, few=event[0] == "write"):
                    self._look(name, state, wanted, events[: number + 1])

    def _chosen(self, name: str, world: World, *, few: bool) -> Iterator[State]:
        """Yield states that were looked at before, and as many new ones as are allowed."""
        states = dict.fromkeys(world.states(name, 4 * self.limit, self.rng))
        yield from (state for state in states if (self.kind(name), state) in self.found)
        new = [state for state in states if (self.kind(name), state) not in self.found]
        limit = self.few if few else self.limit
        yield from new if len(new) <= limit else [new[0], new[-1], *self.rng.sample(new[1:-1], limit - 2)]

    def recorded(self, live: Callable[[Recorder], object], killed: Sequence[Event] = ()) -> list[Event]:
        """Record the events of a life; it may begin after a process was `killed` in the same directories."""
        world, root = World(self.archive, killed), self._place()
        for name in world.directories if killed else ():
            self.archive.show(world.living(name), root / name)
        with recorded(recorder := Recorder(root, self.archive, killed)):
            live(recorder)
        shutil.rmtree(root)
        return recorder.events

    def recover(self, events: Sequence[Event], moments: Sequence[int], count: int) -> None:
        """Kill the process at so many moments; lose the power at every moment of the next one's life."""
        for moment in self.rng.sample(moments, count):
            self.explore(self.recorded(self.next_one, events[:moment]), moment)

    def next_one(self, recorder: Recorder) -> None:
        """Live where another process was killed."""
        raise NotImplementedError

    def ended(self, least: int, record_property: Callable[[str, int], None]) -> None:
        """Check how many states were looked at, and that no finished file was written to."""
        record_property("cases", len(self.found))
        assert len(self.found) > least
        assert self.archive.unharmed(), "a finished file was written to"

    def kind(self, name: str) -> Any:
        """Return the kind of a directory; those of one kind are looked at in the same way."""
        return name

    def seen(self, name: str, path: Path) -> Any:
        """Return the contents of a directory, or an exception."""
        raise NotImplementedError

    def _place(self) -> Path:
        path = self.folder / str(next(self._serial))
        path.mkdir()
        return path

    def _look(self, name: str, state: State, wanted: Iterable[Any], events: Sequence[Event]) -> None:
        key = self.kind(name), state
        try:
            if key not in self.found:
                root = self._place()
                self.archive.show(state, root / "shown")
                self.found[key] = self.seen(name, root / "shown")
                shutil.rmtree(root)
            assert any(one.allows(self.found[key]) for one in wanted)
        except Exception as error:
            tail = "\n".join(f"  {event}" for event in events[-12:] if event[0] != "want")
            shown = "\n".join(f"  {name} {shape}" for name, _, shape in sorted(state.files))
            text = f"the power was lost in `{name}` after\n{tail}\nthe disk shows index {state.index} and\n{shown}\n"
            raise AssertionError(f"{text}found {self.found.get(key)}, wanted one of {wanted}") from error
