"""Stand-ins for simulators: counters of torch tensors behind each simulator's own interface.

Observations are `[lane + 1, episode + 1, step + 1]`. What is faithful is the form: names of classes, keys, when a key
is there, which tensors are written into again, what a partial reset looks like. None of the simulators is needed.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

LANES = 5
TERMINATED, TRUNCATED, BOTH, CUT = 1, 2, 3, 4


def length_of(lane: Any, episode: Any) -> Any:
    return 1 + (lane * 5 + episode * episode * 3) % 13


def how_of(lane: Any, episode: Any) -> Any:
    """Return the end of an episode: 1 terminated, 2 truncated, 3 both."""
    return 1 + (lane + 2 * episode) % 3


def reward_of(lane: Any, episode: Any, t: Any) -> Any:
    return (lane * 7 + episode * 11 + t * 3) % 31 - 15


class Counters:
    """The lane, episode and step of every lane."""

    def __init__(self, lanes: int = LANES, device: Any = "cpu") -> None:
        self.lane = torch.arange(lanes, device=device)
        self.episode, self.t = self.lane * 0 - 1, self.lane * 0

    def frames(self) -> Tensor:
        return torch.stack([self.lane, self.episode, self.t], 1).float() + 1

    def advance(self, live: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Step the lanes in `live`: return rewards and both flags."""
        live = torch.ones_like(self.lane, dtype=torch.bool) if live is None else live
        reward = torch.where(live, reward_of(self.lane, self.episode, self.t), 0).float()
        self.t = self.t + live
        over, how = live & (self.t == length_of(self.lane, self.episode)), how_of(self.lane, self.episode)
        return reward, over & (how != TRUNCATED), over & (how != TERMINATED)

    def restart(self, mask: Tensor | None = None) -> None:
        mask = torch.ones_like(self.lane, dtype=torch.bool) if mask is None else mask
        self.episode, self.t = self.episode + mask, torch.where(mask, 0, self.t)

    def mask(self, ids: Any) -> Tensor | None:
        if ids is None:
            return None
        mask = torch.zeros_like(self.lane, dtype=torch.bool)
        mask[ids] = True
        return mask


def box(*shape: int) -> gymnasium.spaces.Box:
    return gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)


class ManagerBasedRLEnv:
    """Named as Isaac Lab's class."""


class ManagerBasedRlEnv:
    """Named as mjlab's class."""


