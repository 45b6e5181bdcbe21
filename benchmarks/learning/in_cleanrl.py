"""DQN and SAC in CleanRL's loop, with Stable-Baselines3's buffer as there, with relive's, and with prioritized replay.

Nets and settings are those of `examples/cleanrl_dqn.py` and `examples/cleanrl_sac.py`, but for n-step windows: CleanRL
has none. What differs between the arms is in `Theirs` and `Ours` alone.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
import torch
from examples.cleanrl_dqn import QNetwork
from examples.cleanrl_sac import Actor, perceptron
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.buffers import ReplayBuffer
from torch import Tensor, nn
from torch.nn import functional

import relive
from benchmarks.learning.evaluation import Course
from relive.gymnasium import Recorder

GAMMA, BATCH = 0.99, 128


class Sample(NamedTuple):
    """A batch: observations `[B, ...]`, actions `[B]` or `[B, A]`, the rest `[B]`."""

    obs: Tensor
    action: Tensor
    next_obs: Tensor
    reward: Tensor
    discount: Tensor
    weights: Tensor | float
    ids: np.ndarray | None


class Replay(Protocol):
    """The store of a loop's steps."""

    envs: gym.vector.VectorEnv

    def add(self, obs: Any, after: Any, actions: Any, rewards: Any, ends: Any, infos: Mapping[str, Any]) -> None: ...

    def sample(self) -> Sample: ...

    def update(self, ids: np.ndarray | None, errors: Tensor) -> None: ...


class Theirs:
    """Stable-Baselines3's buffer, used as CleanRL does."""

    def __init__(self, envs: gym.vector.VectorEnv, capacity: int) -> None:
        self.envs = envs
        spaces = envs.single_observation_space, envs.single_action_space
        self._buffer = ReplayBuffer(capacity, *spaces, "cpu", handle_timeout_termination=False)
        self._discrete = isinstance(spaces[1], gym.spaces.Discrete)

    def add(self, obs: Any, after: Any, actions: Any, rewards: Any, ends: Any, infos: Mapping[str, Any]) -> None:
        terminations, truncations = ends
        real = after.copy()
        for index, truncated in enumerate(truncations):
            if truncated:
                real[index] = infos["final_obs"][index]
        self._buffer.add(obs, real, actions, rewards, terminations, [infos])

    def sample(self) -> Sample:
        data = self._buffer.sample(BATCH)
        actions = data.actions.flatten() if self._discrete else data.actions
        discount = GAMMA * (1 - data.dones.flatten())
        return Sample(data.observations, actions, data.next_observations, data.rewards.flatten(), discount, 1.0, None)

    def update(self, ids: np.ndarray | None, errors: Tensor) -> None:
        """Do nothing: there are no priorities."""


class Ours:
    """relive's buffer behind a recorder."""

    def __init__(self, envs: gym.vector.VectorEnv, capacity: int, sampler: relive.Sampler, seed: int) -> None:
        schema = relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space)
        item = relive.Transitions(gamma=GAMMA)
        self._buffer = relive.ReplayBuffer(schema, capacity, num_envs=1, item=item, sampler=sampler, seed=seed)
        self._prioritizes = self._buffer.sampler.prioritizes
        self.envs = Recorder(envs, self._buffer)

    def add(self, obs: Any, after: Any, actions: Any, rewards: Any, ends: Any, infos: Mapping[str, Any]) -> None:
        """Do nothing: the recorder stored the step."""

    def sample(self) -> Sample:
        data = self._buffer.sample(BATCH).torch()
        return Sample(
            data.obs, data.action, data.next_obs, data.reward, data.discount, data.weights, data.ids
        )  # fmt: skip

    def update(self, ids: np.ndarray | None, errors: Tensor) -> None:
        if self._prioritizes:
            self._buffer.update_priorities(ids, errors)


def run(task: str, replay: str, course: Course) -> None:
    """Train once; `replay` is `own`, `relive` or `prioritized`."""
    random.seed(course.seed)
    np.random.seed(course.seed)
    torch.manual_seed(course.seed)
    same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}  # the only one of the Gymnasium that CleanRL pins
    envs = gym.make_vec(course.env_id, num_envs=1, vectorization_mode="sync", vector_kwargs=same_step)
    envs.action_space.seed(course.seed)
    capacity, train = {"dqn": (12_000, dqn), "sac": (100_000, sac)}[task]
    if replay == "own":
        train(Theirs(envs, capacity), course)
    else:
        sampler = relive.Uniform() if replay == "relive" else relive.Prioritized(alpha=0.6, beta=0.4)
        train(Ours(envs, capacity, sampler, course.seed), course)
    envs.close()


