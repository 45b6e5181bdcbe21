"""Stable-Baselines3's SAC with a switch for prioritized replay: python sac_use_per.py [STEPS] [--use-per]."""

import sys

from stable_baselines3 import SAC

import relive
from relive.sb3 import PrioritizedSAC, ReplayBuffer

USE_PER = "--use-per" in sys.argv
STEPS = next((int(word) for word in sys.argv[1:] if word.isdigit()), 20_000)

# The class decides whether TD errors become priorities; everything else is the same.
algorithm = PrioritizedSAC if USE_PER else SAC
sampler = relive.Prioritized(alpha=0.6, beta=0.4) if USE_PER else relive.Uniform()
model = algorithm(
    "MlpPolicy",
    "Pendulum-v1",
    learning_starts=100,
    replay_buffer_class=ReplayBuffer,
    replay_buffer_kwargs={"sampler": sampler},
    seed=0,
)
model.learn(STEPS)
stats = model.replay_buffer.relive.stats()
print(f"{algorithm.__name__}: {stats.drawn:,} items sampled, {stats.updates:,} priorities set")
assert bool(stats.updates) == USE_PER
