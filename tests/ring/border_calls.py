"""One right call of every function of the extension; `test_border.py` has them made in processes of their own.

`run(group)` spoils one argument after another and prints what came of it, a line a call.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from fnmatch import fnmatch
from functools import partial
from typing import Any

import numpy as np
import spoilers
from border_draw_calls import (
    make_blending,
    make_chooser,
    make_goals,
    make_items,
    make_joined,
    make_listed,
    make_sampling,
    make_sequences,
    make_transitions,
    make_updating,
    make_windows,
)
from border_ring_calls import add_call, gather_call, make_adding, make_gather, make_ring, ring_call
from border_sampler_calls import (
    draw_from,
    make_queue,
    make_tree,
    queue_arguments,
    queue_call,
    recency_call,
    tree_call,
)
from border_tools import LANES, ROWS, SIGNATURES, Call, guard, guarded, lived, margins_are_whole, native, use
from border_wrong import WRONG
from depth import some

from relive.sum_tree import allocate


def function_call(name: str) -> Call:
    floats, single = guard([0.5, 2.0, 1.0], np.float64), guard(np.arange(12.0), np.float64)
    block, other = guard(np.arange(24).reshape(4, 6), np.uint8), guard(np.arange(24).reshape(4, 6), np.uint8)
    zeros, rewards = guard(np.zeros((5, 6)), np.uint8), guard([0.5, 1.0], np.float64)
    file, kept = os.open(__file__, os.O_RDONLY), guard(np.zeros((4, 14)), np.uint8)
    moves = {"columns": [guard(np.arange(72).reshape(12, 6), np.uint8), single], "lanes": 3, "block": 2}
    reads = {"files": guard([file] * 3), "offsets": guard([0, 6, 12])}
    places = [(("obs",), guard(block * 0, np.uint8)), (("more", "reward"), guard([0, 0], np.float64))]
    calls: dict[str, dict[str, Any]] = {
        "ending": {"begun": False},
        "copying": {"lanes": 2},
        "power": {"x": floats, "exponent": 0.5},
        "mass": {"td_error": floats, "eps": 0.1, "alpha": 0.5},
        "weights": {"values": floats, "reference": 0.1, "beta": 0.5},
        "smallest": {"values": floats},
        "shuffled": {"items": guard([7, 8, 9]), "numbers": guard([0.5, 0.0, 0.25], np.float64)},
        "checksums": {"rows": block},
        "copy_steps": {"now": block, "later": other, "out": zeros},
        "keep_arrays": {"arrays": [(("obs",), block), (("more", "reward"), rewards)], "places": places}
        | {"head": guard(np.zeros(64), np.uint8), "facts": bytes(range(40))},
        "put_rows": {"outs": [zeros, guard(np.zeros(5), np.float64)], "which": guard([4, 0, 2])}
        | {"values": [guard(np.ones((3, 6)), np.uint8), guard(np.ones(3), np.float64)]},
        "copy_ranges": {**moves, "ranges": guard([[0, 3, 7], [2, 0, 1]])}
        | {"outs": [zeros, guard(np.zeros(5), np.float64)]},
        "set_ranges": {**moves, "ranges": guard([[0, 3, 7], [-1, 9, 11], [2, 0, 1]])}
        | {"values": [guard(np.zeros((7, 6)), np.uint8), guard(np.zeros(7), np.float64)]},
        "read_spans": {**reads, "sizes": guard([6, 0, 5]), "places": guard([2, 0, 19])}
        | {"out": guard(np.zeros(24), np.uint8)},
        "read_fields": {"files": guard([[file, 2, 0, 0, 6, 12]] * 3), "kept": [kept, None, [block, other]]}
        | {"which": guard([0, -1, 1, 2]), "rows": guard([1, 99, 0, 1]), "targets": guard([2, 0, 1, 3])}
        | {"fields": guard([[2, 6, 0, 8, 0], [3, 6, 1, -1, 1]]), "outs": [zeros, guard(np.zeros((5, 6)), np.uint8)]},
        "sort_rows": {"before": guard([3, 5, 5, 9]), "samples": guard([8, 3, 4, 5, 4])},
        "read_rows": {**reads, "places": guard([2, 0, 1]), "out": guard(np.zeros((4, 6)), np.uint8)},
    }
    return Call(getattr(native, name), calls.get(name, {}), lambda result: os.close(file))


# Arrays that a call writes to.
WRITTEN = {"out", "outs", "counts", "notices", "draws", "Ring.allow.lanes", "set_ranges.columns"}
WRITTEN |= {f"Ring.__init__.{each}" for each in ("counters", "clock", "marks", "given", "touched")}
WRITTEN |= {"Tree.__init__.sums", "Tree.__init__.mins", "Tree.__init__.state", "sampling.counts"}
WRITTEN |= {f"Tree.{call}.seen" for call in ("chooser", "refresh", "try_update")}
WRITTEN |= {f"Queue.__init__.{each}" for each in ("places", "firsts", "ends", "seen")}


def ordered_call(method: str) -> Call:
    order = native.shuffled(guard([7, 8, 9]), guard([0.5, 0.0, 0.25], np.float64))
    return Call(lambda: order.ids, {}) if method == "ids" else Call(order.upto, {"count": 2})


METHODS = {
    "Ring": ring_call,
    "Gather": gather_call,
    "Tree": tree_call,
    "Queue": queue_call,
    "Recency": recency_call,
    "Ordered": ordered_call,
}
OWN = {
    "Ring.__init__": make_ring,
    "Gather.__init__": make_gather,
    "Tree.__init__": make_tree,
    "Queue.__init__": make_queue,
    "adding": make_adding,
    "blending": make_blending,
    "listed": make_listed,
    "sampling": make_sampling,
    "joined": make_joined,
    "Expansion.items": make_items,
    "updating": make_updating,
    "Gather.transitions": make_transitions,
    "Gather.sequences": make_sequences,
    "Gather.around": make_windows,
    "Gather.goals": make_goals,
    "add": partial(add_call, several=False),
    "extend": partial(add_call, several=True),
}


def make(name: str) -> Call:
    """The right call of a function of the stub; `add` and `extend` are what `adding` makes."""
    kind, _, method = name.rpartition(".")
    if name in OWN:
        call = OWN[name]()
    elif kind == "Lock":
        call = Call(native.Lock if method == "__init__" else getattr(native.Lock(), method), {})
    elif method == "chooser":
        call = make_chooser(kind)
    else:
        call = METHODS[kind](method) if kind else function_call(name)
    for argument, said in (SIGNATURES.get(name) or dict.fromkeys(call.spoilt, "Any")).items():
        path = f"{name}.{argument}"
        known = spoilers.of_type(said, argument in WRITTEN or path in WRITTEN) | call.spoilt.get(argument, {})
        for pattern, wrong in WRONG.items():
            known |= wrong if fnmatch(path, pattern) else {}
        call.spoilt[argument] = known
    return call


def makers() -> dict[str, Callable[[], Call]]:
    """The right calls, by the functions' names in the extension."""
    return {name: partial(make, name) for name in (*SIGNATURES, "add", "extend")}


