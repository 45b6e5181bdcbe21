"""Directories that `Shards.save` writes: read, inspected, verified and salvaged, without Ray.

A directory of shards has a manifest, `shards.json`, and for each shard a directory of an ordinary buffer's saves,
`shard-0003`, beside which `shard-0003.json` has what the buffer does not know of each of them: lanes, lives, and which
blocks of each writer it has.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, TypeVar

from .._base.frozen import Frozen
from .._buffer.saved_as import built, text_of
from .._buffer.schemas import schema_of
from .._disk import json_files
from .._disk.checking import Check, Progress, failures, is_damage
from .._disk.files import Folder, empty_folder
from .._disk.json_files import damaged
from .._ring.lanes import STEPS, rows_of, sizes_in
from .._ring.recount import steps_in
from ..errors import CorruptionError, StorageError, event, message
from ..schema import Schema
from . import _manifest, inspection
from ._reading import OpenSave
from .salvage import Salvage
from .salvage import salvage as salvage_save

FORMATS = ("relive.shards.2", "relive.shards.1")  # that are read; the first is written
MANIFEST = "shards.json"
_MOST = 64 << 20  # bytes of such a file
_MOST_SHARDS = 10_000  # their names have four digits
T = TypeVar("T")


def directory(path: str, shard: int) -> str:
    """Return the directory of a shard's saves."""
    return os.path.join(path, f"shard-{shard:04d}")


def facts_name(shard: int) -> str:
    """Return the name of the file about a shard's saves."""
    return f"shard-{shard:04d}.json"


def newest(path: str, shard: int) -> int | None:
    """Return the number of a shard's newest complete save, None if there is none."""
    at = directory(path, shard)
    if not os.path.isdir(at):
        return None
    with closing(Folder(at)) as folder:
        return max(_manifest.numbers(folder), default=None)


def write_json(path: str, name: str, facts: dict[str, Any]) -> None:
    """Replace a file, durably."""
    with closing(Folder(path, create=True)) as folder:
        folder.write(name, [json_files.dumped(facts)])
        folder.sync()


def read_json(path: str, name: str) -> dict[str, Any]:
    """Read a file that `write_json` wrote.

    Raises:
        StorageError: It is not there, or damaged.
    """
    with closing(Folder(path)) as folder:
        if folder.size(name) is None:
            remedy = "give the directory that `Shards.save` was given, or `save_dir`"
            raise StorageError(message(f"a directory of shards, with `{name}`", "none", path, remedy))
        return json_files.read(folder, name, _MOST, plain=True)


