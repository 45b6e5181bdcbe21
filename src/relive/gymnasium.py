"""Fill a buffer by stepping a Gymnasium environment.

Gymnasium's vector environments end episodes in three ways (`metadata["autoreset_mode"]`), and each hides the final
observation or invents a step in its own way; `Recorder` knows all three.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ._types import Bool, Int64
from .buffer import ReplayBuffer
from .errors import ArgumentError, MissingExtra, message

try:
    import gymnasium
    from gymnasium.vector import AutoresetMode
except ImportError as error:
    remedy = "pip install 'relive[gymnasium]'"
    raise MissingExtra(message("the package `gymnasium` >= 1.1", "none", "relive.gymnasium", remedy)) from error


class Recorder:
    """Use it like the environment it wraps; every real step lands in the buffer.

    * NEXT_STEP: the step that only resets is not stored.
    * SAME_STEP: the final observation is taken from `infos["final_obs"]`, not from the next episode.
    * DISABLED, and single environments: a reset starts a new episode; in mid-episode it cuts the stream.

    Everything else (spaces, `render`, `close`, ...) is the wrapped environment's own.

    Args:
        env: A vector environment, or a single one.
        buffer: Where the steps go; its `num_envs` must be the environment's.
        autoreset_mode: For vector environments whose metadata do not name one.

    Attributes:
        ids: The ids of the steps that the last call of `step` stored, int64; fewer than lanes where some were only
            reset.

    Raises:
        ArgumentError: The numbers of lanes differ, or the autoreset mode is not known.

    >>> import gymnasium, relive
    >>> envs = gymnasium.make_vec("Pendulum-v1", num_envs=2)
    >>> schema = relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space)
    >>> buffer = relive.ReplayBuffer(schema, 1000, num_envs=2)
    >>> recorder = Recorder(envs, buffer)
    >>> _ = recorder.reset(seed=0)
    >>> for _ in range(5):
    ...     _ = recorder.step(recorder.action_space.sample())
    >>> len(buffer)
    10
    """

    def __init__(self, env: Any, buffer: ReplayBuffer, *, autoreset_mode: AutoresetMode | str | None = None) -> None:
        self.env, self.buffer = env, buffer
        self._vector = isinstance(env, gymnasium.vector.VectorEnv)
        self._lanes: int = env.num_envs if self._vector else 1
        if self._lanes != buffer.num_envs:
            got = f"`{buffer.num_envs}`"
            raise ArgumentError(
                message(f"a buffer with num_envs={self._lanes}, as the environment has", got, "Recorder(buffer)")
            )
        self._mode = _mode(env, autoreset_mode) if self._vector else _single_mode(env)
        self._obs: Any = None
        self._ended: Bool = np.zeros(self._lanes, bool)
        self.ids: Int64 = np.empty(0, np.int64)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment, in DISABLED mode the lanes of `options["reset_mask"]`; cut streams in mid-episode."""
        mask = None if options is None else options.get("reset_mask")  # the environment takes it out of `options`
        obs, info = self.env.reset(seed=seed, options=options)
        started = np.ones(self._lanes, bool) if mask is None or not self._vector else np.asarray(mask, bool)
        self.buffer.cut(np.flatnonzero(started))
        self._obs = _map(np.array, obs)
        self._ended = self._ended & ~started
        return obs, info

    def step(self, action: Any, **extras: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the environment and store the step.

        Args:
            action: As the environment wants it.
            **extras: Further fields of the schema, and `priority` if there is one, each with one entry per lane.

        Returns:
            What the environment returned.

        Raises:
            ArgumentError: `reset` has not been called, or a final observation is missing in SAME_STEP mode.
        """
        if self._obs is None:
            raise ArgumentError(message("`reset` before the first `step`", "none", "Recorder.step"))
        result = self.env.step(action)
        obs, reward, terminated, truncated, infos = result
        next_obs = obs
        ended = np.atleast_1d(np.logical_or(terminated, truncated))
        if self._mode is AutoresetMode.SAME_STEP and ended.any():
            next_obs = _with_finals(obs, infos, np.flatnonzero(ended))
        step = {"obs": self._obs, "action": action, "reward": reward, "next_obs": next_obs, **extras}
        self._add({**step, "terminated": terminated, "truncated": truncated}, ~self._ended)
        self._obs = _map(np.array, obs)
        # A lane that ended stays so until its environment has been reset: by the next step, by the user, or already.
        self._ended = {
            AutoresetMode.NEXT_STEP: ended,
            AutoresetMode.SAME_STEP: np.zeros(self._lanes, bool),
            AutoresetMode.DISABLED: self._ended | ended,
        }[self._mode]
        return obs, reward, terminated, truncated, infos

    def _add(self, step: dict[str, Any], live: Bool) -> None:
        if live.all():
            self.ids = self.buffer.add(**step)
        elif live.any():
            lanes = np.flatnonzero(live)
            self.ids = self.buffer.add(env_ids=lanes, **_map(lambda value: np.asarray(value)[lanes], step))
        else:
            self.ids = np.empty(0, np.int64)


def _mode(env: Any, stated: AutoresetMode | str | None) -> AutoresetMode:
    mode = stated if stated is not None else (env.metadata or {}).get("autoreset_mode")
    names = {name: value for value in AutoresetMode for name in (value, value.value, value.name)}
    if mode not in names:
        wanted = "an autoreset mode: " + ", ".join(f"`{value.name}`" for value in AutoresetMode)
        remedy = "state it: `Recorder(env, buffer, autoreset_mode=...)`"
        raise ArgumentError(message(wanted, f"`{mode!r}`", "Recorder(env)", remedy))
    return names[mode]


def _single_mode(env: Any) -> AutoresetMode:
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.Autoreset):
            return AutoresetMode.NEXT_STEP
        env = env.env
    return AutoresetMode.DISABLED


def _map(change: Callable[[Any], Any], value: Any) -> Any:
    """`value` with `change` applied to every leaf of nested dicts and tuples."""
    if isinstance(value, dict):
        return {name: _map(change, child) for name, child in value.items()}
    if isinstance(value, tuple):
        return tuple(_map(change, child) for child in value)
    return change(value)


def _with_finals(obs: Any, infos: dict[str, Any], lanes: Int64) -> Any:
    """A copy of `obs` in which `lanes` have their episode's final observation."""
    if "final_obs" not in infos:
        raise ArgumentError(message("`final_obs` where an episode ended in SAME_STEP mode", "none", "$.infos"))
    filled = _map(np.array, obs)
    for lane in lanes:
        _fill(filled, infos["final_obs"], int(lane))
    return filled


def _fill(target: Any, finals: Any, lane: int) -> None:
    # Either one object per lane, or, for nested spaces, a nest of arrays with an entry per lane.
    if isinstance(finals, np.ndarray) and finals.dtype == object:
        _put(target, finals[lane], lane)
    elif isinstance(target, dict):
        for name, child in target.items():
            _fill(child, finals[name], lane)
    elif isinstance(target, tuple):
        for child, final in zip(target, finals, strict=True):
            _fill(child, final, lane)
    else:
        target[lane] = finals[lane]


def _put(target: Any, final: Any, lane: int) -> None:
    if isinstance(target, dict):
        for name, child in target.items():
            _put(child, final[name], lane)
    elif isinstance(target, tuple):
        for child, part in zip(target, final, strict=True):
            _put(child, part, lane)
    else:
        target[lane] = final
