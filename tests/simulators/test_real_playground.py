"""MuJoCo Playground itself, where it is installed: items compared with the same physics stepped without wrappers."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch
from kept_buffer import KeptBuffer
from needs import needs

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = needs("jax")
playground = needs("mujoco_playground")

from relive.simulators import Recorder, schema_of

pytestmark = pytest.mark.slow  # compiles for minutes
LANES, LENGTH = 3, 5


@pytest.mark.parametrize("full_reset", [False, True])
def test_truncated_items_lead_to_the_observation_before_the_reset(full_reset: bool) -> None:
    raw = playground.registry.load("CartpoleBalance", config_overrides={"impl": "jax"})
    env = playground.wrapper.wrap_for_brax_training(raw, episode_length=LENGTH, full_reset=full_reset)
    buffer = KeptBuffer(schema_of(env), LANES)
    recorder = Recorder(env, buffer)
    obs, _ = recorder.reset(jax.random.split(jax.random.PRNGKey(1), LANES))
    state, step = recorder.simulator.state, jax.jit(jax.vmap(raw.step))
    rng, seen, first = np.random.default_rng(2), [np.asarray(state.obs)], obs.clone()
    for _ in range(LENGTH):
        action = rng.uniform(-1, 1, (LANES, env.action_size)).astype(np.float32)
        state = step(state, action)
        seen.append(np.asarray(state.obs))
        obs, reward, terminated, truncated, _ = recorder.step(torch.from_numpy(action))
        np.testing.assert_allclose(reward, np.asarray(state.reward), atol=1e-5)
    assert truncated.all()
    assert not terminated.any()
    same: Any = torch.equal(obs, first)
    assert same is not full_reset
    stored: Any = next(buffer.twins[0].batches(100, shuffle=False))
    want = np.stack(seen)
    order = np.argsort(stored.ids)
    np.testing.assert_allclose(stored.obs[order].reshape(LENGTH, LANES, -1), want[:-1], atol=1e-5)
    np.testing.assert_allclose(stored.next_obs[order].reshape(LENGTH, LANES, -1), want[1:], atol=1e-5)
    assert np.abs(want[-1] - obs.numpy()).max() > 1e-3
    assert (stored.discount > 0).all()
