"""Buffers with one number a step, in a stream that counts: all that most tests of calls need."""

from __future__ import annotations

from typing import Any

import relive

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
