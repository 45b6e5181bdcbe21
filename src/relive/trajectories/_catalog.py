"""The index of a directory, in SQLite: one row per trajectory, and facts about the whole."""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import numpy as np

from .._base.system import AT_ONCE, PLAIN
from ..errors import StorageError, event, message
from ._entry import FACTS, MOST_ID, Entry
from ._index import RECORD, Table
from ._layout import FieldLayout, columns_json, layout_from
from ._plan import FilePlan

NAME = "index.sqlite"
SAVED = "saved"  # the fact that this index is a save's, and that files which it does not list are of no use
HALF_LOADED = "half_loaded"  # the fact that staged files still have to be renamed
SAVING = NAME + ".saving"  # a file that is there while a first save has no index yet
VERSIONS = ("1", "2")  # the second: there are, or were, files with compressed fields
_KINDS = {"i": "INTEGER", "u": "INTEGER", "S": "TEXT"}
_COLUMNS = ", ".join(fact.column for fact in FACTS.values())
_VALUES = ", ".join(
    "(SELECT number FROM layouts WHERE columns = :layout)" if name == "layout" else f":{name}" for name in FACTS
)
_TYPED = [f"{fact.column} {_KINDS[fact.dtype[0]]} NOT NULL{' UNIQUE' * (name == 'id')}" for name, fact in FACTS.items()]
# The lines are those of version 0.1.0, which opens an index only if the text of its tables is this to the letter.
_LINES = ",\n    ".join(map(", ".join, (["place INTEGER PRIMARY KEY", *_TYPED[:3]], _TYPED[3:7], _TYPED[7:])))
_TABLES = f"""
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE layouts (number INTEGER PRIMARY KEY, columns TEXT NOT NULL UNIQUE);
CREATE TABLE trajectories (
    {_LINES});
"""
_SCHEMA = {text.strip() for text in _TABLES.split(";") if text.strip()}
_LONGEST = 1 << 20  # bytes of one value in the database
_LARGEST = 1 << 32  # bytes of an index that is copied
_JOURNAL_PAGES = 64  # of 4 KiB, after which SQLite begins the journal anew
_REMEDY = (
    "`relive salvage` copies what is sound; opening the directory without this file makes it again from the others"
)
_MULTI_FILE_JOURNAL = bytes.fromhex("d9d505f920a163d7")
ATTEMPTS = 100  # to read what another process changes meanwhile
T = TypeVar("T")


