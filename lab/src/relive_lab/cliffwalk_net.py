"""The small network that learns the Blind Cliffwalk: 64 rectified units, Adam, batches of 32, a target net."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

import relive
from relive_lab.nets import Perceptron

HIDDEN, BATCH, LEARNING_RATE = 64, 32, 1e-3
COPY_EVERY = 100  # updates between copies to the target net
CHECK_EVERY = 50  # updates between looks at the error


def learn(
    truth: npt.NDArray[np.float64],
    solved: float,
    buffer: relive.ReplayBuffer,
    limit: int,
    rng: np.random.Generator,
    going: Callable[[], bool],
) -> float | None:
    """Learn values, `truth` `[n, 2]`, until their mean squared error is below `solved`; `rng` draws initial weights.

    Returns:
        Gradient steps; infinity after `limit` of them, None if `going`, asked now and then, gave False.
    """
    n = len(truth)
    generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
    net = Perceptron((n, HIDDEN, 2), 0, generator)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE, fused=True)
    states, true = torch.eye(n), torch.from_numpy(truth).float()
    prioritized = buffer.sampler.prioritizes
    # There are few states: all of their values cost less than those of a batch, and the target's stay for 100 updates.
    best = net(states).detach().amax(1)
    for update in range(1, limit + 1):
        batch = buffer.sample(BATCH)
        drawn = batch.torch()
        target = drawn.reward + drawn.discount * best[drawn.next_obs]
        td_error = target - net(states)[drawn.obs, drawn.action]
        loss = (drawn.weights * td_error.square()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if prioritized:
            buffer.update_priorities(batch.ids, td_error.detach().numpy())
        if update % CHECK_EVERY == 0:
            values = net(states).detach()
            if float((values - true).square().mean()) < solved:
                return update
            if update % COPY_EVERY == 0:
                best = values.amax(1)
            if not going():
                return None
    return np.inf
