"""How long does it take to draw sequences while steps keep coming, and how does it grow with the buffer?"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle, islice
from typing import Any

from benchmarks.peers import Peer, Spec
from benchmarks.question import (
    Question,
    Run,
    Scale,
    Setting,
    Target,
    count,
    own_memory,
    own_ratio,
    times_faster,
    times_smaller,
)
from benchmarks.workload import EPISODE, SEQUENCE_OBS_SIZE, single_steps, td_errors

BATCH, LENGTH, STARTS = 64, 120, 40
TURNS = 50  # before the clock starts: the priorities are no longer all alike


def settings(scale: Scale) -> list[Setting]:
    sizes = [n for n in scale.sizes if n >= 100_000] or list(scale.sizes)
    found = [
        # Two of the six sit the largest size out, so it does not take six times the memory of one.
        Setting(
            f"draw@{n}",
            f"{count(n)} steps",
            {"capacity": n, "cycle": False},
            nbytes=(200 if n > 1_000_000 else 500) * n,
            table="Uniform: add one step, draw 64 sequences",
        )
        for n in sizes
    ]
    n = scale.capacity - scale.capacity % STARTS
    table = "Prioritized: draw 64 sequences with weights, update their priorities"
    values = {"capacity": n, "cycle": True}
    # Fresh, because memory that earlier buffers left behind would be used again and not be weighed.
    return [*found, Setting("cycle", f"{count(n)} steps", values, nbytes=500 * n, table=table, fresh=True)]


def prepare(peer: Peer, values: Mapping[str, Any]) -> Run:
    capacity = values["capacity"]
    if values["cycle"]:
        peer.weigh(Spec(capacity, prioritized=True, length=LENGTH, starts=STARTS, obs_size=SEQUENCE_OBS_SIZE))
        errors = cycle(peer.prepare_errors(td_errors(BATCH)))
        peer.cycle(BATCH, islice(errors, TURNS))
        return lambda calls: peer.cycle(BATCH, islice(errors, calls))
    peer.ensure(Spec(capacity, length=LENGTH, obs_size=SEQUENCE_OBS_SIZE), fill=capacity)
    steps = cycle(peer.prepare_steps(single_steps(2 * EPISODE, SEQUENCE_OBS_SIZE)))
    return lambda calls: peer.add_and_draw(BATCH, islice(steps, calls))


QUESTION = Question(
    name="sequences",
    title="Sequences",
    text="Sequences of 120 steps (observation 64 x float32, action 6 x float32, reward, flags), 64 a draw, from a full "
    "buffer of episodes of 1,000 steps. First, one call adds one step and draws uniformly, from any start: what a "
    "library puts off or recomputes after a write is in it. Then prioritized replay, one call draws and writes the "
    "drawn sequences' priorities back; sequences start at every 40th step. cpprb knows no sequences: the caller cuts "
    "them, at every 40th step in both tables, and each is an item that holds its steps once more. TorchRL draws the "
    "episode first, then the start. NumPy by hand keeps no priorities. relive gives one observation more (the last "
    "step's successor), masks, discounts and the actions and rewards before each step as well; all of its fields are "
    "read.",
    peers=("relive", "numpy", "cpprb", "flashbax", "torchrl", "torchrl-plain"),
    kind="sequences",
    single=True,
    memory="cycle",
    growth=True,
    settings=settings,
    prepare=prepare,
    targets=(
        Target("10^6 steps: times TorchRL's `cache_values`", times_faster("draw@1000000", than="torchrl"), at_least=50),
        Target("growth from 10^5 to 10^7, relive", own_ratio("draw@10000000", "draw@100000"), at_most=2),
        Target(
            "growth from 10^5 to 10^7, 99th percentile, relive",
            own_ratio("draw@10000000", "draw@100000", tail=True),
            at_most=2,
        ),
        Target("prioritized: times cpprb", times_faster("cycle", than="cpprb"), at_least=1.3),
        Target("prioritized: bytes a step", own_memory, at_most=300),
        Target("prioritized: bytes a step, times fewer than cpprb", times_smaller("cpprb"), at_least=3),
    ),
)