class Catalog:
    """An index open for writing. Every method is one transaction: all of it happens, or nothing.

    A forked child calls none of them. When it ends, SQLite finds the database in use, moved, or written back already,
    and leaves it alone.
    """

    def __init__(self, folder: str, name: str = NAME, *, journal: str = "WAL") -> None:
        self._path = os.path.join(folder, name)
        self._lock = threading.Lock()
        with _named(self._path):
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | PLAIN | AT_ONCE, 0o600))
            _check_files(self._path, 1)
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            try:
                self._open(journal)
            except BaseException:
                self._db.close()
                raise

    def _open(self, journal: str) -> None:
        if not _check_schema(self._db):
            self._db.execute(f"PRAGMA journal_mode = {journal}")
            self._db.executescript(f"BEGIN; {_TABLES} INSERT INTO facts VALUES ('version', '{VERSIONS[0]}'); COMMIT;")
        self._db.execute(f"PRAGMA journal_mode = {journal}")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {_JOURNAL_PAGES}")

    def add(self, entries: Iterable[Entry], facts: dict[str, Any], *, anew: bool = False) -> None:
        """Add trajectories and set facts; with `anew` all others are removed."""
        entries = list(entries)
        rows = [entry._asdict() | {"layout": columns_json(entry.layout)} for entry in entries]
        if any(entry.layout.compressed for entry in entries):
            facts = {**facts, "version": VERSIONS[1]}
        with self.transaction():
            if anew:
                self._db.execute("DELETE FROM trajectories")
                self._db.execute("DELETE FROM facts WHERE name <> 'version'")
            layouts = dict.fromkeys((row["layout"],) for row in rows)
            self._db.executemany("INSERT OR IGNORE INTO layouts (columns) VALUES (?)", layouts)
            self._db.executemany(f"INSERT INTO trajectories ({_COLUMNS}) VALUES ({_VALUES})", rows)
            given = [(name, str(value)) for name, value in facts.items()]
            self._db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", given)

    def remove(self, ids: Iterable[int]) -> None:
        """Remove trajectories. That needs no space on the disk."""
        gone = [(id_,) for id_ in ids]
        try:
            self._remove(gone)
        except StorageError as error:
            if not isinstance(error.__cause__, sqlite3.OperationalError) or "full" not in str(error.__cause__):
                raise
            self.settle(restart=True)
            self._remove(gone)

    def _remove(self, gone: list[tuple[int]]) -> None:
        with self.transaction():
            self._db.executemany("DELETE FROM trajectories WHERE id = ?", gone)

    def settle(self, *, restart: bool = False) -> None:
        """Move the journal's contents into the main file, which then has room for a few rows more.

        With `restart` the journal begins anew in the space that it has, so that it does not take what files are to get.
        """
        with _named(self._path), self._lock:
            self._db.execute(f"PRAGMA wal_checkpoint({'RESTART' if restart else 'PASSIVE'})")

    def close(self) -> None:
        """Close the database; SQLite moves the journal's contents into the main file."""
        with _named(self._path), self._lock:
            self._db.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all statements of the block count, or none."""
        with _named(self._path), self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite rolls back by itself after some failures
                    self._db.execute("ROLLBACK")
                raise


def read(folder: str) -> tuple[Table, dict[str, str]]:
    """Read the trajectories of a directory's index, in the order in which they were added, and its facts.

    Nothing is written, not even by SQLite: the file is read as it is, or a copy of it if there is a journal.

    Raises:
        StorageError: There is no index, it is damaged, or a newer version of relive wrote it.
    """
    path = os.path.join(folder, NAME)
    if not os.path.lexists(path):
        raise StorageError(message("an index", "none", path))
    with _named(path):
        return unchanged(partial(signature_of, path), partial(read_once, path), path)


def unchanged(signature: Callable[[], object], read: Callable[[], T], at: str) -> T:
    """Read what another process may be writing, until its signature is the same before and after.

    Raises:
        StorageError: It changes every time.
        Exception: As `read`, where nothing has changed: half of what is being written may look like anything.
    """
    for _ in range(ATTEMPTS):
        before = signature()
        try:
            found = read()
        except Exception:
            if signature() == before:
                raise
        else:
            if signature() == before:
                return found
    raise StorageError(event("Another process keeps changing the index", at))


def signature_of(path: str) -> tuple[Any, ...]:
    """Return what another process changes when it writes: facts of the file, and the first bytes of its journal.

    While the journal begins with the same bytes it has everything that has been written since then. So file and
    journal can be copied one after the other, whatever goes from one to the other meanwhile.
    """
    _check_files(path)
    try:
        with open(path + "-wal", "rb") as journal:
            start = journal.read(32)
    except FileNotFoundError:
        start = b""
    status, rollback = os.stat(path), os.path.exists(path + "-journal")
    return start, rollback, status.st_ino, *(() if start else (status.st_size, status.st_mtime_ns))


def read_once(path: str) -> tuple[Table, dict[str, str]]:
    """Read an index once, which another process may be changing."""
    journals = [end for end in ("-wal", "-journal") if os.path.exists(path + end)]
    if not journals:
        with contextlib.closing(sqlite3.connect(f"file:{quote(path)}?immutable=1", uri=True)) as db:
            return _parsed(db, path, os.path.getsize(path))
    with tempfile.TemporaryDirectory(prefix="relive-") as aside:
        copy = os.path.join(aside, NAME)
        size = sum(_copied(path + end, copy + end) for end in ("", *journals))
        with contextlib.closing(sqlite3.connect(copy)) as db:
            db.execute("PRAGMA synchronous = OFF")  # nobody needs the copy after a loss of power
            return _parsed(db, path, size)


def _copied(source: str, target: str) -> int:
    """Copy a file without its holes; returns its size."""
    with open(source, "rb") as file, open(target, "xb") as copy:
        while part := file.read(1 << 20):
            copy.seek(len(part), os.SEEK_CUR) if part.count(0) == len(part) else copy.write(part)
            if copy.tell() > _LARGEST:
                raise ValueError("too large")
        copy.truncate(copy.tell())
        return copy.tell()


def _parsed(db: sqlite3.Connection, path: str, size: int) -> tuple[Table, dict[str, str]]:
    if not _check_schema(db):
        raise ValueError("no tables")
    most = size // 4  # a damaged B-tree can have cycles; every row takes at least 4 bytes, so this bounds the walk
    facts = {str(name): str(value) for name, value in _rows(db, "SELECT name, value FROM facts", most)}
    if facts.get("version") not in VERSIONS:
        got = f"version `{facts.get('version')}`"
        raise StorageError(message(f"an index of version {VERSIONS[-1]}", got, path, "install a newer relive"))
    if not 0 <= int(facts.setdefault("counter", "0")) <= MOST_ID:
        raise ValueError(f"counter {facts['counter']}"[:60])
    texts = _rows(db, "SELECT number, columns FROM layouts", most)
    layouts = {int(number): layout_from(text) for number, text in texts}
    rows = _rows(db, f"SELECT {_COLUMNS} FROM trajectories ORDER BY place", most)
    return _table(rows, layouts), facts


def _check_files(path: str, most_names: float = math.inf) -> None:
    """Refuse what SQLite must not open: anything but regular files, and a journal that names further files.

    What is written to must have one name only: by another it may be a file outside the directory.
    """
    for end in ("", "-wal", "-shm", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            found = os.lstat(path + end)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > most_names:
                raise ValueError(f"`{os.path.basename(path)}{end}` is not a regular file, or it has two names")
    with contextlib.suppress(FileNotFoundError), open(path + "-journal", "rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - len(_MULTI_FILE_JOURNAL), 0))
        if file.read() == _MULTI_FILE_JOURNAL:
            raise ValueError("the journal spans several databases")


def _check_schema(db: sqlite3.Connection) -> bool:
    """Return whether the tables exist. Refuse anything besides them: views and triggers are code."""
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA cell_size_check = ON")
    found = list(db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL LIMIT 9"))
    if found and {sql for (sql,) in found} != _SCHEMA:
        raise ValueError("unknown tables")
    return bool(found)


def _rows(db: sqlite3.Connection, query: str, most: int) -> list[tuple[Any, ...]]:
    rows = db.execute(f"{query} LIMIT {most + 1}").fetchall()
    if len(rows) > most:
        raise ValueError("more rows than fit in the file")
    return rows


def _table(rows: list[tuple[Any, ...]], layouts: dict[int, FieldLayout]) -> Table:
    """Return rows of the database as a table, after checking every value."""
    table = Table(np.zeros(len(rows), RECORD), [])
    if not rows:
        return table
    found = dict(zip(FACTS, zip(*rows, strict=True), strict=True))
    for name, values in found.items():
        FACTS[name].check(*values)
        if name != "layout":
            table.records[name] = [text.encode() for text in values] if FACTS[name].dtype[0] == "S" else values
    if len(set(found["id"])) < len(rows):
        raise ValueError("a trajectory is listed twice")
    used = sorted(set(found["layout"]))  # others are of trajectories that were removed
    table.layouts = [layouts[number] for number in used]
    table.records["layout"] = np.searchsorted(used, found["layout"])
    for position, layout in enumerate(table.layouts):
        part = table.records[table.records["layout"] == position]
        start, length, width = (part[name].astype(np.int64) for name in ("start", "length", "width"))
        if (2.0 * length * width * layout.nbytes).max(initial=0) > 2**62:
            raise ValueError("a trajectory cannot have a file of so many bytes")
        wrong = ~FilePlan(layout, length, width).fits(part["bytes"] - start)
        if wrong.any():
            id_, size = part[wrong][0][["id", "bytes"]].tolist()
            raise ValueError(f"trajectory {id_} cannot have a file of {size} bytes")
    return table


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Turn any error inside the block into a `StorageError` that names `path`."""
    try:
        yield
    except StorageError:
        raise
    except (sqlite3.Error, sqlite3.Warning, OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        remedy = None if isinstance(error, OSError) else _REMEDY
        raise StorageError(event(f"Could not use the index ({str(error)[:80]})", path, remedy)) from error
