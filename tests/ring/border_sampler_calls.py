"""The right calls of `border_calls.py` that draw: of trees, rankings and queues."""

from __future__ import annotations

from typing import Any

import numpy as np
from border_tools import LANES, ROWS, Call, drawable, guard, lived, native

from relive.sum_tree import allocate


def draw_from(queue: Any) -> None:
    """Every slot that a queue gives is one of the ring's."""
    u = np.linspace(0, 1, 40, endpoint=False)
    for name in ("draw", "draw_episodes", "draw_distinct") if queue.refresh() else ():
        slots = getattr(queue, name)(u[:1] if name == "draw_distinct" else u)
        if not ((slots >= 0) & (slots < LANES * ROWS)).all():
            raise SystemError("a slot outside the ring")


def tree_call(name: str) -> Call:
    sums, mins, state = allocate(100)
    own = [guard(level, np.float64) for level in sums], [guard(level, np.float64) for level in mins]
    tree, ring = native.Tree(*own, guard(state, np.float64)), lived()[0]
    tree.set(np.arange(100), np.arange(100.0))
    three, halves = guard([5, 99, 5]), guard([0.5, 2.0, 0.0], np.float64)
    u, seen = {"u": guard([0.1, 0.5, 0.9], np.float64)}, guard(np.zeros((LANES, 3)))
    follows, power = {"ring": ring, "seen": seen, "initial": 1.0}, {"eps": 0.1, "alpha": 0.6}
    calls: dict[str, dict[str, Any]] = {
        "keep_raws": {"raws": native.Tree(*allocate(100))},
        "get": {"indices": three},
        "set": {"indices": three, "values": halves},
        "fill_zero_and_set": {"removed": three, "added": guard([3, 4, 6]), "value": 1.5},
        "find": {"prefix": halves},
        "draw": {**u, "stratified": True},
        "draw_distinct": u,
        "sample": {**u, "stratified": True, "replacement": False, "scale": 2, "items": 3.0, "beta": 0.4},
        "try_update": {**follows, "ids": guard(ring.ids(drawable(ring))[:3]), "td_error": halves, **power},
        "refresh": {**follows, "alpha": 0.6},
        "update": {"slots": three, "td_error": halves, "keep": guard([True, False, True], bool), **power},
    }
    return Call(getattr(tree, name), calls.get(name, {}))


def make_tree() -> Call:
    sums, mins, state = allocate(100)
    arguments = {
        "sums": [guard(level, np.float64) for level in sums],
        "mins": [guard(level, np.float64) for level in mins],
        "state": guard(state, np.float64),
    }

    def then(tree: Any) -> None:
        tree.set(np.arange(50), np.ones(50))
        if not (tree.draw(np.linspace(0, 1, 30, endpoint=False), False).leaves < 104).all():
            raise SystemError("a leaf outside the tree")

    return Call(native.Tree, arguments, then)


def queue_arguments() -> dict[str, Any]:
    ring, _ = lived()
    places, firsts = (guard(np.zeros((LANES, ROWS)), np.int32) for _ in range(2))
    arguments = {
        "ring": ring,
        "places": places,
        "firsts": firsts,
        "ends": guard(np.zeros((LANES, 4))),
        "seen": guard(np.zeros((LANES, 3))),
    }
    native.Queue(**arguments).refresh()
    return arguments


def make_queue() -> Call:
    return Call(native.Queue, queue_arguments(), draw_from)


def queue_call(name: str) -> Call:
    queue = native.Queue(**queue_arguments())
    queue.refresh()
    if name == "recency":
        return Call(queue.recency, {"rate": 0.5, "relative": True}, lambda law: law.refresh())
    return Call(getattr(queue, name), arguments_of_draws(name))


def arguments_of_draws(name: str) -> dict[str, Any]:
    if name in ("behind", "probability", "masses"):
        return {"slots": guard([0, 1, 0])}
    return {"u": guard([0.0, 0.5, 0.9], np.float64)} if name.startswith("draw") else {}


def recency_call(name: str) -> Call:
    law = native.Queue(**queue_arguments()).recency(0.5, True)
    law.refresh()
    return Call(getattr(law, name), arguments_of_draws(name))
