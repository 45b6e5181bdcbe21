"""What do sequences across episodes, with time first, of n-step targets or of stacked frames cost, over plain ones?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.peers import Peer
from benchmarks.question import Question, Run, Scale, Setting, Target, own_ratio
from benchmarks.workload import EPISODE, FRAME, SEQUENCE_OBS_SIZE, STACK, blocks, frame_steps

VECTORS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("plain", {}),
    "across": ("across episodes", {"across_episodes": True}),
    "time-major": ("time first", {"time_major": True}),
    "n-step": ("n = 5", {"n_step": 5}),
}
FRAMES = {"frames": "single frames", "stacked": "stacks of four"}


def settings(scale: Scale) -> list[Setting]:
    n, frames = scale.capacity, min(scale.capacity, 10 * EPISODE)
    return [
        *(
            Setting(form, label, {"capacity": n, "form": form}, 400 * n, "64 sequences of 120 steps")
            for form, (label, _) in VECTORS.items()
        ),
        *(
            Setting(form, label, {"capacity": frames, "form": form}, 8_000 * frames, "16 sequences of 80 frames")
            for form, label in FRAMES.items()
        ),
    ]


def prepare(peer: Peer, values: Mapping[str, Any]) -> Run:
    capacity, form = values["capacity"], values["form"]
    peer.drop()
    if form in FRAMES:
        buffer, batch = of_frames(peer.lib, capacity, STACK if form == "stacked" else None), 16
    else:
        buffer, batch = of_vectors(peer.lib, capacity, VECTORS[form][1]), 64
    peer.buffer = buffer
    return lambda calls: peer.sample(batch, calls)


def of_vectors(relive: Any, capacity: int, options: Mapping[str, Any]) -> Any:
    schema = relive.Schema(obs=relive.Field((SEQUENCE_OBS_SIZE,)), action=relive.Field((6,)))
    buffer = relive.ReplayBuffer(schema, capacity, item=relive.Sequences(120, **options), seed=0)
    for block in blocks(capacity, obs_size=SEQUENCE_OBS_SIZE):
        buffer.extend(**{name: column[None] for name, column in block._asdict().items()})
    return buffer


def of_frames(relive: Any, capacity: int, stack: int | None) -> Any:
    obs = relive.Field(FRAME, "uint8", stack=stack, pad="first") if stack else relive.Field(FRAME, "uint8")
    schema = relive.Schema(obs=obs, action=relive.Field((), "int64"))
    buffer = relive.ReplayBuffer(schema, capacity, item=relive.Sequences(80), seed=0)
    steps = frame_steps()
    for t in range(capacity):
        step = steps[t % len(steps)]._asdict()
        if not stack:
            step.update(obs=step["obs"][-1], next_obs=step["next_obs"][-1])
        buffer.add(**{name: np.asarray(value) for name, value in step.items()})
    return buffer


QUESTION = Question(
    name="sequence_forms",
    title="relive's sequences side by side",
    text="Uniform draws from a full buffer of 10^6 steps of small vectors, or of 10,000 frames of 84 x 84.",
    peers=("relive",),
    settings=settings,
    prepare=prepare,
    targets=(
        Target("across episodes over plain", own_ratio("across", "plain"), at_most=1.2),
        Target("stacks of four over single frames", own_ratio("stacked", "frames"), at_most=1.3),
    ),
)

if __name__ == "__main__":
    from benchmarks.suite import run_file

    run_file(QUESTION)