class Groups:
    """The common part of both: groups of observations, tensors that are overwritten, `env_ids` of a reset."""

    key, groups = "compute_final_obs", ("policy", "critic")

    def __init__(self, finals: bool = True, **cfg: Any) -> None:
        self.num_envs, self.device, self.world = LANES, "cpu", Counters()
        self.cfg = SimpleNamespace(**{self.key: finals, "is_finite_horizon": False, **cfg})
        first, second = self.groups
        self.single_observation_space = gymnasium.spaces.Dict({first: box(3), second: box(2, 3)})
        self.single_action_space = box(1)
        self.extras: dict[str, Any] = {}
        self.idle = torch.zeros(LANES, dtype=torch.bool)  # lanes that ended and wait for their caller's reset
        self.buffers = (torch.zeros(LANES), *(torch.zeros(LANES, dtype=torch.bool) for _ in range(2)))
        self.obs_buf = {first: torch.zeros(LANES, 3), second: torch.zeros(LANES, 2, 3), "debug": torch.zeros(LANES)}

    @property
    def unwrapped(self) -> Groups:
        return self

    def observed(self, into: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
        frames, (first, second) = self.world.frames(), self.groups
        into = {name: tensor.clone() for name, tensor in self.obs_buf.items()} if into is None else into
        into[first].copy_(frames)
        into[second].copy_(torch.stack([frames, -frames], 1))
        return into

    def reset(self, *, seed: Any = None, env_ids: Any = None, options: Any = None) -> tuple[Any, Any]:
        self.world.restart(self.world.mask(env_ids))
        self.idle[slice(None) if env_ids is None else env_ids] = False
        self.observed(self.obs_buf)
        if env_ids is not None:  # all lanes are observed anew, with other noise
            noise = torch.where(self.world.mask(env_ids), 0, 0.25)
            self.obs_buf[self.groups[0]] += noise[:, None]
        return self.obs_buf, self.extras

    def step(self, action: Tensor) -> tuple[Any, ...]:
        for buffer, value in zip(self.buffers, self.world.advance(~self.idle), strict=True):
            buffer.copy_(value)
        with _disable_current_modes():  # the simulator waits here
            self.end(self.buffers[1] | self.buffers[2])
        return self.observed(self.obs_buf), *self.buffers, self.extras

    def end(self, ended: Tensor) -> None:
        raise NotImplementedError


class IsaacLike(Groups, ManagerBasedRLEnv):
    """Isaac Lab: `final_obs` computed at steps that reset; it stays until the next one."""

    def end(self, ended: Tensor) -> None:
        if getattr(self.cfg, "autoreset_mode", None) is AutoresetMode.DISABLED:
            self.idle |= ended
        elif ended.any():
            if self.cfg.compute_final_obs:
                self.extras["final_obs"] = self.observed()
            self.world.restart(ended)


class MjLike(Groups, ManagerBasedRlEnv):
    """mjlab: final observations of the lanes that ended alone, at steps that reset."""

    key, groups = "capture_terminal_observations", ("actor", "critic")

    def __init__(self, finals: bool = True, auto_reset: bool = True) -> None:
        super().__init__(finals, auto_reset=auto_reset)

    def step(self, action: Tensor) -> tuple[Any, ...]:
        self.extras.pop("terminal", None)
        with _disable_current_modes():
            if self.idle.any():
                raise RuntimeError("must be reset before calling step() again when auto_reset=False")
        return super().step(action)

    def end(self, ended: Tensor) -> None:
        if not self.cfg.auto_reset:
            self.idle |= ended
        elif ended.any():
            ids = ended.nonzero().squeeze(-1)
            if self.cfg.capture_terminal_observations:
                rows = {name: tensor[ids] for name, tensor in self.observed().items()}
                self.extras["terminal"] = {"env_ids": ids.int(), "observations": rows}
            self.world.restart(ended)


class ManiSkillVectorEnv(gymnasium.vector.VectorEnv):  # type: ignore[misc]
    """Named as ManiSkill's class: plain observations, `final_observation` of all lanes at steps that reset."""

    def __init__(self, finals: bool = True, auto_reset: bool = True) -> None:
        self.num_envs, self.device, self.world, self.auto_reset = LANES, torch.device("cpu"), Counters(), auto_reset
        self.single_observation_space, self.single_action_space = box(3), box(1)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, Any]:
        self.world.restart(self.world.mask((options or {}).get("env_idx")))
        return self.world.frames(), {}

    def step(self, actions: Tensor) -> tuple[Any, ...]:
        reward, terminated, truncated = self.world.advance()
        obs, dones, infos = self.world.frames(), terminated | truncated, {}
        with _disable_current_modes():
            if dones.any() and self.auto_reset:
                final = obs.clone()
                obs, infos = self.reset(options={"env_idx": dones.nonzero().squeeze(-1)})
                infos |= {"final_observation": final, "_final_observation": dones, "_final_info": dones}
        return obs, reward, terminated, truncated, infos


