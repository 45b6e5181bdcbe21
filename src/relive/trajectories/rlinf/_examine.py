"""What `verify` and `inspect` find in RLinf's directories: a process with limits of its own opens the files."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import numpy as np

from ..._base.nests import Path
from ..._disk import checking
from ..._disk.checking import Check, Progress
from ..._disk.files import Folder
from ...errors import ArgumentError, CorruptionError, ReliveWarning, SchemaError, StorageError, event, message
from .._entry import Entry
from .._index import Table
from .._layout import DTYPES, Column, Layout, check_alike
from . import _child
from ._file import require_torch
from ._listing import INDEXES, Listing, listing, name_of
from ._load import present
from ._pickle import Flat
from ._source import layout_in

_KEPT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
_MOST_ANSWER = 8 << 20  # bytes
_MOST_WORDS = 200
_PATIENCE = 5  # seconds that an idle process may take to end


def verified(folder: Folder, progress: Progress | None) -> list[tuple[str, str]]:
    """The damaged files of a directory, each with a message; files that the index lists but are not there are no error.

    Raises:
        MissingExtra: PyTorch is not installed, or too old.
        ArgumentError: The files are `pkl`, which have no checksums.
        StorageError: The index is missing or damaged.
    """
    _, entries = present(lambda: _listed(folder), folder)
    expected: Sequence[Column] | None = None
    with contextlib.closing(_layouts(folder, entries)) as layouts:

        def read() -> list[str]:
            nonlocal expected
            entry, found = next(layouts)
            try:
                if isinstance(found, Exception):
                    raise found
                expected = expected or found.columns
                check_alike(expected, found.columns, f"trajectory {entry.id}, $")
            except SchemaError as error:
                return [str(error)]
            return []

        return [*checking.failures([Check(name_of(entry, "pt"), read) for entry in entries], progress)]


def described(folder: Folder, fields: bool) -> tuple[Table, list[str], tuple[str, ...]]:
    """The trajectories of a directory, with the fields of the first file that is sound if they are wanted.

    Returns:
        The trajectories, their files' names, and those of the index.

    Raises:
        MissingExtra, ArgumentError, StorageError: As for `verified`.
    """
    sizes = folder.sizes()
    entries = [entry._replace(bytes=sizes.get(name_of(entry, "pt"), 0)) for entry in _listed(folder).entries]
    table = Table.of(entries)
    there = [entry for entry in entries if fields and name_of(entry, "pt") in sizes]
    with contextlib.closing(_layouts(folder, there)) as layouts:
        sound = (found for _, found in layouts if isinstance(found, Layout))
        table.layouts[:] = [next(sound, Layout((), frozenset()))]
    return table, [name_of(entry, "pt") for entry in entries], INDEXES


def _listed(folder: Folder) -> Listing:
    found = listing(folder)
    if found.kind != "pt":
        remedy = "rewrite it with `relive convert --allow-pickle`"
        raise ArgumentError(message("files in the format `pt`", f"`{found.kind}`", folder.path, remedy))
    return found


def _layouts(folder: Folder, entries: Iterable[Entry]) -> Generator[tuple[Entry, Layout | StorageError | SchemaError]]:
    """The fields of each file, or why it is refused. One process reads many files; if one ends it, another goes on."""
    child = None
    try:
        for entry in entries:
            name = name_of(entry, "pt")
            at = f"{folder.path}/{name}"
            child = child or _Reader(folder.path)
            answer, fresh = child.ask(name), child.fresh
            while answer is None:
                ended, child = child.end(), _Reader(folder.path)
                if fresh:
                    answer = {"refused": f"The process that read the file was ended by {ended}"}
                else:  # perhaps by a file that it has read before
                    answer, fresh = child.ask(name), True
            try:
                yield entry, layout_in(_tensors(answer, at), entry)[0]
            except (StorageError, SchemaError) as error:
                yield entry, error
    finally:
        if child is not None:
            child.end()


def _tensors(answer: dict[str, Any], at: str) -> dict[Path, Flat]:
    """The tensors in an answer, without their bytes.

    Raises:
        CorruptionError: The file is refused, or the answer is none.
    """
    if isinstance(answer.get("refused"), str):
        raise CorruptionError(event(answer["refused"][:_MOST_WORDS], at))
    try:
        found = {}
        for path, dtype, shape in answer["tensors"]:
            if not all(type(key) is str for key in path) or dtype not in DTYPES:
                raise ValueError("no path or no dtype")
            if len(shape) > 32 or not all(type(axis) is int and 0 <= axis < 2**48 for axis in shape):
                raise ValueError("no shape")
            found[tuple(path)] = Flat(dtype, tuple(shape), np.empty(0, np.uint8))
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptionError(event(f"The process that read the file gave no answer ({error!r})"[:120], at)) from None
    return found


class _Reader:
    """A process that reads files of one directory.

    Raises:
        MissingExtra: It finds no PyTorch.
        StorageError: It cannot start.
    """

    def __init__(self, path: str) -> None:
        if importlib.util.find_spec("resource") is None:
            what = "Files of RLinf's are read without limits on memory and time, which this system lacks"
            warnings.warn(event(what, path), ReliveWarning, stacklevel=2)
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._asked = 0
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-B", str(_child.__file__)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**kept, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # so that Ctrl-C does not end it in mid-file
        )
        if self.ask({"path": [each for each in sys.path if os.path.isabs(each)], "folder": path}) != {"ready": True}:
            ended = self.end()
            require_torch(path)
            raise StorageError(event(f"The process that reads RLinf's files did not start: it ended by {ended}", path))

    @property
    def fresh(self) -> bool:
        """Whether it has been asked for one file at most."""
        return self._asked <= 2

    def ask(self, question: Any) -> dict[str, Any] | None:
        """The answer to a question; None if the process has ended, or says more than it may."""
        self._asked += 1
        to, of = self._process.stdin, self._process.stdout
        with contextlib.suppress(OSError, ValueError, RecursionError):
            if to is not None and of is not None:
                to.write(json.dumps(question).encode() + b"\n")
                to.flush()
                answer = json.loads(of.readline(_MOST_ANSWER))
                return answer if type(answer) is dict else None
        return None

    def end(self) -> str:
        """End the process; returns what has ended it: a signal, or its status."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            status = self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        return signal.Signals(-status).name if status < 0 else f"status {status}"
