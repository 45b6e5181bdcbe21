"""One right call of every function of the extension; `test_border.py` has them made in processes of their own.

`run(group)` spoils one argument after another and prints what came of it, a line a call.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import spoilers
from border_draw_calls import make_chooser, make_sampling, make_sequences, make_transitions, make_updating
from border_ring_calls import add_call, gather_call, make_adding, make_gather, make_ring, ring_call
from border_sampler_calls import (
    draw_from,
    make_queue,
    make_ranks,
    make_tree,
    queue_arguments,
    queue_call,
    ranks_call,
    tree_call,
)
from border_tools import LANES, ROWS, Call, guard, guarded, lived, margins_are_whole, native, use
from depth import some
from spoilers import Spoilers

from relive.sum_tree import allocate


def function_call(name: str) -> Call:
    floats = guard([0.5, 2.0, 1.0], np.float64)
    block = guard(np.arange(24).reshape(4, 6), np.uint8)
    file = os.open(__file__, os.O_RDONLY)
    places = {**spoilers.indices(4)}
    calls: dict[str, tuple[dict[str, Any], dict[str, Spoilers]]] = {
        "simd": ({}, {}),
        "ending": ({"begun": False}, {"begun": spoilers.flags()}),
        "away": ({}, {}),
        "power": ({"x": floats, "exponent": 0.5}, {"x": spoilers.numbers(), "exponent": spoilers.floats()}),
        "mass": (
            {"td_error": floats, "eps": 0.1, "alpha": 0.5},
            {"td_error": spoilers.numbers(), "eps": spoilers.floats(), "alpha": spoilers.floats()},
        ),
        "weights": (
            {"values": floats, "reference": 0.1, "beta": 0.5},
            {"values": spoilers.numbers(), "reference": spoilers.floats(), "beta": spoilers.floats()},
        ),
        "order_size": ({"capacity": 100}, {"capacity": spoilers.whole_numbers(-1, 0, 2**31, 2**62, 2**64)}),
        "smallest": ({"values": floats}, {"values": spoilers.numbers()}),
        "checksums": ({"rows": block}, {"rows": spoilers.arrays()}),
        "copy_steps": (
            {"now": block, "later": guard(block, np.uint8), "out": guard(np.zeros((5, 6)), np.uint8)},
            {"now": spoilers.arrays(), "later": spoilers.arrays(), "out": spoilers.writable(spoilers.arrays())},
        ),
        "scatter_rows": (
            {
                "blocks": [block, guard(block, np.uint8)],
                "which": guard([0, -1, 1]),
                "rows": guard([3, 99, 0]),
                "out": guard(np.zeros((3, 6)), np.uint8),
            },
            {
                "blocks": spoilers.lists(spoilers.arrays()),
                "which": {**spoilers.arrays(), "2": lambda a: a + 2, "huge": lambda a: a + 2**62},
                "rows": {**spoilers.arrays(), "below": lambda a: a - 100, "huge": lambda a: a + 2**62},
                "out": spoilers.writable(spoilers.arrays()),
            },
        ),
        "copy_ranges": (
            {
                "columns": [guard(np.arange(72).reshape(12, 6), np.uint8), guard(np.arange(12.0), np.float64)],
                "lanes": 3,
                "block": 2,
                "ranges": guard([[0, 3, 7], [2, 0, 1]]),
                "outs": [guard(np.zeros((5, 6)), np.uint8), guard(np.zeros(5), np.float64)],
            },
            {
                "columns": spoilers.lists(spoilers.arrays()),
                "lanes": spoilers.whole_numbers(-1, 0, 2, 5, 2**62),
                "block": spoilers.whole_numbers(-1, 0, 3, 2**62),
                "ranges": spoilers.integers(-1, 2, 8, 2**62, 2**63 - 1, -(2**63)),
                "outs": spoilers.lists(spoilers.writable(spoilers.arrays())),
            },
        ),
        "set_ranges": (
            {
                "columns": [guard(np.arange(72).reshape(12, 6), np.uint8), guard(np.arange(12.0), np.float64)],
                "lanes": 3,
                "block": 2,
                "ranges": guard([[0, 3, 7], [-1, 9, 11], [2, 0, 1]]),
                "values": [guard(np.zeros((7, 6)), np.uint8), guard(np.zeros(7), np.float64)],
            },
            {
                "columns": spoilers.lists(spoilers.writable(spoilers.arrays())),
                "lanes": spoilers.whole_numbers(-1, 0, 2, 5, 2**62),
                "block": spoilers.whole_numbers(-1, 0, 3, 2**62),
                "ranges": spoilers.integers(-2, 2, 8, 2**62, 2**63 - 1, -(2**63)),
                "values": spoilers.lists(spoilers.arrays()),
            },
        ),
        "read_spans": (
            {
                "files": guard([file] * 3),
                "offsets": guard([0, 6, 12]),
                "sizes": guard([6, 0, 5]),
                "places": guard([2, 0, 19]),
                "out": guard(np.zeros(24), np.uint8),
            },
            {
                "files": spoilers.integers(-1, 2**31, 2**32, 2**62),
                "offsets": spoilers.integers(-1, 2**62, 2**63 - 1),
                "sizes": spoilers.integers(-1, 25, 2**62, 2**63 - 1),
                "places": spoilers.integers(-1, 25, 2**62, 2**63 - 1),
                "out": spoilers.writable(spoilers.arrays()),
            },
        ),
        "read_rows": (
            {
                "files": guard([file] * 3),
                "offsets": guard([0, 6, 12]),
                "places": guard([2, 0, 1]),
                "out": guard(np.zeros((4, 6)), np.uint8),
            },
            {
                "files": spoilers.integers(-1, 2**31, 2**32, 2**62),
                "offsets": spoilers.integers(-1, 2**62, 2**63 - 1),
                "places": places,
                "out": spoilers.writable(spoilers.arrays()),
            },
        ),
    }
    given, spoilt = calls[name]
    return Call(getattr(native, name), given, spoilt, lambda result: os.close(file))


def makers() -> dict[str, Callable[[], Call]]:
    """The right calls, by the functions' names in the extension."""
    functions = ["simd", "ending", "away", "power", "mass", "weights", "smallest", "order_size"]
    functions += ["checksums", "copy_steps", "scatter_rows", "copy_ranges", "set_ranges", "read_rows", "read_spans"]
    ring = ["write", "cut", "limit", "allow", "look", "overtaken", "changes", "ids", "locate"]
    ring += ["standing", "follow", "stacks", "windows", "relabelled", "fold", "fold_sequences", "chunks"]
    ring += ["watched", "enough_ends", "snapshot", "asked"]
    tree = [
        "get",
        "set",
        "fill_zero_and_set",
        "keep_raws",
        "restore",
        "find",
        "draw",
        "draw_distinct",
        "sample",
        "try_update",
        "refresh",
        "update",
    ]
    ranks = ["rebuild", "refresh", "update", "draw", "draw_distinct", "sample"]
    queue = ["refresh", "draw", "draw_distinct", "draw_episodes"]

    def of(kind: str, first: Callable[[], Call], call: Callable[[str], Call], names: list[str]) -> dict[str, Any]:
        return {f"{kind}.__init__": first, **{f"{kind}.{name}": lambda name=name: call(name) for name in names}}

    return {
        **{name: lambda name=name: function_call(name) for name in functions},
        "adding": make_adding,
        "sampling": make_sampling,
        "updating": make_updating,
        "Gather.transitions": make_transitions,
        "Gather.sequences": make_sequences,
        **{f"{kind}.chooser": lambda kind=kind: make_chooser(kind) for kind in ("Tree", "Ranks", "Queue")},
        "add": lambda: add_call(several=False),
        "extend": lambda: add_call(several=True),
        "Lock.__init__": lambda: Call(native.Lock, {}, {}),
        **{
            f"Lock.{name}": lambda name=name: Call(getattr(native.Lock(), name), {}, {})
            for name in ("taken", "held", "hold", "attempt", "still", "forked")
        },
        **of("Ring", make_ring, ring_call, ring),
        **of("Gather", make_gather, gather_call, ["take", "taken", "expand", "unroll"]),
        **of("Tree", make_tree, tree_call, tree),
        **of("Ranks", make_ranks, ranks_call, ranks),
        **of("Queue", make_queue, queue_call, queue),
    }


def attempt(call: Call, arguments: dict[str, Any], extra: tuple[Any, ...] = ()) -> str:
    """What came of a call; a refused one must have changed nothing."""
    before = [memory.copy() for memory in guarded]
    try:
        result = call.function(*extra, **arguments)
    except SystemError as error:
        return f"SystemError: {error}"
    except Exception as error:
        same = all(np.array_equal(now, then) for now, then in zip(guarded, before, strict=True))
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
    """Make every call with every spoilt argument; a line before each, and its result behind it."""
    for name, make in makers().items():
        right = make()
        cases = [("right", "", "")]
        cases += [("argument", argument, spoiler) for argument, many in right.spoilt.items() for spoiler in many]
        cases += [("missing", argument, "") for argument in right.arguments]
        cases += [("one more", "", str(i)) for i in some(range(len(spoilers.JUNK)), 4)]
        for kind, argument, spoiler in cases:
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
