"""Load RLinf's directories."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

from ..._files import Folder
from ...errors import ArgumentError, MissingExtra, ReliveWarning, StorageError, event, message
from .._block import file_of
from .._directory import part_of, read_elsewhere, staged_name, take_in
from .._draws import Draws, restored
from .._index import Table
from .._layout import Entry
from .._store import Store
from .._writer import Writer
from ._listing import INDEXES, Listing, listing, name_of
from ._source import RLinfSource


def is_rlinf(folder: Folder) -> bool:
    """Whether a directory is one of RLinf's."""
    return any(folder.size(name) is not None for name in INDEXES)


def load(
    store: Store, writer: Writer | None, folder: Folder, share: tuple[int, int], allow_pickle: bool
) -> Draws | None:
    """Replace the contents of `store` by a share of one of RLinf's directories; returns draws in RLinf's order.

    A store without a directory reads files when their rows are needed. One with a directory converts all of them.

    Raises:
        ArgumentError: The files are `pkl`, and `allow_pickle` is False.
        StorageError: The directory is damaged, or has none of its files.
        SchemaError: A file has other fields than the first one.
    """
    found = listing(folder)
    if found.kind != "pt" and not allow_pickle:
        wanted, remedy = "files in the format `pt`", "pass `allow_pickle=True`, or `--allow-pickle`, to read them"
        raise ArgumentError(message(wanted, f"`{found.kind}` without `allow_pickle`", folder.path, remedy))
    draws = _draws(found, folder.path)
    sizes = folder.sizes()
    chosen = _present(found, sizes, folder.path)
    first, last = part_of(len(chosen), *share)
    chosen = chosen[first:last]
    source = RLinfSource(folder, store.arena, found.kind)
    if chosen:
        source.fields_of(chosen[0])
    if source.left_out:
        names = ", ".join(f"`{'.'.join(path)}`" for path in source.left_out)
        at = f"{folder.path}/{name_of(chosen[0], found.kind)}"
        text = event(f"Left out {names}", at, "only tensors, texts, numbers and lists of them are loaded")
        warnings.warn(text, ReliveWarning, stacklevel=2)
    if writer is None:
        # Assume the first file's fields for all: reading a file with other fields is refused.
        layouts = [source.fields_of(entry) for entry in chosen[:1]] * len(chosen)
        entries = [
            entry._replace(layout=layout, bytes=sizes[name_of(entry, found.kind)])
            for entry, layout in zip(chosen, layouts, strict=True)
        ]
        read_elsewhere(store, source, Table.of(entries))
    else:
        take_in(store, writer, _converted(writer.folder, source, chosen))
    return draws


def _present(found: Listing, sizes: dict[str, int], path: str) -> list[Entry]:
    """The trajectories whose files exist: RLinf's checkpoints list some that they do not contain."""
    present = [entry for entry in found.entries if name_of(entry, found.kind) in sizes]
    if len(present) < len(found.entries):
        wanted = f"the files of {len(found.entries)} trajectories"
        if not present:
            raise StorageError(message(wanted, "none", path))
        text = message(wanted, f"{len(present)}", path, "trajectories without a file are left out")
        warnings.warn(text, ReliveWarning, stacklevel=3)
    return present


def _draws(found: Listing, path: str) -> Draws | None:
    if found.draws is not None:
        return restored(found.draws, path)
    if found.seed is None:
        return None
    try:
        return Draws.torch(found.seed)
    except MissingExtra:
        return Draws(np.random.default_rng(found.seed % 2**64))


def _converted(folder: Folder, source: RLinfSource, chosen: list[Entry]) -> Iterator[Entry]:
    """Stage the trajectories in relive's format, one at a time."""
    try:
        for entry in chosen:
            parts, converted = file_of(source.block(entry))
            folder.write(staged_name(entry.id), parts)
            yield converted
    finally:
        source.folder.close()
