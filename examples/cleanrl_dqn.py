"""Deep Q-learning in one file, in the way of CleanRL, with prioritized replay: right in every autoreset mode.

python examples/cleanrl_dqn.py --steps 20000
"""

from __future__ import annotations

import argparse
import random
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.nn import functional

import relive
from relive.gymnasium import Recorder


class QNetwork(nn.Module):
    """One value for each action."""

    def __init__(self, envs: gym.vector.VectorEnv) -> None:
        super().__init__()
        size = int(np.prod(envs.single_observation_space.shape))
        self.network = nn.Sequential(
            nn.Linear(size, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, envs.single_action_space.n)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map observations `[B, ...]` to values `[B, actions]`."""
        return self.network(x.flatten(1))


def main() -> None:
    """Train, and print returns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env-id", default="CartPole-v1")
    parser.add_argument("--num-envs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20_000, help="environment steps (default 20000)")
    parser.add_argument("--n-step", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    learning_starts, train_frequency, target_frequency, batch_size = 1_000, 4, 500, 128
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    envs = gym.make_vec(args.env_id, num_envs=args.num_envs, vectorization_mode="sync")
    buffer = relive.ReplayBuffer(
        relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space),
        capacity=12_000,
        num_envs=args.num_envs,
        item=relive.Transitions(n_step=args.n_step, gamma=0.99),
        sampler=relive.Prioritized(alpha=0.6, beta=relive.Anneal(0.4, 1.0, over=args.steps // train_frequency)),
        seed=args.seed,
    )
    envs = gym.wrappers.vector.RecordEpisodeStatistics(Recorder(envs, buffer))
    q_network, target_network = QNetwork(envs), QNetwork(envs)
    target_network.load_state_dict(q_network.state_dict())
    optimizer = torch.optim.Adam(q_network.parameters(), lr=1e-3)

    start, returns = time.time(), []
    obs, _ = envs.reset(seed=args.seed)
    for step in range(0, args.steps, args.num_envs):
        epsilon = max(0.05, 1.0 - 0.95 * step / (0.5 * args.steps))
        if random.random() < epsilon:
            actions = np.random.randint(envs.single_action_space.n, size=args.num_envs)
        else:
            with torch.no_grad():
                actions = q_network(torch.as_tensor(obs)).argmax(dim=1).numpy()
        obs, _, _, _, infos = envs.step(actions)  # the recorder stores the step
        if "episode" in infos:
            returns += infos["episode"]["r"][infos["_episode"]].tolist()
        if step <= learning_starts:
            continue
        if step % train_frequency < args.num_envs:
            data = buffer.sample(batch_size).torch()
            with torch.no_grad():
                target = data.reward + data.discount * target_network(data.next_obs).amax(dim=1)
            value = q_network(data.obs).gather(1, data.action[:, None])[:, 0]
            loss = (data.weights * functional.mse_loss(value, target, reduction="none")).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            buffer.update_priorities(data.ids, target - value)
        if step % target_frequency < args.num_envs:
            target_network.load_state_dict(q_network.state_dict())
    envs.close()
    speed = args.steps / (time.time() - start)
    print(f"{len(returns)} episodes, mean return of the last 20: {np.mean(returns[-20:]):.1f}; {speed:.0f} steps/s")


if __name__ == "__main__":
    main()
