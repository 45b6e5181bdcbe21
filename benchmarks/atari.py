"""How long does it take to draw and to add stacks of frames, in a fresh process and later?"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle, islice
from typing import Any

from benchmarks.peers import Peer, Spec
from benchmarks.question import Question, Run, Scale, Setting, Target, own_memory, ratio_to, times_faster
from benchmarks.workload import frame_steps

STEPS = 100_000
BATCHES = (32, 512)
STACKED = 30_000  # bytes a step of those that keep whole stacks
LABELS = {"fresh": "a process's first draws", "later": "later"}


def settings(scale: Scale) -> list[Setting]:
    n = min(scale.capacity, STEPS)
    draws = [
        Setting(
            f"{when}-{batch}",
            f"{batch}, {LABELS[when]}",
            {"capacity": n, "batch": batch, "when": when},
            nbytes=STACKED * n // 2,  # only one of five does, so a mean of half is plenty
            fresh=when == "fresh",
        )
        for when in ("fresh", "later")
        for batch in BATCHES
    ]
    # The buffer is weighed in a process of its own, where no draw has left memory behind; not in those of the first
    # draws, because the small buffer that is made and freed before it decides how later arrays are allocated.
    add = Setting("add", "add one step", {"capacity": n, "when": "add"}, nbytes=STACKED * n // 2, fresh=True)
    return [*draws, add]


def prepare(peer: Peer, values: Mapping[str, Any]) -> Run:
    spec = Spec(values["capacity"], prioritized=peer.prioritized)
    if values["when"] == "add":
        peer.weigh(spec)
        steps = cycle(peer.prepare_steps(frame_steps()))
        return lambda calls: peer.add(islice(steps, calls))
    peer.ensure(spec, fill=spec.capacity)
    batch = values["batch"]
    if values["when"] == "later":  # batches of several sizes have come and gone
        for size in (*BATCHES, *BATCHES):
            peer.sample(size, 8)
    return lambda calls: peer.sample(batch, calls)


QUESTION = Question(
    name="atari",
    title="Atari: stacks of four frames",
    text="100,000 steps of 84 x 84 uint8 frames in stacks of four, episodes of 1,000 steps, prioritized replay where "
    "the library has it (Stable-Baselines3 has not). One call draws 32 or 512 items with `obs` and `next_obs`, 56,448 "
    "bytes each. In a process's first draws nothing but such batches has been drawn since it was started; later, "
    "batches of both sizes have. The copy limit is one `take` of as many frames, at known rows, into memory that is "
    "reused. Stable-Baselines3 keeps whole stacks, all others one frame a step.",
    peers=("relive", "limit", "cpprb", "tianshou", "sb3"),
    kind="frames",
    memory="add",
    settings=settings,
    prepare=prepare,
    targets=(
        *(
            Target(f"{b}, {LABELS[w]}: time over the copy limit's", ratio_to("limit", f"{w}-{b}"), at_most=1.25)
            for w in ("fresh", "later")
            for b in BATCHES
        ),
        Target("32, later: times cpprb", times_faster("later-32", than="cpprb"), at_least=1.4),
        Target("512, later: times cpprb", times_faster("later-512", than="cpprb"), at_least=2),
        Target("bytes a step", own_memory, at_most=7_150),
        Target("add one step: times Tianshou", times_faster("add", than="tianshou"), at_least=10),
    ),
)
