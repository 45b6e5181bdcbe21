"""How long do the calls of a buffer take whose steps lie on the GPU, beside the simulator and the learner?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from benchmarks.peers import Peer, Spec, Unsupported
from benchmarks.peers.device import TURNS, OnDevice, gpu
from benchmarks.question import (
    FULL,
    TINY,
    Answer,
    Measure,
    Question,
    Run,
    Scale,
    Setting,
    Target,
    count,
    memory_of,
    over,
    own_memory,
)
from benchmarks.workload import ACTION_SIZE, EPISODE, OBS_SIZE, td_errors

WIDE = 235  # numbers of a humanoid's observation
GOALS = {256: 260, 4_096: 260, 65_536: 320}  # microseconds of a cycle, on an H200
TORCHRL = "torchrl-plain"


@dataclass(frozen=True)
class Sizes:
    """The amount to measure: cycles of `batches`, uniform draws of `drawn`, adds of `adding` lanes."""

    capacity: int
    lanes: int
    batches: tuple[int, ...]
    drawn: int
    adding: tuple[int, ...]


ON_GPU = Sizes(FULL.capacity, 1_024, tuple(GOALS), 32_768, (1_024, 4_096, 16_384))
SHORT = Sizes(100_000, 64, (256, 4_096), 4_096, (1_024,))
SMALL = Sizes(2_048, 64, (256,), 256, (64,))


def settings(scale: Scale) -> list[Setting]:
    found = gpu() is not None
    sizes = SMALL if scale == TINY else ON_GPU if found else SHORT
    return columns(sizes, on_gpu=found)


def columns(sizes: Sizes, *, on_gpu: bool) -> list[Setting]:
    """Return the settings, on a GPU each by calls one after another and by a graph of them."""
    n, made = sizes.capacity, list[Setting]()

    def column(key: str, label: str, table: str, **values: Any) -> None:
        values = {"capacity": n, "lanes": sizes.lanes, "obs_size": OBS_SIZE, "prioritized": False} | values
        nbytes = 0 if on_gpu else 10 * (values["obs_size"] + 20) * n
        for graph in (False, True) if on_gpu else (False,):
            made.append(
                Setting(
                    graphed(key) if graph else key,
                    f"{label}, {'captured' if graph else 'eager'}",
                    {**values, "captured": graph},
                    nbytes=nbytes,
                    table=table,
                )
            )

    of = f"of {count(n)} in {sizes.lanes:,} lanes"
    for batch in sizes.batches:
        table = f"Draw {of} by priorities, and their update"
        column(cycle_key(batch, n), f"{batch:,}", table, call="cycle", n=batch, prioritized=True)
    for size in (OBS_SIZE, WIDE):
        key, label = drawn_key(size), f"{size} + {ACTION_SIZE} numbers"
        column(key, label, f"Uniform draw of {sizes.drawn:,} {of}", call="draw", n=sizes.drawn, obs_size=size)
    for prioritized in (False, True):
        kind = "with priorities" if prioritized else "uniform"
        for lanes in sizes.adding:
            values = {"lanes": lanes, "prioritized": prioritized}
            key = add_key(lanes) + "-prioritized" * prioritized
            column(key, f"{lanes:,} lanes", f"Add one step of every lane, {kind}", call="add", **values)
    return made


def graphed(key: str) -> str:
    return f"{key}-captured"


def cycle_key(batch: int, n: int) -> str:
    return f"cycle-{batch}@{n}"


def drawn_key(obs_size: int) -> str:
    return f"draw-{obs_size}"


def add_key(lanes: int) -> str:
    return f"add-{lanes}"


def prepare(peer: Peer, values: Mapping[str, Any]) -> Run:
    if not isinstance(peer, OnDevice):
        raise Unsupported("not on a device")
    capacity, lanes, obs_size = values["capacity"], values["lanes"], values["obs_size"]
    spec = Spec(capacity, lanes, prioritized=values["prioritized"], obs_size=obs_size)
    peer.ensure(spec, fill=capacity)
    peer.memory = peer.nbytes() / (capacity // lanes * lanes) or None
    return peer.on_clock(work(peer, values), captured=values["captured"])


def work(peer: OnDevice, values: Mapping[str, Any]) -> Callable[[int], None]:
    """Return what makes so many turns."""
    if values["call"] == "add":
        return lambda calls: peer.add_lanes(islice(peer.steps, calls))
    n = values["n"]
    if values["call"] == "draw":
        return lambda calls: peer.sample(n, calls)
    errors = cycle(peer.prepare_errors(td_errors(n, TURNS)))
    peer.cycle(n, islice(errors, TURNS))  # the priorities are no longer all alike
    return lambda calls: peer.cycle(n, islice(errors, calls))


def notice(answer: Answer) -> str:
    """Say on which GPU, or that there was none."""
    name = gpu()
    if name is None:
        return (
            "**No GPU was there.** These are times of a CPU, in a short form, which show that all of it runs; they say "
            "nothing about a GPU."
        )
    return f"On one {name}; what is asked in microseconds is meant for an H200."


def middle(peer: str, key: str) -> Measure:
    """Measure the median of a peer's chunks, in microseconds."""

    def measure(answer: Answer) -> float | None:
        row = answer.rows.get(peer)
        cell = row.cells.get(key) if row else None
        return None if cell is None else cell.median

    return measure


