"""Environments that are tensors of a device: all lanes step at once, and an episode that ends begins anew in that step.

As in simulators on a GPU, the observation after an episode's last step is the next episode's first. The episode's own
final observation is handed out beside it.
"""

from __future__ import annotations

import abc
import math
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from relive_lab import checks


class Step(NamedTuple):
    """The outcome of a step, with one row for each lane.

    Attributes:
        next_obs: Observations after it, of the next episode where one ended, float32 `[L, O]`.
        final_obs: Observations after it, of the same episode, float32 `[L, O]`.
        reward: Float32 `[L]`.
        terminated: False everywhere: these environments have time limits alone, bool `[L]`.
        truncated: Whether the time limit was reached, bool `[L]`.
    """

    next_obs: Tensor
    final_obs: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor


class TensorEnvs(abc.ABC):
    """Environments with a time limit, one a lane; no call waits for the device.

    Args:
        num_envs: Lanes.
        limit: Steps of an episode; None: episodes never end. The first ones end at random times, so that not all
            lanes start anew at the same step.
        device: Where the tensors live.
        seed: Decides all initial states.

    Attributes:
        obs: Observations before the next step, float32 `[L, O]`.

    >>> envs = Pendulum(4, limit=200)
    >>> step = envs.step(torch.zeros(4, 1))
    >>> step.next_obs.shape, int(step.truncated.sum())
    (torch.Size([4, 3]), 0)
    """

    obs_size: ClassVar[int]
    action_size: ClassVar[int]

    def __init__(self, num_envs: int, *, limit: int | None, device: torch.device | str = "cpu", seed: int = 0) -> None:
        name = type(self).__name__
        self.num_envs = checks.integer(num_envs, f"{name}(num_envs)", minimum=1)
        self.limit = None if limit is None else checks.integer(limit, f"{name}(limit)", minimum=1)
        self.device, self.generator = torch.device(device), torch.Generator(device).manual_seed(seed)
        self._age = torch.zeros(num_envs, dtype=torch.int64, device=device)
        if self.limit is not None:
            self._age.random_(self.limit, generator=self.generator)
        self._terminated = torch.zeros(num_envs, dtype=torch.bool, device=device)
        self.state = self.fresh()
        self.obs = self.observe(self.state)

    def step(self, action: Tensor) -> Step:
        """Take actions in [-1, 1], `[L, A]`, and begin anew where the limit is reached."""
        after, reward = self.move(self.state, action.clamp(-1.0, 1.0))
        self._age += 1
        truncated = self._terminated if self.limit is None else self._age >= self.limit
        self._age = self._age.masked_fill(truncated, 0)
        self.state = after if self.limit is None else torch.where(truncated[:, None], self.fresh(), after)
        self.obs = self.observe(self.state)
        return Step(self.obs, self.observe(after), reward, self._terminated, truncated)

    def uniform(self, *sizes: float) -> Tensor:
        """Return random numbers between -size and size, a column for each size, `[L, len(sizes)]`."""
        unit = torch.rand((self.num_envs, len(sizes)), generator=self.generator, device=self.device)
        return torch.stack([size * (2.0 * column - 1.0) for size, column in zip(sizes, unit.T, strict=True)], 1)

    @abc.abstractmethod
    def fresh(self) -> Tensor:
        """Return initial states of all lanes, float32 `[L, S]`."""

    @abc.abstractmethod
    def move(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states that actions lead to, `[L, S]`, and rewards `[L]`."""

    @abc.abstractmethod
    def observe(self, state: Tensor) -> Tensor:
        """Return what is seen of states, float32 `[L, O]`."""


class Pendulum(TensorEnvs):
    """Gymnasium's `Pendulum-v1`: swing a pendulum up and hold it there. An action of 1 is its largest torque, 2."""

    obs_size, action_size = 3, 1

    def fresh(self) -> Tensor:
        """Return random angles and angular speeds up to 1, `[L, 2]`."""
        return self.uniform(math.pi, 1.0)

    def move(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Turn it for 0.05 s; the cost is that of the state before."""
        angle, speed = state.unbind(1)
        torque = 2.0 * action[:, 0]
        upright = torch.remainder(angle + math.pi, 2.0 * math.pi) - math.pi
        cost = upright.square() + 0.1 * speed.square() + 0.001 * torque.square()
        speed = (speed + (15.0 * torch.sin(angle) + 3.0 * torque) * 0.05).clamp(-8.0, 8.0)
        return torch.stack((angle + 0.05 * speed, speed), 1), -cost

    def observe(self, state: Tensor) -> Tensor:
        """Return cosine and sine of the angle, and the angular speed."""
        angle, speed = state.unbind(1)
        return torch.stack((torch.cos(angle), torch.sin(angle), speed), 1)


class Reach(TensorEnvs):
    """A sliding point in a square of width 4 that is to reach its centre and stay there; it starts 1 away, at rest.

    Observations are position and velocity, `[L, 4]`, and actions push. The reward is the negative distance.
    """

    obs_size, action_size = 4, 2

    def fresh(self) -> Tensor:
        """Return points at rest on the unit circle."""
        angle = self.uniform(math.pi)[:, 0]
        rest = torch.zeros_like(angle)
        return torch.stack((torch.cos(angle), torch.sin(angle), rest, rest), 1)

    def move(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Push for one step."""
        place, speed = state[:, :2], state[:, 2:]
        speed = 0.8 * speed + 0.02 * action
        place = (place + speed).clamp(-2.0, 2.0)
        return torch.cat((place, speed), 1), -place.square().sum(1).sqrt()

    def observe(self, state: Tensor) -> Tensor:
        """Return positions, and velocities ten times enlarged, as the net sees both at one scale."""
        return torch.cat((state[:, :2], 10.0 * state[:, 2:]), 1)
