"""Short runs of all trainers, all that such a run consists of, and a run that is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

from relive_lab import DQNConfig, DQNTrainer, R2D2Config, R2D2Trainer, SACConfig, SACTrainer, saving

TOTAL, KILLED_AT, SAVE_EVERY = 300, 280, 90
COMMON: dict[str, Any] = {
    "total_steps": TOTAL, "num_envs": 2, "start_steps": 60, "batch_size": 8, "buffer_capacity": 200, "use_per": True,
    "per_beta_anneal_steps": 200, "eval_every": 140, "eval_episodes": 1, "torch_threads": 1, "save_every": SAVE_EVERY,
}  # fmt: skip
Q: dict[str, Any] = {"epsilon_steps": 300, "target_every": 7}
PAIRS: dict[str, Any] = {"env_id": "relive/PairsTrading-v0", "env_kwargs": {"horizon": 25}}
MAZE: dict[str, Any] = {"env_id": "relive/TMaze-v0", "env_kwargs": {"length": 2}}
# Many short episodes, so that a generator which is off shows.
RUNS: dict[str, tuple[Any, Any]] = {
    "sac": (
        SACTrainer,
        SACConfig(**COMMON, **PAIRS, hidden_sizes=(8, 8), n_step=2, measure_noise=True, update_every=4),
    ),
    "dqn": (DQNTrainer, DQNConfig(**COMMON, **Q, hidden_sizes=(8,), frame_stack=2, tau=1.0)),
    "r2d2": (R2D2Trainer, R2D2Config(**COMMON, **Q, **MAZE, lstm_size=6, update_every=8)),
}


def run(name: str) -> Any:
    """Make a trainer that has not begun."""
    kind, config = RUNS[name]
    return kind(config)


def whole(trainer: Any) -> dict[str, Any]:
    """Collect all that the rest of a run depends on, and its results, as arrays; three further draws of the buffer."""
    parts = {**saving.pack(trainer.agent.parts()), **trainer.run.log.tensors()}
    found: dict[str, Any] = {name: tensor.detach().numpy() for name, tensor in parts.items()}
    collector = trainer.run._collector
    memory = {} if collector.memory is None else collector.memory.arrays()
    found |= {"obs": collector.obs, "returns": collector.returns, **memory}
    found["rng"] = np.array(str(trainer.agent.random.rng.bit_generator.state))
    found["counts"] = np.array([trainer.step, trainer.updates])
    stats = trainer.buffer.stats()
    found["stats"] = np.array([stats.size, stats.cuts, stats.drawn, stats.beta])
    for k in range(3):
        batch = trainer.buffer.sample(16)
        found |= {f"{k} {name}": batch[name] for name in ("obs", "action", "reward", "weights")} | {f"{k}": batch.ids}
    return found


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """List the names of entries that differ in a bit."""
    assert one.keys() == other.keys()
    return [
        name for name in one if one[name].dtype != other[name].dtype or one[name].tobytes() != other[name].tobytes()
    ]


def killed(name: str, out: Path) -> None:
    """Train until `KILLED_AT`, and die there without a word."""

    def report(now: Any) -> None:
        if now.step >= KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)

    run(name).train(report, out=out)
