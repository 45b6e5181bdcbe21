"""Synthetic environments and the experience they produce: schemas, observations, ends, cuts.

Every observation encodes its lane and a serial number that never repeats, so an item that mixes lanes, episodes or laps
shows in its bytes. Floating observations hold a NaN now and then, and a zero whose sign a cut may flip: two
observations that compare equal and are not the same bytes. Frames of stacks are now and then all zero, or the one
before once more, so that a given frame and padding can look alike.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._types import Array, Int64
from ..schema import Field as F
from ..schema import Schema
from .frames import Nested, Stack, shift, stacked, stacks_of, start, tree_map
from .oracle import OracleBuffer, Step

SCHEMAS: dict[str, Schema] = {
    "flat": Schema(obs=F((3,)), action=F((), "int64")),
    "nested": Schema(
        obs={"a": F((2,)), "b": {"c": F((), "int64"), "d": F((1, 2), "float64")}},
        action={"move": F((2,), "float64"), "press": F((), "bool")},
        reward=F((2,), "float64"),
        log_prob=F(),
        note={"x": F((2, 2), "uint8"), "y": F((), "int16")},
    ),
    "bytes": Schema(obs=F((2, 3), "uint8"), action=F((), "int32"), seen=F((), "bool")),
    "scalar": Schema(obs=F((), "float64"), action=F((5,), "float16")),
    # Sizes around those at which a copy may take another path: words, cache lines, and fields kept apart from the rest.
    "wide": Schema(
        obs={"image": F((7, 31), "uint8"), "line": F((16,)), "odd": F((65,), "uint8")},
        action=F((33,)),
        hidden=F((17,), "float64"),
        word=F((9,), "uint8"),
    ),
    "image": Schema(obs=F((3, 43), "uint8"), action=F((128,), "int8"), depth=F((5, 131), "uint8")),
    "frames": Schema(obs=F((2, 3), "uint8", stack=4), action=F((), "int64")),
    "first": Schema(obs=F((3, 2), stack=3, pad="first", stack_axis=-1), action=F((2,))),
    "mixed": Schema(
        obs={
            "camera": F((3, 47), "uint8", stack=4, pad="first", stack_axis=-1),
            "depth": F((2,), stack=2),
            "pose": F((3,), "float64"),
            "touch": F((), "int16", stack=3, stack_axis=-1),
        },
        action={"move": F((2,), "float64"), "press": F((), "bool")},
        log_prob=F(),
    ),
    "single": Schema(obs=F((5,), "uint8", stack=1), action=F((), "int32")),
    "large": Schema(obs={"a": F((11, 13), "uint8", stack=2), "b": F((31,), "float64", stack=3)}, action=F((), "int64")),
}
# How a step ends its episode.
GO, TERMINATED, TRUNCATED, BOTH = range(4)
# The next observation follows; is the start of something else; or the start with older frames that are no padding;
# flips a zero's sign; has another older frame; or `next_obs` itself has nothing to do with what stood before it.
STAY, JUMP, MIDWAY, SIGN, OLDER, UNRELATED = range(6)


def encode(fields: Any, name: str, lane: int, serial: int) -> Nested:
    """A value for every field that no other (lane, serial) shares, within what the dtype can tell apart."""
    if isinstance(fields, dict):
        return {key: encode(child, f"{name}.{key}", lane, serial) for key, child in fields.items()}
    index = np.arange(int(np.prod(fields.shape, dtype=int)))
    kind = fields.dtype.kind
    value: Array
    if kind == "b":
        value = (serial + lane + index) % 2 == 0
    elif kind == "f":
        value = (lane * 512 + serial % 512) + index * 0.25
        if len(index) > 1:
            value[-1] = 0.0
            if serial % 13 == 5:
                value[0] = np.nan
    else:
        value = serial * 5 + lane * 101 + index * 17 + zlib.crc32(name.encode()) % 97
        value = value % 251 if fields.dtype.itemsize == 1 else value
    return value.reshape(fields.shape).astype(fields.dtype)


def _flipped(value: Array) -> Array:
    """The same numbers with other signs of their zeros."""
    return np.where(value == 0, -value, value) if value.dtype.kind == "f" else value


def _with_older(which: int, stack: Stack | None, value: Array, frame: Array) -> Array:
    """A stack with another frame in place of one of its older ones."""
    if stack is None or stack.k == 1:
        return value
    changed = np.moveaxis(value.copy(), stack.axis, 0)
    changed[which % (stack.k - 1)] = frame
    return np.ascontiguousarray(np.moveaxis(changed, 0, stack.axis))


@dataclass(frozen=True)
class Script:
    """What happens at each step of a call; short lists repeat.

    Args:
        flags: How steps end their episode: `GO` (not at all), `TERMINATED`, `TRUNCATED`, `BOTH`.
        moves: What the next observation is: `STAY` (it follows), or one that cuts the stream.
        give_next: Whether `next_obs` is given.
        priorities: Raw priorities of the steps; None: none are given.

    >>> Script(flags=[GO, GO, TERMINATED], moves=[STAY], give_next=True).at(2)
    (1, 0, None)
    """

    flags: list[int]
    moves: list[int]
    give_next: bool
    priorities: list[float] | None = None

    def at(self, k: int) -> tuple[int, int, float | None]:
        """Flag, move and priority of the k-th step."""
        given = None if self.priorities is None else self.priorities[k % len(self.priorities)]
        return self.flags[k % len(self.flags)], self.moves[k % len(self.moves)], given


class SyntheticEnvs:
    """One environment a lane, whose steps go to a buffer and to its oracle alike.

    >>> from relive.testing import OracleBuffer, oracle_items
    >>> envs = SyntheticEnvs(SCHEMAS["flat"], num_envs=2)
    >>> oracle = OracleBuffer(2, 10, oracle_items.Transitions(n=1, gamma=0.9))
    >>> arguments, ids = envs.rollout(oracle, lanes=[0, 1], steps=3, script=Script([GO], [STAY], give_next=True))
    >>> arguments["obs"].shape, ids.tolist()
    ((2, 3, 3), [[0, 2, 4], [1, 3, 5]])
    """

    def __init__(self, schema: Schema, num_envs: int) -> None:
        self.fields = schema.tree
        self.stacks = stacks_of(self.fields["obs"])
        self.extras = [name for name in self.fields if name not in ("obs", "action", "reward")]
        self.clock = 0
        self.current = [self.begin(lane) for lane in range(num_envs)]

    def rollout(
        self, oracle: OracleBuffer, lanes: list[int], steps: int, script: Script
    ) -> tuple[dict[str, Any], Int64]:
        """Let `lanes` go `steps` steps each; returns the arguments of `extend`, `[L, T, ...]`, and the oracle's ids."""
        rows, ids = [], np.empty((len(lanes), steps), np.int64)
        for i, lane in enumerate(lanes):
            taken = []
            for t in range(steps):
                flag, move, priority = script.at(i * steps + t)
                record, final, arguments = self.step(lane, flag, move, script.give_next, priority)
                ids[i, t] = oracle.add(lane, record, final)
                taken.append(arguments)
            rows.append(stacked(taken))
        oracle.refresh()
        return stacked(rows), ids

    def step(
        self, lane: int, flag: int, move: int, give_next: bool, priority: float | None
    ) -> tuple[Step, Nested | None, dict[str, Any]]:
        """One step of one lane: the oracle's record, its `next_obs`, and the arguments of `add`."""
        obs, serial = self.current[lane], self.tick()
        after = self.begin(lane, midway=True) if move == UNRELATED else self.following(lane, obs)
        if flag == GO:
            self.current[lane] = self.moved(lane, after, move)
        else:
            self.current[lane] = self.begin(lane, midway=move == MIDWAY)
        arguments: dict[str, Any] = {
            "obs": obs,
            "action": encode(self.fields["action"], "action", lane, serial),
            "reward": self.reward(lane, serial),
            "terminated": np.bool_(flag in (TERMINATED, BOTH)),
            "truncated": np.bool_(flag in (TRUNCATED, BOTH)),
            **{name: encode(self.fields[name], name, lane, serial) for name in self.extras},
        }
        record = Step(
            row=-1,
            obs=obs,
            action=arguments["action"],
            reward=arguments["reward"].astype(np.float64),
            terminated=bool(arguments["terminated"]),
            truncated=bool(arguments["truncated"]),
            extras={name: arguments[name] for name in self.extras},
            priority=priority,
        )
        if give_next:
            arguments["next_obs"] = after
        if priority is not None:
            arguments["priority"] = np.float64(priority)
        return record, after if give_next else None, arguments

    def begin(self, lane: int, midway: bool = False) -> Nested:
        """The first observation of an episode; `midway`, with some older frames that are no padding."""
        obs = self.over_stacks(start, self.frame(lane))
        for _ in range(1 + self.tick() % 3 if midway else 0):
            obs = self.following(lane, obs)
        return obs

    def following(self, lane: int, obs: Nested) -> Nested:
        """The observation that follows `obs`."""
        serial = self.tick()
        after = self.over_stacks(shift, obs, self.frame(lane))
        if serial % 11 == 3:  # a black frame, as padding is
            return self.over_stacks(shift, obs, tree_map(np.zeros_like, self.frame(lane)))
        if serial % 11 == 7:  # nothing moved
            return self.over_stacks(lambda s, o, a: a if s is None else shift(s, o, o.take(-1, s.axis)), obs, after)
        return after

    def moved(self, lane: int, after: Nested, move: int) -> Nested:
        """What the next observation is, when `after` would follow."""
        if move in (JUMP, MIDWAY):
            return self.begin(lane, move == MIDWAY)
        if move == SIGN:
            return tree_map(_flipped, after)
        if move == OLDER:
            serial = self.tick()
            return self.over_stacks(lambda *leaf: _with_older(serial, *leaf), after, self.frame(lane))
        return after

    def tick(self) -> int:
        """A serial number that was never used."""
        self.clock += 1
        return self.clock

    def frame(self, lane: int) -> Nested:
        """One frame of every observation field."""
        return encode(self.fields["obs"], "obs", lane, self.tick())

    def reward(self, lane: int, serial: int) -> Array:
        """One number, or several that differ."""
        field: Any = self.fields["reward"]
        first = ((serial * 37 + lane * 5) % 33 - 16) / 8
        value: Array = np.asarray(first + np.arange(int(np.prod(field.shape))))
        return value.reshape(field.shape).astype(field.dtype)

    def over_stacks(self, function: Any, *trees: Nested) -> Nested:
        """Apply `function(stack, ...)` to the leaves of an observation."""

        def walk(stacks: Any, *values: Any) -> Any:
            if isinstance(stacks, dict):
                return {name: walk(stacks[name], *(value[name] for value in values)) for name in stacks}
            return function(stacks, *values)

        return walk(self.stacks, *trees)
