"""Buffers of wide rows whose every value says which step and lane they are of: a torn one shows."""

from __future__ import annotations

import numpy as np
import pytest

import relive
from relive._ring import kernels

native = pytest.mark.skipif("_native" not in kernels.active().__name__, reason="lanes are published by native kernels")


def make(width: int, rows: int, lanes: int = 2, **choices: object) -> relive.ReplayBuffer:
    schema = relive.Schema(obs=relive.Field((width,)), action=relive.Field((), "int64"))
    choices = {"boundaries": 0, "seed": 0, **choices}
    return relive.ReplayBuffer(schema, rows * lanes, num_envs=lanes, **choices)


def steps(width: int, first: int, count: int, lane: int) -> dict[str, object]:
    """Make arguments of `extend`: step t observes t everywhere, modulo 2**16; its action names step and lane."""
    t = np.arange(first, first + count)[None]
    obs = np.repeat(t[..., None], width, axis=-1)
    off = np.zeros((1, count), bool)
    return {
        "obs": (obs % 2**16).astype(np.float32), "action": t * 100 + lane, "reward": t % 7,
        "next_obs": ((obs + 1) % 2**16).astype(np.float32), "terminated": off, "truncated": off, "env_ids": [lane],
    }  # fmt: skip


def torn(batch: relive.Batch) -> np.ndarray:
    """Mark the items that are not one step and the observation after it, byte for byte."""
    t = batch.action[:, None] // 100
    wrong = (batch.obs != t % 2**16) | (batch.next_obs != (t + batch.steps[:, None]) % 2**16)
    return wrong.any(axis=1)
