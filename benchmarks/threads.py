"""What do two threads reach that share one buffer, one that adds and one that learns, over one that does both?"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from itertools import cycle, islice
from typing import Any, NamedTuple

from benchmarks.harness import percentile
from benchmarks.peers import Peer, Spec
from benchmarks.question import Found, Question, Scale, Setting, Target, own_figure
from benchmarks.workload import EPISODE, Step, single_steps, td_errors

BATCHES = (256, 4096)
ROUNDS = 5
LABELS = {
    "times": "one thread's time over two threads', x",
    "tail": "99.9th percentile of an add meanwhile, ms",
    "adds": "adds a second",
    "cycles": "cycles a second",
}
clock = time.perf_counter


class Work(NamedTuple):
    """The work of two threads in a number of seconds, and the duration of each add."""

    seconds: float
    adds: list[float]
    cycles: int


def settings(scale: Scale) -> list[Setting]:
    n, seconds = scale.capacity, scale.rounds / 120
    tables = {f"cycles of {batch:,}": {"batch": batch, "capacity": n, "seconds": seconds} for batch in BATCHES}
    return [
        Setting(
            f"{what}-{values['batch']}",
            label,
            {**values, "what": what},
            400 * n,
            f"One thread adds, one makes {table}",
            unit="",
            scale=1e3 if what == "tail" else 1.0,
        )
        for table, values in tables.items()
        for what, label in LABELS.items()
    ]


def prepare(peer: Peer, values: Mapping[str, Any]) -> Found:
    capacity, batch, seconds = values["capacity"], values["batch"], values["seconds"]
    known: dict[int, dict[str, list[float]]] = vars(peer).setdefault("threads", {})
    if batch not in known:
        peer.ensure(Spec(capacity, prioritized=True), fill=capacity)
        together(peer, batch, seconds / 4)
        found = known[batch] = {what: [] for what in LABELS}
        for _ in range(ROUNDS):
            work = together(peer, batch, seconds)
            found["times"].append(alone(peer, batch, len(work.adds), work.cycles) / work.seconds)
            found["tail"].append(percentile(work.adds, 0.999))
            found["adds"].append(len(work.adds) / work.seconds)
            found["cycles"].append(work.cycles / work.seconds)
    return Found(tuple(known[batch][values["what"]]))


def together(peer: Peer, batch: int, seconds: float) -> Work:
    """Let one thread add while this one makes cycles, each as fast as it can and on any core."""
    steps, begun, ended, adds = endless(), threading.Barrier(2), threading.Event(), list[float]()

    def actor() -> None:
        add = peer.buffer.add
        begun.wait()
        while not ended.is_set():
            step = next(steps)._asdict()
            before = clock()
            add(**step)
            adds.append(clock() - before)

    thread = threading.Thread(target=actor)
    with every_core():
        thread.start()
        begun.wait()
        errors, cycles, before = cycle(td_errors(batch)), 0, clock()
        while clock() < before + seconds or not adds:  # a busy machine may start a thread late
            peer.cycle(batch, islice(errors, 1))
            cycles += 1
        spent = clock() - before
        ended.set()
        thread.join()
    return Work(spent, adds, cycles)


def alone(peer: Peer, batch: int, adds: int, cycles: int) -> float:
    """Return the seconds of CPU time that one thread takes for as many adds and cycles, spread evenly."""
    steps, errors, add = endless(), cycle(td_errors(batch)), peer.buffer.add
    taken: list[float] = []
    before = time.process_time()
    for turn in range(cycles):
        while len(taken) * cycles < adds * (turn + 1):
            step = next(steps)._asdict()
            begun = clock()
            add(**step)
            taken.append(clock() - begun)
        peer.cycle(batch, islice(errors, 1))
    return time.process_time() - before


def endless() -> Iterator[Step]:
    return cycle(single_steps(2 * EPISODE))


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


QUESTION = Question(
    name="threads",
    title="Two threads",
    text="One thread adds step after step to a full prioritized buffer of 10^6, another one draws batches and writes "
    "their priorities back, both as fast as they can, on two cores where there are two. Then one thread does the same "
    "adds and cycles, in turn.",
    peers=("relive",),
    settings=settings,
    prepare=prepare,
    targets=(
        *(
            Target(f"cycles of {b:,}: one thread's time over two threads'", own_figure(f"times-{b}"), at_least=1.2)
            for b in BATCHES
        ),
        Target("cycles of 4,096: 99.9th percentile of an add, ms", own_figure("tail-4096", 1e3), at_most=1),
    ),
    single=True,
    unit="",
)

if __name__ == "__main__":
    from benchmarks.suite import run_file

    run_file(QUESTION)
