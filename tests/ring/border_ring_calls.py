"""Right calls of the ring and of the kernel that copies rows, and how to spoil them; see `border_calls.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import spoilers
from border_tools import LANES, READ_ONLY, Call, drawable, guard, lived, native, steps_of, use

SET = ("watched", "enough_ends", "partial")


def make_ring() -> Call:
    return Call(native.Ring, {**lived()[1], "busy": guard(np.zeros(LANES), np.uint8)}, use)


def ring_call(name: str) -> Call:
    ring, arguments = lived()
    slots, reward, ids = drawable(ring), arguments["columns"][2].array, guard([5, 6, 40])
    starts, until = guard([1, 2, 8]), guard(np.full(LANES, 3))
    folds = {"steps": guard([1, 2, 3], np.int32), "gammas": guard(np.ones(4), np.float64)}
    calls: dict[str, dict[str, Any]] = {
        "write": steps_of(3, 2, 16),
        "cut": {"lanes": guard([2, 0, 1])},
        "limit": {"limits": guard(np.full(LANES, 2**62))},
        "allow": {"lanes": guard(np.ones(LANES), np.uint8)},
        "overtaken": {"ids": ids},
        "changes": {"seen": guard(np.zeros((LANES, 3)))},
        "ids": {"slots": slots},
        "locate": {"ids": ids},
        "standing": {"ids": ids},
        "follow": {"ids": ids, "steps": guard([2, -2, 0])},
        "stacks": {"newest": guard([1, 2, 3]), "frames": 3, "repeat": True},
        "windows": {"slots": slots, "discounts": guard(np.ones(3), np.float32)},
        "around": {"slots": slots, "offsets": guard([-1, 0, 1]), "repeat": True},
        "fold": {"column": reward, "starts": starts, **folds},
        "chunks": {"column": reward, "starts": starts, "steps": folds["steps"], "length": 4},
        "fold_sequences": {"rewards": guard(np.ones((2, 8)), np.float32), **folds, "time_major": False},
        "admit": {"from_": guard(np.full(LANES, 2)), "until": until},
        "took": {"until": until, "outrun": True},
        "partial": {"value": True},
        "watched": {"value": 3},
        "enough_ends": {"value": 20},
    }
    calls["fold_sequences"]["steps"] = guard(np.full((2, 5), 2), np.int32)
    ring.look()
    function = getattr(ring, name) if name not in SET else lambda value: setattr(ring, name, value)
    return Call((lambda: getattr(ring, name)) if name in READ_ONLY else function, calls.get(name, {}))


def adding_arguments() -> dict[str, Any]:
    ring, _ = lived()

    def otherwise(**named: Any) -> None:
        """What the native call leaves to Python."""

    arguments = {"ring": ring, "lock": native.Lock(), "coerce": refuse, "refresh": list, "fallback": otherwise}
    return {**arguments, "several": False, "room": guard(np.full(1, 100))}


def refuse(*arguments: Any) -> None:
    raise ValueError


def make_adding() -> Call:
    return Call(native.adding, adding_arguments())


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
    spoilt = {name: spoilers.arrays() for name in arguments}
    if several:
        arguments["time_major"], spoilt["time_major"] = False, spoilers.flags()
    return Call(native.adding(**{**adding_arguments(), "several": several}), arguments, spoilt=spoilt)


def gather_call(name: str) -> Call:
    ring, arguments = lived()
    columns = [layout.array for layout in arguments["columns"][:3]]
    gather = native.Gather(columns, [0, 1, 0], False)
    slots = drawable(ring)
    rows, outs = [guard([1, 2, 26]), guard([4, 2, 3])], [guard(column[:3], column.dtype) for column in columns]
    six, ones = {"ring": ring, "slots": slots}, guard(np.ones(3), np.float32)
    of_six = [guard(column[:6], column.dtype) for column in columns]
    unrolled = [guard(column[:6].repeat(6, axis=0), column.dtype) for column in columns]
    uniforms = guard(np.linspace(0, 0.9, 2 * len(slots)).reshape(2, -1), np.float64)
    calls: dict[str, dict[str, Any]] = {
        "take": {"rows": rows, "outs": outs},
        "taken": {"rows": rows},
        "expand": {**six, "discounts": ones, "last": False, "outs": of_six},
        "relabelled": {**six, "numbers": uniforms, "ratio": 0.4, "n_step": 2, "strategy": 2},
        "unroll": {**six, "length": 4, "discounts": ones, "time_major": True, "listed": True, "outs": unrolled}
        | {"burn_in": 1},
    }
    return Call(getattr(gather, name), calls[name])


def make_gather() -> Call:
    columns = [layout.array for layout in lived()[1]["columns"][:3]]

    def then(gather: Any) -> None:
        gather.taken([np.arange(3), np.arange(3)])

    return Call(native.Gather, {"columns": columns, "picks": [0, 1, 0], "mapped": False}, then)
