"""Synthetic environments and the experience they produce: schemas, observations, ends, cuts.

Every observation encodes its lane and a serial number that never repeats, so an item that mixes lanes, episodes or laps
shows in its bytes. Floating observations hold a NaN now and then, and a zero.
"""

from __future__ import annotations

import functools
import math
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._base.nests import located, zipped
from .._base.types import Array
from ..schema import Field as F
from ..schema import Schema
from .nests import Nested, stacked

SCHEMAS: dict[str, Schema] = {
    "flat": Schema(obs=F((3,)), action=F((), "int64")),
    "nested": Schema(
        obs={"a": F((2,)), "b": {"c": F((), "int64"), "d": F((1, 2), "float64")}},
        action={"move": F((2,), "float64"), "press": F((), "bool")},
        reward=F((2,), "float64"),
        log_prob=F(),
        note={"x": F((2, 2), "uint8"), "y": F((), "int16")},
    ),
    # Sizes around those at which a copy may take another path: words, cache lines, and fields kept apart from the rest.
    "wide": Schema(
        obs={"image": F((7, 31), "uint8"), "line": F((16,)), "odd": F((65,), "uint8")},
        action=F((33,)),
        hidden=F((17,), "float64"),
        word=F((9,), "uint8"),
    ),
    "stacked": Schema(
        obs={
            "camera": F((3, 47), "uint8", stack=4, pad="first", stack_axis=-1),
            "depth": F((2,), stack=2),
            "pose": F((3,), "float64"),
        },
        action={"move": F((2,), "float64"), "press": F((), "bool")},
        log_prob=F(),
    ),
}
# How a step ends its episode.
GO, TERMINATED, TRUNCATED, BOTH = range(4)
# The next observation follows, or is the start of something else.
STAY, JUMP = range(2)


def encode(fields: Any, name: str, lane: int, serial: int) -> Nested:
    """Make a value for every field that no other (lane, serial) shares, within the resolution of the dtype."""
    return located(lambda field, at: _encoded(field, at, lane, serial), fields, name)


@functools.lru_cache(maxsize=1 << 15)  # each new stream counts its serials from one
def _encoded(field: F, name: str, lane: int, serial: int) -> Array:
    index = np.arange(math.prod(field.shape))
    kind = field.dtype.kind
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
        value = value % 251 if field.dtype.itemsize == 1 else value
    value = value.reshape(field.shape).astype(field.dtype)
    value.flags.writeable = False
    return value


def start(field: F, frame: Array) -> Array:
    """Make the first observation of an episode: one frame after padding."""
    if field.stack is None:
        return frame
    older = frame if field.pad == "first" else np.zeros_like(frame)
    return np.stack([older] * (field.stack - 1) + [frame], axis=field.stack_axis)


def shift(field: F, before: Array, frame: Array) -> Array:
    """Return the stack after `before` when `frame` has come."""
    if field.stack is None:
        return frame
    frames = [np.take(before, i, axis=field.stack_axis) for i in range(1, field.stack)]
    return np.stack([*frames, frame], axis=field.stack_axis)


@dataclass(frozen=True)
class Script:
    """The events at each step of a call; short lists repeat.

    Args:
        flags: How steps end their episode: `GO` (not at all), `TERMINATED`, `TRUNCATED`, `BOTH`.
        moves: What the next observation is: `STAY` (it follows), or `JUMP` (the stream is cut).
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
    """One environment a lane.

    >>> envs = SyntheticEnvs(SCHEMAS["flat"], num_envs=2)
    >>> steps = envs.rollout(lanes=[0, 1], steps=3, script=Script([GO], [STAY], give_next=True))
    >>> steps["obs"].shape, sorted(steps)
    ((2, 3, 3), ['action', 'next_obs', 'obs', 'reward', 'terminated', 'truncated'])
    """

    def __init__(self, schema: Schema, num_envs: int) -> None:
        self.fields = schema.tree
        self.extras = [name for name in self.fields if name not in ("obs", "action", "reward")]
        self.clock = 0
        self.current = [self.begin(lane) for lane in range(num_envs)]

    def rollout(self, lanes: list[int], steps: int, script: Script) -> dict[str, Any]:
        """Let `lanes` go `steps` steps each; returns the arguments of `extend`, `[L, T, ...]`."""
        rows = [
            stacked([self.step(lane, script.give_next, *script.at(i * steps + t)) for t in range(steps)])
            for i, lane in enumerate(lanes)
        ]
        arguments: dict[str, Any] = stacked(rows)
        return arguments

    def reset(self, lanes: list[int]) -> None:
        """Begin new episodes in mid-episode."""
        for lane in lanes:
            self.current[lane] = self.begin(lane)

    def step(self, lane: int, give_next: bool, flag: int, move: int, priority: float | None) -> dict[str, Any]:
        """Make one step of one lane: the arguments of `add`."""
        obs, serial = self.current[lane], self.tick()
        after = self.after(lane, obs, move)
        self.current[lane] = self.moved(lane, after, move) if flag == GO else self.restarted(lane, move)
        return {
            "obs": obs,
            "action": encode(self.fields["action"], "action", lane, serial),
            "reward": self.reward(lane, serial),
            "terminated": np.bool_(flag in (TERMINATED, BOTH)),
            "truncated": np.bool_(flag in (TRUNCATED, BOTH)),
            **{name: self.extra(name, lane, serial) for name in self.extras},
            **({"next_obs": after} if give_next else {}),
            **({} if priority is None else {"priority": np.float64(priority)}),
        }

    def begin(self, lane: int) -> Nested:
        """Make the first observation of an episode."""
        return self.over_fields(start, self.frame(lane))

    def following(self, lane: int, obs: Nested) -> Nested:
        """Make the observation that follows `obs`."""
        return self.over_fields(shift, obs, self.frame(lane))

    def after(self, lane: int, obs: Nested, move: int) -> Nested:
        """Return `next_obs`."""
        return self.following(lane, obs)

    def moved(self, lane: int, after: Nested, move: int) -> Nested:
        """Return the next observation, when `after` would follow."""
        return after if move == STAY else self.begin(lane)

    def restarted(self, lane: int, move: int) -> Nested:
        """Return the next observation after an episode's end."""
        return self.begin(lane)

    def tick(self) -> int:
        """Return a serial number that was never used."""
        self.clock += 1
        return self.clock

    def frame(self, lane: int) -> Nested:
        """Make one frame of every observation field."""
        return encode(self.fields["obs"], "obs", lane, self.tick())

    def reward(self, lane: int, serial: int) -> Array:
        """Return one number, or several that differ."""
        field: Any = self.fields["reward"]
        first = ((serial * 37 + lane * 5) % 33 - 16) / 8
        value: Array = np.asarray(first + np.arange(math.prod(field.shape)))
        return value.reshape(field.shape).astype(field.dtype)

    def extra(self, name: str, lane: int, serial: int) -> Nested:
        """Return a further field; discounts are quarters from 0 to 1."""
        field = self.fields[name]
        if name == "discount" and isinstance(field, F):
            return np.asarray((serial * 3 + lane) % 5 / 4).astype(field.dtype)
        return encode(field, name, lane, serial)

    def over_fields(self, function: Any, *trees: Nested) -> Nested:
        """Apply `function(field, ...)` to the leaves of an observation."""
        return zipped(function, self.fields["obs"], *trees)
