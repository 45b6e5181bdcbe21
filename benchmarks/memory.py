"""How much memory does the first step of many environments touch, and what does a part of a batch that is kept hold?"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers import Peer, Spec, Unsupported
from benchmarks.peers.base import grown, resident
from benchmarks.question import Found, Question, Scale, Setting, Target, count, own_figure
from benchmarks.workload import lane_steps

LANES = 4096
BATCH = 512


def settings(scale: Scale) -> list[Setting]:
    n = scale.sizes[-1]
    lanes = min(LANES, n // 8)
    first = {"what": "first", "capacity": n, "lanes": lanes}
    kept = {"what": "kept", "capacity": scale.capacity, "batches": 100 * scale.rounds}
    return [
        Setting("first", f"first step of {lanes:,} lanes, {count(n)} rows, MB", first, fresh=True, scale=1e-6),
        Setting("kept", f"a kept reward of a batch of {BATCH}, KB", kept, 300 * scale.capacity, fresh=True, scale=1e-3),
        Setting("installed", "installed, MB", {"what": "installed"}, scale=1e-6),
    ]


def prepare(peer: Peer, values: Mapping[str, Any]) -> Found:
    if values["what"] == "installed":
        return Found((installed(peer),))
    capacity = values["capacity"]
    if values["what"] == "kept":
        return Found((kept(peer, capacity, values["batches"]),))
    lanes = values["lanes"]
    steps = lane_steps(lanes, 2)
    # What a library keeps for its first buffer, such as compiled code, is no step's.
    peer.ensure(Spec(2 * lanes, num_envs=lanes, prioritized=peer.prioritized))
    peer.add_lanes(steps[:1])
    peer.drop()
    gc.collect()
    before = resident()
    peer.ensure(Spec(capacity, num_envs=lanes, prioritized=peer.prioritized))
    peer.add_lanes(steps[:1])
    return Found((grown(before),))


def kept(peer: Peer, capacity: int, batches: int) -> float:
    """Return the bytes that stay in use for the reward of a batch when the rest of it is given up."""
    if peer.name != "relive":
        raise Unsupported("not asked")
    peer.ensure(Spec(capacity, prioritized=True), fill=capacity)
    peer.sample(BATCH, 50)
    rewards = [peer.buffer.sample(BATCH).reward for _ in range(20)]
    before = resident()
    rewards += [peer.buffer.sample(BATCH).reward for _ in range(batches)]
    return grown(before) / batches


def installed(peer: Peer) -> float:
    """Return the bytes of the package's folder, without byte code and what is for readers of the source."""
    folder = Path(importlib.import_module(peer.module.partition(".")[0]).__file__ or "").parent
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".pyc", ".md"))
    return float(sum(path.stat().st_size for path in files))


QUESTION = Question(
    name="memory",
    title="Memory at the first step, of what is kept, and on disk",
    text="By how much the process grows when a buffer is made and given its first step of every lane; and when the "
    f"rewards (2 KB each) of thousands of batches of {BATCH} are kept while the rest of each batch is given up. Where "
    "memory comes in huge pages, what lies beside a touched byte counts, too. Installed is the package's folder "
    "without byte code, and without what it depends on.",
    peers=("relive", "numpy", "cpprb", "sb3"),
    settings=settings,
    prepare=prepare,
    targets=(
        Target("first step, MB", own_figure("first", 1e-6), at_most=16),
        Target("installed, MB", own_figure("installed", 1e-6), at_most=1),
        Target("kept reward, KB", own_figure("kept", 1e-3), at_most=64),
    ),
    single=True,
    unit="",
)
