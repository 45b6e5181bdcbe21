"""Bit flipping (Andrychowicz et al. 2017): rewards are too rare to learn from, and hindsight makes enough of them.

The agent flips one bit a step and wants to reach a random pattern, which is all that is rewarded. Deep Q-learning with
`relive.Hindsight`, and the same without it:

    python examples/bit_flipping.py --bits 10
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

import relive

ENVS = 8


class BitFlipping:
    """`ENVS` environments; an episode ends with success, or after as many steps as there are bits."""

    def __init__(self, bits: int, rng: np.random.Generator) -> None:
        self.bits, self.rng = bits, rng
        self.state = rng.integers(2, size=(ENVS, bits)).astype(np.float32)
        self.goal = rng.integers(2, size=(ENVS, bits)).astype(np.float32)
        self.left = np.full(ENVS, bits)

    def observe(self) -> dict[str, np.ndarray]:
        """Return the present patterns, and the wanted ones."""
        return {"achieved_goal": self.state.copy(), "desired_goal": self.goal.copy()}

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
        """Step all environments: next observations, final ones at ends, rewards, `terminated`, `truncated`."""
        self.state[np.arange(ENVS), action] = 1 - self.state[np.arange(ENVS), action]
        self.left -= 1
        obs = self.observe()
        rewards = reward(obs["achieved_goal"], obs["desired_goal"], {})
        terminated = rewards == 0
        ended = terminated | (self.left == 0)
        for values in (self.state, self.goal):
            values[ended] = self.rng.integers(2, size=(ended.sum(), self.bits))
        self.left[ended] = self.bits
        return obs, rewards, terminated, ended & ~terminated


def reward(achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Mapping[str, Any]) -> np.ndarray:
    """Return 0 for a reached goal, else -1."""
    return (achieved_goal == desired_goal).all(axis=-1) - 1.0


def train(bits: int, steps: int, ratio: float, seed: int) -> float:
    """Train, and return the share of successes among the last 200 episodes."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    goal = relive.Field((bits,))
    buffer = relive.ReplayBuffer(
        relive.Schema(obs={"achieved_goal": goal, "desired_goal": goal}, action=relive.Field((), "int64")),
        capacity=50_000,
        num_envs=ENVS,
        item=relive.Hindsight(item=relive.Transitions(gamma=0.98), reward=reward, ratio=ratio),
        seed=seed,
    )
    net, target = (
        nn.Sequential(nn.Linear(2 * bits, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, bits))
        for _ in range(2)
    )
    target.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

    def values(of: nn.Module, obs: Any) -> torch.Tensor:
        return of(torch.cat((torch.as_tensor(obs["achieved_goal"]), torch.as_tensor(obs["desired_goal"])), dim=1))

    envs, successes = BitFlipping(bits, rng), deque[bool](maxlen=200)
    for step in range(steps // ENVS):
        obs = envs.observe()
        with torch.no_grad():
            action = values(net, obs).argmax(dim=1).numpy()
        action = np.where(rng.random(ENVS) < 0.1, rng.integers(bits, size=ENVS), action)
        next_obs, rewards, terminated, truncated = envs.step(action)
        buffer.add(
            obs=obs, action=action, reward=rewards, next_obs=next_obs, terminated=terminated, truncated=truncated
        )  # fmt: skip
        successes.extend(terminated[terminated | truncated].tolist())
        if step < 20:
            continue
        batch = buffer.sample(128).torch()
        with torch.no_grad():
            wanted = batch.reward + batch.discount * values(target, batch.next_obs).amax(dim=1)
        chosen = values(net, batch.obs).gather(1, batch.action[:, None])[:, 0]
        loss = nn.functional.smooth_l1_loss(chosen, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), net.parameters(), strict=True):
                slow.lerp_(fast, 0.05)
    return float(np.mean(successes)) if successes else 0.0


def main() -> None:
    """Train with hindsight and without."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", type=int, default=10, help="bits of a pattern (default 10)")
    parser.add_argument("--steps", type=int, default=20_000, help="environment steps of a run (default 20000)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for ratio in (0.8, 0.0):
        share = train(args.bits, args.steps, ratio, args.seed)
        print(f"ratio {ratio}: {share:.0%} of the last 200 episodes reach their goal")


if __name__ == "__main__":
    main()
