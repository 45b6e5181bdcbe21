"""How long do calls take whose rows are so small that copying them is nothing: 4 + 1 numbers?"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle, islice
from typing import Any

from benchmarks.peers import Peer, Spec
from benchmarks.question import Question, Run, Scale, Setting, Target, count, times_faster
from benchmarks.workload import EPISODE, SMALL, single_steps

BATCHES = (32, 256, 1_024, 4_096)
LABELS = {"push": "without `next_obs`", "add": "with `next_obs`"}


def settings(scale: Scale) -> list[Setting]:
    n = scale.capacity // 10
    values = {"capacity": n, "batch": 0}
    return [
        *(Setting(key, label, {**values, "call": key}, table="Add one step") for key, label in LABELS.items()),
        *(
            Setting(str(batch), f"{batch:,}", {**values, "batch": batch}, table=f"Draw uniformly, of {count(n)}")
            for batch in BATCHES
        ),
    ]


def prepare(peer: Peer, values: Mapping[str, Any]) -> Run:
    capacity, batch = values["capacity"], values["batch"]
    obs_size, action_size = SMALL
    peer.ensure(Spec(capacity, obs_size=obs_size, action_size=action_size), fill=capacity)
    if batch:
        return lambda calls: peer.sample(batch, calls)
    steps = cycle(single_steps(2 * EPISODE, *SMALL))
    add = peer.add if values["call"] == "add" else peer.add_without_next
    return lambda calls: add(islice(steps, calls))


QUESTION = Question(
    name="small_rows",
    title="Small observations: 4 numbers and an action of 1",
    text="The shape that rlox's own benchmark has, from a full buffer of 10^5. Without `next_obs` rlox hands out zeros "
    "as the successor, and relive the observation of the following step. relive's batches have ten fields, with ids, "
    "discounts and the number of steps; those of the others have six.",
    peers=("relive", "numpy", "rlox", "cpprb"),
    settings=settings,
    prepare=prepare,
    targets=(
        *(Target(f"{n:,}: times rlox", times_faster(str(n), than="rlox"), at_least=1) for n in BATCHES[1:]),
        *(Target(f"{n:,}: times NumPy by hand", times_faster(str(n), than="numpy"), at_least=1) for n in BATCHES[1:]),
    ),
)
