"""Trainers: whole learning algorithms in one file each, written with relive's public API only.

Importing this package loads NumPy and nothing else; a trainer loads PyTorch and Gymnasium when it is first named.

>>> from relive.lab import DQNConfig, SACConfig
>>> SACConfig(env_id="Pendulum-v1", use_per=True).per_alpha, DQNConfig(env_id="CartPole-v1").double
(0.6, True)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from relive.lab import statistics as statistics
from relive.lab._config import DQNConfig, R2D2Config, SACConfig, TrainerConfig
from relive.lab._results import Progress, TrainResult

if TYPE_CHECKING:
    from relive.lab.dqn import DQNTrainer
    from relive.lab.noise import NoiseShare, noise_share
    from relive.lab.r2d2 import R2D2Trainer
    from relive.lab.sac import SACTrainer

__all__ = [
    "DQNConfig",
    "DQNTrainer",
    "NoiseShare",
    "Progress",
    "R2D2Config",
    "R2D2Trainer",
    "SACConfig",
    "SACTrainer",
    "TrainResult",
    "TrainerConfig",
    "noise_share",
    "statistics",
]


# What brings PyTorch in, and the module that has it.
_LATER = {
    "DQNTrainer": "dqn",
    "R2D2Trainer": "r2d2",
    "SACTrainer": "sac",
    "NoiseShare": "noise",
    "noise_share": "noise",
}


def __getattr__(name: str) -> Any:
    """Load the trainers, and PyTorch with them, only when one of them is named."""
    if name in _LATER:
        return getattr(importlib.import_module(f"relive.lab.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
