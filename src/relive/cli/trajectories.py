"""`relive convert`: rewrite a directory of trajectories in relive's layout, in RLinf's or in LeRobot's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from relive import trajectories
from relive.cli.directories import refuse_file
from relive.cli.terminal import INTERRUPTED, console, say, watched


def convert(
    source: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SOURCE")],
    target: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TARGET")],
    layout: Annotated[Literal["safetensors", "pt", "lerobot"], tyro.conf.arg(name="format")] = "safetensors",
    allow_pickle: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    fps: int = 10,
    compress: Literal["keep", "zstd", "none"] = "keep",
) -> int:
    """Copy a directory of trajectories, in relive's layout, in RLinf's, or as one of LeRobot's data sets.

    Reads any of them. The source is not changed. After Ctrl-C or an error, the target is empty.

    Example: relive convert checkpoints/replay_buffer/rank_0 runs/replay

    Args:
        source: Directory to read.
        target: Directory to write, new or empty.
        layout: `safetensors` for relive's layout, `pt` for RLinf's, `lerobot` for LeRobot's (without videos).
        allow_pickle: Also read RLinf's `pkl` files.
        fps: Frames per second, which LeRobot wants to know.
        compress: `zstd` compresses images in relive's layout, `none` decompresses them, `keep` keeps relive's files as
            they are.
    """
    screen = console()
    refuse_file(source)
    more: dict[str, Any] = {"fps": fps} if layout == "lerobot" else {}
    if compress != "keep":
        more["compress"] = compress
    count, _ = watched(
        screen, "converting", lambda report: trajectories.convert(source, target, layout, allow_pickle, report, **more)
    )
    if count is None:
        screen.print("Stopped; nothing was written.")
        return INTERRUPTED
    say(screen, f"{count} {'episodes' if layout == 'lerobot' else 'trajectories'} written to {target}.")
    return 0
