"""The index of a directory, in SQLite: one row per trajectory, and facts about the whole."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from ..errors import StorageError, event, message
from ._entry import MOST_ID, Entry
from ._layout import MOST_WEIGHTS, Layout, columns_json, layout_from

NAME = "index.sqlite"
VERSION = "1"
_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE layouts (number INTEGER PRIMARY KEY, columns TEXT NOT NULL UNIQUE);
CREATE TABLE trajectories (
    place INTEGER PRIMARY KEY, id INTEGER NOT NULL UNIQUE, length INTEGER NOT NULL, width INTEGER NOT NULL,
    layout INTEGER NOT NULL, start INTEGER NOT NULL, bytes INTEGER NOT NULL, checksum INTEGER NOT NULL,
    episode INTEGER NOT NULL, weights TEXT NOT NULL);
"""
_COLUMNS = "id, length, width, layout, start, bytes, checksum, episode, weights"
_SCHEMA = {text.strip() for text in _TABLES.split(";") if text.strip()}
_LONGEST = 1 << 20  # bytes of one value in the database
_MULTI_FILE_JOURNAL = bytes.fromhex("d9d505f920a163d7")


class Catalog:
    """An index open for writing. Every method is one transaction: all of it happens, or nothing."""

    def __init__(self, folder: str, name: str = NAME, *, journal: str = "WAL") -> None:
        self._path = os.path.join(folder, name)
        self._lock = threading.Lock()
        self._numbers: dict[Layout, int] = {}
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        with _named(self._path):
            os.close(os.open(self._path, flags, 0o600))
            _check_files(self._path)
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            try:
                self._open(journal)
            except BaseException:
                self._db.close()
                raise

    def _open(self, journal: str) -> None:
        if not _check_schema(self._db):
            self._db.execute(f"PRAGMA journal_mode = {journal}")
            self._db.executescript(f"BEGIN; {_TABLES} INSERT INTO facts VALUES ('version', '{VERSION}'); COMMIT;")
        self._db.execute(f"PRAGMA journal_mode = {journal}")
        self._db.execute("PRAGMA synchronous = FULL")

    def add(self, entries: Iterable[Entry], facts: dict[str, Any] | None = None) -> None:
        """Add trajectories and set facts."""
        with _named(self._path), self._transaction():
            self._insert(entries)
            self._set(facts or {})

    def replace(self, entries: Iterable[Entry], facts: dict[str, Any]) -> None:
        """Replace all trajectories and all facts."""
        with _named(self._path), self._transaction():
            self._db.execute("DELETE FROM trajectories")
            self._db.execute("DELETE FROM facts WHERE name <> 'version'")
            self._insert(entries)
            self._set(facts)

    def remove(self, ids: Iterable[int]) -> None:
        """Remove trajectories."""
        with _named(self._path), self._transaction():
            self._db.executemany("DELETE FROM trajectories WHERE id = ?", [(id_,) for id_ in ids])

    def put(self, facts: dict[str, Any]) -> None:
        """Set facts."""
        with _named(self._path), self._transaction():
            self._set(facts)

    def close(self) -> None:
        """Close the database; SQLite moves the journal's contents into the main file."""
        with _named(self._path), self._lock:
            self._db.close()

    def _insert(self, entries: Iterable[Entry]) -> None:
        self._db.executemany(
            f"INSERT INTO trajectories ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(*entry[:3], self._number(entry.layout), *entry[4:]) for entry in entries],
        )

    def _set(self, facts: dict[str, Any]) -> None:
        self._db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", [(k, str(v)) for k, v in facts.items()])

    def _number(self, layout: Layout) -> int:
        if layout not in self._numbers:
            text = columns_json(layout)
            self._db.execute("INSERT OR IGNORE INTO layouts (columns) VALUES (?)", (text,))
            found = self._db.execute("SELECT number FROM layouts WHERE columns = ?", (text,)).fetchone()
            self._numbers[layout] = int(found[0])
        return self._numbers[layout]

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                self._numbers = {}
                if self._db.in_transaction:  # SQLite rolls back by itself after some failures
                    self._db.execute("ROLLBACK")
                raise


