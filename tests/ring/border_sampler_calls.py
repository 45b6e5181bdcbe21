"""The right calls of `border_calls.py` that draw: of trees, rankings and queues."""

from __future__ import annotations

from typing import Any

import numpy as np
import spoilers
from border_tools import LANES, ROWS, Call, drawable, guard, lived, native
from spoilers import Spoilers

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
    tree = native.Tree(*own, guard(state, np.float64))
    tree.set(np.arange(100), np.arange(100.0))
    index, ring = spoilers.indices(104), lived()[0]
    floats = {"eps": spoilers.floats(-1.0, np.nan, np.inf)}
    uniforms = {"u": spoilers.numbers(-0.1, 1.0, 2.0, np.nan, np.inf, -np.inf)}
    three, halves = guard([5, 99, 5]), guard([0.5, 2.0, 0.0], np.float64)
    calls: dict[str, tuple[dict[str, Any], dict[str, Spoilers]]] = {
        "keep_raws": (
            {"raws": native.Tree(*allocate(100))},
            {"raws": {"another length": lambda _: native.Tree(*allocate(7000))}},
        ),
        "get": ({"indices": three}, {"indices": index}),
        "set": (
            {"indices": three, "values": halves},
            {"indices": index, "values": spoilers.numbers(-1.0, np.nan, np.inf, -np.inf)},
        ),
        "restore": ({}, {}),
        "fill_zero_and_set": (
            {"removed": three, "added": guard([3, 4, 6]), "value": 1.5},
            {"removed": index, "added": index, "value": spoilers.floats(-1.0, np.nan, np.inf)},
        ),
        "find": ({"prefix": halves}, {"prefix": spoilers.numbers(np.nan)}),
        "draw": ({"u": guard([0.1, 0.5, 0.9], np.float64), "stratified": True}, {**uniforms}),
        "draw_distinct": (
            {"u": guard([0.1, 0.5, 0.9], np.float64)},
            {"u": {**uniforms["u"], "too many": lambda a: np.full(101, 0.5)}},
        ),
        "sample": (
            {"u": guard([0.1, 0.5, 0.9], np.float64), "stratified": True, "replacement": False, "scale": 2}
            | {"items": 3.0, "beta": 0.4},
            {"u": {**uniforms["u"], "too many": lambda a: np.full(101, 0.5)}}
            | {"scale": spoilers.whole_numbers(-1, 3)}
            | {"items": spoilers.floats(0.0, -1.0, np.nan)},
        ),
        "try_update": (
            {
                "ring": ring,
                "seen": guard(np.zeros((LANES, 3))),
                "ids": guard(ring.ids(drawable(ring))[:3]),
                "td_error": halves,
            }
            | {"initial": 1.0, "eps": 0.1, "alpha": 0.6},
            {
                "seen": spoilers.writable(spoilers.integers(-1, 2**62, 2**63 - 1, -(2**63))),
                "ids": {**index, "overwritten": lambda a: a * 0, "never issued": lambda a: a + 2**40},
                "td_error": spoilers.numbers(np.nan, np.inf),
                "initial": spoilers.floats(-1.0, np.nan, np.inf),
                **floats,
            },
        ),
        "refresh": (
            {"ring": ring, "seen": guard(np.zeros((LANES, 3))), "initial": 1.0, "alpha": 0.6},
            {
                "seen": spoilers.writable(spoilers.integers(-1, 2**62, 2**63 - 1, -(2**63))),
                "initial": spoilers.floats(-1.0, np.nan, np.inf),
            },
        ),
        "update": (
            {"slots": three, "td_error": halves, "keep": guard([True, False, True], bool), "eps": 0.1, "alpha": 0.6},
            {"slots": index, **floats},
        ),
    }
    arguments, spoilt = calls[name]
    return Call(getattr(tree, name), arguments, spoilt)


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

    levels = spoilers.lists(spoilers.writable(spoilers.arrays()))
    garbage = {f"{bad}": lambda a, bad=bad: [np.full_like(level, bad) for level in a] for bad in (np.nan, np.inf, -1.0)}
    spoilt = {"sums": {**levels, **garbage}, "mins": {**levels, **garbage}}
    return Call(native.Tree, arguments, spoilt, then)


def _not_empty(tree: Any) -> Any:
    tree.set(np.arange(3), np.ones(3))
    return tree


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
    entries = spoilers.writable(spoilers.arrays())
    entries |= {f"all {value}": lambda a, value=value: np.full_like(a, value) for value in (-1, 0, ROWS, 2**31 - 1)}
    entries["backwards in each lane"] = lambda a: a[:, ::-1].copy()
    counters = spoilers.writable(spoilers.arrays())
    values = (-1, 7, 1000, 2**62, 2**63 - 1, -(2**63))
    ends = counters | {f"{c}={v}": spoilers.put_in_column(c, v) for c in range(4) for v in values}
    seen = counters | {f"{c}={v}": spoilers.put_in_column(c, v) for c in range(3) for v in values}
    spoilt = {"places": entries, "firsts": entries, "ends": ends, "seen": seen}
    return Call(native.Queue, queue_arguments(), spoilt, draw_from)


def queue_call(name: str) -> Call:
    queue = native.Queue(**queue_arguments())
    queue.refresh()
    if name == "refresh":
        return Call(queue.refresh, {}, {})
    if name in ("behind", "probability"):
        return Call(getattr(queue, name), {"slots": guard([0, 1, 0])}, {"slots": spoilers.indices(LANES * ROWS)})
    if name == "recency":
        rates = {f"{bad}": lambda rate, bad=bad: bad for bad in (0.0, -1.0, np.nan, np.inf)}
        return Call(queue.recency, {"rate": 0.5, "relative": True}, {"rate": rates}, lambda law: law.refresh())
    spoilt = spoilers.numbers(-0.1, 1.0, 2.0, np.nan, np.inf)
    if name == "draw_distinct":
        spoilt["too many"] = lambda a: np.full(LANES * ROWS + 1, 0.5)
    return Call(getattr(queue, name), {"u": guard([0.0, 0.5, 0.9], np.float64)}, {"u": spoilt})


def recency_call(name: str) -> Call:
    law = native.Queue(**queue_arguments()).recency(0.5, True)
    law.refresh()
    if name == "draw":
        spoilt = spoilers.numbers(-0.1, 1.0, 2.0, np.nan, np.inf)
        return Call(law.draw, {"u": guard([0.0, 0.5, 0.9], np.float64)}, {"u": spoilt})
    if name == "masses":
        return Call(law.masses, {"slots": guard([0, 1, 0])}, {"slots": spoilers.indices(LANES * ROWS)})
    return Call(getattr(law, name), {}, {})
