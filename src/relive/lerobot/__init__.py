"""LeRobot's `ReplayBuffer` on relive."""

from __future__ import annotations

from .._base.extras import needs

with needs("torch", "relive.lerobot"):
    from ._batches import BatchTransition as BatchTransition
    from ._batches import concatenate_batch_transitions as concatenate_batch_transitions
    from ._batches import random_crop_vectorized as random_crop_vectorized
    from ._batches import random_shift as random_shift
    from ._buffer import ReplayBuffer as ReplayBuffer

__all__ = [
    "BatchTransition",
    "ReplayBuffer",
    "concatenate_batch_transitions",
    "random_crop_vectorized",
    "random_shift",
]
