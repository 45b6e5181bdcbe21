"""What does a learner reach whose buffer two other processes fill, all of them as fast as they can?"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import Any, NamedTuple, cast

from benchmarks.peers import Peer, Spec
from benchmarks.peers.shared import Sharing
from benchmarks.question import Found, Question, Scale, Setting, Target, own_figure, times_faster
from benchmarks.threads import every_core
from benchmarks.workload import EPISODE, Step, single_steps, stream, td_errors

WRITERS, BATCH, ROUNDS, OPENED = 2, 256, 5, 7
LABELS = {"add": "a step that comes in", "cycle": "a draw and its update, meanwhile"}
TABLES = {1: "Writers add one step a call", 64: "Writers add 64 steps a call"}
clock = time.perf_counter


class Work(NamedTuple):
    """What a round did: microseconds a step of all writers, and of each cycle."""

    step: float
    cycles: list[float]


def settings(scale: Scale) -> list[Setting]:
    values = {"capacity": scale.capacity, "seconds": 2 * scale.rounds / 120}
    found = [
        Setting(f"{what}-{several}", label, {**values, "what": what, "several": several}, 400 * scale.capacity, table)
        for several, table in TABLES.items()
        for what, label in LABELS.items()
    ]
    return [*found, Setting("open", "a reader and a writer", {**values, "what": "open"}, table="To open it")]


def prepare(peer: Peer, values: Mapping[str, Any]) -> Found:
    peer.ensure(Spec(values["capacity"], num_envs=WRITERS, prioritized=True), fill=0)
    if values["what"] == "open":
        return Found(tuple(opened(cast(Sharing, peer)) for _ in range(OPENED)))
    known: dict[int, list[Work]] = vars(peer).setdefault("processes", {})
    several, seconds = values["several"], values["seconds"]
    if several not in known:
        together(peer, several, seconds / 4)
        known[several] = [together(peer, several, seconds) for _ in range(ROUNDS)]
    if values["what"] == "add":
        return Found(tuple(work.step for work in known[several]))
    return Found(tuple(spent for work in known[several] for spent in work.cycles))


def opened(peer: Sharing) -> float:
    before = clock()
    peer.open()
    return (clock() - before) * 1e6


def together(peer: Peer, several: int, seconds: float) -> Work:
    """Two children add, this process makes cycles."""
    context = multiprocessing.get_context("fork")  # what a peer's buffer needs that has no name
    counts, stop = context.RawArray("q", WRITERS), context.RawValue("b", 0)
    children = [
        context.Process(target=write, args=(peer, lane, several, counts, stop), daemon=True) for lane in range(WRITERS)
    ]
    with every_core():
        for child in children:
            child.start()
        try:
            while min(counts) < 4 * BATCH:
                time.sleep(0.001)
                if not all(child.is_alive() for child in children):
                    raise RuntimeError("a writer's process ended")
            errors, cycles, added, begun = cycle(td_errors(BATCH)), list[float](), sum(counts), clock()
            while (before := clock()) < begun + seconds or len(cycles) < 2:
                peer.cycle(BATCH, [next(errors)])
                cycles.append((clock() - before) * 1e6)
            return Work((clock() - begun) * 1e6 / max(sum(counts) - added, 1), cycles)
        finally:
            stop.value = 1
            for child in children:
                child.join(5)
                child.kill()
                child.join()


def write(peer: Peer, lane: int, several: int, counts: Any, stop: Any) -> None:
    """What a child does."""
    add = cast(Sharing, peer).writing(lane)
    for done, step in enumerate(steps(several)):
        if stop.value:
            break
        add(step)
        counts[lane] = (done + 1) * several


def steps(several: int) -> Iterator[Step]:
    if several == 1:
        return cycle(single_steps(2 * EPISODE))
    whole = stream()
    blocks = [Step(*(column[k : k + several] for column in whole)) for k in range(0, 64 * several, several)]
    return cycle(blocks)


QUESTION = Question(
    name="processes",
    title="Two writers and a learner, in processes of their own",
    text=f"Two processes add to a prioritized buffer of 10^6 that they share; the one that made it draws {BATCH} items "
    "and writes their priorities back. All three run as fast as they can, on as many cores as there are. TorchRL draws "
    "uniformly and writes no priorities.",
    peers=("relive", "cpprb", "torchrl-shared"),
    settings=settings,
    prepare=prepare,
    targets=(
        Target("µs a step, one a call", own_figure("add-1"), at_most=5),
        Target("µs a draw and its update, beside writers of one step a call", own_figure("cycle-1"), at_most=200),
        Target("a step over cpprb's", times_faster("add-1", than="cpprb"), at_least=4),
        Target("a draw and its update over cpprb's", times_faster("cycle-1", than="cpprb"), at_least=4),
        Target("to open it, ms", own_figure("open", 1e-3), at_most=100),
    ),
    kind="shared",
    single=True,
)

if __name__ == "__main__":
    from benchmarks.suite import run_file

    run_file(QUESTION)
