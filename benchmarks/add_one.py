"""How long does it take to add one step?"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import cycle, islice
from typing import Any

from benchmarks.peers import Peer, Spec
from benchmarks.question import Question, Run, Scale, Setting, Target, count, times_faster
from benchmarks.workload import EPISODE, single_steps


def settings(scale: Scale) -> list[Setting]:
    n = scale.capacity
    return [
        Setting("filling", f"filling an empty buffer of {count(n)}", {"capacity": n, "full": False}, nbytes=300 * n),
        Setting("full", f"full buffer of {count(n)}", {"capacity": n, "full": True}, nbytes=300 * n),
    ]


def prepare(peer: Peer, values: Mapping[str, Any]) -> Run:
    capacity = values["capacity"]
    spec = Spec(capacity, prioritized=peer.prioritized)
    # Two episodes, one for each kind of end: few enough to be as near in the caches as what an environment returns.
    steps = cycle(single_steps(2 * EPISODE))
    if values["full"]:
        peer.ensure(spec, fill=capacity)
        return lambda calls: peer.add(islice(steps, calls))
    peer.ensure(spec)
    added = 0

    def run(calls: int) -> tuple[float, float]:
        nonlocal added
        if added + calls > capacity:  # the quick ones get full: a new buffer, outside the clock
            peer.drop()
            peer.ensure(spec)
            added = 0
        added += calls
        cpu, wall = time.process_time(), time.perf_counter()
        peer.add(islice(steps, calls))
        return time.perf_counter() - wall, time.process_time() - cpu

    return run


QUESTION = Question(
    name="add_one",
    title="Add one step",
    text="One call adds one transition given as NumPy rows, a float and two bools. Prioritized replay is on where the "
    "library has it; NumPy by hand and Stable-Baselines3 have none.",
    peers=("relive", "numpy", "cpprb", "rlox", "tianshou", "flashbax", "sb3"),
    settings=settings,
    prepare=prepare,
    targets=(
        Target("filling: times the fastest prioritized peer", times_faster("filling", than="prioritized"), at_least=15),
        Target("filling: times NumPy by hand", times_faster("filling", than="numpy"), at_least=2.5),
        Target("full: times the fastest prioritized peer", times_faster("full", than="prioritized"), at_least=15),
        Target("full: times NumPy by hand", times_faster("full", than="numpy"), at_least=2.5),
    ),
)
