"""DQN, SAC and TD3 of Stable-Baselines3 with prioritized replay: one step of learning each, written anew.

    weights w, ids        of the draw                        td = Q(s, a) - y, per critic
    loss                  mean of w * loss(td)               SB3's own loss, or Huber's
    priority              "td": |td|, the critics' mean      "lap": max(|td|, k), k Huber's threshold
                          "precision": the inverse variance of the reward's predicted noise

Everything else, exploration, target nets and schedules among it, is SB3's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.preprocessing import get_flattened_obs_dim, is_image_space, preprocess_obs
from stable_baselines3.common.utils import polyak_update
from torch import Tensor
from torch.nn import functional

from .. import _check
from ..errors import ArgumentError, message
from ..lab._nets import loss_of
from ..lab._precision import RewardNoise
from ..samplers import Prioritized, Sampler
from ._buffer import ReplayBuffer

# What each rule draws by; alpha and beta of LAP are those of its paper.
_SAMPLERS = {
    "td": Prioritized(alpha=0.6, beta=0.4),
    "lap": Prioritized(alpha=0.4, beta=0.0),
    "precision": Prioritized(alpha=1.0, beta=0.0),
}
_NOISE_NET, _NOISE_RATE = (256, 256), 3e-4


class _Draw(NamedTuple):
    """A batch, and the factor of the next value in its targets, `[B, 1]`."""

    data: Any
    discount: Tensor


class _Prioritizing:
    """What the three algorithms share: which buffer they have, the weighted loss, and priorities."""

    _own_loss = "mse"  # of SB3's class
    _factor = 1.0  # SB3's, of squared errors
    _noise: RewardNoise | None

    def __init__(
        self,
        policy: Any,
        env: Any,
        *arguments: Any,
        priority: str = "td",
        sampler: Sampler | None = None,
        critic_loss: str | None = None,
        huber_threshold: float = 1.0,
        **choices: Any,
    ) -> None:
        at = type(self).__name__
        self.priority = _check.one_of(priority, _SAMPLERS, f"{at}(priority)")
        loss = "huber" if self.priority == "lap" and critic_loss is None else critic_loss or self._own_loss
        self.critic_loss = _check.one_of(loss, ("mse", "huber"), f"{at}(critic_loss)")
        if self.priority == "lap" and self.critic_loss != "huber":
            wanted = "`'huber'` with `priority='lap'`, whose draws belong to that loss"
            raise ArgumentError(message(wanted, f"`{critic_loss!r}`", f"{at}(critic_loss)"))
        self.huber_threshold = _check.real(huber_threshold, f"{at}(huber_threshold)", above=0.0)
        self.sampler = _SAMPLERS[self.priority] if sampler is None else sampler
        if not getattr(self.sampler, "prioritizes", False):
            wanted = "a sampler with priorities"
            raise ArgumentError(message(wanted, f"`{sampler!r}`", f"{at}(sampler)", "use `relive.Prioritized()`"))
        self._noise = None
        super().__init__(policy, env, *arguments, **choices)  # type: ignore[call-arg]

    def _setup_model(self) -> None:
        model: Any = self
        kind = model.replay_buffer_class or ReplayBuffer
        if not issubclass(kind, ReplayBuffer):
            wanted = "`relive.sb3.ReplayBuffer` or `relive.sb3.HerReplayBuffer`"
            at = f"{type(self).__name__}(replay_buffer_class)"
            raise ArgumentError(message(wanted, f"`{kind.__module__}.{kind.__name__}`", at))
        ours = {"n_steps": model.n_steps, "gamma": model.gamma, "sampler": self.sampler}
        model.replay_buffer_class, model.replay_buffer_kwargs = kind, {**ours, **model.replay_buffer_kwargs}
        # SB3 warns that it does not pass `n_steps` to buffer classes other than its own.
        steps, model.n_steps = model.n_steps, 1
        try:
            super()._setup_model()  # type: ignore[misc]
        finally:
            model.n_steps = steps
        if self.priority == "precision":
            self._noise = self._noise_net()

    def _noise_net(self) -> RewardNoise:
        model: Any = self
        space, children = model.observation_space, getattr(model.observation_space, "spaces", {})
        if any(map(is_image_space, [space, *(children.values() if isinstance(children, dict) else ())])):
            wanted, at = "observations without images", f"{type(self).__name__}(priority)"
            remedy = "the reward's noise is predicted by a perceptron; use `'td'` or `'lap'`"
            raise ArgumentError(message(wanted, f"`{space}` with `priority='precision'`", at, remedy))
        actions = int(getattr(model.action_space, "n", 0)) or model.replay_buffer.action_dim
        source = torch.Generator(model.device).manual_seed(int(torch.randint(2**31, (1,))))
        return RewardNoise(get_flattened_obs_dim(space) + actions, _NOISE_NET, _NOISE_RATE, source, model.device)

    def _draw(self, batch_size: int) -> _Draw:
        model: Any = self
        data = model.replay_buffer.sample(batch_size, env=model._vec_normalize_env)
        each = model.gamma if data.discounts is None else data.discounts
        return _Draw(data, (1.0 - data.dones) * each)

    def _loss(self, data: Any, errors: Sequence[Tensor]) -> Tensor:
        """The weighted loss of TD errors `[B, 1]` of each critic; sets the priorities of the batch."""
        sizes = torch.cat([error.detach() for error in errors], dim=1).abs()
        model: Any = self
        model.replay_buffer.update_priorities(data.ids, self._priorities(data, sizes))
        each = [loss_of(error, self.critic_loss, self.huber_threshold) for error in errors]
        return torch.stack([(data.weights * one).mean() for one in each]).sum() * self._factor

    def _priorities(self, data: Any, sizes: Tensor) -> Any:
        if self.priority == "lap":
            return sizes.amax(dim=1).clamp(min=self.huber_threshold).cpu()
        if self._noise is None:
            return sizes.mean(dim=1).cpu()
        model: Any = self
        variance = self._noise.learn(self._inputs(data), data.rewards[:, 0])
        alpha = getattr(self.sampler, "alpha", 1.0)
        rarity = model.replay_buffer.relive.priorities(data.ids) ** -alpha
        self._noise.note(sizes.square().mean(dim=1).double().cpu().numpy(), variance, rarity)
        return self._noise.priorities(variance)

    def _inputs(self, data: Any) -> Tensor:
        """Observations and actions, `[B, size]`."""
        model: Any = self
        obs = preprocess_obs(data.observations, model.observation_space)
        parts = list(obs.values()) if isinstance(obs, dict) else [obs]
        count = int(getattr(model.action_space, "n", 0))
        action = functional.one_hot(data.actions[:, 0].long(), count) if count else data.actions
        return torch.cat([part.flatten(1).float() for part in (*parts, action)], dim=1)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_noise"]  # type: ignore[misc]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        modules, tensors = super()._get_torch_save_params()  # type: ignore[misc]
        if self._noise is None:
            return modules, tensors
        return [*modules, "_noise.net", "_noise.optimizer"], [*tensors, "_noise.sums"]


class PrioritizedDQN(_Prioritizing, DQN):
    """SB3's `DQN` with prioritized replay; arguments are those of `DQN` and the following.

    Args:
        priority: What is drawn by: `"td"`, the absolute TD error; `"lap"`, clipped from below at Huber's threshold,
            with Huber's loss; `"precision"`, the inverse variance of the reward's noise, which a net beside the critic
            predicts.
        sampler: `relive.Prioritized(...)` or `relive.Ranked(...)`; None: alpha 0.6 and beta 0.4 with `"td"`, 0.4 and 0
            with `"lap"`, 1 and 0 with `"precision"`.
        critic_loss: `"mse"` or `"huber"`; None: as SB3's algorithm has it, Huber's with `"lap"`.
        huber_threshold: Where Huber's loss becomes linear.

    `n_steps` and `gamma` are passed on to the buffer, and `replay_buffer_class` may be `relive.sb3.HerReplayBuffer`.

    Raises:
        ArgumentError: An unknown rule or loss, a sampler without priorities, a buffer of another library.

    Source: Schaul et al., "Prioritized Experience Replay", ICLR 2016; for `"lap"` Fujimoto, Meger, Precup, "An
    Equivalence between Loss Functions and Non-Uniform Sampling in Experience Replay", NeurIPS 2020.

    >>> model = PrioritizedDQN("MlpPolicy", "CartPole-v1", n_steps=3, buffer_size=1000, learning_starts=50, seed=0)
    >>> model = model.learn(100)
    >>> model.replay_buffer.n_steps, model.replay_buffer.relive.stats().drawn > 0
    (3, True)
    """

    _own_loss = "huber"
    _factor = 0.5

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Update the net `gradient_steps` times."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        losses = []
        for _ in range(gradient_steps):
            data, discount = self._draw(batch_size)
            with torch.no_grad():
                best = self.q_net_target(data.next_observations).amax(dim=1, keepdim=True)
                target = data.rewards + discount * best
            value = self.q_net(data.observations).gather(1, data.actions.long())
            loss = self._loss(data, [value - target])
            losses.append(loss.item())
            self.policy.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean(losses))


class PrioritizedSAC(_Prioritizing, SAC):
    """SB3's `SAC` with prioritized replay; arguments are those of `SAC` and of `PrioritizedDQN`.

    The priority `"td"` is the mean of both critics' absolute TD errors.

    >>> model = PrioritizedSAC("MlpPolicy", "Pendulum-v1", priority="lap", buffer_size=500, learning_starts=20)
    >>> model.learn(30).critic_loss
    'huber'
    """

    _factor = 0.5

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        """Update actor, critics and entropy coefficient `gradient_steps` times."""
        self.policy.set_training_mode(True)
        learned = self.ent_coef_optimizer
        self._update_learning_rate([each for each in (self.actor.optimizer, self.critic.optimizer, learned) if each])
        seen: dict[str, list[float]] = {"ent_coef": [], "ent_coef_loss": [], "actor_loss": [], "critic_loss": []}
        for step in range(gradient_steps):
            data, discount = self._draw(batch_size)
            if self.use_sde:
                self.actor.reset_noise()
            action, log_prob = self.actor.action_log_prob(data.observations)
            log_prob = log_prob.reshape(-1, 1)
            coefficient = self.ent_coef_tensor if learned is None else self.log_ent_coef.detach().exp()
            seen["ent_coef"].append(coefficient.item())
            if learned is not None:
                excess = (log_prob + self.target_entropy).detach()
                seen["ent_coef_loss"].append(_descend(learned, -(self.log_ent_coef * excess).mean()))
            with torch.no_grad():
                following, following_log_prob = self.actor.action_log_prob(data.next_observations)
                value = _least(self.critic_target(data.next_observations, following))
                soft = value - coefficient * following_log_prob.reshape(-1, 1)
                target = data.rewards + discount * soft
            errors = [value - target for value in self.critic(data.observations, data.actions)]
            seen["critic_loss"].append(_descend(self.critic.optimizer, self._loss(data, errors)))
            cost = coefficient * log_prob - _least(self.critic(data.observations, action))
            seen["actor_loss"].append(_descend(self.actor.optimizer, cost.mean()))
            if step % self.target_update_interval == 0:
                polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
                polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        _record(self.logger, seen)


class PrioritizedTD3(_Prioritizing, TD3):
    """SB3's `TD3` with prioritized replay; arguments are those of `TD3` and of `PrioritizedDQN`.

    The priority `"td"` is the mean of both critics' absolute TD errors.

    >>> model = PrioritizedTD3("MlpPolicy", "Pendulum-v1", buffer_size=500, learning_starts=20)
    >>> model.learn(30).replay_buffer.relive.sampler.alpha
    0.6
    """

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Update critics and, more rarely, the actor `gradient_steps` times."""
        self.policy.set_training_mode(True)
        self._update_learning_rate([self.actor.optimizer, self.critic.optimizer])
        seen: dict[str, list[float]] = {"actor_loss": [], "critic_loss": []}
        for _ in range(gradient_steps):
            self._n_updates += 1
            data, discount = self._draw(batch_size)
            with torch.no_grad():
                noise = torch.randn_like(data.actions) * self.target_policy_noise
                noise = noise.clamp(-self.target_noise_clip, self.target_noise_clip)
                following = (self.actor_target(data.next_observations) + noise).clamp(-1.0, 1.0)
                target = data.rewards + discount * _least(self.critic_target(data.next_observations, following))
            errors = [value - target for value in self.critic(data.observations, data.actions)]
            seen["critic_loss"].append(_descend(self.critic.optimizer, self._loss(data, errors)))
            if self._n_updates % self.policy_delay == 0:
                cost = -self.critic.q1_forward(data.observations, self.actor(data.observations)).mean()
                seen["actor_loss"].append(_descend(self.actor.optimizer, cost))
                for net, slow in ((self.critic, self.critic_target), (self.actor, self.actor_target)):
                    polyak_update(net.parameters(), slow.parameters(), self.tau)
                polyak_update(self.critic_batch_norm_stats, self.critic_batch_norm_stats_target, 1.0)
                polyak_update(self.actor_batch_norm_stats, self.actor_batch_norm_stats_target, 1.0)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        _record(self.logger, seen)


def _least(values: Sequence[Tensor]) -> Tensor:
    """The least of the critics' values, `[B, 1]`."""
    return torch.cat(tuple(values), dim=1).amin(dim=1, keepdim=True)


def _descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> float:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.item()


def _record(logger: Any, seen: dict[str, list[float]]) -> None:
    for name, values in seen.items():
        if values:
            logger.record(f"train/{name}", np.mean(values))