class TensorEnvs(gymnasium.vector.VectorEnv):  # type: ignore[misc]
    """Gymnasium's form, in each autoreset mode; `final_obs` with its mask at steps that reset."""

    def __init__(self, mode: AutoresetMode, finals: bool = True) -> None:
        self.num_envs, self.world, self.finals, self.mode = LANES, Counters(), finals, mode
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space, self.single_action_space = box(3), box(1)
        self.ended = torch.zeros(LANES, dtype=torch.bool)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, Any]:
        mask = (options or {}).get("reset_mask")
        self.world.restart(mask)
        self.ended = torch.zeros_like(self.ended) if mask is None else self.ended & ~mask
        return self.world.frames(), {}

    def step(self, actions: Tensor) -> tuple[Any, ...]:
        infos: dict[str, Any] = {}
        if self.mode is AutoresetMode.NEXT_STEP:
            live = ~self.ended
            self.world.restart(self.ended)
            reward, terminated, truncated = self.world.advance(live)
            self.ended = terminated | truncated
            return self.world.frames(), reward, terminated.float(), truncated.to(torch.uint8), infos
        reward, terminated, truncated = self.world.advance(~self.ended)
        ended = terminated | truncated
        if self.mode is AutoresetMode.DISABLED:
            self.ended = self.ended | ended
            return self.world.frames(), reward, terminated, truncated, infos
        with _disable_current_modes():
            if self.finals and ended.any():
                infos = {"final_obs": torch.where(ended[:, None], self.world.frames(), 0), "_final_obs": ended}
        self.world.restart(ended)
        return self.world.frames(), reward, terminated, truncated, infos


class BraxCounters:
    """Batched counters in Brax's form, behind its `EpisodeWrapper`: a state leads to the next one."""

    observation_size, action_size = {"state": 3, "privileged_state": (3,)}, 1

    def observed(self, world: Counters) -> Any:
        return {"state": world.frames(), "privileged_state": -world.frames()}

    def reset(self, rng: Any) -> Any:
        world = Counters(len(rng))
        world.episode = torch.as_tensor(rng).clone()
        zeros = torch.zeros(len(rng))
        info = {"truncation": zeros.clone(), "steps": zeros.clone()}
        return SimpleNamespace(data=world, obs=self.observed(world), reward=zeros, done=zeros.clone(), info=info)

    def step(self, state: Any, action: Any) -> Any:
        world = Counters(len(state.data.lane))
        world.episode, world.t = state.data.episode, state.data.t
        reward, terminated, truncated = world.advance()
        truncated = truncated & ~terminated  # Brax: a truncation is none where the episode is done anyway
        info = {**state.info, "truncation": truncated.float()}
        done = (terminated | truncated).float()
        return SimpleNamespace(data=world, obs=self.observed(world), reward=reward, done=done, info=info)


class BraxAutoResetWrapper:
    """Named as Playground's class: resets in the same step.

    `keeps` is for releases that keep the last observation. `full` makes the state's `info` that of the reset, too.
    """

    def __init__(self, env: Any, keeps: bool = False, full: bool = False) -> None:
        self.env, self.keeps, self.full = env, keeps, full

    def __getattr__(self, name: str) -> Any:
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, rng: Any) -> Any:
        state = self.env.reset(rng)
        if self.keeps:
            state.info["AutoResetWrapper_final_obs"] = state.obs
        return state

    def step(self, state: Any, action: Any) -> Any:
        state = self.env.step(state, action)
        info = {**state.info, "AutoResetWrapper_final_obs": state.obs} if self.keeps else dict(state.info)
        if self.full:
            info["truncation"] = torch.zeros_like(info["truncation"])
        state.data.restart(state.done > 0)
        return SimpleNamespace(**{**vars(state), "obs": self.env.observed(state.data), "info": info})


class Around:
    """A wrapper that hides where the resetting one is."""

    def __init__(self, env: Any) -> None:
        self.env, self.reset, self.step = env, env.reset, env.step
        self.observation_size, self.action_size = env.observation_size, env.action_size


JAX = SimpleNamespace(jit=lambda function: function, dlpack=SimpleNamespace(from_dlpack=torch.from_dlpack))
"""Stands in for JAX where it is not installed: tensors are its arrays, and nothing is compiled."""
