"""Environments that do all that a stream can do: frames that look like padding, cuts that compare equal."""

from __future__ import annotations

from typing import Any

import numpy as np

from relive import Schema
from relive._base.nests import mapped
from relive.schema import Field as F
from relive.testing import JUMP, STAY, SyntheticEnvs
from relive.testing import SCHEMAS as SHIPPED
from relive.testing.nests import Nested
from relive.testing.synthetic import shift

SCHEMAS: dict[str, Schema] = {
    **{name: schema for name, schema in SHIPPED.items() if name != "stacked"},
    "bytes": Schema(obs=F((2, 3), "uint8"), action=F((), "int32"), seen=F((), "bool")),
    "scalar": Schema(obs=F((), "float64"), action=F((5,), "float16")),
    "image": Schema(obs=F((3, 43), "uint8"), action=F((128,), "int8"), depth=F((5, 131), "uint8")),
    "frames": Schema(obs=F((2, 3), "uint8", stack=4), action=F((), "int64")),
    "first": Schema(obs=F((3, 2), stack=3, pad="first", stack_axis=-1), action=F((2,))),
    "mixed": Schema(
        obs={**SHIPPED["stacked"].tree["obs"], "touch": F((), "int16", stack=3, stack_axis=-1)},
        action=SHIPPED["stacked"].tree["action"],
        log_prob=F(),
    ),
    "single": Schema(obs=F((5,), "uint8", stack=1), action=F((), "int32")),
    "large": Schema(obs={"a": F((11, 13), "uint8", stack=2), "b": F((31,), "float64", stack=3)}, action=F((), "int64")),
}
# Besides `STAY` and `JUMP`, the next observation may be a start with older frames that are no padding; flip a zero's
# sign; have another older frame; or `next_obs` itself has nothing to do with what stood before it.
MIDWAY, SIGN, OLDER, UNRELATED = range(2, 6)
CUTS = (JUMP, MIDWAY, SIGN, OLDER, UNRELATED)


class WildEnvs(SyntheticEnvs):
    """Frames are now and then all zero, or the one before once more, so that frames and padding can look alike."""

    def following(self, lane: int, obs: Nested) -> Nested:
        serial = self.tick()
        frame = self.frame(lane)
        if serial % 11 == 3:  # a black frame, as padding is
            frame = mapped(np.zeros_like, frame)
        if serial % 11 != 7:
            return self.over_fields(shift, obs, frame)
        return self.over_fields(  # nothing moved
            lambda f, o, a: shift(f, o, a if f.stack is None else o.take(-1, f.stack_axis)), obs, frame
        )

    def midway(self, lane: int) -> Nested:
        """Make an observation as in mid-episode."""
        obs = self.begin(lane)
        for _ in range(1 + self.tick() % 3):
            obs = self.following(lane, obs)
        return obs

    def after(self, lane: int, obs: Nested, move: int) -> Nested:
        return self.midway(lane) if move == UNRELATED else super().after(lane, obs, move)

    def restarted(self, lane: int, move: int) -> Nested:
        return self.midway(lane) if move == MIDWAY else self.begin(lane)

    def moved(self, lane: int, after: Nested, move: int) -> Nested:
        if move == SIGN:
            return mapped(
                lambda value: np.where(value == 0, -value, value) if value.dtype.kind == "f" else value, after
            )
        if move == OLDER:
            serial = self.tick()
            return self.over_fields(lambda *leaf: with_older(serial, *leaf), after, self.frame(lane))
        return self.restarted(lane, move) if move in (JUMP, MIDWAY) else super().moved(lane, after, STAY)


def with_older(which: int, field: Any, value: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """Replace one of a stack's older frames by another frame."""
    if field.stack in (None, 1):
        return value
    changed = np.moveaxis(value.copy(), field.stack_axis, 0)
    changed[which % (field.stack - 1)] = frame
    return np.ascontiguousarray(np.moveaxis(changed, 0, field.stack_axis))
