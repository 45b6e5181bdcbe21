"""How long does a uniform draw from a large buffer take?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.peers import Peer, Spec
from benchmarks.question import Question, Run, Scale, Setting, Target, count, own_ratio, times_faster

BATCHES = (256, 4096, 16_384)


def settings(scale: Scale) -> list[Setting]:
    n = scale.capacity
    return [
        Setting(
            f"{batch}{'-torch' * torch}",
            f"{batch:,} of {count(n)}{', as PyTorch tensors' * torch}",
            {"capacity": n, "batch": batch, "torch": torch},
            nbytes=300 * n,
        )
        for torch, batches in ((False, BATCHES), (True, (256, 4096)))
        for batch in batches
    ]


def prepare(peer: Peer, values: Mapping[str, Any]) -> Run:
    capacity, batch = values["capacity"], values["batch"]
    peer.ensure(Spec(capacity), fill=capacity)
    draw = peer.sample_torch if values["torch"] else peer.sample
    return lambda calls: draw(batch, calls)


QUESTION = Question(
    name="uniform_sample",
    title="Uniform draw",
    text="One call draws a batch of transitions from a full buffer. First in the library's own form (the `output` "
    "column), then with every field handed over as a PyTorch tensor.",
    peers=("relive", "numpy", "cpprb", "rlox", "tianshou", "flashbax", "sb3"),
    settings=settings,
    prepare=prepare,
    targets=(
        Target("256: times the best library", times_faster("256"), at_least=5),
        Target("4,096: times the best library", times_faster("4096"), at_least=4),
        *(Target(f"{n:,}: times NumPy by hand", times_faster(str(n), than="numpy"), at_least=1.5) for n in BATCHES),
        Target("256: PyTorch tensors over NumPy arrays, relive", own_ratio("256-torch", "256"), at_most=1.25),
        Target("4,096: PyTorch tensors over NumPy arrays, relive", own_ratio("4096-torch", "4096"), at_most=1.25),
    ),
)
