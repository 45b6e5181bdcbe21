"""The hunt for torn rows: writers and readers in processes of their own, as fast as they can, over small rings."""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import some
from forking import forked
from whole_rows import native

import relive
from relive._buffer import drawing
from relive._buffer.core import Access
from relive.processes.joint import JointAccess

pytestmark = [native, pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")]
WRITERS, READERS = 4, 2
# Items that a reader looks at, at least; so many seconds longer where the machine is busy or the build slow.
FEWEST, PATIENCE = 400, 60.0
# Bytes of a row, rows of a lane. In the memory of lanes of 17 rows no row is spare.
RINGS = [(64, 16), (64, 25_000), (4096, 16), (4096, 1000), (28_000, 16), (28_000, 100)]
STACKED = (4096, 17)
EPISODE, STACK = 7, 3
OLDER, ACTIONS = (-1, 0), np.arange(-1, 4)  # offsets of windows
TRANSITIONS = relive.Transitions(n_step=3, gamma=1.0)
WINDOWS = relive.Windows(obs=OLDER, action=ACTIONS.tolist(), n_step=3, gamma=1.0)
SAMPLERS = [relive.Uniform(), relive.Prioritized(), relive.Prioritized(newest="stored")]


def observation(lane: int, step: int, width: int) -> np.ndarray:
    """Make the lane, the step, and bytes that follow from both, to the last."""
    rest = (np.arange(width - 2, dtype=np.uint64) * 2654435761 + step * 40503 + lane) % 2**32
    return np.concatenate([[lane, step], rest.astype(np.uint32)]).astype(np.uint32)


def stacked(pool: np.ndarray, step: int, begun: int) -> np.ndarray:
    """Make the stack that ends with `step`, of an episode that began at the step `begun`."""
    frames = [pool[(step - age) % 512] if step - age >= begun else 0 * pool[0] for age in range(STACK)]
    return np.stack(frames[::-1])


def write(name: str, lane: int, width: int, stack: bool, tell: int) -> None:
    os.close(tell)  # else nothing tells that a reader has failed
    pool = np.stack([observation(lane, step, width) for step in range(512)])  # steps repeat after so many
    with relive.Writer(name, env_ids=[lane]) as writer:
        for step in range(2**40):
            now, after = pool[step % 512], pool[(step + 1) % 512]
            if stack:
                now, after = (stacked(pool, t, step - step % EPISODE) for t in (step, step + 1))
            ended = step % EPISODE == EPISODE - 1
            writer.add(obs=now, action=step, reward=lane, next_obs=after, terminated=ended, truncated=False)


def wrong(batch: relive.Batch, width: int) -> int:
    """Count items that are not consecutive steps of one lane, no further than their episode."""
    windows = "pad" in batch
    steps = batch.action[:, ACTIONS.tolist().index(0)] if windows else batch.action
    lanes, begun, found = batch.ids % WRITERS, steps // EPISODE * EPISODE, np.zeros(len(batch.ids), bool)
    if windows:
        for shown, pad, offsets in ((batch.action, batch.pad.action, ACTIONS), (None, batch.pad.obs, OLDER)):
            far = steps[:, None] + np.array(offsets)
            near = np.clip(far, begun[:, None], begun[:, None] + EPISODE - 1)
            found |= ((pad != (near != far)) | (shown is not None and shown != near)).any(1)
    found |= (batch.reward != lanes * batch.steps) | (batch.steps != np.minimum(3, EPISODE - steps % EPISODE))
    for name, last in (("obs", steps), ("next_obs", steps + batch.steps)):
        frames = batch[name] if batch[name].ndim == 3 else batch[name][:, None]
        for age, frame in enumerate(np.moveaxis(frames, 1, 0)[::-1]):
            within = windows | (age <= last - begun)  # which repeat the first observation; stacks have zeros
            shown = np.maximum(last - age, begun) if windows else last - age
            items = zip(lanes.tolist(), shown.tolist(), frame, within.tolist(), strict=True)
            found |= [(seen != known * observation(lane, t % 512, width)).any() for lane, t, seen, known in items]
    return int(found.sum())


def read(name: str, sampler: relive.Uniform, width: int, seconds: float, tell: int) -> None:
    seen = bad = 0
    with relive.open(name, sampler=sampler, seed=0) as reader:
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until or (seen < FEWEST and now < until + PATIENCE):
            if reader.can_sample(1):
                batch = reader.sample(16)
                bad += wrong(batch, width)
                seen += len(batch.ids)
                if reader.sampler.prioritizes:
                    reader.update_priorities(batch.ids, 1.0 + batch.ids % 5)
    os.write(tell, np.array([seen, bad]).tobytes())


def hunt(
    size: int,
    rows: int,
    seconds: float,
    sampler: relive.Uniform,
    stack: bool = False,
    item: relive.Item = TRANSITIONS,
    storage: relive.Shared | relive.Mapped | None = None,
) -> tuple[int, int]:
    """Count the items that were read, and the wrong ones among them."""
    width = size // 4 - 6
    obs = relive.Field(width, "uint32", stack=STACK if stack else None)
    schema = relive.Schema(obs=obs, action=relive.Field((), "int64"))
    told, tell = os.pipe()
    storage = storage or relive.Shared()
    with relive.ReplayBuffer(schema, rows * WRITERS, num_envs=WRITERS, item=item, storage=storage) as buffer:
        name = buffer.storage.address
        children = [
            *(forked(lambda lane=lane: write(name, lane, width, stack, tell), endless=True) for lane in range(WRITERS)),
            *(forked(lambda: read(name, sampler, width, seconds, tell)) for _ in range(READERS)),
        ]
        results = []
        with ExitStack() as running:
            ids = [running.enter_context(child) for child in children]
            os.close(tell)
            for _ in range(READERS):
                if not select.select([told], [], [], seconds + 4 * PATIENCE)[0]:
                    for child in ids:
                        os.kill(child, signal.SIGKILL)
                    pytest.fail("a reader does not come back")
                results.append(np.frombuffer(os.read(told, 16), np.int64, 2))
    os.close(told)
    seen, bad = np.sum(results, axis=0).tolist()
    return seen, bad


def lengths(seconds: float) -> list[tuple[int, int, float]]:
    return [(*ring, seconds) for ring in [*RINGS, STACKED]]


@pytest.mark.parametrize(
    ("size", "rows", "seconds"),
    some(lengths(0.25), 2) + [pytest.param(*case, marks=pytest.mark.slow) for case in lengths(100.0)],
)
def test_no_torn_row_is_ever_drawn(size: int, rows: int, seconds: float, record_property: Any) -> None:
    stack = (size, rows) == STACKED
    seen, bad = hunt(size, rows, seconds, SAMPLERS[(size + rows) % 3], stack)
    assert seen > 100
    record_property("cases", seen)
    assert bad == 0, f"{bad} of {seen} items"


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("seconds", [0.25, pytest.param(100.0, marks=pytest.mark.slow)])
def test_no_torn_window_is_ever_drawn(mapped: bool, seconds: float, tmp_path: Path, record_property: Any) -> None:
    storage = relive.Mapped(tmp_path / "ring") if mapped else relive.Shared()
    seen, bad = hunt(4096, 16, seconds, SAMPLERS[2 * mapped], item=WINDOWS, storage=storage)
    assert seen > 100
    record_property("cases", seen)
    assert bad == 0, f"{bad} of {seen} items"


@pytest.mark.slow
def test_meta_without_the_check_rows_are_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JointAccess, "draw", Access.draw)
    monkeypatch.setattr(drawing, "calls", lambda core: {})
    _, bad = hunt(28_000, 16, 3.0, relive.Uniform())
    assert bad > 0
