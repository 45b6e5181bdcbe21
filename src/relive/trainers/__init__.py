"""Trainers: whole learning algorithms in one file each, written with relive's public API only.

Importing this package loads NumPy and nothing else; a trainer loads PyTorch and Gymnasium when it is first named.

>>> from relive.trainers import SACConfig
>>> SACConfig(env_id="Pendulum-v1", use_per=True).per_alpha
0.6
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relive.trainers import statistics as statistics
from relive.trainers._config import SACConfig
from relive.trainers._results import Progress, TrainResult

if TYPE_CHECKING:
    from relive.trainers.sac import SACTrainer

__all__ = ["Progress", "SACConfig", "SACTrainer", "TrainResult", "statistics"]


def __getattr__(name: str) -> Any:
    """Load the trainers, and PyTorch with them, only when one of them is named."""
    if name == "SACTrainer":
        from relive.trainers.sac import SACTrainer

        return SACTrainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
