"""Off-policy algorithms of Stable-Baselines3 and sb3-contrib with prioritized replay: what a batch's priorities are.

priority    "td": |td|, the critics' mean      "lap": max(|td|, k), k Huber's threshold
"precision": the inverse variance of the reward's predicted noise
"""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.preprocessing import get_flattened_obs_dim, is_image_space, preprocess_obs
from torch import Tensor
from torch.nn import functional

from .._base import check
from ..errors import ArgumentError, message
from ..reward_noise import RewardNoise
from ..samplers import Prioritized, Sampler
from ._buffer import ReplayBuffer, other_number
from ._weighing import Weighing, check_losses

# What each rule draws by; alpha and beta of LAP are those of its paper.
_SAMPLERS = {
    "td": Prioritized(alpha=0.6, beta=0.4),
    "lap": Prioritized(alpha=0.4, beta=0.0),
    "precision": Prioritized(alpha=1.0, beta=0.0),
}
_NOISE_NET, _NOISE_RATE = (256, 256), 3e-4


class PrioritizedReplay:
    """Prioritized replay for any off-policy algorithm of Stable-Baselines3 and sb3-contrib, by inheriting from both.

    The algorithm's own `train` runs, with weighted losses in place of those that it calls by name: `F.mse_loss`,
    `F.smooth_l1_loss` and sb3-contrib's `quantile_huber_loss`.

    Args:
        priority: What is drawn by: `"td"`, the absolute TD error, of the means where values are quantiles; `"lap"`,
            clipped from below at Huber's threshold, with Huber's loss; `"precision"`, the inverse variance of the
            reward's noise, which a net beside the critic predicts.
        sampler: `relive.Prioritized(...)`; None: alpha 0.6 and beta 0.4 with `"td"`, 0.4 and 0
            with `"lap"`, 1 and 0 with `"precision"`.
        critic_loss: `"mse"` or `"huber"`; None: as the algorithm has it, Huber's with `"lap"`.
        huber_threshold: Where Huber's loss becomes linear.

    Further arguments are the algorithm's. `n_steps` and `gamma` are passed on to the buffer, and
    `replay_buffer_class` may be `relive.sb3.HerReplayBuffer`.

    Raises:
        ArgumentError: An unknown rule or loss, a sampler without priorities, a buffer of another library, an algorithm
            whose `train` calls none of these losses by name.

    Source: Schaul et al., "Prioritized Experience Replay", ICLR 2016; for `"lap"` Fujimoto, Meger, Precup, "An
    Equivalence between Loss Functions and Non-Uniform Sampling in Experience Replay", NeurIPS 2020.

    >>> from stable_baselines3 import DDPG
    >>> class PrioritizedDDPG(PrioritizedReplay, DDPG):
    ...     pass
    >>> model = PrioritizedDDPG("MlpPolicy", "Pendulum-v1", buffer_size=500, learning_starts=20).learn(30)
    >>> model.replay_buffer.relive.stats().updates > 0
    True
    """

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
        self.priority = check.one_of(priority, _SAMPLERS, f"{at}(priority)")
        self.critic_loss = "huber" if self.priority == "lap" and critic_loss is None else critic_loss
        if self.critic_loss is not None:
            check.one_of(self.critic_loss, ("mse", "huber"), f"{at}(critic_loss)")
        check_losses(super().train, critic_loss, self.priority, at)  # type: ignore[misc]
        if self.priority == "lap" and self.critic_loss != "huber":
            wanted = "`'huber'` with `priority='lap'`, whose draws belong to that loss"
            raise ArgumentError(message(wanted, f"`{critic_loss!r}`", f"{at}(critic_loss)"))
        self.huber_threshold = check.real(huber_threshold, f"{at}(huber_threshold)", above=0.0)
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
        choices = {**ours, **model.replay_buffer_kwargs}
        if choices["n_steps"] != 1 and choices["gamma"] != model.gamma:
            wanted, got = f"`{model.gamma}`, as the model has", f"`{choices['gamma']}`"
            at = f'{type(self).__name__}(replay_buffer_kwargs["gamma"])'
            raise ArgumentError(message(wanted, got, at, "targets of several steps are discounted by the buffer's"))
        model.replay_buffer_class, model.replay_buffer_kwargs = kind, choices
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

    def load_replay_buffer(self, path: Any, truncate_last_traj: bool = True) -> None:
        """Load a buffer that `save_replay_buffer` wrote, as the algorithm does.

        Raises:
            ArgumentError: It has another number of environments than the model. The model keeps its buffer.
        """
        model: Any = self
        own = model.replay_buffer
        super().load_replay_buffer(path, truncate_last_traj)  # type: ignore[misc]
        loaded, model.replay_buffer = model.replay_buffer, own
        if loaded.n_envs != model.n_envs:
            raise other_number(model.n_envs, loaded.n_envs, f"{type(self).__name__}.load_replay_buffer")
        model.replay_buffer = loaded

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Run the algorithm's `train`; each batch's priorities are updated before the next one is drawn."""
        model: Any = self
        weighing = Weighing(model.replay_buffer, self.critic_loss, self.huber_threshold, self._priorities)
        model.replay_buffer = weighing
        try:
            weighing.weighted(super().train)(gradient_steps, batch_size)  # type: ignore[misc]
        finally:
            model.replay_buffer = weighing.buffer
        weighing.update()

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
        """Concatenate observations and actions, `[B, size]`."""
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


class PrioritizedDQN(PrioritizedReplay, DQN):
    """SB3's `DQN` with prioritized replay; arguments are those of `DQN` and of `PrioritizedReplay`.

    >>> model = PrioritizedDQN("MlpPolicy", "CartPole-v1", n_steps=3, buffer_size=1000, learning_starts=50, seed=0)
    >>> model = model.learn(100)
    >>> model.replay_buffer.n_steps, model.replay_buffer.relive.stats().drawn > 0
    (3, True)
    """


class PrioritizedSAC(PrioritizedReplay, SAC):
    """SB3's `SAC` with prioritized replay; arguments are those of `SAC` and of `PrioritizedReplay`.

    The priority `"td"` is the mean of both critics' absolute TD errors.

    >>> model = PrioritizedSAC("MlpPolicy", "Pendulum-v1", priority="lap", buffer_size=500, learning_starts=20)
    >>> model.learn(30).critic_loss
    'huber'
    """


class PrioritizedTD3(PrioritizedReplay, TD3):
    """SB3's `TD3` with prioritized replay; arguments are those of `TD3` and of `PrioritizedReplay`.

    The priority `"td"` is the mean of both critics' absolute TD errors.

    >>> model = PrioritizedTD3("MlpPolicy", "Pendulum-v1", buffer_size=500, learning_starts=20)
    >>> model.learn(30).replay_buffer.relive.sampler.alpha
    0.6
    """
