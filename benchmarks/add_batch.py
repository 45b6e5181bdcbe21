"""How long does it take to add one step of many environments at once?"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle, islice
from typing import Any

from benchmarks.peers import Peer, Spec
from benchmarks.question import Question, Run, Scale, Setting, Target, ratio_to, times_faster
from benchmarks.workload import lane_steps

LANES = (8, 64, 1024, 4096)
AT_LEAST = {8: 8.0, 64: 4.0, 1024: 2.0, 4096: 2.0}


def settings(scale: Scale) -> list[Setting]:
    n = scale.capacity
    return [
        Setting(str(lanes), f"{lanes:,} rows", {"capacity": n, "lanes": lanes}, nbytes=300 * n)
        for lanes in LANES
        if lanes <= n // 8
    ]


def prepare(peer: Peer, values: Mapping[str, Any]) -> Run:
    capacity, lanes = values["capacity"], values["lanes"]
    peer.ensure(Spec(capacity, num_envs=lanes, prioritized=peer.prioritized))
    # At most about 4 MB of input, so that it comes from the caches as what an environment has just written does.
    steps = lane_steps(lanes, max(4, min(64, 32_768 // lanes)))
    forever = cycle(steps)
    peer.add_lanes(islice(forever, capacity // lanes + 1))  # full from here on: every call overwrites
    return lambda calls: peer.add_lanes(islice(forever, calls))


QUESTION = Question(
    name="add_batch",
    title="Add one step of many environments",
    text="One call adds as many rows as there are environments, each row to a lane of its own (`num_envs` = rows), to "
    "a full buffer. Prioritized replay is on where the library has it; NumPy by hand and Stable-Baselines3 have none. "
    "Each library's way of keeping several environments: relive and Tianshou's vector buffers a ring a lane, "
    "Stable-Baselines3 and Flashbax a lane axis, cpprb and NumPy one ring, in which consecutive rows belong to "
    "different environments.",
    peers=("relive", "numpy", "cpprb", "tianshou", "flashbax", "sb3"),
    settings=settings,
    prepare=prepare,
    targets=(
        *(Target(f"{n:,} rows: times the best library", times_faster(str(n)), at_least=x) for n, x in AT_LEAST.items()),
        *(
            Target(f"{n:,} rows: time over NumPy by hand's", ratio_to("numpy", str(n)), at_most=1.6)
            for n in (1024, 4096)
        ),
    ),
)
