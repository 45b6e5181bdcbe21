"""Directories that `Shards.save` writes: read, inspected, verified and salvaged, without Ray.

A directory of shards has a manifest, `shards.json`, and for each shard a directory of an ordinary buffer's saves,
`shard-0003`, beside which `shard-0003.json` has what the buffer does not know of each of them: lanes, lives, and which
blocks of each writer it has.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from .._base.frozen import Frozen
from .._disk import checking, json_files
from .._disk.checking import Check, Progress, is_damage
from .._disk.files import Folder, empty_folder
from .._disk.json_files import damaged
from .._ring.lanes import STEPS, rows_of, sizes_in
from .._ring.recount import steps_in
from ..errors import CorruptionError, StorageError, event, message
from ..schema import Schema
from . import _manifest, inspection
from ._reading import OpenSave
from ._saved_as import built, text_of
from ._schemas import schema_of
from .salvage import Salvage
from .salvage import salvage as salvage_save

FORMATS = ("relive.shards.2", "relive.shards.1")  # that are read; the first is written
MANIFEST = "shards.json"
_MOST = 64 << 20  # bytes of such a file
_MOST_SHARDS = 10_000  # their names have four digits


def directory(path: str, shard: int) -> str:
    """Return the directory of a shard's saves."""
    return os.path.join(path, f"shard-{shard:04d}")


def facts_name(shard: int) -> str:
    """Return the name of the file about a shard's saves."""
    return f"shard-{shard:04d}.json"


def newest(path: str, shard: int) -> int | None:
    """Return the number of a shard's newest complete save, or None if there is none."""
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
    """Read the facts about each of these saves from the file about a shard."""
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
            shards=tuple(_seen(path, shard) for shard in range(count)),
        )


def count_in(facts: dict[str, Any]) -> int:
    """Read the number of shards from a manifest.

    Raises:
        ValueError, KeyError: It has another format, or an impossible number.
    """
    if facts["format"] not in FORMATS:
        raise ValueError(f"format {facts['format']!r}"[:60])
    count = facts["shards"]
    if type(count) is not int or not 0 < count <= _MOST_SHARDS:
        raise ValueError(f"{str(count)[:20]} shards")
    return count


def _seen(path: str, shard: int) -> ShardSeen:
    while True:
        number = newest(path, shard)
        if number is None:
            return ShardSeen()
        try:
            return _seen_of(path, shard, number)
        except StorageError:
            if number == newest(path, shard):  # else a later save has just replaced it
                raise


def _seen_of(path: str, shard: int, number: int) -> ShardSeen:
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
    checks: list[Check] = []
    with ExitStack() as stack:
        folders: dict[int, Folder] = {}
        for shard in range(count):
            if newest(path, shard) is not None:
                folder = folders[shard] = stack.enter_context(closing(Folder(directory(path, shard))))
                checks.append(Check(facts_name(shard), partial(_facts, path, shard)))
                checks += [each._replace(name=f"{shard} {each.name}") for each in inspection.checks(folder)]
            elif complete:
                checks.append(Check(facts_name(shard), partial(_none, path, shard)))
        failed = [*checking.failures(checks, progress)]
        found = [text for name, text in failed if " " not in name]
        for shard, folder in folders.items():
            of_shard = [(name.partition(" ")[2], text) for name, text in failed if name.startswith(f"{shard} ")]
            found += inspection.lasting(folder, of_shard)
        return found or [text for folder in folders.values() for text in inspection.misfits(folder)]


def _none(path: str, shard: int) -> list[str]:
    raise StorageError(message("a complete save", "none", directory(path, shard)))


def _facts(path: str, shard: int) -> list[str]:
    """Compare the file about a shard with its newest save."""
    while True:
        number = newest(path, shard) or 0
        try:
            _compare(path, shard, number)
        except StorageError:
            if number == newest(path, shard):  # else a later save has just replaced it
                raise
        else:
            return []


def _compare(path: str, shard: int, number: int) -> None:
    with damaged(f"{path}/{facts_name(shard)}"):
        facts = saves_in(read_json(path, facts_name(shard)), [number])[number]
        with closing(Folder(directory(path, shard))) as folder:
            lanes = _manifest.read(folder, number).choices["num_envs"]
        sizes = {len(facts["lanes"]), *map(len, facts["firsts"])}
        if sizes != {lanes} or len(facts["lives"]) != len(facts["firsts"]):
            raise ValueError("other lanes than the save has")


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
