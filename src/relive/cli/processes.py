"""`relive top` and `relive shm`: buffers that are shared or mapped, seen from outside."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Sequence
from typing import Annotated

import tyro
from rich.live import Live
from rich.table import Table
from rich.text import Text

from relive._terminal import console, interruptible, say
from relive.errors import StorageError
from relive.processes.watching import Seen, Watch
from relive.storage._segment import CREATOR, Segment
from relive.storage.shared import FOLDER, PREFIX, segments

_LANES = 24  # shown at most


def top(
    name: tyro.conf.Positional[str],
    interval: float = 1.0,
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> int:
    """Show a `Shared` or `Mapped` buffer that is in use: fill, rates, writers, priorities, ages, waits.

    It only looks; the buffer's processes do not notice. Ctrl-C ends it.

    Example: relive top run1

    Args:
        name: The buffer's name, or the path of its file.
        interval: Seconds between two looks, over which rates are taken; at least 0.05.
        as_json: Print one line of JSON after one interval, and end.
    """
    watch, screen, pause = Watch(name), console(), max(interval, 0.05)
    seen = watch.look()
    with interruptible() as stop:
        if as_json:
            stop.wait(pause)
            say(screen, _line(watch.look()))
            return 0
        with Live(_shown(seen), console=screen, auto_refresh=False) as live:
            while not stop.wait(pause):
                seen = watch.look()
                live.update(_shown(seen), refresh=True)
                if not os.path.exists(seen.file):
                    break
    return 0


def list_segments() -> int:
    """List the shared buffers of this machine: name, bytes, owner, and whether their process lives.

    Example: relive shm list
    """
    table = Table("name", "bytes", "user", "state")
    for path in segments():
        found = os.stat(path, follow_symlinks=False)
        name = path.removeprefix(f"{FOLDER}/{PREFIX}")
        table.add_row(name, f"{found.st_size:,}", str(found.st_uid), _state(path))
    console().print(table)
    return 0


def clean() -> int:
    """Remove shared buffers whose process is gone, however it ended; those that are in use stay.

    Example: relive shm clean
    """
    screen = console()
    for path in segments():
        if _state(path) in (_LEFT, _UNFINISHED):
            os.unlink(path)
            say(screen, f"removed {path}")
    return 0


_IN_USE, _LEFT, _UNFINISHED, _FOREIGN = "in use", "left behind", "never finished", "another user's"


def _state(path: str) -> str:
    try:
        if os.stat(path, follow_symlinks=False).st_uid != os.geteuid():
            return _FOREIGN
        segment = Segment.attach(path, "")
    except StorageError:
        age = time.time() - os.stat(path, follow_symlinks=False).st_mtime
        return _UNFINISHED if age > 60 else _IN_USE  # somebody may just be making it
    return _IN_USE if segment.locks.taken(CREATOR) else _LEFT


def _line(seen: Seen) -> str:
    return json.dumps(dataclasses.asdict(seen))


def _shown(seen: Seen) -> Text:
    """As lines of text: tables of Rich's would take a percent of a core by themselves."""
    share = seen.stored / max(seen.capacity, 1)
    facts = [
        ("steps", f"{seen.stored:,} of {seen.capacity:,} rows ({share:.0%})", f"{seen.added:,} added"),
        ("adds", f"{seen.adds_per_second:,.0f} /s", ""),
        ("draws", f"{seen.draws_per_second:,.0f} items/s", f"{seen.samples_per_insert:.2f} per step added"),
    ]
    stale = f"{seen.stale_updates:,} of {seen.updates:,} updates came too late"
    facts.append(("late", stale, f"{seen.redrawn:,} items drawn again"))
    for label, values in (("priorities", seen.priority_quantiles), ("ages, rows", seen.ages)):
        if values:
            facts.append((label, " / ".join(f"{value:.4g}" for value in values), "least, quartiles, largest"))
    if seen.limiter is not None:
        limiter = seen.limiter
        waits = f"adds {limiter.insert_waits:,} times, {limiter.insert_seconds:.1f} s; "
        waits += f"draws {limiter.sample_waits:,} times, {limiter.sample_seconds:.1f} s"
        held = f"{limiter.samples_per_insert:.2f} items per step in all, {limiter.error:+.0f} due"
        facts.append(("waits", waits, held))
    lanes = [("lane", "writer", "adds/s", "steps", "stored", "cuts")]
    for lane in seen.lanes[:_LANES]:
        rates = (f"{lane.adds_per_second:,.0f}", f"{lane.steps:,}", f"{lane.stored:,}", f"{lane.cuts:,}")
        lanes.append((str(lane.lane), str(lane.writer) if lane.writer else "-", *rates))
    more = len(seen.lanes) - _LANES
    text = Text(f"{seen.file}  {'' if seen.creator_alive else '(its process is gone)'}\n", style="bold")
    text.append(_columns(facts, "<<<") + "\n\n" + _columns(lanes, ">>>>>>"), style="not bold")
    return text.append(f"\nand {more} more lanes" if more > 0 else "", style="not bold")


def _columns(rows: Sequence[tuple[str, ...]], sides: str) -> str:
    """Cells in columns as wide as their widest one, on the left or on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)) for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
