"""What a run reports and returns. No PyTorch here, so that a process that only reads results need not load it."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a run, given to the `progress` function a few times a second, and after every evaluation.

    Attributes:
        step: Environment steps done.
        total_steps: Environment steps of the whole run.
        episodes: Episodes finished.
        updates: Gradient updates done.
        train_return: Return of the last finished training episode; NaN before the first.
        eval_return: Mean return of the last evaluation; NaN before the first.
        resident: Bytes of memory that the process has resident, the filled part of the replay buffer among them.

    >>> def report(progress: Progress) -> bool:
    ...     return not progress.eval_return > -200.0  # False ends the run
    >>> report(Progress(step=500, total_steps=5_000, episodes=2, updates=0, train_return=-1100.0, eval_return=-150.0))
    False
    """

    step: int
    total_steps: int
    episodes: int
    updates: int
    train_return: float
    eval_return: float
    resident: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainResult:
    """The results of a run, from its first step, resumed or not.

    Attributes:
        eval_steps: Environment steps at each evaluation, int64 `[E]`.
        eval_episodes: Training episodes finished by then, int64 `[E]`.
        eval_returns: Undiscounted return of every evaluation episode, float64 `[E, eval_episodes]`.
        episode_steps: Environment steps at the end of each training episode, int64 `[K]`.
        episode_returns: Undiscounted return of each training episode, float64 `[K]`.
        steps: Environment steps done.
        updates: Gradient updates done.
        seconds: Wall-clock time in `train`, evaluations included.

    >>> from relive_lab import SACConfig, SACTrainer
    >>> config = SACConfig(env_id="Pendulum-v1", total_steps=400, start_steps=400, eval_every=200, eval_episodes=3)
    >>> result = SACTrainer(config).train()
    >>> result.eval_steps.tolist(), result.eval_returns.shape, result.episode_steps.tolist()
    ([200, 400], (2, 3), [200, 400])
    """

    eval_steps: npt.NDArray[np.int64]
    eval_episodes: npt.NDArray[np.int64]
    eval_returns: npt.NDArray[np.float64]
    episode_steps: npt.NDArray[np.int64]
    episode_returns: npt.NDArray[np.float64]
    steps: int
    updates: int
    seconds: float
