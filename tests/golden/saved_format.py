"""Frozen samples of the formats of saved buffers: `data/saved_N`, and beside each what its two saves draw.

`python tests/golden/saved_format.py N` writes both. That is done once for a format: later versions have to read what is
there. Lanes of format 2 have rows for final observations on top of the steps that they keep. Format 3 is that with
compressed frames.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import relive

DATA = Path(__file__).parent / "data"
BOUNDARIES = {"1": 0.0, "2": 0.25, "3": 0.25}  # by format
COMPRESS = {"3": "zstd"}
LANES, STEPS, FRAMES = 3, 20, 3
NAMES = ("action", "reward", "hidden", "discount", "mask", "ids", "weights")


def sample(version: str) -> Path:
    """Return the directory of saves of a format."""
    return DATA / f"saved_{version}"


def expected(version: str) -> Any:
    """Read the draws of its saves, by number."""
    return json.loads((DATA / f"saved_{version}_draws.json").read_text(encoding="utf-8"))


def build(version: str) -> relive.ReplayBuffer:
    """Build several lanes, nested observations, stacks, a state kept at every other step, priorities."""
    frame = relive.Field(4, "uint8", stack=FRAMES, pad="first", compress=COMPRESS.get(version))
    schema = relive.Schema(
        obs={"frame": frame, "arm": {"joint": relive.Field(2)}},
        action=relive.Field((), "int64"),
        hidden=relive.Field(2, every=2),
    )
    return relive.ReplayBuffer(
        schema,
        LANES * 12,
        num_envs=LANES,
        item=relive.Sequences(3, n_step=2, gamma=0.9, starts=2),
        sampler=relive.Prioritized(beta=relive.Anneal(0.4, 1.0, over=10)),
        seed=1,
        boundaries=BOUNDARIES[version],
    )


def live(buffer: relive.ReplayBuffer, first: int, last: int) -> None:
    """Add steps to all lanes; lane k ends an episode at every (5 + k)-th, and lane 1 is cut once."""
    lanes = np.arange(LANES)

    def seen(now: int) -> dict[str, Any]:
        begun = now // (5 + lanes) * (5 + lanes)
        times = np.maximum(now - np.arange(FRAMES)[::-1, None], begun).T
        frames = (times * 8 + lanes[:, None])[..., None] + np.arange(4)
        return {"frame": frames.astype(np.uint8), "arm": {"joint": np.stack([lanes + now / 8, lanes - now], 1)}}

    for now in range(first, last):
        ended = (now + 1) % (5 + lanes) == 0
        before = seen(now)
        newest = (now + 1) * 8 + lanes[:, None, None] + np.arange(4, dtype=np.uint8)
        joint = np.stack([lanes + (now + 1) / 8, lanes - now - 1], 1)
        after = {"frame": np.concatenate([before["frame"][:, 1:], newest], 1), "arm": {"joint": joint}}
        step = {"obs": before, "action": lanes + now, "reward": lanes * 0.5 + now, "next_obs": after}
        ends = {"terminated": ended & (lanes != 2), "truncated": ended & (lanes == 2)}
        buffer.add(**step, **ends, hidden=np.full((LANES, 2), now))
        if now == 13:
            buffer.cut(env_ids=[1])
        if now % 4 == 3:
            batch = buffer.sample(4)
            buffer.update_priorities(batch.ids, np.arange(1.0, 5.0))


def draws(buffer: relive.ReplayBuffer) -> list[dict[str, Any]]:
    """Draw two batches as plain lists."""
    found = []
    for _ in range(2):
        batch = buffer.sample(3)
        leaves = {
            "frame": batch.obs["frame"], "joint": batch.obs["arm"]["joint"], "next_frame": batch.next_obs["frame"],
            "next_joint": batch.next_obs["arm"]["joint"], "terminated": batch.terminated, "truncated": batch.truncated,
            **{name: getattr(batch, name) for name in NAMES},
        }  # fmt: skip
        found.append({name: np.asarray(leaf).tolist() for name, leaf in leaves.items()})
    return found


def main(version: str) -> None:
    """Write the sample."""
    buffer, path = build(version), sample(version)
    live(buffer, 0, 16)
    buffer.save(path, keep=2)
    live(buffer, 16, STEPS)
    buffer.save(path, keep=2)
    found = {str(number): draws(relive.load(path, number=number)) for number in (1, 2)}
    (DATA / f"saved_{version}_draws.json").write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
