"""Load RLinf's directories."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

from ..._files import Folder
from ...errors import ArgumentError, MissingExtra, ReliveWarning, StorageError, event, message
from .._block import file_of
from .._draws import Draws, NumpyDraws, TorchDraws, restored
from .._entry import Entry
from .._layout import Layout
from .._loading import part_of, read_elsewhere, staged_name, take_in
from .._store import Store
from ._listing import INDEXES, Listing, RLinfEntry, listing
from ._source import RLinfSource


def is_rlinf(folder: Folder) -> bool:
    """Whether a directory is one of RLinf's."""
    return not folder.sizes().keys().isdisjoint(INDEXES)


def load(store: Store, folder: Folder, share: tuple[int, int], allow_pickle: bool) -> Draws | None:
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
        at = f"{folder.path}/{chosen[0].name(found.kind)}"
        text = event(f"Left out {names}", at, "only tensors of shape `(T, B, ...)` are loaded")
        warnings.warn(text, ReliveWarning, stacklevel=2)
    if store.own is None or store.catalog is None:
        # Assume the first file's fields for all: reading a file with other fields is refused.
        layouts = [source.fields_of(entry) for entry in chosen[:1]] * len(chosen)
        read_elsewhere(store, source, [_entry(*each, source, sizes) for each in zip(chosen, layouts, strict=True)])
    else:
        take_in(store, store.own, store.catalog, _converted(store.own, source, chosen))
    return draws


def _present(found: Listing, sizes: dict[str, int], path: str) -> list[RLinfEntry]:
    """The trajectories whose files exist: RLinf's checkpoints list some that they do not contain."""
    present = [entry for entry in found.entries if entry.name(found.kind) in sizes]
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
        return TorchDraws(found.seed)
    except MissingExtra:
        return NumpyDraws(np.random.default_rng(found.seed % 2**64))


def _entry(entry: RLinfEntry, layout: Layout, source: RLinfSource, sizes: dict[str, int]) -> Entry:
    nbytes = sizes[entry.name(source.kind)]
    shape, given = (entry.length, entry.width, layout), (entry.max_episode_length, entry.model_weights_id)
    return Entry(entry.id, *shape, 0, nbytes, 0, *given)


def _converted(folder: Folder, source: RLinfSource, chosen: list[RLinfEntry]) -> Iterator[Entry]:
    """Stage the trajectories in relive's format, one at a time."""
    try:
        for rlinf in chosen:
            parts, entry = file_of(rlinf.id, source.whole(rlinf))
            folder.write(staged_name(rlinf.id), parts)
            yield entry
    finally:
        source.folder.close()