def attempt(call: Call, arguments: dict[str, Any], extra: tuple[Any, ...] = ()) -> str:
    """What came of a call; a refused one must have changed nothing."""
    before = [memory.tobytes() for memory in guarded]
    try:
        result = call.function(*extra, **arguments)
    except SystemError as error:
        return f"SystemError: {error}"
    except Exception as error:
        same = all(now.tobytes() == then for now, then in zip(guarded, before, strict=True))
        return type(error).__name__ if same else f"changed something and raised {type(error).__name__}"
    try:
        call.then(result)
    except SystemError as error:
        return f"SystemError: {error}"
    except Exception as error:
        return f"{type(error).__name__} later"
    declines = type(call.function).__name__ == "Call" or getattr(call.function, "__name__", "") == "try_update"
    return "declined" if declines and (result is None or result is False) else "returned"


def run() -> None:
    """Make every call with every spoilt argument; a line before each, and its result behind it.

    What was refused is still as it was, and is called again.
    """
    for name, make in makers().items():
        right, call = make(), None
        cases = [("right", "", "")]
        cases += [("argument", argument, spoiler) for argument, many in right.spoilt.items() for spoiler in many]
        cases += [("missing", argument, "") for argument in right.arguments]
        cases += [("one more", "", str(i)) for i in some(range(len(spoilers.JUNK)), 4)]
        for kind, argument, spoiler in cases:
            if call is None:
                guarded.clear()
                call = make()
            arguments, extra = dict(call.arguments), ()
            if kind == "argument":
                arguments[argument] = call.spoilt[argument][spoiler](arguments[argument])
            elif kind == "missing":
                del arguments[argument]
            elif kind == "one more":
                arguments, extra = {}, (*arguments.values(), spoilers.JUNK[int(spoiler)])
            print(json.dumps([name, kind, argument, spoiler]), end=" ", flush=True)
            result = attempt(call, arguments, extra)
            call = call if result.endswith("Error") and " " not in result else None
            print(json.dumps(result if margins_are_whole() else "wrote outside"), flush=True)


def fill_with_garbage(rounds: int) -> None:
    """Whatever a kernel's arrays hold when it is made, it refuses them, or never leaves them."""
    rng = np.random.default_rng(0)
    for i in range(rounds):
        guarded.clear()
        _, arguments = lived(across=i % 2 == 0)
        arguments["marks"][...] = rng.integers(0, 256, arguments["marks"].shape) & rng.integers(0, 256)
        arguments["given"][...] = rng.choice([0.0, -1.0, np.nan, -np.inf], arguments["given"].shape)
        arguments["clock"][...] = rng.integers(-(2**63), 2**63 - 1, 2)
        queue, seen = queue_arguments(), guard(np.zeros((LANES, 3)))
        queue["ends"][...] += rng.integers(-1, 2, queue["ends"].shape)
        queue["places"][...] = (queue["places"] + rng.integers(0, 2, queue["places"].shape)) % ROWS
        queue["firsts"][...] = (queue["firsts"] + rng.integers(0, 3, queue["firsts"].shape)) % ROWS
        levels, mins, state = allocate(100)
        for level in levels:
            level[...] = rng.choice([0.0, 1.0, 1e300, -1.0, np.nan], len(level), p=[0.6, 0.1, 0.1, 0.1, 0.1])
        for level, groups in zip(levels[1:], (13, 2), strict=True):
            level[groups:] = 0.0
        tree = native.Tree([guard(x, np.float64) for x in levels], [guard(x, np.float64) for x in mins], state)
        slots = tree.draw(rng.random(30), True).leaves
        for make in (lambda: use(native.Ring(**arguments)), lambda: draw_from(native.Queue(**queue))):  # noqa: B023
            try:
                make()
                result = "used"
            except ValueError:
                result = "refused"
            print(json.dumps(result if margins_are_whole() and slots.max() < 104 else "wrote outside"), flush=True)
        tree.refresh(queue["ring"], seen, 1.0, 0.5)
