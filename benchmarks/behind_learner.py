"""How long does each call take where it is made: after a learner's step, which has the caches?"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

from benchmarks.peers import Peer, Spec
from benchmarks.question import Question, Run, Scale, Setting, Target, count, times_faster
from benchmarks.workload import ACTION_SIZE, EPISODE, OBS_SIZE, single_steps, td_errors

BATCH, HIDDEN = 256, 256
TURNS = 50  # before the clock starts: the priorities are no longer all alike
LEARNER, LOOP = "After a learner's step", "In a loop of nothing else"
REPEATED = 3  # calls before the clock starts, and calls that it runs over, in a loop of nothing else
CALLS = {
    "cycle": "add, draw, update",
    "plain": "add, draw uniformly",
    "add": "add one step",
    "draw": "draw with priorities",
    "update": "update priorities",
    "uniform": "draw uniformly",
    "torch": "as tensors, all read",
}


def settings(scale: Scale) -> list[Setting]:
    n = scale.capacity
    return [
        Setting(
            f"{call}-{'learner' if table == LEARNER else 'loop'}",
            label,
            {"capacity": n, "call": call, "learner": table == LEARNER},
            nbytes=330 * n,
            table=f"{table}, {BATCH} of {count(n)}",
        )
        for table in (LEARNER, LOOP)
        for call, label in CALLS.items()
        if table == LEARNER or call in ("cycle", "uniform")
    ]


def learner() -> Callable[[], None]:
    """Return a step of a learner: a net of two hidden layers learns from a batch by Adam."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = torch.nn.Sequential(
        torch.nn.Linear(OBS_SIZE, HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, ACTION_SIZE),
    )
    optimizer = torch.optim.Adam(net.parameters())
    obs, target = torch.randn(BATCH, OBS_SIZE), torch.randn(BATCH, ACTION_SIZE)

    def step() -> None:
        optimizer.zero_grad()
        loss: Any = torch.nn.functional.mse_loss(net(obs), target)
        loss.backward()
        optimizer.step()

    return step


class Part(NamedTuple):
    """A piece of work, and whether it is what the clock is for; the learner has its turn before each that is."""

    work: Callable[[], object]
    timed: bool = True


def parts(peer: Peer, call: str) -> list[Part]:
    """Return what a call is made of."""
    steps, errors = cycle(single_steps(2 * EPISODE)), cycle(peer.prepare_errors(td_errors(BATCH)))
    drawn: list[Any] = [None]

    def add() -> None:
        peer.add([next(steps)])

    def draw() -> None:
        drawn[0] = peer.draw(BATCH)

    def update() -> None:
        peer.update(drawn[0], next(errors))

    def uniform() -> None:
        peer.sample(BATCH, 1)

    def both(draw: Callable[[], None]) -> None:
        add()
        draw()

    if call in ("cycle", "draw", "update"):
        for _ in range(TURNS):
            draw()
            update()
    made = {
        "cycle": [Part(partial(both, draw)), Part(update)],
        "plain": [Part(partial(both, uniform))],
        "add": [Part(add)],
        "draw": [Part(draw)],
        "update": [Part(draw, timed=False), Part(update)],
        "uniform": [Part(uniform)],
        "torch": [Part(lambda: peer.sample_torch(BATCH, 1))],
    }
    return made[call]


def prepare(peer: Peer, values: Mapping[str, Any]) -> Run:
    capacity, call = values["capacity"], values["call"]
    prioritized = peer.prioritized if call == "add" else call in ("cycle", "draw", "update")
    peer.ensure(Spec(capacity, prioritized=prioritized), fill=capacity)
    made = parts(peer, call)
    if values["learner"]:
        step = learner()
        return lambda calls: timed(made, calls, step)

    def run(calls: int) -> tuple[float, float]:
        timed(made, REPEATED, lambda: None)
        wall, cpu = timed(made, REPEATED, lambda: None)
        return wall * calls / REPEATED, cpu * calls / REPEATED

    return run


def timed(made: list[Part], calls: int, between: Callable[[], None]) -> tuple[float, float]:
    """Return the seconds of wall and CPU time of the parts that the clock is for."""
    wall = cpu = 0.0
    for part in made * calls:
        if not part.timed:
            part.work()
            continue
        between()
        own, begun = time.process_time(), time.perf_counter()
        part.work()
        wall += time.perf_counter() - begun
        cpu += time.process_time() - own
    return wall, cpu


QUESTION = Question(
    name="behind_learner",
    title="After a learner's step",
    text="Each call by itself, and the three of a turn of prioritized replay, where a training loop makes them: a net "
    f"of 17-{HIDDEN}-{HIDDEN}-6 has learned from a batch of {BATCH} by Adam, and has the caches. In a turn it learns "
    "before the add and before the update; where there is no update it learns once, before the add. Then some of the "
    "same calls in a loop of nothing else.",
    peers=("relive", "numpy", "cpprb", "rlox", "tianshou", "flashbax", "sb3"),
    settings=settings,
    prepare=prepare,
    targets=(
        Target("add, draw, update: times the best library", times_faster("cycle-learner"), at_least=6),
        Target("draw uniformly: times NumPy by hand", times_faster("uniform-learner", than="numpy"), at_least=1.3),
    ),
    max_rounds=30,
    max_calls=32,
    single=True,
)
