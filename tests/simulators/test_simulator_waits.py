"""Recorders of simulators on a device without kernels: nothing waits for it, and all tensors lie there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from depth import LONG
from no_wait import NoWait, fake_device
from tensor_worlds import LANES, Counters, ManagerBasedRLEnv, ManagerBasedRlEnv, box
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

import relive
from relive.simulators import Recorder


class Fixed:
    """A simulator whose keys are there at every step: on this device nobody can look who ended."""

    mode: Any = None

    def __init__(self, device: Any) -> None:
        self.num_envs, self.device, self.world = LANES, device, Counters(device=device)
        self.metadata = {"autoreset_mode": self.mode}
        self.cfg = SimpleNamespace()
        self.single_observation_space, self.single_action_space = SimpleNamespace(spaces={"state": box(3)}), box(1)

    def obs(self) -> Any:
        return {"state": self.world.frames()}

    def reset(self, **choices: Any) -> Any:
        self.world.restart()
        return self.obs(), {}

    def step(self, action: Any) -> Any:
        reward, terminated, truncated = self.world.advance()
        return self.obs(), reward, terminated, False, self.infos(terminated | truncated)

    def infos(self, ended: Any) -> Any:
        return {}


class NextStep(Fixed):
    mode = "NEXT_STEP"


class Disabled(Fixed):
    mode = "DISABLED"


class SameStep(Fixed):
    mode = "SAME_STEP"

    def infos(self, ended: Any) -> Any:
        return {"final_obs": self.obs(), "_final_obs": ended}


class Keyless(Fixed):
    mode = "SAME_STEP"


class Isaac(Fixed, ManagerBasedRLEnv):
    def infos(self, ended: Any) -> Any:
        return {"final_obs": self.obs()}


class Mj(Fixed, ManagerBasedRlEnv):
    def infos(self, ended: Any) -> Any:
        ids = torch.arange(2, dtype=torch.int32, device=self.device)
        return {"terminal": {"env_ids": ids, "observations": {"state": self.obs()["state"][:2]}}}


@pytest.mark.parametrize("make", [NextStep, Disabled, SameStep, Keyless, Isaac, Mj])
def test_no_call_waits(make: Any) -> None:
    device = fake_device()
    with FakeTensorMode():
        env = make(device)
        schema = relive.Schema(obs={"state": relive.Field(3)}, action=relive.Field(1), log_prob=relive.Field())
        buffer = relive.DeviceBuffer(schema, 60 * LANES, num_envs=LANES, device=device)
        recorder, action = Recorder(env, buffer), torch.zeros(LANES, 1, device=device)
        mask = torch.zeros(LANES, dtype=torch.bool, device=device)
        some = {"env_ids": mask} if isinstance(env, ManagerBasedRLEnv | ManagerBasedRlEnv) else {"reset_mask": mask}
        with NoWait():
            for _ in range(2 if LONG else 1):
                recorder.reset()
                recorder.step(action, log_prob=action[:, 0])
                obs, *_ = recorder.step(action, log_prob=action[:, 0])
                recorder.reset(**(some if "env_ids" in some else {"options": some}))
                recorder.step(action, log_prob=action[:, 0])
                recorder.resume(obs, mask)
                recorder.step(action, log_prob=action[:, 0])
        held = [leaf for leaf in tree_leaves((recorder.ids, recorder._obs, recorder._waiting)) if leaf is not None]
        assert len(held) >= 2
        assert all(tensor.device == device for tensor in held)
