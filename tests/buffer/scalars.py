"""Buffers with one number a step, in a stream that counts, and with steps of any schema, in short episodes."""

from __future__ import annotations

from typing import Any

import relive
from relive.testing import GO, STAY, Script, SyntheticEnvs
from relive.testing.synthetic import TERMINATED

SCHEMA = relive.Schema(obs=relive.Field(), action=relive.Field())


def step(t: float = 0.0, **changes: Any) -> dict[str, Any]:
    """Make the arguments of `add` for one lane: the step from t to t + 1, whose reward is t."""
    flags = {"terminated": False, "truncated": False}
    return {"obs": t, "action": 0, "reward": t, "next_obs": t + 1, **flags, **changes}


def lived(steps: int = 50, capacity: int = 100, kind: type = relive.ReplayBuffer, **choices: Any) -> Any:
    """Make a buffer of some class that has these steps."""
    buffer = kind(SCHEMA, capacity, **{"seed": 0, **choices})
    for t in range(steps):
        buffer.add(**step(t))
    return buffer


def rolled(schema: relive.Schema, steps: int, capacity: int, *, lanes: int = 1, length: int = 9, **choices: Any) -> Any:
    """Make a buffer that has these steps a lane, in episodes of one length."""
    buffer = relive.ReplayBuffer(schema, capacity, num_envs=lanes, **{"seed": 0, **choices})
    script = Script([GO] * (length - 1) + [TERMINATED], [STAY], give_next=True)
    buffer.extend(**SyntheticEnvs(schema, lanes).rollout([*range(lanes)], steps, script))
    return buffer
