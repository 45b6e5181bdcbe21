"""What does a draw by one of relive's other samplers cost, over the plain one?"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle, islice
from typing import Any

from benchmarks.peers import Peer, Spec
from benchmarks.per_cycle import TURNS
from benchmarks.question import Question, Run, Scale, Setting, Target, own_ratio
from benchmarks.workload import td_errors

BATCH = 256
DRAWS = {"uniform": "uniform", "uniform-distinct": "without replacement", "episodes": "over episodes"}
CYCLES = {"prioritized": "prioritized", "prioritized-distinct": "without replacement"}


def settings(scale: Scale) -> list[Setting]:
    n = scale.capacity
    tables = (("One draw", DRAWS), ("One draw with weights, and its update", CYCLES))
    return [
        Setting(name, label, {"capacity": n, "sampler": name}, nbytes=400 * n, table=table)
        for table, names in tables
        for name, label in names.items()
    ]


def prepare(peer: Peer, values: Mapping[str, Any]) -> Run:
    capacity, sampler = values["capacity"], values["sampler"]
    prioritized = sampler in CYCLES
    peer.ensure(Spec(capacity, prioritized=prioritized, sampler=sampler), fill=capacity)
    if not prioritized:
        return lambda calls: peer.sample(BATCH, calls)
    errors = cycle(peer.prepare_errors(td_errors(BATCH)))
    peer.cycle(BATCH, islice(errors, TURNS))
    return lambda calls: peer.cycle(BATCH, islice(errors, calls))


QUESTION = Question(
    name="samplers",
    title="relive's samplers side by side",
    text="Batches of 256 from a full buffer.",
    peers=("relive",),
    settings=settings,
    prepare=prepare,
    targets=(
        Target("uniform: without replacement over with", own_ratio("uniform-distinct", "uniform"), at_most=2),
        Target("uniform: over episodes over over steps", own_ratio("episodes", "uniform"), at_most=2),
        Target(
            "prioritized: without replacement over with", own_ratio("prioritized-distinct", "prioritized"), at_most=2
        ),
    ),
)

if __name__ == "__main__":
    from benchmarks.suite import run_file

    run_file(QUESTION)
