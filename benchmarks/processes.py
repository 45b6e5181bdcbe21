"""What does a learner reach whose buffer two other processes fill, all of them as fast as they can?"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import Any, NamedTuple, cast

from benchmarks.peers import Peer, Spec
from benchmarks.peers.shared import Elsewhere, Sharing
from benchmarks.question import Found, Question, Scale, Setting, Target, own_figure, times_faster
from benchmarks.workload import endless_steps, td_errors

WRITERS, BATCH, ROUNDS, OPENED = 2, 256, 5, 7
LABELS = {"add": "a step that comes in", "cycle": "a draw and its update, meanwhile"}
TABLES = {1: "Writers add one step a call", 64: "Writers add 64 steps a call"}
clock = time.perf_counter


class Work(NamedTuple):
    """The work of a round: microseconds a step of all writers, and of each cycle."""

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
        return Found(tuple(openings(peer)))
    known: dict[int, list[Work]] = vars(peer).setdefault("processes", {})
    several = values["several"]
    if several not in known:
        known[several] = worked(peer, several, values["seconds"])
    if values["what"] == "add":
        return Found(tuple(work.step for work in known[several]))
    return Found(tuple(spent for work in known[several] for spent in work.cycles))


def openings(peer: Peer) -> list[float]:
    if isinstance(peer, Elsewhere):
        with every_core():
            return peer.openings(OPENED)
    found = []
    for _ in range(OPENED):
        before = clock()
        cast(Sharing, peer).open()
        found.append((clock() - before) * 1e6)
    return found


def worked(peer: Peer, several: int, seconds: float) -> list[Work]:
    if isinstance(peer, Elsewhere):
        with every_core():
            return [Work(*found) for found in peer.rounds(several, seconds, ROUNDS, BATCH)]
    together(peer, several, seconds / 4)
    return [together(peer, several, seconds) for _ in range(ROUNDS)]


def together(peer: Peer, several: int, seconds: float) -> Work:
    """Let two children add while this process makes cycles."""
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


@contextlib.contextmanager
def every_core() -> Iterator[None]:
    """Free this thread, and those it starts, from the one core that a worker is given."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def write(peer: Peer, lane: int, several: int, counts: Any, stop: Any) -> None:
    """Add steps in a child until told to stop."""
    add = cast(Sharing, peer).writing(lane)
    for done, step in enumerate(endless_steps(several)):
        if stop.value:
            break
        add(step)
        counts[lane] = (done + 1) * several


QUESTION = Question(
    name="processes",
    title="Two writers and a learner, in processes of their own",
    text=f"Two processes add to a prioritized buffer of 10^6 that they share; the one that made it draws {BATCH} items "
    "and writes their priorities back. All three run as fast as they can, on as many cores as there are. TorchRL draws "
    "uniformly and writes no priorities. Reverb's server is in the learner's process; it draws a batch ahead.",
    peers=("relive", "cpprb", "torchrl-shared", "reverb"),
    settings=settings,
    prepare=prepare,
    targets=(
        Target("µs a step, one a call", own_figure("add-1"), at_most=5),
        Target("µs a draw and its update, beside writers of one step a call", own_figure("cycle-1"), at_most=200),
        Target("a step over cpprb's", times_faster("add-1", than="cpprb"), at_least=4),
        Target("a draw and its update over cpprb's", times_faster("cycle-1", than="cpprb"), at_least=4),
        Target("a step over Reverb's", times_faster("add-1", than="reverb"), at_least=4),
        Target("a draw and its update over Reverb's", times_faster("cycle-1", than="reverb"), at_least=4),
        Target("to open it, ms", own_figure("open", 1e-3), at_most=100),
    ),
    kind="shared",
    single=True,
)
