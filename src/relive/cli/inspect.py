"""`relive inspect`, `relive verify` and `relive salvage`: saved buffers, shards and directories of trajectories."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
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
from relive.cli.terminal import INTERRUPTED, Stopped, console, interruptible, progress, say, say_files
from relive.errors import ArgumentError, StorageError, message
from relive.trajectories.formats import format_of


def inspect(
    directory: tyro.conf.Positional[Path],
    html: Path | None = None,
    number: int | None = None,
) -> int:
    """Summarise a saved buffer, shards or a directory of trajectories: counts, fields, bytes, lengths, missing files.

    Of trajectories only the index is read; with `--html`, their files, too. The exit status is 1 if files in the index
    are missing, or saves of shards.

    Example: relive inspect runs/replay --html report.html

    Args:
        directory: The directory.
        html: Also write a page with plots to this file. It needs nothing but itself.
        number: Which save of a buffer that was saved with `keep`; the newest unless given.
    """
    screen = console()
    kind, healthy, page = _kind(directory), True, ""
    if kind == SAVES:
        saved = inspection.inspect(directory, number)
        screen.print(_summary_of_save(saved))
        table = Table("field", "dtype", "shape", "bytes")
        for name, dtype, shape, nbytes in saved.fields:
            packed = f" ({saved.compressed[name]:,} compressed)" if name in saved.compressed else ""
            table.add_row(name, dtype, str(shape), f"{nbytes:,}{packed}")
        screen.print(table)
        for name in saved.unused:
            say(screen, f"{name}: no complete save needs it")
        page = _report.of_save(saved) if html else ""
    elif kind == SHARDS:
        if html or number is not None:
            got = "`html`" if html else "`number`"
            remedy = f"name one of its shards, such as `{directory}/shard-0000`"
            raise ArgumentError(message("a saved buffer, or trajectories", f"shards, with {got}", "inspect", remedy))
        shards = sharded.inspect(directory)
        screen.print(_summary_of_shards(shards))
        screen.print(_shards(shards))
        healthy = not shards.complete or all(shard.number for shard in shards.shards)
    else:
        found = trajectories.inspect(directory)
        screen.print(_summary(found))
        if found.fields:
            screen.print(_fields(found))
        for names, what in ((found.missing, "missing or of another size"), (found.unknown, "not in the index")):
            for name in names:
                say(screen, f"{name}: {what}")
        healthy = found.healthy
        page = _report.of_trajectories(found) if html else ""
    if html:
        html.write_text(page, encoding="utf-8")
        say_files(screen, [html])
    return 0 if healthy else 1


def verify(directory: tyro.conf.Positional[Path]) -> int:
    """Read every file of a saved buffer, of shards or of trajectories and compare it with its checksums.

    Lists what is damaged. The exit status is 1 if anything is.

    Example: relive verify runs/replay

    Args:
        directory: The directory.
    """
    screen = console()
    kind = _kind(directory)

    def read(report: Progress) -> list[str]:
        if kind == TRAJECTORIES:
            return [reason for _, reason in trajectories.verify(directory, report)]
        check = inspection.verify if kind == SAVES else sharded.verify
        return check(directory, report)

    bad, done = _watched(screen, "verifying", read)
    if bad is None:
        screen.print(f"Stopped after {done} files.")
        return INTERRUPTED
    for reason in bad:
        screen.print(reason, style="red", markup=False, highlight=False, soft_wrap=True)
    if kind == TRAJECTORIES:
        screen.print(
            f"{len(bad)} of {done} trajectories are damaged." if bad else f"All {done} trajectories are intact."
        )
    else:
        screen.print(f"Damaged places: {len(bad)}." if bad else f"All {done} files are intact.")
    return 1 if bad else 0


def salvage(
    source: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SOURCE")],
    target: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TARGET")],
) -> int:
    """Write what is sound in a damaged directory to a new one; the damaged one is not changed.

    Of a saved buffer, and of each shard, every step that can be read, with its id and its priority: streams are cut
    where steps are lost, and what can be drawn is what it was. Of a `DeviceBuffer` the newest save that is whole, as an
    ordinary buffer's, with new ids. Of trajectories all that are sound, as a whole. Says what is lost.

    Example: relive salvage runs/replay runs/salvaged

    Args:
        source: Directory to read.
        target: Directory to write, new or empty.
    """
    screen = console()
    kind = _kind(source)
    if kind == SAVES:
        salvaged = _on_device if inspection.on_device(source) else salvaging.salvage
        found = salvaged(source, target)
        for problem in found.problems:
            say(screen, problem)
        _say_salvaged(screen, found, "", target)
        return 0
    if kind == SHARDS:
        shards = sharded.salvage(source, target)
        for problem in shards.problems:
            say(screen, problem)
        for number, shard in enumerate(shards.shards):
            if shard is not None:
                _say_salvaged(screen, shard, f"shard {number}, ", target)
        return 0
    bad, done = _watched(screen, "salvaging", lambda report: trajectories.salvage(source, target, report))
    if bad is None:
        screen.print("Stopped; nothing was written.")
        return INTERRUPTED
    for reason in bad:
        say(screen, reason)
    say(screen, f"{done - len(bad)} of {done} trajectories written to {target}.")
    return 0


def _on_device(source: Path, target: Path) -> salvaging.Salvage:
    """Salvage saves of a device buffer, which loads PyTorch."""
    from relive.device._salvaging import salvage

    return salvage(source, target)


def _say_salvaged(screen: Console, found: salvaging.Salvage, of: str, target: Path) -> None:
    for lane, (lost, stored) in enumerate(zip(found.lost, found.stored, strict=True)):
        if lost:
            say(screen, f"{of}lane {lane}: {lost:,} of {stored:,} steps are lost")
    kept, total = sum(found.stored) - sum(found.lost), sum(found.stored)
    say(screen, f"{kept:,} of {total:,} steps of {of}save {found.number} written to {target}.")


def _kind(directory: Path) -> str:
    """Determine the kind of a directory; layouts of trajectories that others have written are trajectories.

    Raises:
        StorageError: It is of none of them, or cannot be read.
    """
    refuse_file(directory)
    with closing(Folder(directory)) as folder:
        kind = kind_of(folder.sizes())
        layout = format_of(folder.path)
    if kind is None and layout is not None and layout.examined is not None:
        return TRAJECTORIES
    if kind is None:
        raise StorageError(message("a complete save of a buffer, or trajectories", "neither", folder.path))
    return kind


def refuse_file(directory: Path) -> None:
    """Say what a file is for, where a directory is wanted.

    Raises:
        StorageError: It is a file.
    """
    if directory.is_file():
        remedy = "`relive top` shows the file of a `Mapped` buffer, and `relive.open` reads it"
        raise StorageError(message("a directory", "a file", str(directory), remedy))


def _watched(screen: Console, label: str, read: Callable[[Progress], list[str]]) -> tuple[list[str] | None, int]:
    """Run `read` with a progress bar; return its result, or None after Ctrl-C, and the number of files read."""
    done = 0
    try:
        with interruptible() as stop, progress(screen, label) as bars:
            task = bars.add_task("", total=None)

            def report(count: int, total: int) -> None:
                nonlocal done
                done = count
                bars.update(task, completed=count, total=total)
                if stop.is_set():
                    raise Stopped

            return read(report), done
    except Stopped:
        return None, done


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


def _range(values: np.ndarray, form: str) -> str:
    numbers = (values.min(), np.median(values), values.max())
    return "smallest {}, median {}, largest {}".format(*map(form.format, numbers))


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
