"""The JSON files of one of RLinf's directories: metadata, index, and relive's own file with the generator's state."""

from __future__ import annotations

import contextlib
import os
import re
from functools import partial
from typing import Any, NamedTuple

from ..._disk.files import Folder, read_at, size_of
from ..._disk.json_files import json_in
from ...errors import CorruptionError, event
from .._catalog import unchanged
from .._entry import Entry
from .._layout import FieldLayout

METADATA = "metadata.json"
GENERATOR = "relive_generator.json"
INDEX = "trajectory_index.json"
INDEXES = (INDEX, "trajector_index.json")  # RLinf's merge tool misspells it
_MOST_JSON = 256 << 20
_UUID = re.compile(r"(?:[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})?")


def name_of(entry: Entry, kind: str) -> str:
    """Return the name of a trajectory's file. An id and a UUID make it, so it cannot point outside the directory."""
    return f"trajectory_{entry.id}_{entry.model_weights_id}.{kind}"


class Listing(NamedTuple):
    """The contents of the JSON files.

    Attributes:
        kind: The format of the trajectories' files, `"pt"` or `"pkl"`.
        seed: The seed of RLinf's generator, if it is stored.
        entries: All trajectories, in order; the files alone say what fields they have, and how many bytes.
        draws: The generator's state, if relive wrote it beside RLinf's files.
    """

    kind: str
    seed: int | None
    entries: list[Entry]
    draws: str | None = None


def listing(folder: Folder) -> Listing:
    """Read the metadata and the index of a directory, as they are between two saves of another process.

    Raises:
        CorruptionError: They are damaged.
        StorageError: They are missing, or another process keeps changing them.
    """
    return unchanged(partial(_signature, folder), partial(_read, folder), folder.path)


def with_sizes(folder: Folder) -> tuple[Listing, dict[str, int]]:
    """Read the listing, and the sizes of all files of the directory while it had that one.

    A file that the listing has is missing then only if it is missing for good, as in RLinf's own checkpoints.
    """
    found = listing(folder)
    while True:
        before, sizes = found, folder.sizes()
        if all(name_of(entry, before.kind) in sizes for entry in before.entries):
            return before, sizes
        found = listing(folder)
        if found == before:
            return before, sizes


def _signature(folder: Folder) -> list[tuple[str, int, int, int]]:
    """Return a value that differs once another process has changed the directory."""
    found = []
    for name in (METADATA, GENERATOR, *INDEXES):
        with contextlib.suppress(OSError):
            status = os.stat(f"{folder.path}/{name}")
            found.append((name, status.st_ino, status.st_size, status.st_mtime_ns))
    return found


def _read(folder: Folder) -> Listing:
    sizes = folder.sizes()
    index = next((name for name in INDEXES if name in sizes), INDEX)
    at = f"{folder.path}/{METADATA}"
    try:
        metadata = _json(folder, METADATA)
        kind, seed = metadata.get("trajectory_format", "pt"), metadata.get("seed")
        if not isinstance(kind, str) or not (seed is None or (type(seed) is int and -(2**63) <= seed < 2**64)):
            raise ValueError(f"format {kind!r} and seed {seed!r}"[:80])
        at = f"{folder.path}/{index}"
        tables = _json(folder, index)
        rows, ids = tables["trajectory_index"], [int(id_) for id_ in tables["trajectory_id_list"]]
        entries = [_entry(id_, rows[str(id_)]) for id_ in ids]
        if len(set(ids)) != len(ids):
            raise ValueError("a trajectory is listed twice")
        at = f"{folder.path}/{GENERATOR}"
        draws = _draws(folder, metadata) if GENERATOR in sizes else None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptionError(event(f"Invalid RLinf index ({str(error)[:80]})", at)) from None
    return Listing("pt" if kind == "pt" else "pkl", seed, entries, draws)


def _draws(folder: Folder, metadata: Any) -> str | None:
    """Read the generator's state, unless RLinf has saved since: then the metadata differ from those saved with it."""
    saved = _json(folder, GENERATOR)
    return str(saved["draws"]) if saved["metadata"] == metadata else None


def _json(folder: Folder, name: str) -> Any:
    with folder.reading(name) as fd:
        size = size_of(fd)
        if size > _MOST_JSON:
            raise ValueError(f"{size} bytes")
        return json_in(read_at(fd, 0, size))


def _entry(id_: int, row: Any) -> Entry:
    shape, weights, episode = row["shape"], row["model_weights_id"], row["max_episode_length"]
    numbers = [row["trajectory_id"], row["num_samples"], episode, *shape]
    if not all(type(number) is int and 0 <= number < 2**31 for number in numbers):
        raise ValueError(f"trajectory {id_}: {numbers}"[:80])
    if len(shape) < 2 or numbers[:2] != [id_, shape[0] * shape[1]] or not shape[0] * shape[1]:
        raise ValueError(f"trajectory {id_}: {numbers}"[:80])
    if not isinstance(weights, str) or not _UUID.fullmatch(weights):
        raise ValueError(f"trajectory {id_}: {weights!r} is not a UUID"[:80])
    return Entry(id_, shape[0], shape[1], FieldLayout((), frozenset()), 0, 0, 0, episode, weights)
