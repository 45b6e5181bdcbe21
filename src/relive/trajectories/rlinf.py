"""RLinf's directories: told from relive's, loaded, and written so that RLinf loads them."""

from __future__ import annotations

import warnings

import numpy as np

from ..errors import ArgumentError, MissingExtra, ReliveWarning, StorageError, message
from ._block import file_of
from ._catalog import Entry, file_name
from ._checkpoint import empty, part
from ._draws import Draws, NumpyDraws, TorchDraws
from ._files import TEMPORARY, Folder
from ._rlinf_read import INDEXES, Listing, RLinfFiles, Told, listing
from ._rlinf_write import save as save
from ._store import Store

_FRESH = TEMPORARY + "loaded-"  # what a crash leaves behind is removed with all that starts like this


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
    sizes = source.sizes()
    chosen = present(found, sizes, source.path)
    first, last = part(len(chosen), *share)
    chosen = chosen[first:last]
    files = RLinfFiles(source, store.arena, found.kind)
    if chosen:
        files.learn(chosen[0])
    if files.left_out:
        names = ", ".join(f"`{'.'.join(path)}`" for path in files.left_out)
        wanted, at = "tensors of shape `(T, B, ...)`", f"{source.path}/{chosen[0].name(found.kind)}"
        warnings.warn(message(wanted, f"something else in {names}", at, "left out"), ReliveWarning, stacklevel=2)
    if store.own is None:
        _enter(store, files, chosen, sizes)
    else:
        _convert(store, files, chosen)
    store.added = store.flushed = store.durable = len(chosen)
    return None if found.seed is None else _draws(found.seed)


def present(found: Listing, sizes: dict[str, int], path: str) -> list[Told]:
    """The trajectories whose files are there: RLinf's checkpoints list some that they do not hold."""
    there = [told for told in found.told if told.name(found.kind) in sizes]
    if len(there) < len(found.told):
        text = message(f"{len(found.told)} trajectories' files", f"{len(there)}", path, "the others are left out")
        if not there:
            raise StorageError(message(f"{len(found.told)} trajectories' files", "none", path))
        warnings.warn(text, ReliveWarning, stacklevel=3)
    return there


def _draws(seed: int) -> Draws:
    try:
        return TorchDraws(seed)
    except MissingExtra:
        return NumpyDraws(np.random.default_rng(seed % 2**64))


def _enter(store: Store, files: RLinfFiles, chosen: list[Told], sizes: dict[str, int]) -> None:
    # Those of the first stand for all: a file that turns out to have other fields is refused when it is read.
    layouts = [files.learn(told) for told in chosen[:1]] * len(chosen)
    empty(store)
    with store.lock:
        store.sources.append(files)
        number = len(store.sources) - 1
        for told, layout in zip(chosen, layouts, strict=True):
            shape, facts = (told.length, told.width, layout), (told.episode, told.weights)
            store.enter(Entry(told.id, *shape, 0, sizes[told.name(files.kind)], 0, *facts), number)


def _convert(store: Store, files: RLinfFiles, chosen: list[Told]) -> None:
    """Write the trajectories into the store's own directory; what it holds goes when all have been written."""
    own, catalog = store.own, store.catalog
    if own is None or catalog is None:
        return
    entries: list[Entry] = []
    try:
        for told in chosen:
            block = files.read(told)
            parts, start, size, checksum = file_of(block)
            own.write(_FRESH + file_name(told.id), parts)
            shape = block.length, block.width, block.layout
            facts = block.max_episode_length, block.model_weights_id
            entries.append(Entry(told.id, *shape, start, size, checksum, *facts))
    except BaseException:
        for told in chosen:
            own.remove(_FRESH + file_name(told.id))
        raise
    finally:
        files.folder.close()
    empty(store)
    with store.lock:
        for entry in entries:
            own.rename(_FRESH + file_name(entry.id), file_name(entry.id))
        own.sync()
        catalog.add(entries, {"counter": max([0, *(entry.id + 1 for entry in entries)])})
        for entry in entries:
            store.enter(entry, 0)
