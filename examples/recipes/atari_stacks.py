"""Stacks of four frames, each frame stored once: python atari_stacks.py [STEPS] [ALE/Breakout-v5]."""

import sys

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import FrameStackObservation

import relive
from relive.gymnasium import Recorder

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000


class Dots(gym.Env):
    """A game of 84 x 84 pixels, in the place of Atari's where that is not installed: catch a falling dot."""

    observation_space, action_space = gym.spaces.Box(0, 255, (84, 84), np.uint8), gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.dot, self.paddle = [0, int(self.np_random.integers(84))], 42
        return self.screen(), {}

    def step(self, action):
        self.paddle = int(np.clip(self.paddle + 4 * (action - 1), 0, 83))
        self.dot[0] += 3
        over = self.dot[0] >= 81
        return self.screen(), float(over and abs(self.dot[1] - self.paddle) < 8), over, False, {}

    def screen(self):
        screen = np.zeros((84, 84), np.uint8)
        screen[min(self.dot[0], 83), self.dot[1]] = screen[83, max(self.paddle - 3, 0) : self.paddle + 4] = 255
        return screen


if len(sys.argv) > 2:
    import ale_py

    gym.register_envs(ale_py)
    env = gym.wrappers.AtariPreprocessing(gym.make(sys.argv[2], frameskip=1))
else:
    env = Dots()
env = FrameStackObservation(env, 4, padding_type="zero")
schema = relive.Schema.from_spaces(env.observation_space, env.action_space, stack=4, pad="zero")
buffer = relive.ReplayBuffer(schema, 10_000, item=relive.Transitions(n_step=3), seed=0)
env = Recorder(env, buffer)

obs, _ = env.reset(seed=0)
for _ in range(STEPS):
    obs, _, terminated, truncated, _ = env.step(env.action_space.sample())
    if terminated or truncated:
        obs, _ = env.reset()
batch = buffer.sample(32)
assert batch.obs.shape == (32, 4, 84, 84) == batch.next_obs.shape
whole = 2 * batch.obs[0].nbytes * buffer.capacity
print(f"{buffer}; as whole stacks of `obs` and `next_obs`: {whole / 1e9:.1f} GB")
