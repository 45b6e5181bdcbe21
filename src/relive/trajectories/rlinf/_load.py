"""RLinf's directories: recognised, and opened."""

from __future__ import annotations

import contextlib
import os

from ..._base.memory import Arena
from ..._base.warned import warn
from ..._disk.files import Folder
from ...errors import ArgumentError, SchemaError, StorageError, event, message
from .._catalog import ATTEMPTS
from .._draws import DrawGenerator, restored
from .._index import Table
from .._layout import FieldLayout
from ..formats import Checkpoints, Examined, Format, Loaded, warn_of_missing
from ._listing import INDEXES, name_of, with_sizes
from ._source import RLinfSource
from ._write import write


def _holds(path: str) -> bool:
    return any(os.path.lexists(os.path.join(path, name)) for name in INDEXES)


def _opened(folder: Folder, arena: Arena, share: tuple[int, int], allow_pickle: bool, complete: bool) -> Loaded:
    del complete  # RLinf's own checkpoints list files that they do not have
    for left in reversed(range(ATTEMPTS)):
        try:
            return _loaded(folder, arena, share, allow_pickle)
        except StorageError as error:  # the first file may just have been removed by another process
            if not (left and isinstance(error.__cause__, FileNotFoundError)):
                raise
    raise AssertionError


def _loaded(folder: Folder, arena: Arena, share: tuple[int, int], allow_pickle: bool) -> Loaded:
    """Open one of RLinf's directories: a rank's share of its trajectories, and draws in RLinf's order.

    Raises:
        MissingExtra: PyTorch is not installed, or too old.
        ArgumentError: The files are `pkl`, and `allow_pickle` is False.
        StorageError: The directory is damaged, or has none of its files.
        SchemaError: The first file has no fields that can be read.
    """
    found, sizes = with_sizes(folder)
    if found.kind != "pt" and not allow_pickle:
        wanted, remedy = "files in the format `pt`", "pass `allow_pickle=True`, or `--allow-pickle`, to read them"
        raise ArgumentError(message(wanted, f"`{found.kind}` without `allow_pickle`", folder.path, remedy))
    named = [(entry, sizes.get(name_of(entry, found.kind))) for entry in found.entries]
    entries = [entry._replace(bytes=size) for entry, size in named if size is not None]
    warn_of_missing(len(named), len(entries), folder.path)  # RLinf's own checkpoints lack some
    draws = None if found.seed is None else DrawGenerator.torch(found.seed)
    if found.draws is not None:
        draws = restored(found.draws, folder.path)
    table = Table.of(entries).share(*share)
    source = RLinfSource(folder, arena, found.kind)
    if len(table):
        # Assume the first file's fields for all: reading a file with other fields is refused.
        first = table[0]
        table.layouts = [source.fields_of(first)]
    if source.left_out:
        names = ", ".join(f"`{'.'.join(path)}`" for path in source.left_out)
        warn(event(f"Left out {names}", source.at(first), "only tensors, texts, numbers and lists of them are loaded"))
    return Loaded(source, table, draws)


def examined(folder: Folder) -> Examined:
    """List the trajectories of a directory, with the fields of the first file that is sound.

    Raises:
        MissingExtra: PyTorch is not installed, or too old.
        ArgumentError: The files are `pkl`, which have no checksums.
        StorageError: The index is missing or damaged.
    """
    found, sizes = with_sizes(folder)
    if found.kind != "pt":
        remedy = "rewrite it with `relive convert --allow-pickle`"
        raise ArgumentError(message("files in the format `pt`", f"`{found.kind}`", folder.path, remedy))
    names = [name_of(entry, "pt") for entry in found.entries]
    entries = [entry._replace(bytes=sizes.get(name, 0)) for entry, name in zip(found.entries, names, strict=True)]
    source, table = RLinfSource(folder, Arena(), "pt"), Table.of(entries)
    for entry in entries:
        if entry.bytes and source.layout is None:
            with contextlib.suppress(StorageError, SchemaError):
                source.fields_of(entry)
    table.layouts[:] = [source.layout or FieldLayout((), frozenset())]
    return Examined(table, names, INDEXES, source)


FORMAT = Format(name="pt", title="RLinf's", holds=_holds, checkpoints=Checkpoints(_opened, write), examined=examined)