def dqn(replay: Replay, course: Course) -> None:
    """Run deep Q-learning: the loop of CleanRL's `dqn.py`."""
    envs = replay.envs
    q_network, target_network = QNetwork(envs), QNetwork(envs)
    target_network.load_state_dict(q_network.state_dict())
    optimizer = torch.optim.Adam(q_network.parameters(), lr=1e-3)

    @torch.no_grad()
    def greedy(obs: Any) -> Any:
        return q_network(torch.as_tensor(obs)).argmax(dim=1).numpy()

    obs, _ = envs.reset(seed=course.seed)
    for step in range(course.steps):
        epsilon = max(0.05, 1.0 - 0.95 * step / (0.5 * course.steps))
        actions = envs.action_space.sample() if random.random() < epsilon else greedy(obs)
        after, rewards, *ends, infos = envs.step(actions)
        replay.add(obs, after, actions, rewards, ends, infos)
        obs = after
        if step > 1_000 and step % 4 == 0:
            data = replay.sample()
            with torch.no_grad():
                target = data.reward + data.discount * target_network(data.next_obs).amax(dim=1)
            value = q_network(data.obs).gather(1, data.action[:, None])[:, 0]
            loss = (data.weights * functional.mse_loss(value, target, reduction="none")).mean()
            _descend(optimizer, loss)
            replay.update(data.ids, target - value.detach())
        if step % 500 == 0:
            target_network.load_state_dict(q_network.state_dict())
        course.at(step + 1, greedy)


def sac(replay: Replay, course: Course) -> None:
    """Run soft actor-critic: the loop of CleanRL's `sac_continuous_action.py`."""
    envs = replay.envs
    space, inputs = envs.single_action_space, int(np.prod(envs.single_observation_space.shape))
    size = int(np.prod(space.shape))
    actor = Actor(space, inputs)
    critics, targets = (nn.ModuleList(perceptron(inputs + size, 1) for _ in range(2)) for _ in range(2))
    targets.load_state_dict(critics.state_dict())
    log_alpha = torch.zeros(1, requires_grad=True)
    owners = critics.parameters(), actor.parameters(), [log_alpha]
    q_optimizer, actor_optimizer, alpha_optimizer = (torch.optim.Adam(owned, lr=1e-3) for owned in owners)

    def values(nets: nn.ModuleList, obs: Tensor, action: Tensor) -> Tensor:
        x = torch.cat((obs, action), dim=1)
        return torch.stack([net(x)[:, 0] for net in nets])

    @torch.no_grad()
    def mean(obs: Any) -> Any:
        return (actor.net(torch.as_tensor(obs)).chunk(2, dim=-1)[0].tanh() * actor.scale + actor.bias).numpy()

    obs, _ = envs.reset(seed=course.seed)
    for step in range(course.steps):
        if step < 500:
            actions = envs.action_space.sample()
        else:
            with torch.no_grad():
                actions = actor(torch.as_tensor(obs))[0].numpy()
        after, rewards, *ends, infos = envs.step(actions)
        replay.add(obs, after, actions, rewards, ends, infos)
        obs = after
        if step > 500:
            data, alpha = replay.sample(), log_alpha.exp().item()
            with torch.no_grad():
                next_action, next_log_prob = actor(data.next_obs)
                soft = values(targets, data.next_obs, next_action).amin(dim=0) - alpha * next_log_prob
                target = data.reward + data.discount * soft
            errors = values(critics, data.obs, data.action) - target
            _descend(q_optimizer, (data.weights * errors.square().sum(dim=0)).mean())
            replay.update(data.ids, errors.detach().abs().mean(dim=0))
            action, log_prob = actor(data.obs)
            _descend(actor_optimizer, (alpha * log_prob - values(critics, data.obs, action).amin(dim=0)).mean())
            _descend(alpha_optimizer, -(log_alpha.exp() * (log_prob.detach() - size)).mean())
            with torch.no_grad():
                for slow, fast in zip(targets.parameters(), critics.parameters(), strict=True):
                    slow.lerp_(fast, 0.005)
        course.at(step + 1, mean)


def _descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
