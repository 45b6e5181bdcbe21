"""The pages that `relive inspect --html` writes."""

from __future__ import annotations

import relive
from relive import trajectories
from relive._base.page import histogram, page, section, short, stacked, table, thumbnails
from relive.checkpoints import inspection


def of_save(found: inspection.Inspection) -> str:
    """Compose the page of a saved buffer."""
    stored, ratio = int(found.stored.sum()), found.drawn / max(found.added, 1)
    tiles = [
        ("steps stored", f"{stored:,}", f"of {found.lanes * found.steps:,}"),
        ("steps ever added", f"{found.added:,}", ""),
        ("items ever drawn", f"{found.drawn:,}", ""),
        ("replay ratio", short(ratio), "draws a step"),
        ("whole episodes", f"{len(found.lengths):,}", ""),
        ("lanes", f"{found.lanes:,}", ""),
        ("bytes", _bytes(found.nbytes), f"{len(found.files)} files"),
    ]
    free = found.rows - found.stored - found.finals
    parts = [("steps", found.stored), ("final observations and what cuts left", found.finals), ("free", free)]
    draws = (
        "An item's probability in the next draw, times the number of items: 1 is an even share. How often each item "
        f"was drawn so far is not counted; over all steps it is {short(ratio)} draws a step, the replay ratio."
    )
    ages = "Rows of the same lane that are newer, for each item that can be drawn."
    raw = "Raw priorities of the items that can be drawn, before alpha is applied."
    sections = [
        section("Choices", "", table(("choice", "value"), [*found.choices.items()]), wide=True),
        stacked("Fill", "Rows of each lane.", parts, found.rows, "lane"),
        histogram("Rewards", found.rewards, "All stored steps.", "rewards"),
        histogram("Episode lengths", found.lengths, "Episodes that are stored as a whole.", "episodes"),
        histogram("Episode returns", found.returns, "Sums of rewards, not discounted.", "episodes"),
        histogram("Priorities", found.priorities, raw, "items"),
        histogram("Shares of the draws", found.shares, draws, "items"),
        histogram("Ages", found.ages, ages, "items"),
        section(
            "Saves",
            f"This page shows save {found.number}.",
            table(("save", "bytes"), [(str(number), size) for number, size in found.saves]),
        ),
        *(
            thumbnails(name, _OF_STACKS, [(f"lane {lane}, row {row:,}", image) for lane, row, image in images])
            for name, images in found.images
        ),
        section("Fields", "", table(("field", "dtype", "shape", "bytes"), _fields(found)), wide=True),
        section("Files", "", table(("file", "bytes"), found.files), wide=True),
    ]
    return page("Replay buffer", found.path, tiles, sections, by=f" {relive.__version__}")


def of_trajectories(found: trajectories.Inspection) -> str:
    """Compose the page of a directory of trajectories."""
    inside = trajectories.contents(found.path)
    tiles = [
        ("trajectories", f"{found.trajectories:,}", ""),
        ("chunk-steps", f"{found.samples:,}", ""),
        ("environments", " to ".join(f"{width:,}" for width in dict.fromkeys(found.widths)), "a trajectory"),
        ("bytes", _bytes(found.nbytes), ""),
        ("missing files", f"{len(found.missing):,}", ""),
    ]
    count = f"{inside.read:,} of {found.trajectories:,} files were read."
    fields = [(name, dtype, shape) for name, (dtype, shape) in sorted(found.fields.items())]
    fill = [("bytes", inside.nbytes)]
    largest = int(inside.nbytes.max(initial=1))
    sections = [
        stacked("Bytes", "Of each trajectory's file, the oldest first.", fill, largest, "trajectory"),
        histogram("Lengths", inside.lengths, "Steps of each trajectory.", "trajectories"),
        histogram("Rewards", inside.rewards, count, "rewards"),
        histogram("Returns", inside.returns, f"Sums over an environment's steps in a trajectory. {count}", "returns"),
        *(
            thumbnails(name, "", [(f"{id_}, step {step}, env {env}", image) for id_, step, env, image in images])
            for name, images in inside.images
        ),
        section("Fields", "", table(("field", "dtype", "shape"), fields), wide=True),
        section("Missing files", "", table(("file",), [(name,) for name in found.missing])) if found.missing else "",
    ]
    even = "Draws are even over the steps of a buffer's window; they are not counted."
    return page("Trajectories", found.path, tiles, sections, even, f" {relive.__version__}")


_OF_STACKS = "Spread over the stored steps, lane by lane. Of stacked observations the newest frame is shown."


def _fields(found: inspection.Inspection) -> list[tuple[str, str, str, int]]:
    return [(name, dtype, str(shape), nbytes) for name, dtype, shape, nbytes in found.fields]


def _bytes(count: int) -> str:
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"