def torchrl_tree(key: str) -> Measure:
    """Measure TorchRL, if its tree was on the GPU."""
    figure = middle(TORCHRL, key)

    def measure(answer: Answer) -> float | None:
        row = answer.rows.get(TORCHRL)
        return figure(answer) if row and row.version.endswith("CUDA tree") else None

    return measure


def targets() -> list[Target]:
    n = ON_GPU.capacity
    drawn, add = graphed(drawn_key(WIDE)), graphed(add_key(4_096))
    found = []
    cycles = {batch: middle("relive", graphed(cycle_key(batch, n))) for batch in GOALS}
    for batch, goal in GOALS.items():
        text = f"{batch:,} of {count(n)} by priorities, and their update, captured, µs"
        found.append(Target(text, cycles[batch], at_most=goal))
    for batch, figure in cycles.items():
        text = f"the same, {batch:,}: times TorchRL's CUDA tree, eager"
        found.append(Target(text, over(torchrl_tree(cycle_key(batch, n)), figure), at_least=1))
    memory = over(own_memory, memory_of("tensors"))
    copies = over(middle("relive", drawn), middle("limit", drawn))
    return [
        *found,
        Target(f"uniform draw, observations of {WIDE}, captured: over a copy of the bytes", copies, at_most=4),
        Target("add of 4,096 lanes, uniform, captured, µs", middle("relive", add), at_most=100),
        Target(f"bytes a step, observations of {WIDE}: over by hand", memory, at_most=0.62),
    ]


QUESTION = Question(
    name="device",
    title="Buffers on a GPU",
    text=f"Tensors of the device go in and come out. Transitions of {OBS_SIZE} + {ACTION_SIZE} float32 numbers, and of "
    f"observations of {WIDE} for one draw, in full buffers; an episode ends after {EPISODE:,} steps on average. On a "
    "GPU its events around all calls of a chunk count: of calls one after another (eager), and of replays of a CUDA "
    f"graph that has {TURNS} of them (captured), each by its share. PyTorch by hand keeps tensors `[lanes, rows]` with "
    "both observations, as FastTD3's class does, which is on no package index; for each draw by priorities it sums "
    "them anew in float64 (`cumsum`, `searchsorted`). The limit is a `clone` of as many bytes as relive's batch has. "
    "Bytes a step are those of all tensors of the buffer.",
    peers=("relive", "tensors", "limit", TORCHRL),
    kind="device",
    settings=settings,
    prepare=prepare,
    targets=tuple(targets()),
    max_rounds=40,
    memory=drawn_key(WIDE),
    gpu=True,
    notice=notice,
)
