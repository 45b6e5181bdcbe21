"""The interface of DreamerV3's replay, on relive: what its `embodied.replay.Replay` does, and what it is meant to do.

Steps go in as its driver gives them, whole mappings of a worker. Sequences come out of any place of a worker's stream,
across episodes: uniformly, by priority, by recency, or in a mixture, new ones first if `online=True`. Latents that the
agent computes anew are written back, and saved. docs/dreamer.md compares it with the original.

python examples/dreamer_replay.py
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import relive


def sampler(length: int, online: bool, uniform: float = 0, priority: float = 0, recency: float = 0) -> Any:
    """Make the sampler of a configuration's `replay.fracs`; new sequences fill batches as long as there are some."""
    each = relive.Uniform(), relive.Prioritized(alpha=0.8, beta=0.0), relive.Recent(share=0.1)
    members = [pair for pair in zip(each, (uniform, priority, recency), strict=True) if pair[1]]
    if online:
        rest = 1e-9  # of a batch of new ones; of the others' parts of what those leave, shares are relative
        members = [(relive.Once(every=length), 1 - rest), *((member, share * rest) for member, share in members)]
    return members[0][0] if len(members) == 1 else relive.Blend(*members)


class Replay:
    """Sequences of `length` steps of several workers.

    Args:
        length: Steps of a sequence, the replay context included.
        capacity: Sequences that are kept, rounded up to as many of each worker.
        directory: Where `save` and `load` look; None: they do nothing.
        workers: Workers, numbered from 0.
        online: Draw new sequences, which do not overlap, once each and before others.
        fracs: Shares of `uniform`, `priority` and `recency`; uniform alone by default.
        latents: How names of values begin that `update` writes.
        maxfrac: Share of the largest step's priority in that of a sequence; the rest is the mean's.
    """

    def __init__(
        self, length: int, capacity: int, directory: str | Path | None = None, *, workers: int = 1,
        online: bool = False, fracs: Mapping[str, float] | None = None,
        latents: Sequence[str] = ("enc/", "dyn/", "dec/"), maxfrac: float = 0.5, seed: int = 0,
    ) -> None:  # fmt: skip
        self.length, self.capacity, self.workers, self.seed = length, capacity, workers, seed
        self.directory, self.latents, self.maxfrac = directory, tuple(latents), maxfrac
        self.sampler = sampler(length, online, **(fracs or {"uniform": 1.0}))
        self.buffer: relive.ReplayBuffer | None = None  # made of the first step, or of a save
        self.lock, self.before = threading.Lock(), (0, 0, 0)

    def __len__(self) -> int:
        return 0 if self.buffer is None else min(self.buffer.stats().drawable, self.capacity)

    def add(self, step: Mapping[str, Any], worker: int = 0) -> None:
        """Add a step of a worker."""
        values = {name: np.asarray(value) for name, value in step.items() if not name.startswith("log/")}
        if self.buffer is None:
            with self.lock:
                if self.buffer is None:
                    self.buffer = self._made(values)
        # Ends of episodes are in the data. For relive the stream of a worker has none, and its observation is always 0.
        nothing = {"obs": 0, "action": 0, "reward": 0, "next_obs": 0, "terminated": False, "truncated": False}
        self.buffer.add(**nothing, **self._split(values), env_ids=[worker])

    def sample(self, batch: int, mode: str = "train") -> dict[str, np.ndarray]:
        """Draw sequences: arrays `[batch, length, ...]`, and the `stepid` that `update` takes."""
        drawn = self.buffer.sample(batch)
        data = {**drawn.data, **drawn.get("latents", {})}
        data["stepid"] = np.zeros((batch, self.length, 20), np.uint8)  # as long as the original's
        data["stepid"][..., :8] = drawn.step_ids[..., None].view(np.uint8)
        if "is_first" in data:
            data["is_first"][:, 0] = True
            if "is_last" in data:  # also where an episode was given up
                data["is_last"][:, :-1] |= data["is_first"][:, 1:]
        return data

    def update(self, data: Mapping[str, Any]) -> None:
        """Take priorities `[B, T]` and latents `[B, T, ...]` of the steps `stepid`; what is overwritten is left out."""
        values = {name: np.asarray(value) for name, value in data.items()}
        steps = np.ascontiguousarray(values.pop("stepid")[..., :8]).view(np.int64)[..., 0]
        priority = values.pop("priority", None)
        if priority is not None and self.sampler.prioritizes:
            whole = np.ones(steps.shape, bool)
            self.buffer.update_priorities(steps[:, 0], relive.sequence_priority(priority, whole, self.maxfrac))
        if values:
            self.buffer.write(steps, **self._split(values))

    def save(self) -> None:
        """Save all there is, latents and priorities included; what was saved before is not written again."""
        if self.directory is not None and self.buffer is not None:
            self.buffer.save(self.directory)

    def load(self, data: Any = None, directory: str | Path | None = None) -> None:
        """Load the last complete save, if there is one. A replay that has steps keeps these."""
        folder = directory or self.directory
        with self.lock:
            if self.buffer is None and folder and Path(folder).is_dir() and any(Path(folder).iterdir()):
                self.buffer = relive.load(folder)

    def stats(self) -> dict[str, float]:
        """Return counts since the last call, as the original's, and how old and how spread out draws are."""
        now = self.buffer.stats()
        counts = now.added, now.drawn, now.updates
        inserts, samples, updates = (new - old for new, old in zip(counts, self.before, strict=True))
        self.before = counts
        found = {"items": len(self), "streams": self.buffer.num_envs, "ram_gb": now.nbytes / 2**30}
        found |= {"inserts": inserts, "samples": samples, "updates": updates, "unused": now.unused}
        found |= {"replay_ratio": self.length * samples / inserts if inserts else np.nan}
        return found | dict(zip(("age", "age_95"), now.draw_age, strict=False)) | {"entropy": now.draw_entropy or 0.0}

    def _made(self, step: Mapping[str, np.ndarray]) -> relive.ReplayBuffer:
        """Make the buffer of a first step."""
        flag, parts = relive.Field((), "bool"), self._split(step)
        for part, values in parts.items():
            for name, each in values.items():
                values[name] = relive.Field(each.shape, each.dtype, writable=part == "latents")
        schema = relive.Schema(obs=flag, action=flag, reward=flag, **parts)
        item = relive.Sequences(self.length, across_episodes=True, step_ids=True)
        # Of a stream that goes on, a sequence also needs the row before it.
        steps = self.workers * (-(-self.capacity // self.workers) + self.length)
        made = {"num_envs": self.workers, "item": item, "sampler": self.sampler, "seed": self.seed, "boundaries": 0}
        return relive.ReplayBuffer(schema, steps, **made)

    def _split(self, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return what is stored once and what may be written later, apart."""
        split: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            split.setdefault("latents" if name.startswith(self.latents) else "data", {})[name] = value
        return split


def filled(length: int, steps: int, workers: int, image: tuple[int, ...], **choices: Any) -> Replay:
    """Make a replay of workers whose episodes have 50 steps."""
    replay, rng = Replay(length, steps, workers=workers, **choices), np.random.default_rng(0)
    for t in range(steps // workers + length):
        for worker in range(workers):
            step = {"image": rng.integers(0, 255, image, np.uint8), "reward": np.float32(t), "is_first": t % 50 == 0}
            step |= {"is_last": t % 50 == 49, "is_terminal": False, "dyn/deter": np.zeros(256, np.float32)}
            replay.add(step, worker)
    return replay


def turn(replay: Replay, latents: np.ndarray) -> dict[str, np.ndarray]:
    """Draw a batch, and write latents `[B, T, 256]` and priorities back, as training does."""
    data = replay.sample(len(latents))
    replay.update({"stepid": data["stepid"], "priority": data["reward"] + 1, "dyn/deter": latents})
    return data


def measure(turns: int) -> None:
    """Compare turns of 16 sequences of 65 steps with plain copies of what is drawn and written."""
    replay, rng = filled(65, 4000, 4, (64, 64, 3), fracs={"uniform": 0.5, "priority": 0.5}), np.random.default_rng(0)
    image, latent = np.ones((4, 1100, 64, 64, 3), np.uint8), np.ones((4, 1100, 256), np.float32)
    times, latents = np.empty((turns, 2)), np.ones((16, 65, 256), np.float32)
    for each in times:
        begin = time.perf_counter()
        turn(replay, latents)
        middle = time.perf_counter()
        copies = np.empty((16, 65, 64, 64, 3), np.uint8), np.empty((16, 65, 256), np.float32)
        for i, (lane, start) in enumerate(zip(rng.integers(4, size=16), rng.integers(1000, size=16), strict=True)):
            place = lane, slice(start, start + 65)
            copies[0][i], copies[1][i] = image[place], latent[place]
            latent[place] = copies[1][i]
        each[:] = middle - begin, time.perf_counter() - middle
    for name, (ours, plain) in (("least", times.min(axis=0)), ("median", np.median(times, axis=0))):
        print(f"{name}: {1e3 * ours:.2f} ms a turn, {1e3 * plain:.2f} ms a plain copy, {ours / plain:.2f}")


def main() -> None:
    """Draw and write back, save, and go on from there; or measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", type=int, metavar="TURNS", help="compare with plain copies of images")
    if turns := parser.parse_args().measure:
        return measure(turns)
    fracs = {"uniform": 0.5, "priority": 0.25, "recency": 0.25}
    with tempfile.TemporaryDirectory() as path:
        replay = filled(16, 400, 2, (8, 8, 3), directory=path, online=True, fracs=fracs)
        latents = np.ones((8, 16, 256), np.float32)
        for _ in range(20):
            turn(replay, latents)
        print(replay.stats())
        replay.save()
        again = Replay(16, 400, path, workers=2, online=True, fracs=fracs)
        again.load()
        drawn, expected = turn(again, latents), turn(replay, latents)
        print("the loaded one goes on:", all(np.array_equal(drawn[name], expected[name]) for name in expected))


if __name__ == "__main__":
    main()
