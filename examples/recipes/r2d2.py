"""Recurrent replay as in R2D2: stored state, burn-in, one priority a sequence: python r2d2.py [STEPS]."""

import sys

import gymnasium as gym
import numpy as np
import torch
from torch import nn

import relive

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
BURN_IN, LENGTH, SIZE = 8, 16, 32
torch.set_num_threads(1)

env = gym.make("CartPole-v1")
buffer = relive.ReplayBuffer(
    relive.Schema(obs=relive.Field(4), action=relive.Field((), "int64"), state=relive.Field((2, SIZE), every=8)),
    capacity=50_000,
    item=relive.Sequences(LENGTH, burn_in=BURN_IN, starts=8, gamma=0.99),  # `starts` is what `every` is
    sampler=relive.Prioritized(alpha=0.9),
    seed=0,
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.memory, self.value = nn.LSTM(4, SIZE, batch_first=True), nn.Linear(SIZE, 2)

    def forward(self, obs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Map `[B, T, 4]` and states `[B, 2, SIZE]` to values `[B, T, 2]` and the states behind them."""
        hidden, after = self.memory(obs, tuple(part[None].contiguous() for part in state.unbind(1)))
        return self.value(hidden), torch.stack(after, dim=2)[0]


net = Net()
optimizer, rng = torch.optim.Adam(net.parameters(), lr=1e-3), np.random.default_rng(0)
obs, state = env.reset(seed=0)[0], torch.zeros(1, 2, SIZE)
for step in range(STEPS):
    with torch.no_grad():
        values, after = net(torch.as_tensor(obs)[None, None], state)
    action = int(rng.integers(2)) if rng.random() < max(0.05, 1 - 2 * step / STEPS) else int(values.argmax())
    next_obs, reward, terminated, truncated, _ = env.step(action)
    flags = {"terminated": terminated, "truncated": truncated}
    buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, state=state[0], **flags)
    obs, state = (env.reset()[0], torch.zeros_like(state)) if terminated or truncated else (next_obs, after)
    if step % 8 or not buffer.can_sample(16) or len(buffer) < 200:
        continue
    batch = buffer.sample(16).torch()
    all_values, _ = net(batch.all_obs, batch.state)  # from the stored state, through the burn-in
    chosen = all_values[:, :-1].gather(2, batch.action[..., None])[..., 0]
    goal = batch.reward + batch.discount * all_values[:, 1:].detach().amax(dim=2)
    mask = batch.mask.float() * (torch.arange(BURN_IN + LENGTH) >= BURN_IN)  # no loss on the burn-in
    td_error = (goal - chosen) * mask
    optimizer.zero_grad()
    (batch.weights * td_error.square().sum(dim=1) / mask.sum(dim=1)).mean().backward()
    optimizer.step()
    buffer.update_priorities(batch.ids, relive.sequence_priority(td_error.detach(), mask.bool(), eta=0.9))
print(f"{len(buffer):,} steps, {buffer.stats().updates:,} priorities")
