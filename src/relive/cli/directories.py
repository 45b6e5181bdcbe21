"""The kinds of directories as `relive inspect`, `relive verify` and `relive salvage` treat them, one entry each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from relive import trajectories
from relive._disk.checking import Progress
from relive._disk.files import Folder
from relive._disk.kinds import SAVES, SHARDS, TRAJECTORIES, kind_of
from relive.checkpoints import inspection, sharded
from relive.checkpoints import salvage as salvaging
from relive.cli import _report
from relive.cli.terminal import watched
from relive.errors import ArgumentError, StorageError, message
from relive.trajectories.formats import format_of


class Look(NamedTuple):
    """The output of `relive inspect`: tables, lines after them, the page if it was asked for, the exit status."""

    tables: Sequence[Table]
    remarks: Sequence[str] = ()
    page: str = ""
    healthy: bool = True


class Directory(NamedTuple):
    """The calls and the words of the commands for one kind of directory.

    Attributes:
        look: Inspects it. It gets the directory, the number of a save, and whether a page is wanted.
        check: Lists what is damaged. It gets the directory, and a function to report progress to.
        rescue: Writes what is sound to another directory; returns what is lost, line by line, None after Ctrl-C.
        intact: The last line of a check that found nothing.
        damaged: That of another one.
    """

    look: Callable[[Path, int | None, bool], Look]
    check: Callable[[Path, Progress], list[str]]
    rescue: Callable[[Console, Path, Path], list[str] | None]
    intact: str = "All {done} files are intact."
    damaged: str = "Damaged places: {bad}."


def looked_at_by(directory: Path) -> Directory:
    """Return the entry of a directory; layouts of trajectories that others have written are trajectories.

    Raises:
        StorageError: It is of no kind, or cannot be read.
    """
    refuse_file(directory)
    with closing(Folder(directory)) as folder:
        kind = kind_of(folder.sizes())
        layout = format_of(folder.path)
    if kind is None and layout is not None and layout.examined is not None:
        kind = TRAJECTORIES
    if kind is None:
        raise StorageError(message("a complete save of a buffer, or trajectories", "neither", folder.path))
    return _DIRECTORIES[kind]


def refuse_file(directory: Path) -> None:
    """Say what a file is for, where a directory is wanted.

    Raises:
        StorageError: It is a file.
    """
    if directory.is_file():
        remedy = "`relive top` shows the file of a `Mapped` buffer, and `relive.open` reads it"
        raise StorageError(message("a directory", "a file", str(directory), remedy))


# Saves ----------------------------------------------------------------------------------------------------------------


def _look_at_save(directory: Path, number: int | None, html: bool) -> Look:
    found = inspection.inspect(directory, number)
    table = Table("field", "dtype", "shape", "bytes")
    for name, dtype, shape, nbytes in found.fields:
        packed = f" ({found.compressed[name]:,} compressed)" if name in found.compressed else ""
        table.add_row(name, dtype, str(shape), f"{nbytes:,}{packed}")
    unused = [f"{name}: no complete save needs it" for name in found.unused]
    return Look([_summary_of_save(found), table], unused, _report.of_save(found) if html else "")


def _rescue_save(screen: Console, source: Path, target: Path) -> list[str]:
    del screen
    found = (_on_device if inspection.on_device(source) else salvaging.salvage)(source, target)
    return [*found.problems, *_salvaged(found, "", target)]


def _on_device(source: Path, target: Path) -> salvaging.Salvage:
    """Salvage saves of a device buffer, which loads PyTorch."""
    from relive.device._salvaging import salvage

    return salvage(source, target)


def _salvaged(found: salvaging.Salvage, of: str, target: Path) -> Iterator[str]:
    for lane, (lost, stored) in enumerate(zip(found.lost, found.stored, strict=True)):
        if lost:
            yield f"{of}lane {lane}: {lost:,} of {stored:,} steps are lost"
    kept, total = sum(found.stored) - sum(found.lost), sum(found.stored)
    yield f"{kept:,} of {total:,} steps of {of}save {found.number} written to {target}."


def _summary_of_save(found: inspection.Inspection) -> Table:
    table = Table(title=found.path, title_justify="left", show_header=False)
    saves = ", ".join(f"{number} ({nbytes:,} bytes)" for number, nbytes in found.saves)
    table.add_row("saves", f"number {saves}")
    table.add_row("shown", f"save number {found.number}, {len(found.files)} files")
    for name, text in found.choices.items():
        table.add_row(name, escape(text))
    table.add_row("steps", f"{found.stored.sum():,} stored, {found.added:,} added")
    least, most = found.stored.min(), found.stored.max()
    each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    table.add_row("lanes", f"{found.lanes:,} of {found.steps:,} steps ({found.rows:,} rows), {each} stored in each")
    table.add_row("items", f"{len(found.ages):,} can be drawn, {found.drawn:,} drawn, {found.cuts:,} cuts")
    if len(found.lengths):
        numbers = _range(found.lengths, "{:,.0f}")
        table.add_row("episodes", f"{len(found.lengths):,} stored as a whole, steps {numbers}")
    for name, values in (("returns", found.returns), ("rewards", found.rewards), ("priorities", found.priorities)):
        if len(values):
            table.add_row(name, f"{_range(values, '{:.4g}')}, mean {values.mean():.4g}")
    return table


def _range(values: np.ndarray, form: str) -> str:
    numbers = (values.min(), np.median(values), values.max())
    return "smallest {}, median {}, largest {}".format(*map(form.format, numbers))


# Shards ---------------------------------------------------------------------------------------------------------------


def _look_at_shards(directory: Path, number: int | None, html: bool) -> Look:
    if html or number is not None:
        got = "`html`" if html else "`number`"
        remedy = f"name one of its shards, such as `{directory}/shard-0000`"
        raise ArgumentError(message("a saved buffer, or trajectories", f"shards, with {got}", "inspect", remedy))
    found = sharded.inspect(directory)
    healthy = not found.complete or all(shard.number for shard in found.shards)
    return Look([_summary_of_shards(found), _shards(found)], healthy=healthy)


def _rescue_shards(screen: Console, source: Path, target: Path) -> list[str]:
    del screen
    found = sharded.salvage(source, target)
    shards = ((f"shard {number}, ", shard) for number, shard in enumerate(found.shards) if shard is not None)
    return [*found.problems, *(line for of, shard in shards for line in _salvaged(shard, of, target))]


def _summary_of_shards(found: sharded.ShardsInspection) -> Table:
    table = Table(title=found.path, title_justify="left", show_header=False)
    table.add_row("shards", f"{len(found.shards):,}" + ("" if found.complete else ", not all steps are saved"))
    for name, text in found.choices.items():
        table.add_row(name, escape(text))
    stored, added = (sum(getattr(shard, name) for shard in found.shards) for name in ("stored", "added"))
    table.add_row("steps", f"{stored:,} stored, {added:,} added")
    table.add_row("lanes", f"{found.num_envs:,} of {found.steps:,} steps ({found.rows:,} rows)")
    table.add_row("items", f"{found.drawn:,} drawn, in {found.draws:,} batches")
    return table


def _shards(found: sharded.ShardsInspection) -> Table:
    table = Table("shard", "save", "lanes", "steps stored", "bytes")
    for number, shard in enumerate(found.shards):
        facts = [f"{value:,}" for value in (shard.number, shard.lanes, shard.stored, shard.nbytes)]
        table.add_row(str(number), *(facts if shard.number else ["none"]))
    return table


# Trajectories ---------------------------------------------------------------------------------------------------------


def _look_at_trajectories(directory: Path, number: int | None, html: bool) -> Look:
    del number  # of a save
    found = trajectories.inspect(directory)
    told = ((found.missing, "missing or of another size"), (found.unknown, "not in the index"))
    remarks = [f"{name}: {what}" for names, what in told for name in names]
    tables = [_summary(found), *([_fields(found)] if found.fields else [])]
    return Look(tables, remarks, _report.of_trajectories(found) if html else "", found.healthy)


def _rescue_trajectories(screen: Console, source: Path, target: Path) -> list[str] | None:
    bad, done = watched(screen, "salvaging", lambda report: trajectories.salvage(source, target, report))
    return None if bad is None else [*bad, f"{done - len(bad)} of {done} trajectories written to {target}."]


def _summary(found: trajectories.Inspection) -> Table:
    table = Table(title=found.path, title_justify="left", show_header=False)
    table.add_row("trajectories", f"{found.trajectories:,}")
    table.add_row("chunk-steps", f"{found.samples:,}")
    more = f" ({found.unpacked:,} without compression)" if found.compressed else ""
    table.add_row("bytes", f"{found.nbytes:,}{more}")
    if found.trajectories:
        table.add_row("steps", "shortest {:,}, median {:,}, longest {:,}".format(*found.lengths))
        table.add_row("environments", " to ".join(f"{width:,}" for width in dict.fromkeys(found.widths)))
        table.add_row("ids", f"{found.oldest} (oldest) to {found.newest} (newest)")
    if found.shared:
        table.add_row("stored once", ", ".join(f"{name} (curr_obs one step later)" for name in found.shared))
    if found.compressed:
        table.add_row("compressed", ", ".join(found.compressed))
    problems = [
        f"{len(names)} {what}"
        for names, what in (
            (found.missing, "missing"),
            (found.unfinished, "unfinished writes (removed when the directory is opened)"),
            (found.unknown, "files not in the index"),
        )
        if names
    ]
    table.add_row("health", ", ".join(problems) or "all files are present")
    return table


def _fields(found: trajectories.Inspection) -> Table:
    table = Table("field", "dtype", "shape")
    for name, (dtype, shape) in sorted(found.fields.items()):
        table.add_row(name, dtype, shape)
    return table


_DIRECTORIES = {
    SAVES: Directory(_look_at_save, inspection.verify, _rescue_save),
    SHARDS: Directory(_look_at_shards, sharded.verify, _rescue_shards),
    TRAJECTORIES: Directory(
        _look_at_trajectories,
        lambda directory, report: [reason for _, reason in trajectories.verify(directory, report)],
        _rescue_trajectories,
        "All {done} trajectories are intact.",
        "{bad} of {done} trajectories are damaged.",
    ),
}
