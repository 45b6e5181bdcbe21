"""`relive inspect`, `relive verify` and `relive salvage`: saved buffers, shards and directories of trajectories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from relive.cli.directories import looked_at_by
from relive.cli.terminal import INTERRUPTED, console, say, say_files, watched


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
    look = looked_at_by(directory).look
    found = look(directory, number, html is not None)
    for table in found.tables:
        screen.print(table)
    for remark in found.remarks:
        say(screen, remark)
    if html:
        html.write_text(found.page, encoding="utf-8")
        say_files(screen, [html])
    return 0 if found.healthy else 1


def verify(directory: tyro.conf.Positional[Path]) -> int:
    """Read every file of a saved buffer, of shards or of trajectories and compare it with its checksums.

    Lists what is damaged. The exit status is 1 if anything is.

    Example: relive verify runs/replay

    Args:
        directory: The directory.
    """
    screen, by = console(), looked_at_by(directory)
    bad, done = watched(screen, "verifying", lambda report: by.check(directory, report))
    if bad is None:
        screen.print(f"Stopped after {done} files.")
        return INTERRUPTED
    for reason in bad:
        screen.print(reason, style="red", markup=False, highlight=False, soft_wrap=True)
    screen.print((by.damaged if bad else by.intact).format(bad=len(bad), done=done))
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
    lines = looked_at_by(source).rescue(screen, source, target)
    if lines is None:
        screen.print("Stopped; nothing was written.")
        return INTERRUPTED
    for line in lines:
        say(screen, line)
    return 0
