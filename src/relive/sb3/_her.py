"""Hindsight experience replay for Stable-Baselines3."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import stable_baselines3
from stable_baselines3.her.goal_selection_strategy import GoalSelectionStrategy

from .._base import check
from .._base.types import Array, Bool, Int64
from ..errors import ArgumentError, event, message
from ..items import Item, Transitions
from ..items.hindsight import STRATEGIES, Hindsight
from ..schema import Field
from ._buffer import ReplayBuffer, other_number

_GOALS = ("achieved_goal", "desired_goal")


class HerReplayBuffer(ReplayBuffer, stable_baselines3.HerReplayBuffer):
    """SB3's hindsight buffer on `relive.Hindsight`: with any sampler, n-step windows, and episodes that still go on.

    Steps can be drawn at once; SB3's buffer waits for the end of their episode. Each item is relabelled with
    probability `n_sampled_goal / (n_sampled_goal + 1)`; SB3 relabels the same share of every batch.

    Args:
        buffer_size: As in `ReplayBuffer`, like all that is not named here.
        observation_space: A `Dict` space with `observation`, `achieved_goal` and `desired_goal`.
        action_space: The action space.
        env: The training environment, whose `compute_reward` gives the rewards. SB3 passes it.
        device: Where samples go.
        n_envs: Environments.
        optimize_memory_usage: Taken, as SB3 passes it on.
        handle_timeout_termination: As in `ReplayBuffer`.
        n_sampled_goal: Goals in hindsight for each real one.
        goal_selection_strategy: `"future"`, `"final"` or `"episode"`, or SB3's enum.
        copy_info_dict: Whether `compute_reward` is given the infos of the steps; otherwise empty dicts.
        n_steps: Steps of a window; every reward in it is computed anew.
        gamma: Discount per step, for windows of several.
        sampler: Which steps are drawn.
        seed: As in `ReplayBuffer`.

    >>> from stable_baselines3 import DQN
    >>> from stable_baselines3.common.envs import BitFlippingEnv
    >>> model = DQN("MultiInputPolicy", BitFlippingEnv(n_bits=4), replay_buffer_class=HerReplayBuffer, buffer_size=500)
    >>> model.replay_buffer.relive.item.ratio
    0.8
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: Any,
        action_space: Any,
        env: Any,
        device: Any = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        n_sampled_goal: int = 4,
        goal_selection_strategy: Any = "future",
        copy_info_dict: bool = False,
        **choices: Any,
    ) -> None:
        missing = [goal for goal in _GOALS if goal not in getattr(observation_space, "spaces", {})]
        if missing:
            wanted, at = f"a `Dict` space with `{missing[0]}`", "HerReplayBuffer(observation_space)"
            raise ArgumentError(message(wanted, f"`{observation_space}`", at))
        self.env, self.copy_info_dict = env, copy_info_dict
        self.n_sampled_goal = check.integer(n_sampled_goal, "HerReplayBuffer(n_sampled_goal)", minimum=0)
        self.her_ratio = 1.0 - 1.0 / (self.n_sampled_goal + 1)
        strategy = goal_selection_strategy
        name = strategy.name if isinstance(strategy, GoalSelectionStrategy) else strategy
        lower = name.lower() if isinstance(name, str) else name
        at = "HerReplayBuffer(goal_selection_strategy)"
        self.goal_selection_strategy = GoalSelectionStrategy[check.one_of(lower, STRATEGIES, at).upper()]
        ReplayBuffer.__init__(
            self,
            buffer_size,
            observation_space,
            action_space,
            device,
            n_envs,
            optimize_memory_usage,
            handle_timeout_termination,
            **choices,
        )
        rows = self.relive.capacity // self.n_envs if copy_info_dict else 0
        self.infos: list[Any] = [None] * rows  # of the last calls of `add`, more than steps can be stored of
        self._calls = 0
        self._cut = np.zeros((self.buffer_size, self.n_envs), bool)  # ended by `truncate_last_trajectory`
        self._current_ep_start = np.zeros(self.n_envs, np.int64)

    def __setstate__(self, state: dict[str, Any]) -> None:
        ReplayBuffer.__setstate__(self, state)
        self.env = None  # as in SB3: environments are not saved, and `set_env` gives another one

    def set_env(self, env: Any) -> None:
        """Take the environment that computes rewards, after loading.

        Raises:
            ArgumentError: It has another number of environments than the buffer.
        """
        if env.num_envs != self.n_envs:
            raise other_number(self.n_envs, env.num_envs, "HerReplayBuffer.set_env")
        super().set_env(env)

    def _extra_fields(self) -> dict[str, Field]:
        return {"info": Field((), "int64")} if self.copy_info_dict else {}

    def _extras(self, infos: Any) -> dict[str, Any]:
        return {"info": self._calls * self.n_envs + np.arange(self.n_envs)} if self.copy_info_dict else {}

    def _item(self, transitions: Transitions) -> Item:
        strategy = self.goal_selection_strategy.name.lower()
        return Hindsight(item=transitions, reward=self._reward, ratio=self.her_ratio, strategy=strategy)

    def _reward(self, achieved_goal: Array, desired_goal: Array, info: dict[str, Any]) -> Array:
        if self.env is None:
            remedy = "call `set_env(env)` after loading"
            raise ArgumentError(message("an environment that computes rewards", "none", "HerReplayBuffer", remedy))
        infos: Any = [{}] * len(achieved_goal)
        if self.copy_info_dict:
            calls, lanes = np.divmod(info["info"], self.n_envs)
            infos = [self.infos[call][lane] for call, lane in zip(calls % len(self.infos), lanes, strict=True)]
        # Of the first environment: all are alike.
        found = self.env.env_method("compute_reward", achieved_goal, desired_goal, infos, indices=[0])[0]
        return np.asarray(found, np.float32).reshape(len(achieved_goal))

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        """Store a step of every environment, as `ReplayBuffer.add` does."""
        slot = self.pos
        super().add(obs, next_obs, action, reward, done, infos)
        if self.copy_info_dict:
            self.infos[self._calls % len(self.infos)] = list(infos)
        self._calls += 1
        self._cut[slot] = False
        self._current_ep_start[np.asarray(done).reshape(self.n_envs) != 0] = self.pos

    def reset(self) -> None:
        """Forget all steps."""
        super().reset()
        self._cut.fill(False)
        self._current_ep_start.fill(0)

    def truncate_last_trajectory(self) -> None:
        """Cut the streams of all environments: the next step begins a new episode, as after loading a buffer."""
        unfinished = np.flatnonzero(self._current_ep_start != self.pos)
        if not len(unfinished):
            return
        what = "The last trajectory in the replay buffer will be truncated"
        remedy = "`load_replay_buffer(path, truncate_last_traj=False)` goes on with the same episodes"
        warnings.warn(event(what, "relive.sb3.HerReplayBuffer", remedy), stacklevel=2)
        self.relive.cut(unfinished)
        self._cut[self.pos - 1, unfinished] = True
        self._current_ep_start[unfinished] = self.pos

    def _over(self) -> Array:
        return np.maximum(super()._over(), self._cut.astype(np.float32))

    def _outside(self) -> Array:
        return np.maximum(super()._outside(), self._cut.astype(np.float32))

    @property
    def ep_start(self) -> Int64:
        """The place of the first stored step of each step's episode, `[size, n_envs]`; 0 where there is none."""
        return self._episodes()[0]

    @property
    def ep_length(self) -> Int64:
        """The number of stored steps of each step's episode, `[size, n_envs]`; 0 until it ends."""
        return self._episodes()[1]

    def _episodes(self) -> tuple[Int64, Int64]:
        held: Bool = self._places()[0]
        ids, (slots, lanes) = self._ids[held], np.nonzero(held)
        ahead = self.relive.follow(ids, self.relive.capacity).steps
        behind = -self.relive.follow(ids, -self.relive.capacity).steps
        over = self._over()[(slots + ahead) % self.buffer_size, lanes] > 0
        starts, lengths = np.zeros(held.shape, np.int64), np.zeros(held.shape, np.int64)
        starts[held] = (slots - behind) % self.buffer_size
        lengths[held] = np.where(over, behind + 1 + ahead, 0)
        return starts, lengths
