"""Right calls of the ring and of the kernel that copies rows, and how to spoil them; see `border_calls.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import spoilers
from border_tools import LANES, READ_ONLY, ROWS, STORAGE, Call, drawable, guard, lived, native, steps_of, use
from spoilers import Spoilers


def make_ring() -> Call:
    _, arguments = lived()
    arguments["busy"] = guard(np.zeros(LANES), np.uint8)

    def layout(column: int, **changed: Any) -> Callable[[Any], Any]:
        return lambda columns: [
            replace(each, **{k: v(each.array) if callable(v) else v for k, v in changed.items()})
            if c == column
            else each
            for c, each in enumerate(columns)
        ]

    columns: Spoilers = {**spoilers.lists({}), "not layouts": lambda a: [each.array for each in a]}
    for name, spoil in spoilers.writable(spoilers.arrays()).items():
        columns[f"array: {name}"] = layout(0, array=spoil)
    wrong: dict[str, list[Any]] = {
        "keys": [(), None, 3, (1,), (b"a",), [None]],
        "shape": [(), None, 2, (2, 5), (4,), (-2, -4), (2**62, 4), ("2", 4), (2, 4, 1)],
        "frames": [0, -1, 1, 3, 9, 2**62, 2**64, None, "2", 1.5],
        "repeat": [None, 2, "yes"],
        "every": [1, 2, -1, 2**64, None, "2"],
        "whole": [None, 2, "yes"],
    }
    for name, values in wrong.items():
        columns |= {f"{name}={value!r}": layout(0, **{name: value}) for value in values}
    columns |= {f"state every={every}": layout(3, every=every) for every in (-1, 0, 2**64)}
    columns["state: a row more"] = layout(3, array=lambda a: np.concatenate([a, a[:1]]))
    windows: Spoilers = {
        f"{name}={value!r}": lambda a, name=name, value=value: replace(a, **{name: value})
        for name in ("span", "lookback", "starts")
        for value in (-1, 9, 2**62, 2**64, None, "1", 1.5)
    }
    windows |= {f"{name}=0": lambda a, name=name: replace(a, **{name: 0}) for name in ("span", "lookback", "starts")}
    windows["across=None"] = lambda a: replace(a, across=None)
    counters: Spoilers = {}
    for counter in range(14):
        for value in (-1, 9, 1000, 2**62, 2**63 - 1):
            counters[f"{counter}={value}"] = spoilers.put_in_column(counter, value)
    spoilt = {
        "columns": columns,
        "num_obs": spoilers.whole_numbers(-1, 0, 5, 2**62, 2**64),
        "steps": spoilers.whole_numbers(-1, 0, 9, 2**62, 2**64),
        "counters": counters,
        "window": windows,
    }
    return Call(native.Ring, arguments, spoilt, use)


def ring_call(name: str) -> Call:
    ring, arguments = lived()
    rows = spoilers.indices(STORAGE)
    slots, discounts = drawable(ring), guard(np.ones(3), np.float32)
    discounting = {**spoilers.numbers(), "too many": lambda a: np.ones(ROWS + 2, np.float32), "one": lambda a: a[:1]}
    numbers = {"lanes": guard([2, 0, 1])}
    lanes = {**spoilers.indices(LANES), "a lane twice": lambda a: np.array([2, 0, 2])}
    if name == "write":
        whole = steps_of(3, 2, 16)
        values = spoilers.lists(spoilers.arrays())
        spoilt = {"values": values, "next_values": values, "lanes": lanes}
        return Call(ring.write, whole, {**spoilt, "priority": spoilers.numbers(-1.0, np.nan, np.inf, -np.inf)})
    three = guard([1, 2, 3], np.int32)
    counted = spoilers.integers(-1, 4, 2**31 - 1, -(2**31))
    reward = arguments["columns"][2].array
    folds = {"steps": three, "gammas": guard(np.ones(4), np.float64)}
    calls: dict[str, tuple[dict[str, Any], dict[str, Spoilers]]] = {
        "cut": (numbers, {"lanes": lanes}),
        "limit": ({"limits": guard(np.full(LANES, 2**62))}, {}),
        "allow": ({"lanes": guard(np.ones(LANES), np.uint8)}, {}),
        "look": ({}, {}),
        "snapshot": ({}, {}),
        "sums": ({}, {}),
        "forget_sums": ({}, {}),
        "overtaken": ({"ids": guard([5, 6, 40])}, {"ids": rows}),
        "changes": ({"seen": guard(np.zeros((LANES, 3)))}, {"seen": spoilers.integers(-1, 2**62, 2**63 - 1, -(2**63))}),
        "ids": ({"slots": slots}, {"slots": spoilers.indices(LANES * ROWS)}),
        "drawable": ({}, {}),
        "locate": ({"ids": guard([5, 6, 40])}, {"ids": rows}),
        "standing": ({"ids": guard([5, 6, 40])}, {"ids": rows}),
        "follow": ({"ids": guard([5, 6, 40]), "steps": guard([2, -2, 0])}, {"ids": rows, "steps": rows}),
        "stacks": (
            {"newest": guard([1, 2, 3]), "frames": 3, "repeat": True},
            {"newest": rows, "frames": spoilers.whole_numbers(-1, 0, 11, 2**62, 2**64)},
        ),
        "windows": (
            {"slots": slots, "discounts": discounts},
            {"slots": spoilers.indices(LANES * ROWS), "discounts": discounting},
        ),
        "around": (
            {"slots": slots, "offsets": guard([-1, 0, 1]), "repeat": True},
            {"slots": spoilers.indices(LANES * ROWS), "offsets": spoilers.integers(-2, ROWS, 2**63 - 1, -(2**63))},
        ),
        "fold": ({"column": reward, "starts": guard([1, 2, 8]), **folds}, {"starts": rows, "steps": counted}),
        "chunks": (
            {"column": reward, "starts": guard([1, 2, 8]), "steps": folds["steps"], "length": 4},
            {"starts": rows, "steps": counted, "length": spoilers.whole_numbers(-1, 0, 1, 11, 2**62, 2**64)},
        ),
        "fold_sequences": (
            {
                "rewards": guard(np.ones((2, 8)), np.float32),
                **folds,
                "steps": guard(np.full((2, 5), 2), np.int32),
                "time_major": False,
            },
            {"steps": counted},
        ),
        "admit": ({"from_": guard(np.full(LANES, 2)), "until": guard(np.full(LANES, 3))}, {}),
        "took": ({"until": guard(np.full(LANES, 3)), "outrun": True}, {}),
        "partial": ({"value": True}, {}),
        "watched": ({"value": 3}, {"value": spoilers.whole_numbers(-1, 256, 2**62, 2**64)}),
        **{each: ({}, {}) for each in READ_ONLY},
        "enough_ends": ({"value": 20}, {"value": spoilers.whole_numbers(2**64)}),
    }
    given, spoilt = calls[name]
    ring.look()
    properties = ("watched", "enough_ends", "partial")
    function = getattr(ring, name) if name not in properties else lambda value: setattr(ring, name, value)
    function = (lambda: getattr(ring, name)) if name in READ_ONLY else function
    return Call(function, given, spoilt)


def adding_arguments() -> dict[str, Any]:
    ring, _ = lived()

    def otherwise(**named: Any) -> None:
        """What the native call leaves to Python."""

    arguments = {"ring": ring, "lock": native.Lock(), "coerce": refuse, "refresh": list, "fallback": otherwise}
    return {**arguments, "several": False, "room": guard(np.full(1, 100))}


def refuse(*arguments: Any) -> None:
    raise ValueError


def make_adding() -> Call:
    return Call(native.adding, adding_arguments(), {})


def add_call(several: bool) -> Call:
    """Any value may come here: what is not legal is left to Python."""
    length = 2 if several else 1
    whole = steps_of(3, length, 16)

    def given(values: np.ndarray) -> np.ndarray:
        return guard(values if several else values[:, 0], values.dtype)

    obs, action, reward, state = (given(value) for value in whole["values"])
    arguments = {
        "obs": obs,
        "action": action,
        "reward": reward,
        "next_obs": given(whole["next_values"][0]),
        "terminated": given(whole["terminated"]),
        "truncated": given(whole["truncated"]),
        "state": state,
        "env_ids": guard([2, 0, 1]),
        "priority": given(whole["priority"]),
    }
    spoilt: dict[str, Spoilers] = {name: spoilers.arrays() for name in arguments}
    spoilt["env_ids"] = {**spoilers.indices(LANES), "a lane twice": lambda a: np.array([2, 0, 2])}
    spoilt["priority"] = spoilers.numbers(-1.0, np.nan, np.inf)
    if several:
        arguments["time_major"], spoilt["time_major"] = False, spoilers.flags()
    made = {**adding_arguments(), "several": several}
    return Call(native.adding(**made), arguments, spoilt)


def gather_call(name: str) -> Call:
    ring, arguments = lived()
    columns = [layout.array for layout in arguments["columns"][:3]]
    gather = native.Gather(columns, [0, 1, 0], False)
    slots = drawable(ring)
    rows, outs = [guard([1, 2, 26]), guard([4, 2, 3])], [guard(column[:3], column.dtype) for column in columns]
    listed = spoilers.lists(spoilers.indices(STORAGE + 1))
    calls: dict[str, tuple[dict[str, Any], dict[str, Spoilers]]] = {
        "take": ({"rows": rows, "outs": outs}, {"rows": listed}),
        "taken": ({"rows": rows}, {"rows": listed}),
        "expand": (
            {
                "ring": ring,
                "slots": slots,
                "discounts": guard(np.ones(3), np.float32),
                "last": False,
                "outs": [guard(column[:6], column.dtype) for column in columns],
            },
            {"slots": spoilers.indices(LANES * ROWS)},
        ),
        "relabelled": (
            {
                "ring": ring,
                "slots": slots,
                "numbers": guard(np.linspace(0, 0.9, 2 * len(slots)).reshape(2, -1), np.float64),
                "ratio": 0.4,
                "n_step": 2,
                "strategy": 2,
            },
            {
                "slots": spoilers.indices(LANES * ROWS),
                "n_step": spoilers.whole_numbers(-1, 0, ROWS + 1, 2**62, 2**64),
                "strategy": spoilers.whole_numbers(-1, 3, 2**62, 2**64),
            },
        ),
        "unroll": (
            {
                "ring": ring,
                "slots": slots,
                "length": 4,
                "discounts": guard(np.ones(3), np.float32),
                "time_major": True,
                "listed": True,
                "outs": [guard(column[:6].repeat(6, axis=0), column.dtype) for column in columns],
                "burn_in": 1,
            },
            {
                "slots": spoilers.indices(LANES * ROWS),
                "length": spoilers.whole_numbers(-1, 0, 8, 2**62, 2**63 - 1, 2**64),
                "burn_in": spoilers.whole_numbers(-1, 2, 4, 2**62, 2**63 - 1, 2**64),
            },
        ),
    }
    given, spoilt = calls[name]
    return Call(getattr(gather, name), given, spoilt)


def make_gather() -> Call:
    _, arguments = lived()
    columns = [layout.array for layout in arguments["columns"][:3]]
    picks = spoilers.lists(
        {"-1": lambda a: -1, "None": lambda a: None, "text": lambda a: "1", "2**64": lambda a: 2**64}
    )
    spoilt = {"picks": picks}

    def then(gather: Any) -> None:
        gather.taken([np.arange(3), np.arange(3)])

    return Call(native.Gather, {"columns": columns, "picks": [0, 1, 0], "mapped": False}, spoilt, then)
