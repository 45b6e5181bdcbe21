"""`relive inspect` and `relive verify`: summarise a directory of trajectories, and check it for damage."""

from __future__ import annotations

from pathlib import Path

import tyro
from rich.table import Table

from relive import trajectories
from relive._terminal import INTERRUPTED, console, interruptible, progress, say


class _Stopped(Exception):
    """Ctrl-C between two files."""


def inspect(directory: tyro.conf.Positional[Path]) -> int:
    """Summarise a directory of trajectories: counts, bytes, fields, lengths, and missing files.

    Only the index is read. The exit status is 1 if files in the index are missing.

    Example: relive inspect runs/replay

    Args:
        directory: The directory of trajectories.
    """
    screen = console()
    found = trajectories.inspect(directory)
    screen.print(_summary(found))
    if found.fields:
        screen.print(_fields(found))
    for names, what in ((found.missing, "missing or of another size"), (found.unknown, "not in the index")):
        for name in names:
            say(screen, f"{name}: {what}")
    return 0 if found.healthy else 1


def verify(directory: tyro.conf.Positional[Path]) -> int:
    """Read every file of a directory of trajectories and compare it with its checksums.

    Lists damaged files. The exit status is 1 if there are any.

    Example: relive verify runs/replay

    Args:
        directory: The directory of trajectories.
    """
    screen = console()
    done = 0
    try:
        with interruptible() as stop, progress(screen, "verifying") as bars:
            task = bars.add_task("", total=None)

            def report(read: int, total: int) -> None:
                nonlocal done
                done = read
                bars.update(task, completed=read, total=total)
                if stop.is_set():
                    raise _Stopped

            bad = trajectories.verify(directory, report)
    except _Stopped:
        screen.print(f"Stopped after {done} files.")
        return INTERRUPTED
    for _, reason in bad:
        screen.print(reason, style="red", markup=False, highlight=False, soft_wrap=True)
    screen.print(f"{len(bad)} of {done} trajectories are damaged." if bad else f"All {done} trajectories are intact.")
    return 1 if bad else 0


def _summary(found: trajectories.Inspection) -> Table:
    table = Table(title=found.path, title_justify="left", show_header=False)
    table.add_row("trajectories", f"{found.trajectories:,}")
    table.add_row("chunk-steps", f"{found.samples:,}")
    table.add_row("bytes", f"{found.nbytes:,}")
    if found.trajectories:
        table.add_row("steps", "shortest {:,}, median {:,}, longest {:,}".format(*found.lengths))
        table.add_row("environments", " to ".join(f"{width:,}" for width in dict.fromkeys(found.widths)))
        table.add_row("ids", f"{found.oldest} (oldest) to {found.newest} (newest)")
    if found.shared:
        table.add_row("stored once", ", ".join(f"{name} (curr_obs one step later)" for name in found.shared))
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
