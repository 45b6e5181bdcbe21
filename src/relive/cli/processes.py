"""`relive top`: a buffer that is shared or mapped, or the saves of one, seen from outside."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from typing import Annotated

import tyro
from rich.live import Live
from rich.text import Text

from relive.checkpoints.watching import SavesSeen, SavesWatch
from relive.cli.terminal import columns, console, interruptible, say
from relive.processes.watching import Seen, Watch

_LANES = 24  # shown at most


def top(
    name: tyro.conf.Positional[str],
    interval: float = 1.0,
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> int:
    """Show a `Shared` or `Mapped` buffer that is in use: fill, rates, writers, priorities, ages, waits.

    Of a directory of saves, which an autosave writes: how old the last one is, and whether the next one is late.

    It only looks; the buffer's processes do not notice. Ctrl-C ends it.

    Example: relive top run1

    Args:
        name: The buffer's name, the path of its file, or a directory of saves.
        interval: Seconds between two looks, over which rates are taken; at least 0.05.
        as_json: Print one line of JSON after one interval, and end.
    """
    watch = SavesWatch(name) if os.path.isdir(name) else Watch(name)
    screen, pause = console(), max(interval, 0.05)
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
                if isinstance(seen, Seen) and not os.path.exists(seen.file):
                    break
    return 0


def _line(seen: Seen | SavesSeen) -> str:
    return json.dumps(dataclasses.asdict(seen))


def _shown(seen: Seen | SavesSeen) -> Text:
    """Format figures as lines of text: Rich's tables would take a percent of a core."""
    return _of_saves(seen) if isinstance(seen, SavesSeen) else _of_buffer(seen)


def _of_saves(seen: SavesSeen) -> Text:
    late = "the next one is late: saves fail, or the process is gone" if seen.late else ""
    every = f"every {seen.interval:.1f} s" if seen.interval else ""
    facts = [
        ("last save", f"number {seen.number:,}, {seen.age:.1f} s ago", late or every),
        ("kept", f"{seen.saves:,} saves", f"{seen.nbytes / 1e6:,.1f} MB in the last one"),
        ("by then", f"{seen.drawn:,} items drawn", f"{seen.updates:,} priorities updated"),
    ]
    text = Text(f"{seen.path}\n", style="bold")
    return text.append(columns(facts, "<<<"), style="not bold")


def _of_buffer(seen: Seen) -> Text:
    share = seen.stored / max(seen.capacity, 1)
    facts = [
        ("steps", f"{seen.stored:,} of {seen.capacity:,} ({share:.0%})", f"{seen.added:,} added"),
        ("adds", f"{seen.adds_per_second:,.0f} /s", ""),
        ("draws", f"{seen.draws_per_second:,.0f} items/s", f"{seen.samples_per_insert:.2f} per step added"),
    ]
    stale = f"{seen.stale_updates:,} of {seen.updates:,} updates came too late"
    facts.append(("late", stale, f"{seen.redrawn:,} items drawn again"))
    for label, values in (("priorities", seen.priority_quantiles), ("ages, rows", seen.ages)):
        if values:
            facts.append((label, " / ".join(f"{value:.4g}" for value in values), "least, quartiles, largest"))
    facts.append(("volume", f"{seen.replay_volume:.2f} items per step in all", ""))
    if seen.draw_age:
        spread, entropy = "", seen.draw_entropy
        if entropy is not None:
            spread = f"entropy {entropy:+.2f}: spread over {math.exp(entropy):.0%} of the items"
        facts.append(("drawn", "ages: mean {:.4g}, 95 % below {:.4g}".format(*seen.draw_age), spread))
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
    text.append(columns(facts, "<<<") + "\n\n" + columns(lanes, ">>>>>>"), style="not bold")
    return text.append(f"\nand {more} more lanes" if more > 0 else "", style="not bold")
