"""Sequences across episodes of all lengths are the same by both kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from back_ends import HAS_NATIVE

import relive
from relive._ring import kernels

pytestmark = [
    pytest.mark.skipif(not HAS_NATIVE, reason="there is no extension"),
    pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning"),
]
SCHEMA = relive.Schema(
    obs=relive.Field(17), action=relive.Field(6), goal=relive.Field(3, "int16"), state=relive.Field(2, every=2)
)


def drawn(kernel: str, lanes: int, **choices: Any) -> list[tuple[str, bytes]]:
    """Return what draws hold while lanes of short and long episodes, of which some are cut, go round."""
    item = relive.Sequences(21, starts=2, gamma=0.9, across_episodes=True, step_ids=True, **choices)
    found, random = [], np.random.default_rng(0)
    with kernels.use(kernel):
        buffer = relive.ReplayBuffer(SCHEMA, 150 * lanes, num_envs=lanes, item=item, boundaries=1.0, seed=0)

    def some(dtype: str, width: int) -> Any:
        return random.integers(1, 99, (lanes, width)).astype(dtype)

    obs = some("f4", 17)
    for time in range(300):
        ends = random.random((2, lanes)) < (0.0, 0.02, 0.2, 0.9)[time // 30 % 4]
        flags = {"terminated": ends[0], "truncated": ends[1] & ~ends[0]}
        final, new = np.where(ends.any(0)[:, None], some("f4", 17), 0), some("f4", 17)
        values = {"obs": obs, "action": some("f4", 6), "goal": some("i2", 3), "state": some("f4", 2)}
        buffer.add(**values, reward=obs[:, 0], next_obs=np.where(final > 0, final, new), **flags)
        obs = new
        if time % 37 == 0:
            buffer.cut(np.array([time % lanes]))
        if time > 100 and time % 23 == 0:
            for size in (1, 40):
                batch = buffer.sample(size)
                found += [(name, np.ascontiguousarray(batch[name]).tobytes()) for name in batch]
    return found


@pytest.mark.parametrize(("lanes", "n_step", "time_major"), [(1, 1, False), (1, 4, True), (3, 4, False), (3, 1, True)])
def test_both_kernels_give_the_same(lanes: int, n_step: int, time_major: bool) -> None:
    choices = {"n_step": n_step, "time_major": time_major}
    assert drawn("native", lanes, **choices) == drawn("numpy", lanes, **choices)
