"""Random lives of prioritized buffers, whose draws were recorded before samplers read the ring's counters themselves.

`python tests/golden/recorded_draws.py FILE` records them again, with whatever relive is installed. The file has draws
by rank, too, which relive does not make any more, and `tests/samplers/test_ranked.py` compares with an example's.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import relive

SAMPLERS: dict[str, dict[str, Any]] = {
    "prioritized": {},
    "prioritized, independent": {"stratified": False, "weights": "buffer"},
    "prioritized, no repeats": {"replacement": False, "weights": "none"},
}
LIVES = 12


def build(name: str, seed: int, storage: Any = None, sampler: Any = None) -> relive.ReplayBuffer:
    """Make the buffer of one life: other lanes, rows and items for every seed."""
    rng = np.random.default_rng(seed)
    lanes, rows, n = int(rng.integers(1, 5)), int(rng.integers(10, 40)), int(rng.integers(1, 5))
    item = relive.Sequences(4, n_step=n, starts=2) if seed % 3 == 2 else relive.Transitions(n_step=n)
    return relive.ReplayBuffer(
        relive.Schema(obs=relive.Field(2), action=relive.Field()),
        rows * lanes,
        num_envs=lanes,
        item=item,
        sampler=sampler or relive.Prioritized(**SAMPLERS[name]),
        storage=storage,
        seed=seed,
        boundaries=0,
    )


def live(buffer: relive.ReplayBuffer, seed: int) -> list[relive.Batch]:
    """Add, cut, draw and update; what was drawn. Two in three lives also give priorities to some steps."""
    rng = np.random.default_rng(1000 + seed)
    lanes, gives = buffer.num_envs, seed % 3 > 0
    obs = np.zeros((lanes, 2), np.float32)
    batches = []
    for clock in range(160):
        chosen = np.flatnonzero(rng.random(lanes) < 0.7) if rng.random() < 0.3 else np.arange(lanes)
        chosen = rng.permutation(chosen) if len(chosen) else np.arange(lanes)
        length = int(rng.integers(1, 6)) if rng.random() < 0.1 else 1
        steps = obs[chosen][:, None] + np.arange(length + 1, dtype=np.float32)[:, None]
        terminated = rng.random((len(chosen), length)) < 0.1
        truncated = ~terminated & (rng.random((len(chosen), length)) < 0.05)
        call: dict[str, Any] = {
            "obs": steps[:, :-1],
            "action": rng.random((len(chosen), length)),
            "reward": rng.normal(size=(len(chosen), length)),
            "terminated": terminated,
            "truncated": truncated,
        }
        if rng.random() < 0.9:
            call["next_obs"] = steps[:, 1:]
        priority = rng.choice([0.0, 0.5, 2.0, 30.0], (len(chosen), length))
        if gives and rng.random() < 0.3:
            call["priority"] = priority
        with np.errstate(all="ignore"):
            buffer.extend(**call, env_ids=chosen)
        obs[chosen] = steps[:, -1] + 100.0 * (rng.random((len(chosen), 1)) < 0.05)
        if rng.random() < 0.04:
            buffer.cut([int(rng.integers(lanes))])
        if rng.random() < 0.4 and buffer.can_sample(7):
            batch = buffer.sample(7)
            batches.append(batch)
            # The same for every occurrence of an id in the batch.
            buffer.update_priorities(batch.ids, np.sin(batch.ids * 12.9898 + clock) * 3.0)
    return batches


def record() -> dict[str, np.ndarray]:
    """Record ids and weights of all draws of all lives, one pair of arrays a sampler."""
    found = {}
    for name in SAMPLERS:
        batches = [batch for seed in range(LIVES) for batch in live(build(name, seed), seed)]
        found[f"{name}/ids"] = np.concatenate([batch.ids for batch in batches])
        found[f"{name}/weights"] = np.concatenate([batch.weights for batch in batches])
    return found


if __name__ == "__main__":
    np.savez_compressed(sys.argv[1], **record())
