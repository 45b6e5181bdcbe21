"""Lives as events: every call on files, and every transaction of an index, in the order in which they were made.

An event is a tuple, which `power.World` understands: `("names", directory, change)`, `("directory", name)`,
`("write", file, count)`, `("sync", file or directory)`, `("begin", directory, cell)` and `("end", directory, cell)` of
a transaction, and `("want", directory, wanted)`, which says what is to be found there from now on.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from power import Archive, Event, State, World

from relive._base import system
from relive._disk import files
from relive.trajectories._catalog import NAME, Catalog


class Recorder:
    """The module `os`, whose calls on files become events. One is made at a time.

    Args:
        root: Directories are named relative to it.
        archive: Where bytes are kept.
        events: What has happened before, to who lived here before.
    """

    def __init__(self, root: Path, archive: Archive, events: Sequence[Event] = ()) -> None:
        self.root, self.archive, self.events = root, archive, list(events)
        self.world = World(archive, self.events)
        self.lock = threading.RLock()
        self._opened: dict[int, Any] = {}  # the file, or the directory, of a descriptor
        self._at: dict[int, int] = {}  # where a descriptor writes next

    def __getattr__(self, name: str) -> Any:
        real, told = getattr(os, name), getattr(type(self), f"_after_{name}", None)
        if told is None:
            return real

        def call(*args: Any, **options: Any) -> Any:
            with self.lock:
                result = real(*args, **options)
                told(self, result, *args, **options)
                return result

        return call

    def note(self, *event: Any) -> None:
        """Note an event."""
        with self.lock:
            self.world.apply(event)
            self.events.append(event)

    def name_of(self, path: str) -> str:
        """Return a directory's name in events."""
        return os.path.relpath(path, self.root)

    def create(self, directory: str, *names: str) -> int:
        """Create a file."""
        file = self.archive.new()
        self.note("names", directory, dict.fromkeys(names, file))
        return file

    def put(self, file: int, at: int, data: bytes) -> None:
        """Write bytes to a file from `at` on; it grows if they reach beyond its end."""
        written, before = self.archive.files[file], self.world.written.get(file, 0)
        written += bytes(max(at - len(written), 0))
        written[at : at + len(data)] = data
        self.note("write", file, max(at + len(data) - before, 0))

    def _names(self, fd: int) -> tuple[str, dict[str, int]]:
        directory = self._opened[fd]
        return directory, self.world.directories[directory].live

    def _after_mkdir(self, _: None, path: str, mode: int = 0o777) -> None:
        name = self.name_of(path)
        for end in [*(k for k, letter in enumerate(name) if letter == "/"), len(name)]:
            if name[:end] not in self.world.directories:
                self.note("directory", name[:end])

    def _after_open(self, fd: int, path: str, flags: int, mode: int = 0, *, dir_fd: int | None = None) -> None:
        if dir_fd is None:
            name = self.name_of(path)
            self._opened[fd] = "" if name == "." else name
            return
        directory, names = self._names(dir_fd)
        if path == f"{NAME}-wal":
            self._opened[fd] = f"{directory}/{path}"
        else:
            self._opened[fd] = names[path] if path in names else self.create(directory, path)
            self._at[fd] = 0

    def _after_lseek(self, at: int, fd: int, *_: int) -> None:
        self._at[fd] = at

    def _after_write(self, count: int, fd: int, data: Any) -> None:
        self.put(self._opened[fd], self._at[fd], bytes(data)[:count])
        self._at[fd] += count

    def _after_fsync(self, _: None, fd: int) -> None:
        opened = self._opened[fd]
        if str(opened).endswith("-wal"):  # what can be seen of an index is there from now on
            directory = os.path.dirname(opened)
            self.note("end", directory, self.world.directories[directory].indexes[-1])
        else:
            self.note("sync", opened)

    def _after_rename(self, _: None, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        assert src_dir_fd == dst_dir_fd, "the model knows of one directory only"
        directory, names = self._names(src_dir_fd)
        if names[old] != names.get(new):  # else nothing happens, says POSIX
            self.note("names", directory, {old: None, new: names[old]})

    def _after_unlink(self, _: None, name: str, *, dir_fd: int) -> None:
        self.note("names", self._names(dir_fd)[0], {name: None})

    def _after_link(
        self, _: None, source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int, **_options: Any
    ) -> None:
        file = self._names(src_dir_fd)[1][source]
        self.note("names", self._names(dst_dir_fd)[0], {target: file})


class Indexes:
    """The work of `Catalog` as events: transactions of an index in use, a file for a checkpoint's new one."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._new = recorder, {}
        self._open, self._transaction, self._close = Catalog.__init__, Catalog.transaction, Catalog.close

    @contextlib.contextmanager
    def changed(self, path: str, *, empty: bool = False) -> Iterator[None]:
        """Record a transaction: its changes are durable afterwards, and may or may not be meanwhile."""
        recorder, cell = self._recorder, [None]
        directory = recorder.name_of(os.path.dirname(path))
        recorder.note("begin", directory, cell)
        yield
        with recorder.lock:
            if empty:
                recorder.archive.indexes.append((b"", b""))
            cell[0] = len(recorder.archive.indexes) - 1 if empty else recorder.archive.snapshot(path)
            recorder.note("end", directory, cell)

    def open(self, catalog: Catalog, folder: str, name: str = NAME, **options: Any) -> None:
        path = os.path.join(folder, name)
        if name != NAME:
            directory = self._recorder.name_of(folder)
            self._new[catalog] = self._recorder.create(directory, name)
            self._recorder.create(directory, name + "-journal")
            return self._open(catalog, folder, name, **options)
        if not os.path.exists(path):
            with self.changed(path, empty=True):
                open(path, "xb").close()
        # To look at what somebody had begun who was killed does not put it on the disk.
        with contextlib.nullcontext() if os.path.getsize(path) else self.changed(path):
            self._open(catalog, folder, name, **options)

    @contextlib.contextmanager
    def transaction(self, catalog: Catalog) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if catalog not in self._new:
                stack.enter_context(self.changed(catalog._path))
            with self._transaction(catalog):
                yield

    def close(self, catalog: Catalog) -> None:
        file = self._new.pop(catalog, None)
        if file is None:
            with self.changed(catalog._path):
                return self._close(catalog)
        self._close(catalog)
        path, recorder = Path(catalog._path), self._recorder
        recorder.put(file, 0, path.read_bytes())
        recorder.note("sync", file)
        recorder.note("names", recorder.name_of(str(path.parent)), {f"{path.name}-journal": None})


@contextlib.contextmanager
def recorded(recorder: Recorder) -> Iterator[None]:
    """Let the calls of all buffers go through a recorder."""
    indexes = Indexes(recorder)
    with (
        mock.patch.object(files, "os", recorder),
        mock.patch.object(system, "os", recorder),
        mock.patch.object(
            Catalog, "__init__", lambda catalog, *args, **options: indexes.open(catalog, *args, **options)
        ),
        mock.patch.object(Catalog, "transaction", lambda catalog: indexes.transaction(catalog)),
        mock.patch.object(Catalog, "close", lambda catalog: indexes.close(catalog)),
    ):
        yield


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
