"""The lab's environments, registered with Gymnasium by `import relive_lab.envs`.

* `relive/PairsTrading-v0`: trade the spread of two stocks, simulated with rare breaks or from real daily prices.
* `relive/TMaze-v0`: remember one cue to the end of a corridor, where it says which way to turn.

>>> import gymnasium, relive_lab.envs
>>> gymnasium.make("relive/PairsTrading-v0", mode="dislocation", sigma=0.3).observation_space.shape
(6,)
"""

from __future__ import annotations

from gymnasium.envs.registration import register, registry

from relive_lab.envs.market import SyntheticMarket
from relive_lab.envs.pairs_trading import PairsTradingEnv
from relive_lab.envs.policy import Episodes, ThresholdPolicy, evaluate
from relive_lab.envs.prices import HistoricalMarket
from relive_lab.envs.tmaze import TMazeEnv
from relive_lab.envs.vector import PairsTradingVectorEnv

__all__ = [
    "Episodes",
    "HistoricalMarket",
    "PairsTradingEnv",
    "PairsTradingVectorEnv",
    "SyntheticMarket",
    "TMazeEnv",
    "ThresholdPolicy",
    "evaluate",
]

# No `max_episode_steps`: the environments truncate by themselves, and a second time limit would only slow each step.
if "relive/PairsTrading-v0" not in registry:
    register(
        id="relive/PairsTrading-v0",
        entry_point="relive_lab.envs.pairs_trading:PairsTradingEnv",
        vector_entry_point="relive_lab.envs.vector:PairsTradingVectorEnv",
    )
if "relive/TMaze-v0" not in registry:
    register(id="relive/TMaze-v0", entry_point="relive_lab.envs.tmaze:TMazeEnv")
