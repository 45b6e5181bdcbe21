"""What do three-step and ten-step returns cost, against one step?"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle, islice
from typing import Any

from benchmarks.peers import Peer, Spec
from benchmarks.question import Question, Run, Scale, Setting, Target, own_ratio
from benchmarks.workload import EPISODE, single_steps

BATCH = 256
LABELS = {"add": "add one", "sample": "draw 256"}


def settings(scale: Scale) -> list[Setting]:
    n = scale.capacity
    return [
        Setting(f"{what}-n{steps}", f"{LABELS[what]}, n = {steps}", {"capacity": n, "what": what, "n": steps}, 300 * n)
        for what in ("add", "sample")
        for steps in (1, 3, 10)
    ]


def prepare(peer: Peer, values: Mapping[str, Any]) -> Run:
    capacity = values["capacity"]
    peer.ensure(Spec(capacity, n_step=values["n"]), fill=capacity)
    if values["what"] == "sample":
        return lambda calls: peer.sample(BATCH, calls)
    steps = cycle(single_steps(2 * EPISODE))
    return lambda calls: peer.add(islice(steps, calls))


QUESTION = Question(
    name="n_step",
    title="Three-step returns against one step",
    text="Uniform draws from a full buffer. Some libraries fold the rewards when a step is added (cpprb), some when "
    "items are drawn (relive, Stable-Baselines3; Tianshou inside its algorithms).",
    peers=("relive", "cpprb", "tianshou", "sb3"),
    settings=settings,
    prepare=prepare,
    targets=(
        Target("add: n = 3 over n = 1, relive", own_ratio("add-n3", "add-n1"), at_most=1.1),
        Target("draw: n = 3 over n = 1, relive", own_ratio("sample-n3", "sample-n1"), at_most=1.25),
        Target("draw: n = 10 over n = 1, relive", own_ratio("sample-n10", "sample-n1"), at_most=1.3),
    ),
)
