"""A buffer whose life follows from how many rounds it has lived: what a save of it must hold is known without it."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import relive
from relive._ring.lanes import OLDEST, READY, STEP
from relive.checkpoints import _manifest
from relive.checkpoints._copying import copied
from relive.checkpoints._lanes import lanes_of

LANES, ROWS = 3, 24
COMPRESS = "zstd" if find_spec("zstandard") else None
SCHEMA = relive.Schema(
    obs={"pixels": relive.Field((2, 2), "uint8", stack=2, compress=COMPRESS), "joints": relive.Field((3,))},
    action=relive.Field((), "int64"),
    state=relive.Field((2,), every=2),
)
SAMPLERS: dict[str, Any] = {
    "prioritized": relive.Prioritized(beta=relive.Anneal(0.4, 1.0, over=50)),
    "stored": relive.Prioritized(newest="stored"),
    "uniform": relive.Uniform(),
}


def build(sampler: str = "prioritized") -> relive.ReplayBuffer:
    """Make a buffer that has lived no round yet."""
    item = relive.Sequences(3, n_step=2, starts=2)
    return relive.ReplayBuffer(SCHEMA, LANES * ROWS, num_envs=LANES, item=item, sampler=SAMPLERS[sampler], seed=5)


def live(buffer: relive.ReplayBuffer, serial: int) -> Any:
    """Live one round: steps of some lanes, some of which end, and a draw with new priorities."""
    rng = np.random.default_rng(serial)
    lanes = [[0, 1, 2], [1, 2], [2]][serial % 3]
    shape = (len(lanes), int(rng.integers(3, 9)))
    frames = rng.integers(0, 255, (len(lanes), shape[1] + 2, 2, 2), np.uint8)
    joints = rng.random((len(lanes), shape[1] + 1, 3), np.float32)
    frames[:, :2], frames[:, -2:], joints[:, :1], joints[:, -1:] = 7, 7, 7, 7  # the next round goes on from there
    stacks = np.stack([frames[:, :-1], frames[:, 1:]], axis=2)
    ends = rng.random(shape) < 0.1
    given = {"priority": rng.random(shape)} if buffer.sampler.prioritizes and serial % 4 == 3 else {}
    ids = buffer.extend(
        obs={"pixels": stacks[:, :-1], "joints": joints[:, :-1]},
        next_obs={"pixels": stacks[:, 1:], "joints": joints[:, 1:]},
        action=rng.integers(0, 9, shape),
        reward=rng.random(shape),
        terminated=ends,
        truncated=~ends & (rng.random(shape) < 0.1),
        state=rng.random((*shape, 2)),
        env_ids=lanes,
        **given,
    )
    if serial % 5 == 4:
        buffer.cut([serial % LANES])
    if buffer.can_sample(4):
        batch = buffer.sample(4)
        if buffer.sampler.prioritizes:
            buffer.update_priorities(batch.ids, rng.random(4))
    return ids


def digest(buffer: relive.ReplayBuffer) -> str:
    """Hash every array, the generator, and later draws, which change the buffer."""
    found, now = hashlib.sha256(), copied(buffer._core)
    choices = now.choices
    facts = [choices.rows, repr(choices.item), repr(choices.sampler), repr(now.facts.rng.bit_generator.state)]
    facts += [(name, now.facts.counts[name]) for name in ("drawn", "updates", "stale_updates")]
    found.update(repr(facts).encode())
    # What a boundary row does not have is what stood there a lap before, which nobody sees.
    stored = lanes_of(now.arrays, choices.rows).stored
    steps = np.insert(stored.marks & STEP > 0, stored.end, False)
    of_rows = now.arrays["rows/marks"] & STEP > 0
    columns = zip(SCHEMA.columns, now.columns, strict=True)
    kept = {name: array for name, array in sorted(now.arrays.items()) if not name.startswith("next/")}
    by_row = ("rows/given", "slots/")
    arrays = [(name, array[of_rows] if name.startswith(by_row) else array) for name, array in kept.items()]
    arrays += [(column.path, array[steps]) for column, array in columns if not column.field.every]
    counters = buffer._core.ring.counters
    ids = [row * LANES + lane for lane in range(LANES) for row in range(*counters[lane, [OLDEST, READY]].tolist())]
    located = buffer._core.ring.locate(np.array(ids, np.int64)).states
    batches = [buffer.read(np.array(ids, np.int64)[located == 0 if located is not None else slice(None)])]
    for serial in (10_000, 10_001):
        found.update(live(buffer, serial).tobytes())
        batches += [buffer.sample(5)] if buffer.can_sample(5) else []
    arrays += [(name, array) for batch in batches for name, array in leaves(batch)]
    for name, array in arrays:
        found.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def leaves(batch: Any, above: str = "") -> Any:
    """Yield every array of a batch by its name."""
    for name, value in batch.items():
        yield from leaves(value, f"{above}{name}.") if hasattr(value, "items") else [(above + name, value)]


@lru_cache(maxsize=1024)
def after(rounds: int, sampler: str = "prioritized") -> str:
    """Return the digest of a buffer that has lived that many rounds."""
    buffer = build(sampler)
    for serial in range(rounds):
        live(buffer, serial)
    return digest(buffer)


def rounds_of(buffer: relive.ReplayBuffer, among: Any) -> int:
    """Find which of `among` rounds a buffer has lived; every bit of it is compared."""
    found, sampler = digest(buffer), type(buffer.sampler).__name__.lower()
    return next(rounds for rounds in among if after(rounds, sampler) == found)


def numbers(path: Path) -> list[int]:
    """List the saves whose manifests are there, the newest first."""
    found = (_manifest.number_of(name) for name in os.listdir(path) if name.startswith("save-"))
    return sorted((number for number in found if number), reverse=True)


def only_saves(path: Path, keep: int) -> None:
    """Check that nothing is there but `keep` saves at most and their files."""
    names, folder = set(os.listdir(path)) - {"lock"}, relive._disk.files.Folder(path)
    needed = set()
    for number in numbers(path):
        needed |= {_manifest.manifest_name(number), *(name for name, _ in _manifest.read(folder, number).files)}
    folder.close()
    assert len(numbers(path)) <= keep
    assert names == needed, f"left behind: {names - needed}, missing: {needed - names}"
