"""Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905) on relive's replay buffer, from top to bottom.

    y = r + discount * (min(Q1', Q2')(s', a') - alpha * log pi(a' | s'))        a' ~ pi(s')
    critics:      mean of w * ((Q1 - y)^2 + (Q2 - y)^2)                          w = 1 under uniform replay
    actor:        mean of alpha * log pi(a | s) - min(Q1, Q2)(s, a)              a ~ pi(s)
    temperature:  alpha follows the entropy towards its target

Uniform and prioritized replay share every line; prioritized replay also hands back the mean of |Q1 - y| and |Q2 - y|,
the priority. With `critic_loss="huber"`, Huber's loss stands for the squares. With `priority="precision"` the priority
comes from the reward's predicted noise (`_precision.py`). What all trainers share (the loop, evaluation, checkpoints)
is in `_trainer.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import relive
from relive.lab._config import SACConfig
from relive.lab._trainer import Trainer  # first: says what to install where PyTorch is missing

# isort: split
import torch
from torch import Tensor

from relive.lab._env import Continuous, flat
from relive.lab._nets import Actor, TwinCritic, loss_of, move_towards
from relive.lab._precision import RewardNoise, effective_share


class SACTrainer(Trainer[SACConfig]):
    """Train a tanh-Gaussian policy with twin critics and an automatic temperature on any continuous environment.

    Args:
        config: All settings.
        make_env: Builds one environment; None makes `config.env_id`.
        evaluator: Replaces the evaluation that `config` describes: takes a policy (observations `[N, ...]` to actions
            `[N, ...]`) and gives the returns of a fixed set of episodes, always as many.

    Attributes:
        config: The settings.
        buffer: The replay buffer.
        step: Environment steps done.
        updates: Gradient updates done.

    Raises:
        ArgumentError: Actions are not a bounded box, observations are not a numeric box, or the device is unknown.
        MissingExtra: PyTorch, Gymnasium, psutil or safetensors is not installed.

    >>> config = SACConfig(env_id="Pendulum-v1", total_steps=300, start_steps=200, batch_size=32, hidden_sizes=(32, 32),
    ...                    eval_every=300, eval_episodes=2, buffer_capacity=1_000, use_per=True)
    >>> result = SACTrainer(config).train()
    >>> result.eval_returns.shape, result.updates
    ((1, 2), 100)
    """

    config_type = SACConfig

    def _build_learner(self, envs: Any) -> None:
        c, source = self.config, self._source()
        self._spaces = Continuous(envs, "SACTrainer")
        sizes = (self._spaces.obs_size, self._spaces.action_size, c.hidden_sizes)
        self._actor = Actor(*sizes, source).to(self._device)
        self._critic, self._target = (TwinCritic(*sizes, source).to(self._device) for _ in range(2))
        self._target.load_state_dict(self._critic.state_dict())
        self._reward_noise: RewardNoise | None = None
        if c.measure_noise or c.priority == "precision":
            # After the others, whose initial weights thus are the same without it.
            self._reward_noise = RewardNoise(sizes[0] + sizes[1], sizes[2], c.learning_rate, source, self._device)
        self._log_alpha = torch.full((1,), math.log(c.init_alpha), device=self._device)
        self._actor_weights: list[Tensor] = list(self._actor.parameters())
        self._critic_weights: list[Tensor] = list(self._critic.parameters())
        self._target_weights: list[Tensor] = [weight.requires_grad_(False) for weight in self._target.parameters()]
        learned = [*self._actor_weights, self._log_alpha] if c.autotune else self._actor_weights
        self._critic_optimizer = torch.optim.Adam(self._critic_weights, lr=c.learning_rate, fused=True)
        self._actor_optimizer = torch.optim.Adam(learned, lr=c.actor_learning_rate or c.learning_rate, fused=True)
        self._aside = torch.Generator(self._device).manual_seed(c.seed)  # for `td_error`
        self._target_entropy = -float(sizes[1]) if c.target_entropy == "auto" else float(c.target_entropy)
        scaling = (self._spaces.middle, 1.0 / self._spaces.half)
        self._middle, self._factor = (torch.tensor(x, dtype=torch.float32, device=self._device) for x in scaling)

    def _sampler(self) -> relive.Uniform | relive.Prioritized:
        if self.config.priority == "precision":
            return relive.Prioritized(alpha=1.0, beta=0.0)
        return super()._sampler()

    def _interact(self, obs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        shape = (self.config.num_envs, self._spaces.action_size)
        unit: npt.NDArray[Any]
        if self.step < self.config.start_steps:
            unit = self._rng.uniform(-1.0, 1.0, shape)
        else:
            unit = self._actor.act(flat(obs), self._rng.standard_normal(shape, np.float32))
        return self._do(self._spaces.to_env(unit))[0]

    def act(self, obs: npt.ArrayLike, deterministic: bool = True) -> npt.NDArray[Any]:
        """Choose actions.

        Args:
            obs: One observation, or a batch of them with a leading axis; other shapes are an ArgumentError.
            deterministic: Take the squashed mean instead of a draw.

        Returns:
            An action in the environment's own scale, shape and dtype, with the leading axis if `obs` had one.
        """
        rows, single = self._spaces.batch_of(obs)
        shape = (len(rows), self._spaces.action_size)
        noise = None if deterministic else self._rng.standard_normal(shape, np.float32)
        action = self._spaces.to_env(self._actor.act(flat(rows), noise))
        return action[0] if single else action

    def _learn(self, t: Any) -> Tensor:
        c = self.config
        (obs, action), next_obs = self._inputs(t), _flat(t.next_obs)
        reward = t.reward * c.reward_scale if c.reward_scale != 1.0 else t.reward
        critic_loss, error = self._update_critics(obs, action, reward, next_obs, t.discount, t.weights)
        actor_loss = self._update_actor(obs)
        move_towards(self._target_weights, self._critic_weights, c.tau)
        self._seen = {"loss/critic": critic_loss, "loss/actor": actor_loss}
        priority = error.abs().mean(0)
        if self._reward_noise is None:
            return priority
        precision = self._measure(self._reward_noise, t.ids, torch.cat((obs, action), dim=-1), reward, error)
        return precision if c.priority == "precision" else priority

    def _inputs(self, t: Any) -> tuple[Tensor, Tensor]:
        """Return observations and scaled actions of a batch."""
        return _flat(t.obs), (_flat(t.action) - self._middle) * self._factor

    def _measure(self, model: RewardNoise, ids: Tensor, inputs: Tensor, reward: Tensor, error: Tensor) -> Tensor:
        """Learn the reward's noise from the batch, and return priorities by it; TD^2 is the mean over both critics."""
        variance, alpha = model.learn(inputs, reward), getattr(self.buffer.sampler, "alpha", 0.0)
        rarity = self.buffer.priorities(ids.cpu().numpy()) ** -alpha
        model.note(error.square().mean(0).double().cpu().numpy(), variance, rarity)
        self._seen["noise/variance"] = torch.from_numpy(variance)
        self._seen["noise/effective_batch"] = torch.tensor(effective_share(rarity))
        return torch.from_numpy(model.priorities(variance))

    def _update_critics(
        self, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor, discount: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        error = self._critic(obs, action) - self._targets(reward, next_obs, discount, self._generator)
        each = loss_of(error, self.config.critic_loss, self.config.huber_threshold)
        loss = (weights * each.sum(0)).mean()
        _step(self._critic_optimizer, self._critic_weights, loss)
        return loss.detach(), error.detach()

    def _judgement(self) -> Callable[[relive.Batch], npt.NDArray[Any]] | None:
        model = self._reward_noise
        if self.config.priority == "td" or model is None:
            return self.td_error
        return lambda batch: model.priorities(model.variance(torch.cat(self._inputs(batch.torch()), dim=-1)))

    @torch.no_grad()
    def td_error(self, batch: Any) -> npt.NDArray[np.float32]:
        """Return the TD errors of a batch of the buffer's, float32 `[B]`: the mean of both critics' errors.

        Next actions are drawn apart from training, which goes on as if there had been no call.

        >>> trainer = SACTrainer(SACConfig(total_steps=50, start_steps=20, batch_size=8, eval_every=0))
        >>> result = trainer.train()
        >>> trainer.td_error(trainer.buffer.sample(3)).shape
        (3,)
        """
        t = batch.torch(None if self._device.type == "cpu" else self._device)
        (obs, action), reward = self._inputs(t), t.reward * self.config.reward_scale
        target = self._targets(reward, _flat(t.next_obs), t.discount, self._aside)
        error: npt.NDArray[np.float32] = (self._critic(obs, action) - target).mean(0).cpu().numpy()
        return error

    def _update_actor(self, obs: Tensor) -> Tensor:
        action, log_prob = self._actor(obs, self._noise(len(obs), self._generator))
        loss: Tensor = (self._log_alpha.exp() * log_prob - self._critic(obs, action).amin(0)).mean()
        # The gradient of -log(alpha) * (log pi + target entropy) by log(alpha), written out.
        self._log_alpha.grad = -(log_prob.detach().mean(0, keepdim=True) + self._target_entropy)
        _step(self._actor_optimizer, self._actor_weights, loss)
        return loss.detach()

    @torch.no_grad()
    def _targets(self, reward: Tensor, next_obs: Tensor, discount: Tensor, source: torch.Generator) -> Tensor:
        action, log_prob = self._actor(next_obs, self._noise(len(next_obs), source))
        value = self._target(next_obs, action).amin(0) - self._log_alpha.exp() * log_prob
        target: Tensor = reward + discount * value
        return target

    def _noise(self, rows: int, source: torch.Generator) -> Tensor:
        return torch.randn((rows, self._spaces.action_size), generator=source, device=self._device)

    def _scalars(self) -> dict[str, float]:
        found = super()._scalars()
        if found:
            found["loss/alpha"] = math.exp(float(self._log_alpha))
        if found and self._reward_noise is not None:
            found["noise/share"] = self._reward_noise.share
        return found

    def _parts(self) -> dict[str, Any]:
        nets = {"actor": self._actor, "critic": self._critic, "target": self._target}
        parts = {**nets, "actor_optimizer": self._actor_optimizer, "critic_optimizer": self._critic_optimizer}
        model = self._reward_noise
        return parts if model is None else {**parts, "noise": model.net, "noise_optimizer": model.optimizer}

    def _restore(self, tensors: dict[str, Tensor], facts: dict[str, Any], home: Path) -> None:
        model = self._reward_noise
        if "noise_sums" not in tensors:
            self._reward_noise = None  # not in the file: what predicts noise stays as it is, untrained
        try:
            super()._restore(tensors, facts, home)
        finally:
            self._reward_noise = model

    def _generators(self) -> dict[str, torch.Generator]:
        return {**super()._generators(), "generator.td_error": self._aside}

    def _tensors(self) -> dict[str, Tensor]:
        noise = {} if self._reward_noise is None else {"noise_sums": self._reward_noise.sums}
        return {"log_alpha": self._log_alpha, **noise}


def _flat(values: Tensor) -> Tensor:
    return values.reshape(len(values), -1).float()


def _step(optimizer: torch.optim.Optimizer, weights: list[Tensor], loss: Tensor) -> None:
    # Gradients of these weights alone: the actor's loss runs through the critics without touching theirs.
    for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
        weight.grad = gradient
    optimizer.step()
