"""Chunks of actions for a robot's policy, cut at the end of an episode: python action_chunks.py [UPDATES]."""

import sys

import numpy as np
import torch

import relive

UPDATES = int(sys.argv[1]) if len(sys.argv) > 1 else 500
CHUNK, ARM, MOTORS = 8, 6, 3
torch.set_num_threads(1)

# Demonstrations: an arm that follows a sine, 30 episodes of 40 to 80 steps.
buffer = relive.ReplayBuffer(
    relive.Schema(obs=relive.Field(ARM), action=relive.Field(MOTORS)),
    capacity=10_000,
    item=relive.Transitions(n_step=CHUNK, chunk=True),
    seed=0,
)
rng = np.random.default_rng(0)
for _ in range(30):
    length, phase = int(rng.integers(40, 80)), rng.uniform(0, 6)
    time = phase + 0.1 * np.arange(length + 1)
    obs = np.sin(time[:, None] + np.arange(ARM)).astype(np.float32)
    over = np.arange(length) == length - 1
    buffer.extend(
        obs=obs[:-1],
        action=np.cos(time[:-1, None] + np.arange(MOTORS)),
        reward=over.astype(float),
        next_obs=obs[1:],
        terminated=over,
        truncated=np.zeros(length, bool),
    )

policy = torch.nn.Sequential(
    torch.nn.Linear(ARM, 64),
    torch.nn.ReLU(),
    torch.nn.Linear(64, CHUNK * MOTORS),
    torch.nn.Unflatten(1, (CHUNK, MOTORS)),
)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
for update in range(UPDATES):
    batch = buffer.sample(64).torch()
    assert batch.action.shape == (64, CHUNK, MOTORS)
    mask = torch.arange(CHUNK) < batch.steps[:, None]  # actions after the end of the episode are padding
    loss = ((policy(batch.obs) - batch.action).square().mean(dim=2) * mask).sum() / mask.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if update % 100 == 0 or update == UPDATES - 1:
        print(f"update {update}: loss {loss.item():.4f}")
