"""Behaviour cloning from directories of trajectories, with batches mixed from two buffers.

Rollouts of a good and of a noisy CartPole policy are written to disk, sampled step by step, and imitated. Half of every
batch comes from the good policy's demonstrations.

    python examples/clone_from_trajectories.py --updates 2000
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import gymnasium
import numpy as np
import torch

from relive.trajectories import Mixture, Prefetch, Trajectory, TrajectoryReplayBuffer

STEPS, ENVS = 200, 8


def balance(obs: np.ndarray) -> np.ndarray:
    """Follow a good policy: push towards the side to which the pole falls."""
    return (obs[:, 2] + 0.5 * obs[:, 3] + 0.05 * obs[:, 0] + 0.1 * obs[:, 1] > 0).astype(np.int64)


def rollout(envs: gymnasium.vector.VectorEnv, noise: float, rng: np.random.Generator) -> Trajectory:
    """Collect one trajectory `[STEPS, ENVS, ...]`; `noise` is the share of random actions."""
    rows: dict[str, list[np.ndarray]] = {name: [] for name in ("obs", "action", "reward", "terminated", "truncated")}
    obs, _ = envs.reset(seed=int(rng.integers(2**31)))
    for _ in range(STEPS):
        action = np.where(rng.random(ENVS) < noise, rng.integers(0, 2, ENVS), balance(obs))
        rows["obs"].append(obs)
        rows["action"].append(action[:, None])
        obs, reward, terminated, truncated, _ = envs.step(action)
        for name, value in (("reward", reward), ("terminated", terminated), ("truncated", truncated)):
            rows[name].append(value[:, None])
    return Trajectory(
        curr_obs={"state": np.stack(rows["obs"])},
        next_obs={"state": np.stack([*rows["obs"][1:], obs])},  # one step later, so it is not stored again
        actions=np.stack(rows["action"]),
        rewards=np.stack(rows["reward"]),
        terminations=np.stack(rows["terminated"]),
        truncations=np.stack(rows["truncated"]),
    )


def score(policy: torch.nn.Module, episodes: int) -> float:
    """Return the mean episode length of the policy."""
    lengths = []
    env = gymnasium.make("CartPole-v1")
    for episode in range(episodes):
        obs, _ = env.reset(seed=episode)
        length, ended = 0, False
        while not ended:
            with torch.no_grad():
                action = int(policy(torch.from_numpy(obs)).argmax())
            obs, _, terminated, truncated, _ = env.step(action)
            length, ended = length + 1, terminated or truncated
        lengths.append(length)
    return float(np.mean(lengths))


def main() -> None:
    """Collect rollouts, train on them, and print the scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--rollouts", type=int, default=10)
    parser.add_argument("--out", type=Path, help="directory for the trajectories; default: a temporary one")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    out = args.out or Path(tempfile.mkdtemp())
    envs = gymnasium.make_vec("CartPole-v1", num_envs=ENVS)
    with TrajectoryReplayBuffer(out / "noisy", seed=1) as noisy, TrajectoryReplayBuffer(out / "good", seed=2) as good:
        for _ in range(args.rollouts):
            noisy.add_trajectories([rollout(envs, 0.7, rng)])
            good.add_trajectories([rollout(envs, 0.0, rng)])
        print(f"{noisy}\n{good}\n{good.sync()}")
        policy = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
        before = score(policy, 10)
        optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
        with Prefetch(Mixture(noisy, good), batch_size=256, batches=args.updates) as batches:
            for batch in batches:
                tensors = batch.torch()
                loss = torch.nn.functional.cross_entropy(policy(tensors.curr_obs.state), tensors.actions[:, 0])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    print(f"mean episode length before: {before:.0f}, after {args.updates} updates: {score(policy, 10):.0f}")
    print(f"inspect the demonstrations: relive inspect {out / 'good'}")


if __name__ == "__main__":
    main()
