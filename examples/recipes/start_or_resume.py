"""Start a run or go on with it, model and optimizer included: python start_or_resume.py [STEPS]; then once more."""

import os
import sys
from pathlib import Path

import numpy as np
import torch

import relive

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
RUN = Path("run")

net = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
try:
    buffer = relive.load(RUN / "buffer")  # steps, priorities, generator, statistics
    saved = torch.load(RUN / "learner.pt", weights_only=True)
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
    print(f"resumes at step {step:,} with {len(buffer):,} steps")
except FileNotFoundError:
    schema = relive.Schema(obs=relive.Field(4), action=relive.Field())
    buffer, step = relive.ReplayBuffer(schema, 10_000, sampler=relive.Prioritized(), seed=0), 0
    print("starts")


def save() -> None:
    """Save the learner, then the buffer: a run that has a buffer has a learner."""
    RUN.mkdir(exist_ok=True)
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, RUN / "new.pt")
    os.replace(RUN / "new.pt", RUN / "learner.pt")  # never a half-written file
    buffer.save(RUN / "buffer")


for _ in range(STEPS):
    step += 1
    obs = np.sin(step + np.arange(4))
    next_obs = np.sin(step + 1 + np.arange(4))
    ended = step % 50 == 0
    buffer.add(obs=obs, action=0.0, reward=obs.sum(), next_obs=next_obs, terminated=ended, truncated=False)
    if len(buffer) >= 100:
        batch = buffer.sample(32).torch()
        td_error = net(batch.obs)[:, 0] - batch.reward
        optimizer.zero_grad()
        (batch.weights * td_error.square()).mean().backward()
        optimizer.step()
        buffer.update_priorities(batch.ids, td_error)
    if step % 500 == 0:
        save()
save()
print(f"saved at step {step:,}")
