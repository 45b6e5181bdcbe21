"""What limits draws of transitions and the updates of their priorities: uniform, prioritized, n-step, `Ranked`."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.limit_cases import CACHED, Case, Runs, cycles, draws, made
from benchmarks.peers import Spec
from benchmarks.question import Run, Scale, count
from benchmarks.workload import GAMMA

BATCH = 256


def uniform(scale: Scale, batch: int) -> Runs:
    n = scale.capacity
    relive, by_hand = made("relive", Spec(n)), made("numpy-out", Spec(n))
    return {
        f"relive, {count(n)} items": draws(relive, batch),
        f"relive, {CACHED:,}: all in the caches": draws(made("relive", Spec(CACHED)), batch),
        "relive, one item: what a call takes whatever its size": draws(relive, 1),
        f"NumPy's `take` of such rows, outputs reused, {count(n)}": draws(by_hand, batch),
        f"... {CACHED:,}": draws(made("numpy-out", Spec(CACHED)), batch),
    }


def prioritized(scale: Scale, batch: int) -> Runs:
    """Both grow for the same reason, so the `take` of as many rows of as large a store stands beside each size."""
    found: Runs = {}
    for n in dict.fromkeys((scale.sizes[0], min(scale.capacity, scale.sizes[-1]), scale.sizes[-1])):
        peer = made("relive", Spec(n, prioritized=True))
        found[f"relive, {count(n)} items: draw and update"] = cycles(peer, batch)
        found[f"{count(n)}: the draw"] = draws(peer, batch)
        found[f"{count(n)}: NumPy's `take` of such rows, outputs reused"] = draws(made("numpy-out", Spec(n)), batch)
    return found


def n_step(scale: Scale) -> Runs:
    found: Runs = {}
    for n in (CACHED, scale.capacity):
        for steps in (1, 3, 10):
            found[f"relive, {count(n)} items, n = {steps}"] = draws(made("relive", Spec(n, n_step=steps)), BATCH)
        found[f"relive, {count(n)} items, n = 1, one item"] = draws(made("relive", Spec(n)), 1)
        peer = made("relive", Spec(n, n_step=3))
        found[f"relive, {count(n)} items, n = 3, one item"] = draws(peer, 1)
        for steps in (3, 10):
            found[f"NumPy: {steps} rewards each, of {count(n)}, times discounts, added"] = returns(n, steps)
    return found


def returns(capacity: int, steps: int) -> Run:
    rng = np.random.default_rng(0)
    rewards = rng.standard_normal(capacity, dtype=np.float32)
    rows = rng.integers(0, capacity - steps, (64, BATCH, 1)) + np.arange(steps)
    discounts = (GAMMA ** np.arange(steps)).astype(np.float32)
    turn = 0

    def run(calls: int) -> None:
        nonlocal turn
        for _ in range(calls):
            turn = (turn + 1) % len(rows)
            rewards.take(rows[turn]).dot(discounts)

    return run


def ranked(scale: Scale) -> Runs:
    found: Runs = {}
    for n in (CACHED, scale.capacity):
        for sampler in ("", "ranked"):
            name, spec = sampler.title() or "Prioritized", Spec(n, prioritized=True, sampler=sampler)
            peer = made("relive", spec)
            found[f"`{name}`, {count(n)} items: draw and update"] = cycles(peer, BATCH)
            found[f"`{name}`, {count(n)} items: the draw"] = draws(peer, BATCH)
    return found


CASES: dict[str, Case] = {
    **{f"uniform-{batch}": partial(uniform, batch=batch) for batch in (256, 4096)},
    **{f"cycle-{batch}": partial(prioritized, batch=batch) for batch in (256, 4096)},
    "n-step": n_step,
    "ranked": ranked,
}
