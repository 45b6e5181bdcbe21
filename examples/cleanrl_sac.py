"""Soft actor-critic in one file, in the way of CleanRL, on relive's buffer.

python examples/cleanrl_sac.py --steps 3000
"""

from __future__ import annotations

import argparse
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn

import relive
from relive.gymnasium import Recorder


def perceptron(inputs: int, outputs: int) -> nn.Sequential:
    """Make a net of two hidden layers."""
    return nn.Sequential(
        nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, outputs)
    )  # fmt: skip


class Actor(nn.Module):
    """A Gaussian squashed by tanh to the action space."""

    def __init__(self, space: gym.spaces.Box, inputs: int) -> None:
        super().__init__()
        self.net = perceptron(inputs, 2 * int(np.prod(space.shape)))
        self.scale = torch.as_tensor((space.high - space.low) / 2)
        self.bias = torch.as_tensor((space.high + space.low) / 2)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions `[B, A]` and their log-probabilities `[B]`."""
        mean, log_std = self.net(obs).chunk(2, dim=-1)
        normal = torch.distributions.Normal(mean, (-5 + 3.5 * (torch.tanh(log_std) + 1)).exp())
        x = normal.rsample()
        y = torch.tanh(x)
        log_prob = normal.log_prob(x) - torch.log(self.scale * (1 - y.pow(2)) + 1e-6)
        return y * self.scale + self.bias, log_prob.sum(dim=-1)


def main() -> None:
    """Train, and print returns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env-id", default="Pendulum-v1")
    parser.add_argument("--num-envs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3_000, help="environment steps (default 3000)")
    parser.add_argument("--per", action="store_true", help="prioritized replay")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    learning_starts, batch_size, tau = 500, 128, 0.005
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    envs = gym.make_vec(args.env_id, num_envs=args.num_envs, vectorization_mode="sync")
    space = envs.single_action_space
    buffer = relive.ReplayBuffer(
        relive.Schema.from_spaces(envs.single_observation_space, space, float_dtype="float32"),
        capacity=100_000,
        num_envs=args.num_envs,
        sampler=relive.Prioritized() if args.per else relive.Uniform(),
        seed=args.seed,
    )
    envs = gym.wrappers.vector.RecordEpisodeStatistics(Recorder(envs, buffer))
    envs.action_space.seed(args.seed)
    inputs, actions_size = int(np.prod(envs.single_observation_space.shape)), int(np.prod(space.shape))
    actor = Actor(space, inputs)
    critics, targets = (nn.ModuleList(perceptron(inputs + actions_size, 1) for _ in range(2)) for _ in range(2))
    targets.load_state_dict(critics.state_dict())
    log_alpha = torch.zeros(1, requires_grad=True)
    q_optimizer = torch.optim.Adam(critics.parameters(), lr=1e-3)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
    alpha_optimizer = torch.optim.Adam([log_alpha], lr=1e-3)

    def values(nets: nn.ModuleList, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        x = torch.cat((obs, action), dim=1)
        return torch.stack([net(x)[:, 0] for net in nets])

    start, returns = time.time(), []
    obs, _ = envs.reset(seed=args.seed)
    for step in range(0, args.steps, args.num_envs):
        if step < learning_starts:
            actions = envs.action_space.sample()
        else:
            with torch.no_grad():
                actions = actor(torch.as_tensor(obs, dtype=torch.float32))[0].numpy()
        obs, _, _, _, infos = envs.step(actions)  # the recorder stores the step
        if "episode" in infos:
            returns += infos["episode"]["r"][infos["_episode"]].tolist()
        if step <= learning_starts:
            continue
        data, alpha = buffer.sample(batch_size).torch(), log_alpha.exp().item()
        with torch.no_grad():
            next_action, next_log_prob = actor(data.next_obs)
            soft = values(targets, data.next_obs, next_action).amin(dim=0) - alpha * next_log_prob
            target = data.reward + data.discount * soft
        errors = values(critics, data.obs, data.action) - target
        q_loss = (data.weights * errors.square().sum(dim=0)).mean()
        q_optimizer.zero_grad()
        q_loss.backward()
        q_optimizer.step()
        if args.per:
            buffer.update_priorities(data.ids, errors.abs().mean(dim=0))

        action, log_prob = actor(data.obs)
        actor_loss = (alpha * log_prob - values(critics, data.obs, action).amin(dim=0)).mean()
        actor_optimizer.zero_grad()
        actor_loss.backward()
        actor_optimizer.step()
        alpha_loss = -(log_alpha.exp() * (log_prob.detach() - actions_size)).mean()
        alpha_optimizer.zero_grad()
        alpha_loss.backward()
        alpha_optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(targets.parameters(), critics.parameters(), strict=True):
                slow.lerp_(fast, tau)
    envs.close()
    speed, last = args.steps / (time.time() - start), np.mean(returns[-5:]) if returns else np.nan
    print(f"{len(returns)} episodes, mean return of the last 5: {last:.1f}; {speed:.0f} steps/s")


if __name__ == "__main__":
    main()
