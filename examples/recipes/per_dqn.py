"""DQN with prioritized replay and 3-step targets, in two environments: python per_dqn.py [STEPS]."""

import sys

import gymnasium as gym
import numpy as np
import torch
from torch import nn

import relive
from relive.gymnasium import Recorder

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
torch.set_num_threads(1)

envs = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
buffer = relive.ReplayBuffer(
    relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space),
    capacity=50_000,
    num_envs=2,
    item=relive.Transitions(n_step=3, gamma=0.99),
    sampler=relive.Prioritized(alpha=0.6, beta=relive.Anneal(0.4, 1.0, over=STEPS // 4)),
    seed=0,
)
envs = Recorder(envs, buffer)  # stores each step, right in every autoreset mode


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 2))


online, target = network(), network()
target.load_state_dict(online.state_dict())
optimizer, rng = torch.optim.Adam(online.parameters(), lr=1e-3), np.random.default_rng(0)
obs, _ = envs.reset(seed=0)
for step in range(0, STEPS, 2):
    with torch.no_grad():
        greedy = online(torch.as_tensor(obs)).argmax(dim=1).numpy()
    explore = rng.random(2) < max(0.05, 1 - 2 * step / STEPS)
    obs, *_ = envs.step(np.where(explore, rng.integers(2, size=2), greedy))
    if len(buffer) < 500 or step % 4:
        continue
    batch = buffer.sample(128).torch()
    with torch.no_grad():
        goal = batch.reward + batch.discount * target(batch.next_obs).amax(dim=1)  # discount is 0 after an end
    td_error = online(batch.obs).gather(1, batch.action[:, None])[:, 0] - goal
    loss = (batch.weights * td_error.square()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    buffer.update_priorities(batch.ids, td_error)  # takes the absolute value and adds eps itself
    if step % 500 == 0:
        target.load_state_dict(online.state_dict())
print(f"{len(buffer):,} steps, mean value {online(torch.as_tensor(obs)).mean():.2f}")
