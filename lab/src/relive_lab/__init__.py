"""Trainers: whole learning algorithms in one file each, written with relive's public API only.

Importing this package loads next to nothing; a trainer loads PyTorch and Gymnasium when it is first named.

>>> from relive_lab import DQNConfig, SACConfig
>>> SACConfig(env_id="Pendulum-v1", use_per=True).per_alpha, DQNConfig(env_id="CartPole-v1").double
(0.6, True)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relive_lab import statistics as statistics
    from relive_lab.config import TrainerConfig
    from relive_lab.dqn import DQNConfig, DQNTrainer
    from relive_lab.noise import NoiseShare, noise_share
    from relive_lab.r2d2 import R2D2Config, R2D2Trainer
    from relive_lab.results import Progress, TrainResult
    from relive_lab.sac import SACConfig, SACTrainer

__version__ = "0.3.0"
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

# The module of each name.
_MODULES = {
    "DQNConfig": "dqn",
    "DQNTrainer": "dqn",
    "NoiseShare": "noise",
    "Progress": "results",
    "R2D2Config": "r2d2",
    "R2D2Trainer": "r2d2",
    "SACConfig": "sac",
    "SACTrainer": "sac",
    "TrainResult": "results",
    "TrainerConfig": "config",
    "noise_share": "noise",
}


def __getattr__(name: str) -> Any:
    """Load a name when it is first used."""
    if name == "statistics":
        return importlib.import_module("relive_lab.statistics")
    if name in _MODULES:
        return getattr(importlib.import_module(f"relive_lab.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the names that are not loaded yet, too."""
    return [*__all__, "__version__"]
