"""The runner of the doctor's own pipelines, and the loops that users write by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from .._pipeline import MakeEnv
from .._tensors import TensorEnvs

# So many draws that an item of some 240 is missing from all of them once in 10^17 times.
DRAWS = 10_000


class Run(NamedTuple):
    """The arguments of `Pipeline.run`."""

    make_env: MakeEnv
    num_envs: int
    calls: int
    n_step: int
    gamma: float
    mode: AutoresetMode
    capacity: int | None
    reset_at: Collection[int]

    @property
    def size(self) -> int:
        """The steps that the buffer keeps over all lanes; without a capacity there is room for every step."""
        return self.capacity or 2 * self.num_envs * self.calls


class Runner:
    """A pipeline whose subclass makes its buffer in `_made`, and steps environments and fills it in `_fill`."""

    def __init__(self) -> None:
        self._buffer: Any = None
        self._capacity: int | None = None
        self._n_step, self._gamma = 1, 0.0

    def run(
        self,
        make_env: MakeEnv,
        num_envs: int,
        calls: int,
        n_step: int,
        gamma: float,
        *,
        autoreset_mode: AutoresetMode,
        capacity: int | None = None,
        reset_at: Collection[int] = (),
    ) -> None:
        """Fill the buffer; where `capacity` is that of the run before, the buffer of that run is overwritten."""
        run = Run(make_env, num_envs, calls, n_step, gamma, autoreset_mode, capacity, reset_at)
        self._n_step, self._gamma = n_step, gamma
        if self._buffer is None or capacity is None or capacity != self._capacity:
            self._buffer = self._made(run)
        self._capacity = capacity
        self._fill(run)

    def _made(self, run: Run) -> Any:
        """Make the buffer; None where `_fill` does."""

    def _fill(self, run: Run) -> None:
        raise NotImplementedError


class OneLane(Runner):
    """A pipeline with one environment, which its loop resets, and a buffer that may be a stand-in.

    Args:
        repaired: Whether a stand-in does not make the project's mistakes.
    """

    modes, lanes = (AutoresetMode.DISABLED,), 1

    def __init__(self, repaired: bool = False) -> None:
        super().__init__()
        self._repaired = repaired


class Stepped(NamedTuple):
    """The values of one call of `step`, arrays or tensors `[L, ...]`; `next_obs` has the final observations."""

    obs: Any
    action: Any
    reward: Any
    next_obs: Any
    terminated: Any
    truncated: Any
    after: Any  # what `step` returned: of lanes that have been reset, the next episode's first observation
    reset: bool  # the environments were reset in mid-episode before this call

    def item(self, gamma: float) -> tuple[float, float, float, float]:
        """Return obs, reward, bootstrap and next_obs of the only environment."""
        bootstrap = 0.0 if self.terminated[0] else gamma
        return self.obs[0].item(), self.reward[0].item(), bootstrap, self.next_obs[0].item()

    @property
    def ends(self) -> bool:
        """True if the episode of the only environment ends."""
        return bool(self.terminated[0] or self.truncated[0])


def calls_of(run: Run, wrapped: Callable[[VectorEnv], Any] = lambda envs: envs) -> Iterator[Stepped]:
    """Step a Gymnasium vector environment; in NEXT_STEP mode calls that only reset are handed on, too.

    Args:
        run: Which environments, and how often.
        wrapped: Wraps the vector environment.
    """
    envs = wrapped(SyncVectorEnv([run.make_env] * run.num_envs, autoreset_mode=run.mode))
    obs, _ = envs.reset()
    action = np.zeros(run.num_envs, np.int64)
    for number in range(run.calls):
        again = number in run.reset_at
        if again:
            obs, _ = envs.reset()
        obs = obs.copy()
        after, reward, terminated, truncated, infos = envs.step(action)
        ended, final = terminated | truncated, after.copy()
        if run.mode is AutoresetMode.SAME_STEP:
            for lane in np.flatnonzero(ended):
                final[lane] = infos["final_obs"][lane]
        yield Stepped(obs, action, reward, final, terminated, truncated, after, again)
        obs = after
        if run.mode is AutoresetMode.DISABLED and ended.any():
            obs, _ = envs.reset(options={"reset_mask": ended})


def tensor_calls_of(run: Run, device: str) -> Iterator[Stepped]:
    """Step the environments as a simulator does, in tensors."""
    envs = TensorEnvs(run.make_env, run.num_envs, device)
    obs = envs.reset()
    for number in range(run.calls):
        again = number in run.reset_at
        if again:
            obs = envs.reset()
        after, reward, terminated, truncated, extras = envs.step()
        action = terminated.long() * 0
        yield Stepped(obs, action, reward, extras["final_obs"], terminated, truncated, after, again)
        obs = after
