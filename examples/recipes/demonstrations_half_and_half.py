"""Half of each batch from demonstrations, as in RLPD: python demonstrations_half_and_half.py [STEPS]."""

import sys

import numpy as np
import torch

import relive

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
torch.set_num_threads(1)
schema = relive.Schema(obs=relive.Field(2), action=relive.Field(1))
choices = {"item": relive.Transitions(n_step=3), "sampler": relive.Prioritized()}
replay = relive.ReplayBuffer(schema, 10_000, seed=0, **choices)
demonstrations = relive.ReplayBuffer(schema, 10_000, seed=1, **choices)
mixture = relive.Mixture(replay, demonstrations, share=0.5)


def step_of(buffer: relive.ReplayBuffer, place: np.ndarray, action: float) -> np.ndarray:
    """Move a point by an action and store it; it ends at a distance of 1."""
    after = place + 0.05 * np.array([action, 1.0])
    ended = bool(np.abs(after).max() > 1)
    flags = {"terminated": ended, "truncated": False}
    buffer.add(obs=place, action=[action], reward=-abs(after[0]), next_obs=after, **flags)
    return np.zeros(2) if ended else after


place, rng = np.zeros(2), np.random.default_rng(0)
for _ in range(500):  # an expert steers to the middle
    place = step_of(demonstrations, place, float(np.clip(-20 * place[0], -1, 1)))

critic = torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
place = np.zeros(2)
for step in range(STEPS):
    place = step_of(replay, place, rng.uniform(-1, 1))
    if not mixture.can_sample(64):
        continue
    batch = mixture.sample(64).torch()  # rows 0 to 31 are the agent's, 32 to 63 demonstrations
    with torch.no_grad():
        best = torch.clamp(-20 * batch.next_obs[:, :1], -1, 1)
        goal = batch.reward + batch.discount * critic(torch.cat([batch.next_obs, best], dim=1))[:, 0]
    td_error = critic(torch.cat([batch.obs, batch.action], dim=1))[:, 0] - goal
    optimizer.zero_grad()
    (batch.weights * td_error.square()).mean().backward()
    optimizer.step()
    mixture.update_priorities(batch.ids, td_error)  # each row's in its own buffer
    if step % 500 == 0:
        print(f"step {step}: TD error {td_error.abs().mean().item():.3f}")
print([stats.updates for stats in mixture.stats()])
