"""The history of a run: returns in memory, and TensorBoard events if `log_dir` is set."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import torch
from torch import Tensor

from relive import ReplayBuffer
from relive_lab.checks import needs
from relive_lab.config import TrainerConfig
from relive_lab.results import Progress

PROCESS = psutil.Process()
HISTORY: dict[str, type[np.generic]] = dict.fromkeys(("eval_steps", "eval_episodes", "episode_steps"), np.int64)
HISTORY |= dict.fromkeys(("eval_returns", "episode_returns"), np.float64)
QUANTILES = ("min", "25", "50", "75", "max")


class Log:
    """History of one run."""

    def __init__(self, config: TrainerConfig) -> None:
        self.seconds = 0.0
        self._history: dict[str, list[Any]] = {name: [] for name in HISTORY}
        self._written = 0
        self._mark = (0, time.perf_counter())
        self._config = config
        self._writer: Any = None

    def episode(self, step: int, value: float) -> None:
        """Note the return of a training episode that ended at `step`."""
        self._history["episode_steps"].append(step)
        self._history["episode_returns"].append(value)

    def evaluation(self, step: int, returns: npt.NDArray[np.float64]) -> None:
        """Note the returns of an evaluation."""
        self._history["eval_steps"].append(step)
        self._history["eval_episodes"].append(len(self._history["episode_steps"]))
        self._history["eval_returns"].append(returns)
        if self._writer is not None:
            self._writer.add_scalar("eval/return", float(returns.mean()), step)

    @property
    def writes(self) -> bool:
        """True if entries are written anywhere."""
        return self._writer is not None

    def start(self, step: int) -> None:
        """Begin to measure speed, and open the TensorBoard file; entries of later steps are those of a killed run."""
        if self._writer is None and self._config.log_dir is not None:
            self._writer = _writer(self._config, step)
        self._mark = (step, time.perf_counter())

    def write(self, step: int, buffer: ReplayBuffer, scalars: dict[str, float]) -> None:
        """Write one entry: the learner's own scalars, returns, speed, memory, and what the buffer says of itself."""
        returns = self._history["episode_returns"]
        recent, self._written = returns[self._written :], len(returns)
        before, since = self._mark
        self._mark = (step, time.perf_counter())
        speed = (step - before) / max(self._mark[1] - since, 1e-9)
        system = {"system/resident_mb": PROCESS.memory_info().rss / 1e6, "system/steps_per_second": speed}
        scalars = {**scalars, **system, **({"train/return": float(np.mean(recent))} if recent else {})}
        stats = buffer.stats()
        names = ("size", "replay_ratio", "beta", "effective_sample_size", "stale_updates", "cuts", "dropped", "lost")
        for name in names:
            if hasattr(stats, name):  # shards say other things of themselves
                scalars[f"buffer/{name}"] = float(getattr(stats, name))
        if (limiter := getattr(stats, "limiter", None)) is not None:
            for name in ("samples_per_insert", "error", "insert_seconds", "sample_seconds"):
                scalars[f"limiter/{name}"] = float(getattr(limiter, name))
        for name in ("priority", "age"):
            values = getattr(stats, f"{name}_quantiles", ())
            scalars |= {f"buffer/{name}_{label}": value for label, value in zip(QUANTILES, values, strict=False)}
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)

    def progress(self, step: int, total: int, updates: int) -> Progress:
        """Return where the run stands."""
        returns, evaluations = self._history["episode_returns"], self._history["eval_returns"]
        return Progress(
            step=step,
            total_steps=total,
            episodes=len(returns),
            updates=updates,
            train_return=returns[-1] if returns else math.nan,
            eval_return=float(evaluations[-1].mean()) if evaluations else math.nan,
            resident=PROCESS.memory_info().rss,
        )

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the history as arrays, named as in `TrainResult`."""
        found = {name: np.array(self._history[name], dtype) for name, dtype in HISTORY.items()}
        return found if len(found["eval_returns"]) else {**found, "eval_returns": np.zeros((0, 0))}

    def tensors(self) -> dict[str, Tensor]:
        """Return the history as tensors, for a checkpoint."""
        return {f"history.{name}": torch.from_numpy(array) for name, array in self.arrays().items()}

    def facts(self) -> dict[str, Any]:
        """Return the rest, for a checkpoint."""
        return {"seconds": self.seconds, "written": self._written}

    def restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Take over the history of a checkpoint."""
        self.seconds, self._written = facts["seconds"], facts["written"]
        self._history = {name: list(tensors[f"history.{name}"].numpy()) for name in HISTORY}

    def flush(self) -> None:
        """Push TensorBoard events to the file."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Close the TensorBoard file."""
        if self._writer is not None:
            self._writer.close()


def _writer(config: TrainerConfig, step: int) -> Any:
    with needs("tensorboard", f"{type(config).__name__}(log_dir)"):
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter(config.log_dir, purge_step=step + 1 if step else None)