def saves_in(facts: dict[str, Any], numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the facts that the file about a shard has of each of these saves."""
    if "saves" in facts:
        return {number: facts["saves"][str(number)] for number in numbers if str(number) in facts["saves"]}
    # Format 1 has one entry for all of them, and the blocks of the last three.
    return {number: {**facts, "blocks": facts["blocks"].get(str(number), {})} for number in numbers}


class ShardSeen(Frozen, kw_only=True):
    """The newest save of one shard.

    Attributes:
        number: The save; 0 if there is none.
        lanes: Number of lanes.
        stored: Steps stored.
        added: Steps ever added.
        nbytes: Bytes of its files.
    """

    number: int = 0
    lanes: int = 0
    stored: int = 0
    added: int = 0
    nbytes: int = 0


class ShardsInspection(Frozen, kw_only=True):
    """A directory of shards.

    Attributes:
        path: The directory.
        complete: Whether all steps are saved.
        num_envs: Lanes of all shards.
        steps: Steps that a lane keeps.
        rows: Rows of a lane.
        schema: The fields of a step.
        choices: `item` and `sampler` as text.
        draws: Batches drawn.
        drawn: Items drawn.
        shards: The newest save of each shard.

    `inspect` has an example.
    """

    path: str
    complete: bool
    num_envs: int
    steps: int
    rows: int
    schema: Schema
    choices: dict[str, str]
    draws: int
    drawn: int
    shards: tuple[ShardSeen, ...]


def inspect(path: str | os.PathLike[str]) -> ShardsInspection:
    """Inspect a directory of shards: its manifest, and the manifest and the small arrays of each shard's newest save.

    Raises:
        StorageError: There is none, or it cannot be read.
        CorruptionError: What is read is damaged.

    >>> inspect("runs/shards").shards[0].stored  # doctest: +SKIP
    250000
    """
    path = os.fspath(path)
    facts = read_json(path, MANIFEST)
    with damaged(f"{path}/{MANIFEST}"):
        count = count_in(facts)
        _, steps, boundaries = sizes_in(facts)
        choices = {name: built(name, facts[name]) for name in ("item", "sampler")}
        return ShardsInspection(
            path=os.path.abspath(path),
            complete=bool(facts["complete"]),
            num_envs=int(facts["num_envs"]),
            steps=steps,
            rows=rows_of(steps, boundaries),
            schema=schema_of(facts["schema"]),
            choices={name: text_of(facts[name]) if each is None else repr(each) for name, each in choices.items()},
            draws=int(facts["draws"]),
            drawn=int(facts["drawn"]),
            shards=tuple(_of_newest(_seen, path, shard) for shard in range(count)),
        )


def count_in(facts: dict[str, Any]) -> int:
    """Return the number of shards that a manifest gives.

    Raises:
        ValueError, KeyError: It has another format, or an impossible number.
    """
    if facts["format"] not in FORMATS:
        raise ValueError(f"format {facts['format']!r}"[:60])
    count = facts["shards"]
    if type(count) is not int or not 0 < count <= _MOST_SHARDS:
        raise ValueError(f"{str(count)[:20]} shards")
    return count


def _seen(path: str, shard: int, number: int | None) -> ShardSeen:
    if number is None:
        return ShardSeen()
    with closing(Folder(directory(path, shard))) as folder, OpenSave(folder, number) as save:
        lanes = save.lanes
        return ShardSeen(
            number=number,
            lanes=len(lanes),
            stored=int(steps_in(lanes.stored).sum()),
            added=int(lanes.counters[:, STEPS].sum()),
            nbytes=save.manifest.nbytes,
        )


def verify(path: str | os.PathLike[str], progress: Progress | None = None) -> list[str]:
    """Read every file of every shard's saves and compare all bytes with their checksums.

    Args:
        path: The directory; it is not changed.
        progress: Called after each file with the number of files read so far, and of all files.

    Returns:
        What is damaged, with file and offset; empty if nothing is.

    Raises:
        StorageError: There is no manifest, or it is damaged.

    >>> verify("runs/shards")  # doctest: +SKIP
    []
    """
    path = os.fspath(path)
    facts = read_json(path, MANIFEST)
    with damaged(f"{path}/{MANIFEST}"):
        count, complete = count_in(facts), bool(facts["complete"])
    with ExitStack() as stack:
        saved = [shard for shard in range(count) if newest(path, shard) is not None]
        folders = [stack.enter_context(closing(Folder(directory(path, shard)))) for shard in saved]
        asked = range(count) if complete else saved
        checks = [Check(facts_name(shard), partial(_of_newest, _compared, path, shard)) for shard in asked]
        checks += [
            each._replace(name=f"{folder.path}/{each.name}") for folder in folders for each in inspection.checks(folder)
        ]

        def needed() -> set[str]:
            files = {f"{folder.path}/{name}" for folder in folders for name in inspection.needed(folder)}
            return files | {facts_name(shard) for shard in asked}

        damage = [text for _, text in failures(checks, progress, needed)]
        return damage or [text for folder in folders for text in inspection.misfits(folder)]


def _of_newest(read: Callable[[str, int, int | None], T], path: str, shard: int) -> T:
    """Read something about a shard's newest save; again, if a later one has just replaced it."""
    return inspection.replaced(partial(newest, path, shard), partial(read, path, shard))


def _compared(path: str, shard: int, number: int | None) -> list[str]:
    """Compare the file about a shard with its newest save."""
    if number is None:
        raise StorageError(message("a complete save", "none", directory(path, shard)))
    with damaged(f"{path}/{facts_name(shard)}"):
        facts = saves_in(read_json(path, facts_name(shard)), [number])[number]
        with closing(Folder(directory(path, shard))) as folder:
            lanes = _manifest.read(folder, number).choices["num_envs"]
        sizes = {len(facts["lanes"]), *map(len, facts["firsts"])}
        if sizes != {lanes} or len(facts["lives"]) != len(facts["firsts"]):
            raise ValueError("other lanes than the save has")
    return []


class ShardsSalvage(Frozen):
    """The result of a salvage of shards.

    Attributes:
        shards: The result of each shard; None: nothing of it could be used.
        problems: What was damaged, with file and offset.

    `salvage` has an example.
    """

    shards: tuple[Salvage | None, ...]
    problems: tuple[str, ...]


def salvage(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> ShardsSalvage:
    """Write sound saves of all shards, each with the steps that can be read, as `salvage` of a buffer's saves does.

    A shard of which nothing can be used begins empty when they are loaded.

    Args:
        source: The directory of shards; it is not changed.
        target: The directory to write, new or empty.

    Raises:
        StorageError: The manifest is damaged, no shard can be used, or `target` is not empty or cannot be written.

    >>> salvage("runs/shards", "runs/sound").problems  # doctest: +SKIP
    ()
    """
    path = os.fspath(source)
    try:
        manifest = read_json(path, MANIFEST)
        with damaged(f"{path}/{MANIFEST}"):
            count = count_in(manifest)
    except CorruptionError as error:
        remedy = f"salvage its shards one by one, such as `{directory(path, 0)}`"
        raise CorruptionError(event(str(error), path, remedy)) from error
    found, problems = list[Salvage | None](), list[str]()
    with empty_folder(target) as folder:
        try:
            for shard in range(count):
                found.append(_salvaged(path, folder.path, shard, problems))
            if not any(found):
                raise StorageError(event("No shard can be used", path, problems[0] if problems else "none was saved"))
            complete = manifest["complete"] and None not in found
            write_json(folder.path, MANIFEST, {**manifest, "format": FORMATS[0], "complete": complete})
        except BaseException:
            for shard in range(count):
                shutil.rmtree(directory(folder.path, shard), ignore_errors=True)
            raise
    return ShardsSalvage(tuple(found), tuple(problems))


def _salvaged(source: str, target: str, shard: int, problems: list[str]) -> Salvage | None:
    """Salvage one shard; what is damaged is added to `problems`."""
    at, name = directory(target, shard), facts_name(shard)
    try:
        known = read_json(source, name)
        done = salvage_save(directory(source, shard), at)
        with damaged(f"{source}/{name}"):
            facts = saves_in(known, [done.number])[done.number]
    except StorageError as error:
        if not is_damage(error):
            raise
        shutil.rmtree(at, ignore_errors=True)
        problems.append(f"shard {shard} is left out: {error}")
        return None
    problems += done.problems
    write_json(target, name, {"saves": {"1": facts}})
    return done
