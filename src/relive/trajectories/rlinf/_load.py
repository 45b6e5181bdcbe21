"""RLinf's directories: told from relive's, loaded, and written so that RLinf loads them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

from ...errors import ArgumentError, MissingExtra, ReliveWarning, StorageError, message
from .._block import file_of
from .._catalog import Entry
from .._draws import Draws, NumpyDraws, TorchDraws, restored
from .._files import Folder
from .._layout import Layout
from .._loading import part_of, read_elsewhere, staged_name, take_in
from .._store import Store
from ._read import INDEXES, Listing, RLinfFiles, Told, listing


def is_one(folder: Folder) -> bool:
    """Whether a directory is RLinf's."""
    return not folder.sizes().keys().isdisjoint(INDEXES)


def load(store: Store, source: Folder, share: tuple[int, int], allow_pickle: bool) -> Draws | None:
    """Replace what `store` holds by a share of one of RLinf's directories; returns draws in RLinf's order.

    Of each file only what is needed is read, when it is needed. A store with a directory of its own converts them all.

    Raises:
        ArgumentError: The files are pickles, and `allow_pickle` is not True.
        StorageError: The directory is damaged, or none of its files is there.
        SchemaError: A file has other fields than the first one.
    """
    found = listing(source)
    if found.kind != "pt" and not allow_pickle:
        wanted, remedy = "files in the format `pt`", "pass `allow_pickle=True`, or `--allow-pickle`, to read them"
        raise ArgumentError(message(wanted, f"`{found.kind}` without `allow_pickle`", source.path, remedy))
    draws = _draws(found, source.path)
    sizes = source.sizes()
    chosen = present(found, sizes, source.path)
    first, last = part_of(len(chosen), *share)
    chosen = chosen[first:last]
    files = RLinfFiles(source, store.arena, found.kind)
    if chosen:
        files.learn(chosen[0])
    if files.left_out:
        names = ", ".join(f"`{'.'.join(path)}`" for path in files.left_out)
        wanted, at = "tensors of shape `(T, B, ...)`", f"{source.path}/{chosen[0].name(found.kind)}"
        warnings.warn(message(wanted, f"something else in {names}", at, "left out"), ReliveWarning, stacklevel=2)
    if store.own is None or store.catalog is None:
        # Those of the first stand for all: a file that turns out to have other fields is refused when it is read.
        layouts = [files.learn(told) for told in chosen[:1]] * len(chosen)
        read_elsewhere(store, files, [_entry(*each, files, sizes) for each in zip(chosen, layouts, strict=True)])
    else:
        take_in(store, store.own, store.catalog, _converted(store.own, files, chosen))
    return draws


def present(found: Listing, sizes: dict[str, int], path: str) -> list[Told]:
    """The trajectories whose files are there: RLinf's checkpoints list some that they do not hold."""
    there = [told for told in found.told if told.name(found.kind) in sizes]
    if len(there) < len(found.told):
        text = message(f"{len(found.told)} trajectories' files", f"{len(there)}", path, "the others are left out")
        if not there:
            raise StorageError(message(f"{len(found.told)} trajectories' files", "none", path))
        warnings.warn(text, ReliveWarning, stacklevel=3)
    return there


def _draws(found: Listing, path: str) -> Draws | None:
    if found.draws is not None:
        return restored(found.draws, path)
    if found.seed is None:
        return None
    try:
        return TorchDraws(found.seed)
    except MissingExtra:
        return NumpyDraws(np.random.default_rng(found.seed % 2**64))


def _entry(told: Told, layout: Layout, files: RLinfFiles, sizes: dict[str, int]) -> Entry:
    nbytes = sizes[told.name(files.kind)]
    return Entry(told.id, told.length, told.width, layout, 0, nbytes, 0, told.episode, told.weights)


def _converted(folder: Folder, files: RLinfFiles, chosen: list[Told]) -> Iterator[Entry]:
    """Stage the trajectories in relive's format, one at a time."""
    try:
        for told in chosen:
            parts, entry = file_of(told.id, files.read(told))
            folder.write(staged_name(told.id), parts)
            yield entry
    finally:
        files.folder.close()
