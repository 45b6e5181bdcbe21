"""What does it cost to add a step that is not an array of the schema's dtypes?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from itertools import cycle, islice
from typing import Any

import numpy as np

from benchmarks.peers import Peer, Spec
from benchmarks.question import Question, Run, Scale, Setting, Target, own_ratio
from benchmarks.workload import EPISODE, Step, single_steps

Arguments = dict[str, Any]
AT_MOST = 3.0
TENSORS = ("obs", "action", "next_obs")


def tensors(step: Arguments) -> Arguments:
    import torch

    return {**step, **{name: torch.from_numpy(step[name]) for name in TENSORS}}


FORMS: dict[str, tuple[str, Callable[[Arguments], Arguments]]] = {
    "plain": ("arrays of the schema's dtypes", lambda step: step),
    "int-reward": ("`reward` an int", lambda step: {**step, "reward": int(step["reward"])}),
    "int-flags": (
        "flags 0 and 1",
        lambda step: {**step, "terminated": int(step["terminated"]), "truncated": int(step["truncated"])},
    ),
    "list-action": ("`action` a list", lambda step: {**step, "action": step["action"].tolist()}),
    "float64": (
        "float64 observations",
        lambda step: {**step, "obs": np.float64(step["obs"]), "next_obs": np.float64(step["next_obs"])},
    ),
    "strided": (
        "observations that are not contiguous",
        lambda step: {**step, "obs": step["obs"].repeat(2)[::2], "next_obs": step["next_obs"].repeat(2)[::2]},
    ),
    "priority": ("with `priority=`", lambda step: {**step, "priority": 1.5}),
    "tensors": ("observations and action as PyTorch tensors", tensors),
}


def settings(scale: Scale) -> list[Setting]:
    n = scale.capacity
    names = [name for name in FORMS if name != "tensors" or find_spec("torch")]
    return [Setting(name, FORMS[name][0], {"capacity": n, "form": name}, nbytes=400 * n) for name in names]


def prepare(peer: Peer, values: Mapping[str, Any]) -> Run:
    capacity, (_, changed) = values["capacity"], FORMS[values["form"]]
    peer.ensure(Spec(capacity, prioritized=True), fill=capacity)
    steps: list[Step] = list(single_steps(2 * EPISODE))
    forever = cycle([changed(step._asdict()) for step in steps])
    add = peer.buffer.add

    def run(calls: int) -> None:
        for step in islice(forever, calls):
            add(**step)

    return run


QUESTION = Question(
    name="add_inputs",
    title="Add one step, handed over in other forms",
    text="One `add(**step)` to a full prioritized buffer, whatever the step is made of.",
    peers=("relive",),
    settings=settings,
    prepare=prepare,
    targets=tuple(
        Target(f"{label} over plain", own_ratio(name, "plain"), at_most=5.0 if name == "tensors" else AT_MOST)
        for name, (label, _) in FORMS.items()
        if name != "plain"
    ),
)

if __name__ == "__main__":
    from benchmarks.suite import run_file

    run_file(QUESTION)
