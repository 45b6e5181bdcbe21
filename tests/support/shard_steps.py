"""Shards of environments that count: every step says of which lane and time it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from local import Local, local_shards

import relive
from relive.ray.shards import Shards

SCHEMA = relive.Schema(obs=relive.Field((2,), "int64"), action=relive.Field())
LANES, ROWS, STEP = 6, 64, np.array([0, 1])


class Counting:
    """Environments whose observation is the lane and the step: two steps that follow each other can be told apart."""

    def __init__(self) -> None:
        self.time = np.zeros(LANES, np.int64)

    def step(self, lanes: Any, bare: bool = False) -> dict[str, Any]:
        now = self.time[lanes].copy()
        self.time[lanes] += 1
        ends = np.zeros(len(now), bool)
        obs = np.stack([np.asarray(lanes), now], axis=1)
        step = {"obs": obs, "action": now * 1.0, "reward": now * 1.0, "terminated": ends, "truncated": ends}
        return step if bare else step | {"next_obs": obs + STEP}


def made(**choices: Any) -> tuple[Shards, Local]:
    choices = {"sampler": relive.Prioritized(alpha=1.0, eps=0.0, weights="none", beta=1.0), "shards": 3, **choices}
    return local_shards(SCHEMA, choices.pop("capacity", LANES * ROWS), num_envs=LANES, **choices)


def filled(shards: Shards, steps: int = 20, envs: Counting | None = None) -> Counting:
    envs = envs or Counting()
    with shards.writer() as writer:
        for _ in range(steps):
            writer.add(**envs.step(np.arange(LANES)))
    return envs


def check_items(batch: relive.Batch) -> None:
    np.testing.assert_array_equal(batch.next_obs, batch.obs + STEP)
    np.testing.assert_array_equal(batch.obs[:, 0], batch.ids % LANES)
    np.testing.assert_array_equal(batch.reward, batch.obs[:, 1])


# Draws.
