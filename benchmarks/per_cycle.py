"""How long does one learner's turn of prioritized replay take, and how does it grow with the buffer?"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle, islice
from typing import Any

from benchmarks.peers import Peer, Spec
from benchmarks.question import Question, Run, Scale, Setting, Target, count, own_ratio, times_faster
from benchmarks.workload import td_errors

BATCHES = (256, 4096)
TURNS = 50  # before the clock starts: the priorities are no longer all alike


def settings(scale: Scale) -> list[Setting]:
    return [
        Setting(
            f"{batch}@{n}",
            f"{count(n)} items",
            {"capacity": n, "batch": batch},
            nbytes=250 * n,
            table=f"Batch of {batch:,}",
        )
        for n in scale.sizes
        for batch in BATCHES
    ]


def prepare(peer: Peer, values: Mapping[str, Any]) -> Run:
    capacity, batch = values["capacity"], values["batch"]
    peer.ensure(Spec(capacity, prioritized=True), fill=capacity)
    errors = cycle(peer.prepare_errors(td_errors(batch)))
    peer.cycle(batch, islice(errors, TURNS))
    return lambda calls: peer.cycle(batch, islice(errors, calls))


QUESTION = Question(
    name="per_cycle",
    title="Prioritized replay: draw with weights, update priorities",
    text="One call draws a batch with importance-sampling weights (alpha 0.6, beta 0.4) from a full buffer and writes "
    "the drawn items' priorities back.",
    peers=("relive", "cpprb", "rlox", "tianshou", "flashbax"),
    growth=True,
    settings=settings,
    prepare=prepare,
    targets=(
        Target("256 of 10^6: times the best library", times_faster("256@1000000"), at_least=8),
        Target("4,096 of 10^6: times the best library", times_faster("4096@1000000"), at_least=5),
        *(
            Target(f"{b:,}: growth from 10^4 to 10^7, relive", own_ratio(f"{b}@10000000", f"{b}@10000"), at_most=2)
            for b in BATCHES
        ),
    ),
)
