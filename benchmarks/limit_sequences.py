"""What limits draws of stacked frames and of sequences."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np

from benchmarks.limit_cases import CACHED, Case, Runs, cycles, draws, made
from benchmarks.peers import Peer, Spec
from benchmarks.peers.frames import CopyLimit, ReliveFrames, on_huge_pages
from benchmarks.question import Run, Scale, count
from benchmarks.sequence_forms import of_frames, of_vectors
from benchmarks.sequences import BATCH, LENGTH, STARTS
from benchmarks.workload import ACTION_SIZE, ALPHA, BETA, EPISODE, SEQUENCE_OBS_SIZE, STACK, blocks, single_steps

FRAME_STEPS, FRAME_BATCH, FRAME_LENGTH = 100_000, 16, 80
SEQUENCE_BYTES = 4 * (SEQUENCE_OBS_SIZE + ACTION_SIZE + 1)


class Tiny(ReliveFrames):
    """Frames of one byte: all that a draw does but copying them."""

    def make(self, spec: Spec) -> None:
        relive = self.lib
        obs = relive.Field((1,), "uint8", stack=STACK, pad="first")
        schema = relive.Schema(obs=obs, action=relive.Field((), "int64"))
        sampler = relive.Prioritized(alpha=ALPHA, beta=BETA)
        self.buffer = relive.ReplayBuffer(schema, capacity=spec.capacity, sampler=sampler, seed=0)

    def fill(self, count: int) -> None:
        frames = np.arange(count + STACK, dtype=np.uint64).astype(np.uint8)[:, None]
        for t in range(count):
            if t % EPISODE == 0:
                frames[t : t + STACK - 1] = frames[t + STACK - 1]
            obs, after = frames[t : t + STACK], frames[t + 1 : t + 1 + STACK]
            ends = {"terminated": (t + 1) % EPISODE == 0, "truncated": False}
            self.buffer.add(obs=obs, action=0, reward=0.0, next_obs=after, **ends)


def atari(scale: Scale, batch: int) -> Runs:
    n = min(scale.capacity, FRAME_STEPS)
    spec, tiny, limit = Spec(n, prioritized=True), Tiny(), CopyLimit()
    tiny.ensure(spec, fill=n)
    limit.ensure(Spec(n), fill=n)
    return {
        "relive": draws(made("relive", spec, "frames"), batch),
        "relive, frames of one byte: the draw alone": draws(tiny, batch),
        "... of one item: what a call takes whatever its size": draws(tiny, 1),
        "NumPy: a `take` of as many frames, memory reused": draws(limit, batch),
    }


def slices(capacity: int) -> Run:
    """The bytes of a batch of sequences, each copied by one call out of one array into memory that is reused."""
    store = on_huge_pages_of(capacity, SEQUENCE_BYTES)
    out = on_huge_pages_of(BATCH * (LENGTH + 1), SEQUENCE_BYTES).reshape(BATCH, LENGTH + 1, SEQUENCE_BYTES)
    starts = np.random.default_rng(0).integers(0, capacity - LENGTH, (64, BATCH)).tolist()
    turn = 0

    def run(calls: int) -> None:
        nonlocal turn
        for _ in range(calls):
            turn = (turn + 1) % len(starts)
            for to, start in zip(out, starts[turn], strict=True):
                to[:] = store[start : start + LENGTH + 1]

    return run


def on_huge_pages_of(rows: int, row: int) -> Any:
    found = np.empty((rows, row), np.uint8)
    found.fill(0)
    return found


def sequences(scale: Scale) -> Runs:
    n = scale.capacity - scale.capacity % STARTS
    peer = made("relive", Spec(n, prioritized=True, length=LENGTH, starts=STARTS), "sequences")
    few = CACHED - CACHED % STARTS
    cached = made("relive", Spec(few, prioritized=True, length=LENGTH, starts=STARTS), "sequences")
    bare = Peer()
    bare.buffer = small(peer.lib, n, {"starts": STARTS}, peer.lib.Prioritized(alpha=ALPHA, beta=BETA))
    return {
        f"relive, {count(n)} steps: draw and update": cycles(peer, BATCH),
        f"relive, {few:,} steps: all in the caches": cycles(cached, BATCH),
        "relive, observations of one number: all but copying them": draws_of(bare, BATCH),
        f"NumPy: the same bytes as {BATCH} slices of one array, memory reused, {count(n)} steps": slices(n),
        f"... {few:,} steps": slices(few),
    }


def small(relive: Any, capacity: int, options: Mapping[str, Any], sampler: Any = None) -> Any:
    """Return a buffer whose steps have hardly a byte."""
    schema = relive.Schema(obs=relive.Field((1,)), action=relive.Field(()))
    item = relive.Sequences(LENGTH, **options)
    chosen = {} if sampler is None else {"sampler": sampler}
    buffer = relive.ReplayBuffer(schema, capacity, item=item, seed=0, **chosen)
    for block in blocks(capacity):
        step = block._asdict()
        step.update(obs=block.obs[:, :1], next_obs=block.next_obs[:, :1], action=block.action[:, 0])
        buffer.extend(**{name: column[None] for name, column in step.items()})
    return buffer


def draws_of(peer: Peer, batch: int) -> Run:
    def run(calls: int) -> None:
        for _ in range(calls):
            peer.buffer.sample(batch)

    return run


def growth(scale: Scale) -> Runs:
    found: Runs = {}
    steps = cycle(single_steps(2 * EPISODE, SEQUENCE_OBS_SIZE))
    for n in dict.fromkeys(size for size in (*scale.sizes, scale.capacity) if size >= min(100_000, scale.capacity)):
        peer = made("relive", Spec(n, length=LENGTH), "sequences")
        found[f"relive, {count(n)} steps: add one, draw"] = partial(added, peer, steps)
        found[f"NumPy: the same bytes as {BATCH} slices of one array, memory reused, {count(n)} steps"] = slices(n)
    return found


def added(peer: Peer, steps: Any, calls: int) -> None:
    peer.add_and_draw(BATCH, islice(steps, calls))


def across(scale: Scale) -> Runs:
    relive, found = ReliveFrames().lib, Runs()
    forms: dict[str, dict[str, Any]] = {"plain": {}, "across episodes": {"across_episodes": True}}
    for n in (CACHED, scale.capacity):
        for label, options in forms.items():
            found[f"{label}, {count(n)} steps"] = drawn(of_vectors(relive, n, options), BATCH)
    for label, options in forms.items():
        found[f"{label}, {CACHED:,} steps, observations of one number"] = drawn(small(relive, CACHED, options), BATCH)
    found["NumPy: a copy of one batch's observations, memory reused"] = copied()
    return found


def copied() -> Run:
    batch = np.zeros((BATCH, LENGTH + 1, SEQUENCE_OBS_SIZE), np.float32)[:, 1:]
    out = np.zeros(batch.shape, np.float32)

    def run(calls: int) -> None:
        for _ in range(calls):
            out[:] = batch

    return run


def stacks(scale: Scale) -> Runs:
    relive, n = ReliveFrames().lib, min(scale.capacity, 10 * EPISODE)
    return {
        "relive, single frames": drawn(of_frames(relive, n, None), FRAME_BATCH),
        "relive, stacks of four": drawn(of_frames(relive, n, STACK), FRAME_BATCH),
        "NumPy: a `take` of as many frames, memory reused": taken(n, 1),
        "... four times as many": taken(n, STACK),
    }


def drawn(buffer: Any, batch: int) -> Run:
    peer = Peer()
    peer.buffer = buffer
    return draws_of(peer, batch)


def taken(capacity: int, stack: int) -> Run:
    frames, rng, turn = on_huge_pages(capacity), np.random.default_rng(0), 0
    steps = np.arange(FRAME_LENGTH + 1)[:, None] + np.arange(stack)
    starts = rng.integers(0, capacity - FRAME_LENGTH - stack, (64, FRAME_BATCH, 1, 1))
    rows = (starts + steps).reshape(64, -1)
    out = on_huge_pages(rows.shape[1])

    def run(calls: int) -> None:
        nonlocal turn
        for _ in range(calls):
            turn = (turn + 1) % 64
            frames.take(rows[turn], axis=0, out=out, mode="clip")

    return run


CASES: dict[str, Case] = {
    **{f"atari-{batch}": partial(atari, batch=batch) for batch in (32, 512)},
    "sequences": sequences,
    "sequences-growth": growth,
    "across-episodes": across,
    "stacks": stacks,
}
