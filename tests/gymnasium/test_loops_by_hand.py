"""The loops by hand on the page about boundaries store what the recorder stores."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import relive
from relive.gymnasium import Recorder

PAGE = Path(__file__).parents[2] / "docs" / "boundaries.md"
MODES = {mode.name.lower(): mode for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)}
STEPS, ROWS = 150, 600


def loop_of(name: str) -> Any:
    found = re.search(rf"```python\n(def {name}\(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found, name
    scope: dict[str, Any] = {"np": np}
    exec(found[1], scope)
    return scope[name]


def environment(name: str) -> tuple[Any, relive.ReplayBuffer]:
    kwargs = {"vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": MODES[name]}}
    envs = gymnasium.make_vec("CartPole-v1", num_envs=3, **kwargs)
    envs.action_space.seed(0)
    schema = relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space)
    return envs, relive.ReplayBuffer(schema, ROWS * 3, num_envs=3, item=relive.Transitions(n_step=3))


def with_recorder(env: Any, buffer: relive.ReplayBuffer, steps: int) -> None:
    recorder = Recorder(env, buffer)
    recorder.reset(seed=0)
    for _ in range(steps):
        _, _, terminated, truncated, _ = recorder.step(env.action_space.sample())
        ended = np.logical_or(terminated, truncated)
        if ended.any() and env.metadata["autoreset_mode"] == AutoresetMode.DISABLED:
            recorder.reset(options={"reset_mask": ended})


def items(name: str, loop: Any) -> relive.Batch:
    env, buffer = environment(name)
    loop(env, buffer, STEPS)
    assert len(buffer.ids()) > 100
    return buffer.read(buffer.ids())


@pytest.mark.parametrize("name", MODES)
def test_a_loop_stores_what_the_recorder_stores(name: str) -> None:
    by_hand, recorded = items(name, loop_of(name)), items(name, with_recorder)
    assert (by_hand.terminated | by_hand.truncated).sum() > 10
    for field in recorded:
        np.testing.assert_array_equal(by_hand[field], recorded[field], err_msg=field)
