"""A small buffer whose life follows from how many rounds it has lived: loaded and compared in a few milliseconds.

That of `saved_lives.py` has every kind of field and sampler. This one is for tests that look at many saves.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import numpy as np

import relive
from relive.checkpoints import _manifest
from relive.checkpoints._copying import copied

ROWS, STEPS, MOST = 16, 5, 40
SCHEMA = relive.Schema(obs=relive.Field((2,)), action=relive.Field((), "int64"))


def build() -> relive.ReplayBuffer:
    """Make a buffer that has lived no round yet."""
    return relive.ReplayBuffer(SCHEMA, ROWS, seed=5)


def live(buffer: relive.ReplayBuffer, serial: int) -> None:
    """Live one round: steps that continue those of the last one, and a draw."""
    rows = np.random.default_rng(serial).random((STEPS + 1, 2), np.float32)
    rows[[0, -1]] = 7
    ends, serials = np.zeros(STEPS, bool), np.full(STEPS, serial)
    steps = {"obs": rows[:-1], "next_obs": rows[1:], "action": serials, "reward": serials.astype(np.float32)}
    buffer.extend(**{name: values[None] for name, values in steps.items()}, terminated=ends[None], truncated=ends[None])
    buffer.sample(3)


def digest(buffer: relive.ReplayBuffer) -> str:
    """Hash every array and the generator, except for fields of the open row that an earlier lap left."""
    now = copied(buffer._core)
    found = hashlib.sha256(repr((now.facts.rng.bit_generator.state, now.facts.counts)).encode())
    for name, array in sorted(now.arrays.items()):
        if not name.startswith("next/") or name == "next/obs":
            found.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    for column, array in zip(SCHEMA.columns, now.columns, strict=True):
        found.update((array if column.keys == ("obs",) else array[:-1]).tobytes())
    return found.hexdigest()


@cache
def known() -> dict[str, int]:
    """Return the number of rounds lived, by digest."""
    found, buffer = {}, build()
    for serial in range(MOST):
        found[digest(buffer)] = serial
        live(buffer, serial)
    return found


def rounds_of(buffer: relive.ReplayBuffer) -> int:
    """Count the rounds that a buffer has lived; every bit of it is compared."""
    return known()[digest(buffer)]


def bytes_of(path: Path, number: int) -> tuple[bytes | None, ...]:
    """Return the contents of a save's files, its manifest first; None for a missing one."""
    folder = relive._disk.files.Folder(path)
    try:
        names = [_manifest.manifest_name(number), *(name for name, _ in _manifest.read(folder, number).files)]
    finally:
        folder.close()
    return tuple((path / name).read_bytes() if (path / name).exists() else None for name in names)
