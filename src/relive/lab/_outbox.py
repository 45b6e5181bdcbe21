"""Initial priorities from an actor (Ape-X, Horgan et al. 2018, arXiv:1803.00933): by TD error, from its own nets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import relive

CHUNK = 16  # steps of every lane that are judged at once
_NO_IDS = np.empty(0, np.int64)

TDError = Callable[[relive.Batch], npt.NDArray[np.float32]]


class Outbox:
    """Between a `Recorder` and a `Writer`: adds steps some time later, with their n-step TD errors as priorities.

    A step waits until the n steps of its window are known, and until `CHUNK` of them can be judged at once.

    Args:
        writer: Where steps go.
        n_step: Rewards summed before the target bootstraps.
        gamma: Discount per step.
        eps: Added to the size of the errors, as the sampler adds it later.
        td_error: Judges a batch of transitions.
    """

    def __init__(self, writer: relive.Writer, n_step: int, gamma: float, eps: float, td_error: TDError) -> None:
        self.writer, self.num_envs = writer, writer.num_envs
        self._n, self._gamma, self._eps, self._td_error = n_step, gamma, eps, td_error
        self._steps: list[dict[str, npt.NDArray[Any]]] = []

    @property
    def env_ids(self) -> tuple[int, ...]:
        """The writer's lanes."""
        return self.writer.env_ids

    def add(self, **step: Any) -> npt.NDArray[np.int64]:
        """Take one step of every lane; ids are not known yet."""
        self._steps.append({name: np.array(value) for name, value in step.items()})
        if len(self._steps) >= CHUNK + self._n - 1:
            self._send(CHUNK)
        return _NO_IDS

    def cut(self, env_ids: Any = None) -> None:
        """End the streams of the writer's lanes `env_ids`."""
        self.flush()
        self.writer.cut(env_ids)

    def flush(self) -> None:
        """Add all that was taken; windows end where it ends."""
        if self._steps:
            self._send(len(self._steps))

    def _send(self, count: int) -> None:
        held = {name: np.stack([step[name] for step in self._steps], axis=1) for name in self._steps[0]}
        errors = self._td_error(self._windows(held, count))
        priority = np.abs(errors).reshape(self.num_envs, count) + self._eps
        self.writer.extend(**{name: value[:, :count] for name, value in held.items()}, priority=priority)
        del self._steps[:count]

    def _windows(self, held: dict[str, npt.NDArray[Any]], count: int) -> relive.Batch:
        """The n-step transitions from the first `count` steps of `[L, T, ...]`, lane after lane."""
        ends, steps = held["terminated"] | held["truncated"], len(self._steps)
        reward = np.zeros((self.num_envs, count))
        discount, goes_on = np.ones_like(reward), np.ones(reward.shape, bool)
        last = np.zeros(reward.shape, np.int64)
        for k in range(self._n):
            at = np.arange(count) + k
            goes_on = goes_on & (at < steps)
            at = np.minimum(at, steps - 1)
            reward += np.where(goes_on, discount * held["reward"][:, at], 0.0)
            discount = np.where(goes_on, discount * self._gamma, discount)
            last = np.where(goes_on, at, last)
            goes_on = goes_on & ~ends[:, at]
        lanes = np.arange(self.num_envs)[:, None]
        discount = np.where(held["terminated"][lanes, last], 0.0, discount)
        parts = {"obs": held["obs"][:, :count], "action": held["action"][:, :count]}
        parts |= {"reward": reward.astype(np.float32), "discount": discount.astype(np.float32)}
        parts["next_obs"] = held["next_obs"][lanes, last]
        return relive.Batch({name: value.reshape(-1, *value.shape[2:]) for name, value in parts.items()})
