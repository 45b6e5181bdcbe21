"""All ways into the directory of a saved buffer, and what is done with a buffer that comes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from saved_lives import ROWS, build, live

import relive
from relive._ring import kernels as _kernels
from relive.testing._lives import BACK_ENDS

NAME = "0" * 32
OTHERS = {"capacity": ROWS, "item": relive.Sequences(2, starts=2), "sampler": relive.Prioritized(newest="stored")}


def make(path: Path) -> None:
    """Make a good directory: the second save, with two files of steps."""
    buffer = build()
    buffer._core.tally.identity = NAME
    for serial in range(5):
        if serial == 4:
            buffer.save(path)
        live(buffer, serial)
    buffer.save(path)


def used(buffer: relive.ReplayBuffer, made: Path) -> None:
    """Make every use of a buffer."""
    for serial in range(4):
        buffer.stats()
        if buffer.can_sample(50):
            batch = buffer.sample(50)
            buffer.read(batch.ids)
        live(buffer, serial)
    buffer.save(made)
    repr(buffer)


def owner() -> relive.ReplayBuffer:
    """Make a buffer of the same name as the saved one."""
    buffer = build()
    live(buffer, 0)
    buffer._core.tally.identity = NAME
    return buffer


def ways(case: Path, made: Path) -> dict[str, Callable[[], Any]]:
    """Return each way in, by its name."""

    def loaded(kernels: str, **choices: Any) -> None:
        with _kernels.use(kernels):
            used(relive.load(case, **choices), made)

    found: dict[str, Callable[[], Any]] = {f"load, {name}": lambda name=name: loaded(name) for name in BACK_ENDS}
    found["load under other choices"] = lambda: loaded(BACK_ENDS[-1], **OTHERS)
    found["load some lanes"] = lambda: loaded(BACK_ENDS[-1], lanes=[2, 0, 1])
    found["save onto"] = lambda: owner().save(case)
    return found
