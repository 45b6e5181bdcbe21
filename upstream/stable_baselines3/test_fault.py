"""Another call of `learn` resets the environments; no n-step window goes on behind the step before."""

import sys

from source import SOURCE

sys.path.insert(0, str(SOURCE))

import numpy as np
from stable_baselines3 import DQN


def test_windows_end_where_learn_begins_anew():
    choices = {"n_steps": 3, "gamma": 0.5, "buffer_size": 100, "learning_starts": 10**6, "device": "cpu"}
    model = DQN("MlpPolicy", "CartPole-v1", seed=0, **choices)
    model.learn(8)
    model.learn(8)
    buffer = model.replay_buffer
    drawn = buffer._get_samples(np.array([6]))
    # CartPole pays 1 for each step: of two steps, 1 + 0.5; a third one would be of the next episode.
    assert drawn.rewards.item() == 1.5
    assert drawn.discounts.item() == 0.25
