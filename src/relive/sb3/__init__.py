"""Stable-Baselines3 on relive: its buffers, and its algorithms with prioritized replay.

`DQN("MlpPolicy", env, replay_buffer_class=relive.sb3.ReplayBuffer)` is all that changes; the extra is `relive[sb3]`.
"""

from .._base.extras import needs

with needs("sb3", "relive.sb3"):
    import stable_baselines3  # noqa: F401

from ._buffer import DictSamples, ReplayBuffer, Samples
from ._her import HerReplayBuffer
from ._prioritized import PrioritizedDQN, PrioritizedReplay, PrioritizedSAC, PrioritizedTD3

__all__ = [
    "DictSamples",
    "HerReplayBuffer",
    "PrioritizedDQN",
    "PrioritizedReplay",
    "PrioritizedSAC",
    "PrioritizedTD3",
    "ReplayBuffer",
    "Samples",
]
