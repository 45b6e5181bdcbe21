"""Environments that make up experience for the property tests: schemas, observations, and what becomes of them.

Every observation encodes its lane and a serial number that never repeats, so an item that mixes lanes, episodes or laps
shows in its bytes. Floating observations hold a NaN now and then, and a zero whose sign a "cut" may flip: two
observations that compare equal and are not the same bytes. Frames of stacks are now and then all zero, or the one
before once more, so that what was given and what padding makes can look alike.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from oracle import OracleBuffer, Step
from oracle_items import stacked
from oracle_stacks import Stack, shift, start, tree_map

import relive

F = relive.Field
SCHEMAS: dict[str, dict[str, Any]] = {
    "flat": {"obs": F((3,), "float32"), "action": F((), "int64")},
    "nested": {
        "obs": {"a": F((2,), "float32"), "b": {"c": F((), "int64"), "d": F((1, 2), "float64")}},
        "action": {"move": F((2,), "float64"), "press": F((), "bool")},
        "reward": F((2,), "float64"),
        "log_prob": F((), "float32"),
        "note": {"x": F((2, 2), "uint8"), "y": F((), "int16")},
    },
    "bytes": {"obs": F((2, 3), "uint8"), "action": F((), "int32"), "seen": F((), "bool")},
    "scalar": {"obs": F((), "float64"), "action": F((5,), "float16")},
    # Sizes around those at which a copy may take another path: words, cache lines, and fields kept apart from the rest.
    "wide": {
        "obs": {"image": F((7, 31), "uint8"), "line": F((16,), "float32"), "odd": F((65,), "uint8")},
        "action": F((33,), "float32"),
        "hidden": F((17,), "float64"),
        "word": F((9,), "uint8"),
    },
    "image": {"obs": F((3, 43), "uint8"), "action": F((128,), "int8"), "depth": F((5, 131), "uint8")},
    "frames": {"obs": F((2, 3), "uint8", stack=4), "action": F((), "int64")},
    "first": {"obs": F((3, 2), "float32", stack=3, pad="first", stack_axis=-1), "action": F((2,), "float32")},
    "mixed": {
        "obs": {
            "camera": F((3, 47), "uint8", stack=4, pad="first", stack_axis=-1),
            "depth": F((2,), "float32", stack=2),
            "pose": F((3,), "float64"),
            "touch": F((), "int16", stack=3, stack_axis=-1),
        },
        "action": {"move": F((2,), "float64"), "press": F((), "bool")},
        "log_prob": F((), "float32"),
    },
    "single": {"obs": F((5,), "uint8", stack=1), "action": F((), "int32")},
    "large": {"obs": {"a": F((11, 13), "uint8", stack=2), "b": F((31,), "float64", stack=3)}, "action": F((), "int64")},
}
GO, TERMINATED, TRUNCATED, BOTH = range(4)
# The next observation follows; is the start of something else; or the start with older frames that are no padding;
# flips a zero's sign; has another older frame; or `next_obs` itself has nothing to do with what stood before it.
STAY, JUMP, MIDWAY, SIGN, OLDER, UNRELATED = range(6)


def stacks_of(spec: Any) -> Any:
    """The model's stacks of an observation's fields."""
    if isinstance(spec, dict):
        return {name: stacks_of(child) for name, child in spec.items()}
    return None if spec.stack is None else Stack(spec.stack, spec.pad, spec.stack_axis)


def encode(spec: Any, name: str, lane: int, serial: int, flip: bool = False) -> Any:
    """A value for every field of `spec` that no other (lane, serial) shares, within what the dtype can tell apart."""
    if isinstance(spec, dict):
        return {key: encode(child, f"{name}.{key}", lane, serial, flip) for key, child in spec.items()}
    size = int(np.prod(spec.shape, dtype=int))
    index = np.arange(size)
    kind = spec.dtype.kind
    if kind == "b":
        value = (serial + lane + index) % 2 == 0
    elif kind == "f":
        value = (lane * 512 + serial % 512) + index * 0.25
        if size > 1:
            value[-1] = -0.0 if flip else 0.0
            if serial % 13 == 5:
                value[0] = np.nan
    else:
        value = serial * 5 + lane * 101 + index * 17 + zlib.crc32(name.encode()) % 97
        value = value % 251 if spec.dtype.itemsize == 1 else value
    return np.asarray(value).reshape(spec.shape).astype(spec.dtype)


def flipped(value: np.ndarray) -> np.ndarray:
    """The same numbers with other signs of their zeros."""
    return np.where(value == 0, -value, value) if value.dtype.kind == "f" else value


def with_older(which: int, stack: Stack | None, value: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """A stack with another frame in place of one of its older ones."""
    if stack is None or stack.k == 1:
        return value
    changed = np.moveaxis(value.copy(), stack.axis, 0)
    changed[which % (stack.k - 1)] = frame
    return np.ascontiguousarray(np.moveaxis(changed, 0, stack.axis))


@dataclass
class Script:
    """What happens at each step of a call; short lists repeat."""

    flags: list[int]
    moves: list[int]
    give_next: bool
    priorities: list[float] | None = None

    def at(self, k: int) -> tuple[int, int, float | None]:
        """Flag, move and priority of the k-th step."""
        given = None if self.priorities is None else self.priorities[k % len(self.priorities)]
        return self.flags[k % len(self.flags)], self.moves[k % len(self.moves)], given


@dataclass
class World:
    """One environment a lane: its present observation, and a clock of serial numbers for all."""

    spec: dict[str, Any]
    num_envs: int
    clock: int = 0
    current: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stacks = stacks_of(self.spec["obs"])
        self.extras = [name for name in self.spec if name not in ("obs", "action", "reward")]
        self.current = [self.begin(lane) for lane in range(self.num_envs)]

    def tick(self) -> int:
        """A serial number that was never used."""
        self.clock += 1
        return self.clock

    def begin(self, lane: int, midway: bool = False) -> Any:
        """The first observation of an episode; `midway`, with some older frames that are no padding."""
        obs = self.over_stacks(start, self.frame(lane))
        for _ in range(1 + self.tick() % 3 if midway else 0):
            obs = self.next(lane, obs)
        return obs

    def next(self, lane: int, obs: Any) -> Any:
        """The observation that follows `obs`."""
        serial = self.tick()
        after = self.over_stacks(shift, obs, self.frame(lane))
        if serial % 11 == 3:  # a black frame, as padding is
            return self.over_stacks(shift, obs, tree_map(np.zeros_like, self.frame(lane)))
        if serial % 11 == 7:  # nothing moved
            return self.over_stacks(lambda stack, o, a: a if stack is None else shift(stack, o, o.take(-1, stack.axis)),
                                    obs, after)  # fmt: skip
        return after

    def frame(self, lane: int) -> Any:
        """One frame of every field."""
        return encode(self.spec["obs"], "obs", lane, self.tick())

    def over_stacks(self, function: Any, *trees: Any) -> Any:
        """Apply `function(stack, ...)` to the leaves of an observation."""

        def walk(stacks: Any, *values: Any) -> Any:
            if isinstance(stacks, dict):
                return {name: walk(stacks[name], *(value[name] for value in values)) for name in stacks}
            return function(stacks, *values)

        return walk(self.stacks, *trees)

    def moved(self, lane: int, obs: Any, after: Any, move: int) -> Any:
        """What the next observation is, when `after` follows `obs`."""
        if move in (JUMP, MIDWAY):
            return self.begin(lane, move == MIDWAY)
        if move == SIGN:
            return tree_map(flipped, after)
        if move == OLDER:
            serial = self.tick()
            return self.over_stacks(lambda *leaf: with_older(serial, *leaf), after, self.frame(lane))
        return after

    def step(self, lane: int, flag: int, move: int, give_next: bool, priority: float | None) -> tuple[Step, Any, dict]:
        """Let one lane live one step: the model's record, its final observation, and what `add` is told."""
        obs, serial = self.current[lane], self.tick()
        after = self.begin(lane, midway=True) if move == UNRELATED else self.next(lane, obs)
        if flag == GO:
            self.current[lane] = self.moved(lane, obs, after, move)
        else:
            self.current[lane] = self.begin(lane, midway=move == MIDWAY)
        told = {
            "obs": obs,
            "action": encode(self.spec["action"], "action", lane, serial),
            "reward": self.reward(lane, serial),
            "terminated": np.bool_(flag in (TERMINATED, BOTH)),
            "truncated": np.bool_(flag in (TRUNCATED, BOTH)),
            **{name: encode(self.spec[name], name, lane, serial) for name in self.extras},
        }
        record = Step(
            row=-1,
            obs=obs,
            action=told["action"],
            reward=told["reward"].astype(np.float64),
            terminated=bool(told["terminated"]),
            truncated=bool(told["truncated"]),
            extras={name: told[name] for name in self.extras},
            priority=priority,
        )
        if give_next:
            told["next_obs"] = after
        if priority is not None:
            told["priority"] = np.float64(priority)
        return record, after if give_next else None, told

    def reward(self, lane: int, serial: int) -> np.ndarray:
        """One number, or several that differ."""
        spec = self.spec.get("reward", F())
        first = ((serial * 37 + lane * 5) % 33 - 16) / 8
        return np.asarray(first + np.arange(int(np.prod(spec.shape)))).reshape(spec.shape).astype(spec.dtype)

    def live(self, oracle: OracleBuffer, lanes: list[int], steps: int, script: Script) -> tuple[dict, np.ndarray]:
        """Let `lanes` live `steps` steps each; returns the arguments `[L, T, ...]` and the ids the model gives."""
        rows, ids = [], np.empty((len(lanes), steps), np.int64)
        for i, lane in enumerate(lanes):
            told_lane = []
            for t in range(steps):
                flag, move, priority = script.at(i * steps + t)
                record, final, told = self.step(lane, flag, move, script.give_next, priority)
                ids[i, t] = oracle.add(lane, record, final)
                told_lane.append(told)
            rows.append(stacked(told_lane))
        oracle.refresh()
        return stacked(rows), ids
