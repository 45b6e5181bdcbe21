"""What does it cost to add a step that is not an array of the schema's dtypes?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from itertools import cycle, islice
from typing import Any

import numpy as np

from benchmarks.peers import Peer, Spec
from benchmarks.question import Question, Run, Scale, Setting, Target, own_ratio
from benchmarks.workload import EPISODE, Step, lane_steps, single_steps

Arguments = dict[str, Any]
AT_MOST = {"tensors": 5.0, "priority": 2.0}
TENSORS = ("obs", "action", "next_obs")
LANES = 128
# Another sampler, and a lane that is left out, as where an environment resets.
SAMPLERS = {"episodes": "arrays, `Uniform(over='episodes')`"}
LANED = {"lanes": f"{LANES} lanes", "env-ids": f"{LANES - 1} of {LANES} lanes, `env_ids=`"}


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
    labels = {name: FORMS[name][0] for name in names} | SAMPLERS | LANED
    return [Setting(name, label, {"capacity": n, "form": name}, nbytes=400 * n) for name, label in labels.items()]


def prepare(peer: Peer, values: Mapping[str, Any]) -> Run:
    capacity, form = values["capacity"], values["form"]
    if form in LANED:
        peer.ensure(Spec(capacity, num_envs=LANES, prioritized=True))
        forever = cycle([left_out(step) if form == "env-ids" else step._asdict() for step in lane_steps(LANES, 64)])
    else:
        sampler = form if form in SAMPLERS else ""
        peer.ensure(Spec(capacity, prioritized=sampler != "episodes", sampler=sampler), fill=capacity)
        changed = FORMS["plain" if sampler else form][1]
        forever = cycle([changed(step._asdict()) for step in single_steps(2 * EPISODE)])
    add = peer.buffer.add

    def run(calls: int) -> None:
        for step in islice(forever, calls):
            add(**step)

    return run


def left_out(step: Step) -> Arguments:
    """Leave out the last lane."""
    return {"env_ids": np.arange(LANES - 1), **{name: column[:-1] for name, column in step._asdict().items()}}


QUESTION = Question(
    name="add_inputs",
    title="Add one step, handed over in other forms",
    text="One `add(**step)` to a full buffer, prioritized where no sampler is named, whatever the step is made of.",
    peers=("relive",),
    settings=settings,
    prepare=prepare,
    targets=(
        *(
            Target(f"{label} over plain", own_ratio(name, "plain"), at_most=AT_MOST.get(name, 3.0))
            for name, (label, _) in FORMS.items()
            if name != "plain"
        ),
        *(Target(f"{label} over plain", own_ratio(name, "plain"), at_most=2) for name, label in SAMPLERS.items()),
        Target("127 of 128 lanes over all", own_ratio("env-ids", "lanes"), at_most=2),
    ),
)

if __name__ == "__main__":
    from benchmarks.suite import run_file

    run_file(QUESTION)
