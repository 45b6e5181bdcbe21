"""Buffers whose observations count the steps of a lane."""

from __future__ import annotations

from typing import Any

import numpy as np

import relive

SCHEMA = relive.Schema(obs=relive.Field((), "int64"), action=relive.Field((), "bool"))


def make(sampler: object, lanes: int = 1, rows: int = 40, **choices: Any) -> relive.ReplayBuffer:
    """Make an empty buffer, whose lanes keep `rows` steps."""
    return relive.ReplayBuffer(SCHEMA, rows * lanes, num_envs=lanes, sampler=sampler, **{"seed": 0, **choices})


def extend(
    buffer: relive.ReplayBuffer, n: int, lane: int = 0, start: int = 0, ends: Any = None, priority: Any = None
) -> np.ndarray:
    """Add `n` steps to a lane, whose observations count up from `start`; return their ids."""
    serial, off = start + np.arange(n)[None], np.zeros((1, n), bool)
    step = {"obs": serial, "action": off, "reward": serial, "next_obs": serial + 1, "truncated": off}
    given = None if priority is None else np.asarray(priority, float)[None]
    terminated = off if ends is None else ends[None]
    return buffer.extend(**step, terminated=terminated, env_ids=[lane], priority=given)[0]