def read(folder: str) -> tuple[list[Entry], dict[str, str]]:
    """The trajectories of a directory's index, in the order in which they were added, and its facts.

    Raises:
        StorageError: There is no index, it is damaged, or a newer version of relive wrote it.
    """
    path = os.path.join(folder, NAME)
    if not os.path.lexists(path):
        raise StorageError(message("an index", "none", path))
    with _named(path), contextlib.closing(_connected(path)) as db:
        # A damaged B-tree can have cycles; every row takes at least 4 bytes, so this bounds the walk.
        most = sum(os.path.getsize(path + end) for end in ("", "-wal") if os.path.exists(path + end)) // 4
        facts = {str(name): str(value) for name, value in _rows(db, "SELECT name, value FROM facts", most)}
        if facts.get("version") != VERSION:
            got = f"version `{facts.get('version')}`"
            raise StorageError(message(f"an index of version {VERSION}", got, path, "install a newer relive"))
        if not 0 <= int(facts.setdefault("counter", "0")) <= MOST_ID:
            raise ValueError(f"counter {facts['counter']}"[:60])
        found = _rows(db, "SELECT number, columns FROM layouts", most)
        layouts = {int(number): layout_from(text) for number, text in found}
        rows = _rows(db, f"SELECT {_COLUMNS} FROM trajectories ORDER BY place", most)
        entries = [_checked(row, layouts) for row in rows]
        if len({entry.id for entry in entries}) < len(entries):
            raise ValueError("a trajectory is listed twice")
    return entries, facts


def _connected(path: str) -> sqlite3.Connection:
    _check_files(path)
    db = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)
    try:
        if not _check_schema(db):
            raise ValueError("no tables")
    except BaseException:
        db.close()
        raise
    return db


def _check_files(path: str) -> None:
    """Refuse what SQLite must not open: anything but regular files, and a journal that names further files."""
    for end in ("", "-wal", "-shm", "-journal"):
        if os.path.lexists(path + end) and not stat.S_ISREG(os.lstat(path + end).st_mode):
            raise ValueError(f"`{os.path.basename(path)}{end}` is not a regular file")
    if os.path.lexists(path + "-journal"):
        with open(path + "-journal", "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - len(_MULTI_FILE_JOURNAL), 0))
            if file.read() == _MULTI_FILE_JOURNAL:
                raise ValueError("the journal spans several databases")


def _check_schema(db: sqlite3.Connection) -> bool:
    """Whether the tables exist. Anything besides them is refused: views and triggers are code."""
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA cell_size_check = ON")
    found = list(db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL LIMIT 9"))
    if found and {sql for (sql,) in found} != _SCHEMA:
        raise ValueError("unknown tables")
    return bool(found)


def _rows(db: sqlite3.Connection, query: str, most: int) -> Iterator[tuple[Any, ...]]:
    for number, row in enumerate(db.execute(query)):
        if number >= most:
            raise ValueError("more rows than fit in the file")
        yield row


def _checked(row: tuple[Any, ...], layouts: dict[int, Layout]) -> Entry:
    *numbers, weights = row
    if not all(type(number) is int and 0 <= number < 2**62 for number in numbers) or not isinstance(weights, str):
        raise ValueError(f"invalid row {row!r}"[:80])
    id_, length, width, layout, start, size, checksum, episode = numbers
    entry = Entry(id_, length, width, layouts[layout], start, size, checksum, episode, weights)
    small = max(length, width, start, episode) < 2**31 and len(weights.encode()) <= MOST_WEIGHTS
    if not small or min(length, width, start) < 1 or id_ >= MOST_ID or checksum >= 2**32:
        raise ValueError(f"invalid row {row!r}"[:80])
    if start + entry.plan.nbytes != size:
        raise ValueError(f"trajectory {id_} cannot have a file of {size} bytes")
    return entry


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Turn any error inside the block into a `StorageError` that names `path`."""
    try:
        yield
    except StorageError:
        raise
    except (sqlite3.Error, sqlite3.Warning, OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise StorageError(event(f"Could not use the index ({str(error)[:80]})", path)) from error
