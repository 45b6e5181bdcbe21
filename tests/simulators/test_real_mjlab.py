"""mjlab itself, where it is installed, on a CPU: what its release gives, and lanes that the caller resets."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from kept_buffer import KeptBuffer
from needs import needs

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own affairs
    tasks = needs("mjlab.tasks.registry", "mjlab.tasks")
    envs = needs("mjlab.envs")

from relive.errors import ReliveWarning
from relive.simulators import Recorder, schema_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning")]  # it compiles for a minute
LANES, STEPS = 4, 24


def recorder_of(auto_reset: bool) -> tuple[Any, Recorder, Any]:
    """Make a recorder with episodes of five steps; lanes begin in the middle of them."""
    cfg = tasks.load_env_cfg("Mjlab-Cartpole-Balance")
    cfg.scene.num_envs, cfg.auto_reset = LANES, auto_reset
    env = envs.ManagerBasedRlEnv(cfg, device="cpu")
    cfg.episode_length_s = 5 * env.step_dt
    recorder = Recorder(env, KeptBuffer(schema_of(env), LANES))
    obs, _ = recorder.reset()
    env.episode_length_buf[:] = torch.arange(LANES)
    return env, recorder, obs


def action() -> torch.Tensor:
    return torch.rand(LANES, 1) * 2 - 1


def steps(recorder: Recorder) -> None:
    for _ in range(STEPS):
        recorder.step(action())


def test_a_release_without_final_observations() -> None:
    env, recorder, _ = recorder_of(True)
    if hasattr(env.cfg, "capture_terminal_observations"):
        env.cfg.capture_terminal_observations = False
    with pytest.warns(ReliveWarning, match=r"mjlab.*auto_reset=False"):
        steps(recorder)
    items = next(recorder.buffer.twins[0].batches(1000, shuffle=False))
    assert items.truncated.any()
    assert (items.discount[items.truncated] == 0).all()
    assert (items.discount[~items.truncated] > 0).all()


def test_lanes_that_the_caller_resets() -> None:
    _, recorder, obs = recorder_of(False)
    want: list[tuple[Any, ...]] = []
    for _ in range(STEPS):
        before = {name: part.numpy().copy() for name, part in obs.items()}
        obs, _, terminated, truncated, _ = recorder.step(action())
        after = {name: part.numpy().copy() for name, part in obs.items()}
        want += zip(recorder.ids.tolist(), before["actor"], after["actor"], truncated.tolist(), strict=True)
        ended = (terminated | truncated).nonzero().squeeze(-1)
        if len(ended):
            obs, _ = recorder.reset(env_ids=ended)
    twin = recorder.buffer.twins[0]
    items: Any = next(twin.batches(1000, shuffle=False))
    order = np.argsort(items.ids)
    ids, *fields = map(np.array, zip(*sorted(want, key=lambda step: step[0]), strict=True))
    assert (items.ids[order] == ids).all()
    for got, value in zip((items.obs.actor, items.next_obs.actor, items.truncated), fields, strict=True):
        assert (got[order] == value).all()
    assert items.truncated.sum() >= LANES
    assert (items.discount > 0).all()
    assert (twin.stats().cuts, twin.stats().unbootstrapped) == (0, 0)
