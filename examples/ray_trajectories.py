"""Rollouts of several Ray actors, a directory for each rank, merged and shared out among learners.

Collecting ranks write rollouts of CartPole each to a directory of its own: one process may write to a directory. The
directories are merged without writing the files again, a few rollouts are split off for a look, and each of the
learning ranks loads its share of the rest, imitates it, and averages its weights with the others' after every round.

    python examples/ray_trajectories.py --collectors 4 --learners 2
    python examples/ray_trajectories.py --cluster auto --out /shared/cartpole      # on the cluster that is running
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import gymnasium
import numpy as np
import ray

from relive.trajectories import Trajectory, TrajectoryReplayBuffer, inspect, merge, split

STEPS, ENVS = 100, 8


def balance(obs: np.ndarray) -> np.ndarray:
    """Follow a good policy: push towards the side to which the pole falls."""
    return (obs[:, 2] + 0.5 * obs[:, 3] + 0.05 * obs[:, 0] + 0.1 * obs[:, 1] > 0).astype(np.int64)


@ray.remote
class Collector:
    """A rank that plays and stores."""

    def __init__(self, home: str, rank: int) -> None:
        self.buffer = TrajectoryReplayBuffer(f"{home}/rank_{rank}", seed=rank)
        self.envs = gymnasium.make_vec("CartPole-v1", num_envs=ENVS)
        self.rng = np.random.default_rng(rank)

    def collect(self, rollouts: int) -> str:
        """Store some trajectories `[STEPS, ENVS, ...]`; return what is safe by now."""
        self.buffer.add_trajectories([self._rollout() for _ in range(rollouts)])
        return f"{self.buffer.sync()}"

    def close(self) -> None:
        """Give up the directory, so that others can read all of it."""
        self.buffer.close()

    def _rollout(self) -> Trajectory:
        rows: dict[str, list[np.ndarray]] = {name: [] for name in ("obs", "actions", "rewards", "dones")}
        obs, _ = self.envs.reset(seed=int(self.rng.integers(2**31)))
        for _ in range(STEPS):
            action = np.where(self.rng.random(ENVS) < 0.2, self.rng.integers(0, 2, ENVS), balance(obs))
            rows["obs"].append(obs)
            rows["actions"].append(balance(obs)[:, None])  # what the good policy would have done
            obs, reward, terminated, truncated, _ = self.envs.step(action)
            rows["rewards"].append(reward[:, None])
            rows["dones"].append((terminated | truncated)[:, None])
        states = np.stack([*rows.pop("obs"), obs])
        fields = {name: np.stack(values) for name, values in rows.items()}
        return Trajectory(curr_obs={"states": states[:-1]}, next_obs={"states": states[1:]}, **fields)


@ray.remote
class Learner:
    """A rank that learns from its share: logistic regression on what the good policy does."""

    def __init__(self, checkpoint: str, rank: int, world: int) -> None:
        self.buffer = TrajectoryReplayBuffer(seed=rank)
        self.buffer.load_checkpoint(checkpoint, is_distributed=True, local_rank=rank, world_size=world)

    def size(self) -> int:
        """Return the number of trajectories."""
        return len(self.buffer)

    def learn(self, weights: np.ndarray, updates: int) -> np.ndarray:
        """Return weights after some steps of gradients."""
        weights = np.array(weights)  # what comes from Ray is read-only
        for _ in range(updates):
            batch = self.buffer.sample(256)
            states = batch.curr_obs.states
            error = 1.0 / (1.0 + np.exp(-states @ weights)) - batch.actions[:, 0]
            weights -= states.T @ error / len(error)
        return weights


def score(weights: np.ndarray) -> float:
    """Return the mean length of 16 episodes."""
    envs = gymnasium.make_vec("CartPole-v1", num_envs=16)
    obs, _ = envs.reset(seed=0)
    alive, lengths = np.ones(16, bool), np.zeros(16)
    while alive.any():
        obs, _, terminated, truncated, _ = envs.step((obs @ weights > 0).astype(np.int64))
        lengths += alive
        alive &= ~(terminated | truncated)
    return float(lengths.mean())


def main(arguments: list[str] | None = None) -> None:
    """Collect, merge, split, learn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", default="local", help="address for ray.init; default: a cluster of this machine")
    parser.add_argument("--collectors", type=int, default=4)
    parser.add_argument("--learners", type=int, default=2)
    parser.add_argument("--rollouts", type=int, default=5, help="of each collector")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, help="directory that every node sees; default: a temporary one")
    args = parser.parse_args(arguments)
    alone = not ray.is_initialized()
    if alone:
        ray.init(address=args.cluster, **({"include_dashboard": False} if args.cluster == "local" else {}))
    home = (args.out or Path(tempfile.mkdtemp())).absolute()

    collectors = [Collector.options(num_cpus=0.1).remote(f"{home}", rank) for rank in range(args.collectors)]
    for rank, safe in enumerate(ray.get([each.collect.remote(args.rollouts) for each in collectors])):
        print(f"rank {rank}: {safe}")
    ray.get([each.close.remote() for each in collectors])

    ranks = [home / f"rank_{rank}" for rank in range(args.collectors)]
    print(f"merged: {merge(ranks, home / 'all')} trajectories")
    print(f"split off for a look: {split(home / 'all', 2, home / 'few')}, {inspect(home / 'few').nbytes} bytes")

    world = args.learners
    learners = [Learner.options(num_cpus=0.1).remote(f"{home / 'all'}", rank, world) for rank in range(world)]
    print(f"shares: {ray.get([each.size.remote() for each in learners])}")
    weights = np.zeros(4, np.float32)
    before = score(weights)
    for _ in range(args.rounds):
        sent = ray.put(weights)  # once, for all learners
        weights = np.mean(ray.get([each.learn.remote(sent, 10) for each in learners]), axis=0)
    print(f"mean episode length before: {before:.0f}, after {args.rounds} rounds: {score(weights):.0f}")
    if alone:
        ray.shutdown()


if __name__ == "__main__":
    main()
