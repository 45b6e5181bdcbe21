"""Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905) on relive's replay buffer, from top to bottom.

    y = r + discount * (min(Q1', Q2')(s', a') - alpha * log pi(a' | s'))        a' ~ pi(s')
    critics:      mean of w * ((Q1 - y)^2 + (Q2 - y)^2)                          w = 1 under uniform replay
    actor:        mean of alpha * log pi(a | s) - min(Q1, Q2)(s, a)              a ~ pi(s)
    temperature:  alpha follows the entropy towards its target

Uniform and prioritized replay share every line; prioritized replay also hands back the mean of |Q1 - y| and |Q2 - y|,
the priority. With `critic_loss="huber"`, Huber's loss stands for the squares. With `priority="precision"` the priority
comes from the reward's predicted noise (`relive.reward_noise`).

Settings, nets, and the agent with its update; the loop is in `run.py`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import SyncVectorEnv
from torch import Tensor, nn
from torch.nn import functional

import relive
from relive.reward_noise import RewardNoise
from relive.samplers import Sampler
from relive_lab.agent import Act, Array, Choice, Part, Random
from relive_lab.checks import Fields
from relive_lab.config import TrainerConfig, sampler_of
from relive_lab.environments import Continuous, flat
from relive_lab.nets import Floats, Perceptron, loss_of, move_towards, step_apart
from relive_lab.run import Trainer

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class SACConfig(TrainerConfig):
    """Settings of soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905); errors are those of `TrainerConfig`.

    `use_per` alone switches between uniform and prioritized replay (Schaul et al. 2016, arXiv:1511.05952). Nets and
    loss stay the same, so that two runs that differ in this flag can be compared. `priority="precision"` with
    `use_per=True` draws by `relive.precision_priority` instead of by TD error.

    >>> SACConfig(env_id="Pendulum-v1", total_steps=5_000, n_step=3).batch_size
    256
    """

    env_id: str = "Pendulum-v1"
    hidden_sizes: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of actor and critics."""
    learning_rate: float = 3e-4
    """Adam step size of critics, actor and temperature."""
    actor_learning_rate: float | None = None
    """Step size of the actor and the temperature alone, where it differs."""
    tau: float = 0.005
    """Share by which the target critics follow the critics after each update."""
    target_entropy: float | Literal["auto"] = "auto"
    """Entropy the temperature aims at, in nats of actions scaled to [-1, 1]; auto is minus the number of actions."""
    init_alpha: float = 1.0
    """Entropy temperature at the start."""
    autotune: bool = True
    """Learn the temperature; otherwise it stays at `init_alpha`."""
    reward_scale: float = 1.0
    """Factor on rewards in the targets; reported returns are never scaled."""
    priority: Literal["td", "precision"] = "td"
    """What `use_per` draws by: TD error, or the inverse of the reward's predicted noise (alpha 1, beta 0)."""
    measure_noise: bool = False
    """Predict the reward's noise also where draws do not need it: `noise/share` in TensorBoard; draws do not change."""

    def __post_init__(self) -> None:
        super().__post_init__()
        fields = Fields(self)
        fields.choice("priority", "td", "precision")
        fields.flags("measure_noise")
        if self.priority == "precision":
            self._fits_precision(fields)
        fields.numbers("init_alpha", "reward_scale", above=0.0)
        fields.numbers("tau", above=0.0, high=1.0)
        if self.actor_learning_rate is not None:
            fields.numbers("actor_learning_rate", above=0.0)
        if self.target_entropy != "auto":
            fields.numbers("target_entropy")
        fields.widths("hidden_sizes")
        fields.flags("autotune")

    def sampler(self) -> Sampler:
        """Return how items are drawn."""
        if self.priority != "precision":
            return super().sampler()
        return sampler_of(relive.Prioritized(alpha=1.0, beta=0.0), self.recent_share)

    def _fits_precision(self, fields: Fields) -> None:
        if not self.use_per:
            remedy = "`use_per=False` draws uniformly, whatever `priority` is"
            raise fields.refusal("use_per", "`True` with `priority='precision'`", remedy)
        for name, fixed in {"per_alpha": 1.0, "per_beta_start": 0.0, "per_beta_end": 0.0}.items():
            default = getattr(SACConfig, name)
            if getattr(self, name) not in (default, fixed):
                remedy = "draws by precision have alpha 1 and beta 0"
                raise fields.refusal(
                    name, f"{fixed:g} (or the default, {default:g}) with `priority='precision'`", remedy
                )


class Actor(nn.Module):
    """A Gaussian squashed by tanh: actions and their log-probabilities (Haarnoja et al. 2018, appendix C)."""

    def __init__(self, obs_size: int, action_size: int, hidden: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        self.net = Perceptron((obs_size, *hidden, 2 * action_size), 0, generator)

    def forward(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions `[B, A]` and their log-probabilities `[B]`, from standard normal noise `[B, A]`."""
        mean, log_std = self.net(obs).chunk(2, dim=-1)
        log_std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
        pre = mean + log_std.exp() * noise
        # log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)) stays finite where 1 - tanh(u)^2 underflows.
        squash = pre + functional.softplus(-2.0 * pre)
        per_axis = 2.0 * squash - log_std - 0.5 * noise * noise
        constant = (0.5 * math.log(2.0 * math.pi) + 2.0 * math.log(2.0)) * noise.shape[-1]
        return torch.tanh(pre), per_axis.sum(-1) - constant

    def act(self, obs: Floats, noise: Floats | None) -> Floats:
        """Return actions in [-1, 1] for observations `[N, D]`; without noise the mean, squashed."""
        out = self.net.evaluate(obs)
        size = out.shape[-1] // 2
        pre: Floats = out[:, :size]
        if noise is not None:
            std: Floats = np.exp(out[:, size:].clip(LOG_STD_MIN, LOG_STD_MAX))
            pre = pre + std * noise
        return np.tanh(pre)


class TwinCritic(nn.Module):
    """Two independent estimates of the value of an action; their minimum keeps targets from drifting upwards."""

    def __init__(self, obs_size: int, action_size: int, hidden: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        self.net = Perceptron((obs_size + action_size, *hidden, 1), 2, generator)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return both values of each observation and action, `[2, B]`."""
        x = torch.cat((obs, action), dim=-1)
        values: Tensor = self.net(x.expand(2, *x.shape))
        return values.squeeze(-1)


class SAC:
    """The agent: how it acts, and one update. Attributes are those of `Agent`, and the nets."""

    def __init__(self, config: SACConfig, envs: SyncVectorEnv) -> None:
        self.config, self.random = config, Random(config)
        self.spaces = Continuous(envs, "SACTrainer")
        self.schema = relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space)
        self.item = relive.Transitions(n_step=config.n_step, gamma=config.gamma)
        self.seen: dict[str, Tensor] = {}
        c, source, device = config, self.random.initial(), self.random.device
        sizes = (self.spaces.obs_size, self.spaces.action_size, c.hidden_sizes)
        self.actor = Actor(*sizes, source).to(device)
        self.critic, self.target = (TwinCritic(*sizes, source).to(device) for _ in range(2))
        self.target.load_state_dict(self.critic.state_dict())
        self.noise: RewardNoise | None = None
        if c.measure_noise or c.priority == "precision":
            # After the others, whose initial weights thus are the same without it.
            self.noise = RewardNoise(sizes[0] + sizes[1], sizes[2], c.learning_rate, source, device)
        self.log_alpha = torch.full((1,), math.log(c.init_alpha), device=device)
        self._actor_weights: list[Tensor] = list(self.actor.parameters())
        self._critic_weights: list[Tensor] = list(self.critic.parameters())
        self._target_weights: list[Tensor] = [weight.requires_grad_(False) for weight in self.target.parameters()]
        learned = [*self._actor_weights, self.log_alpha] if c.autotune else self._actor_weights
        self._critic_optimizer = torch.optim.Adam(self._critic_weights, lr=c.learning_rate, fused=True)
        self._actor_optimizer = torch.optim.Adam(learned, lr=c.actor_learning_rate or c.learning_rate, fused=True)
        self._aside = torch.Generator(device).manual_seed(c.seed)  # for `td_error`
        self._target_entropy = -float(sizes[1]) if c.target_entropy == "auto" else float(c.target_entropy)
        scaling = (self.spaces.middle, 1.0 / self.spaces.half)
        self._middle, self._factor = (torch.tensor(x, dtype=torch.float32, device=device) for x in scaling)

    # Acting -----------------------------------------------------------------------------------------------------------

    def explore(self, obs: Array, step: int, memory: None) -> Choice:
        """Draw actions `[N, ...]`: uniformly at first, then from the policy."""
        shape = (len(obs), self.spaces.action_size)
        unit: Array
        if step < self.config.start_steps:
            unit = self.random.rng.uniform(-1.0, 1.0, shape)
        else:
            unit = self.actor.act(flat(obs), self.random.rng.standard_normal(shape, np.float32))
        return Choice(self.spaces.to_env(unit))

    def act(self, obs: npt.ArrayLike, deterministic: bool = True) -> Array:
        """Choose actions.

        Args:
            obs: One observation, or a batch of them with a leading axis; other shapes are an ArgumentError.
            deterministic: Take the squashed mean instead of a draw.

        Returns:
            An action in the environment's own scale, shape and dtype, with the leading axis if `obs` had one.
        """
        rows, single = self.spaces.batch_of(obs)
        shape = (len(rows), self.spaces.action_size)
        noise = None if deterministic else self.random.rng.standard_normal(shape, np.float32)
        action = self.spaces.to_env(self.actor.act(flat(rows), noise))
        return action[0] if single else action

    def policy(self) -> Act:
        """Return the deterministic policy."""
        return self.act

    def memory(self, num_envs: int) -> None:
        """Return None: nothing is kept from step to step."""

    # Learning ---------------------------------------------------------------------------------------------------------

    def update(self, t: Any, rarity: Array | None = None) -> Tensor:
        """Learn from a batch of tensors, and return new priorities `[B]`.

        Args:
            t: The batch, of `Random.tensors`.
            rarity: 1 / P of each item up to a factor, `[B]`, P its probability; needed where noise is measured.
        """
        c = self.config
        (obs, action), next_obs = self._inputs(t), _flat(t.next_obs)
        reward = t.reward * c.reward_scale if c.reward_scale != 1.0 else t.reward

        critic_loss, error = self.update_critics(obs, action, reward, next_obs, t.discount, t.weights)
        actor_loss = self.update_actor(obs)
        move_towards(self._target_weights, self._critic_weights, c.tau)
        self.seen = {"loss/critic": critic_loss, "loss/actor": actor_loss}
        priority: Tensor = error.abs().mean(0)
        if self.noise is None or rarity is None:
            return priority
        precision = self._measure(self.noise, rarity, torch.cat((obs, action), dim=-1), reward, error)
        return precision if c.priority == "precision" else priority

    def update_critics(
        self, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor, discount: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the loss, and the TD errors of both critics `[2, B]`."""
        error = self.critic(obs, action) - self.targets(reward, next_obs, discount, self.random.generator)
        each = loss_of(error, self.config.critic_loss, self.config.huber_threshold)
        loss = (weights * each.sum(0)).mean()
        step_apart(self._critic_optimizer, self._critic_weights, loss)
        return loss.detach(), error.detach()

    def update_actor(self, obs: Tensor) -> Tensor:
        """Update actor and temperature, and return the loss; it runs through the critics without touching them."""
        action, log_prob = self.actor(obs, self.normal(len(obs), self.random.generator))
        loss: Tensor = (self.log_alpha.exp() * log_prob - self.critic(obs, action).amin(0)).mean()
        # The gradient of -log(alpha) * (log pi + target entropy) by log(alpha), written out.
        self.log_alpha.grad = -(log_prob.detach().mean(0, keepdim=True) + self._target_entropy)
        step_apart(self._actor_optimizer, self._actor_weights, loss)
        return loss.detach()

    def _measure(self, noise: RewardNoise, rarity: Array, inputs: Tensor, reward: Tensor, error: Tensor) -> Tensor:
        """Learn the reward's noise from the batch, and return priorities by it; TD^2 is the mean over both critics."""
        variance = noise.learn(inputs, reward)
        noise.note(error.square().mean(0).double().cpu().numpy(), variance, rarity)
        self.seen["noise/variance"] = torch.from_numpy(variance)
        self.seen["noise/effective_batch"] = torch.tensor(effective_share(rarity))
        return torch.from_numpy(noise.priorities(variance))

    @torch.no_grad()
    def targets(self, reward: Tensor, next_obs: Tensor, discount: Tensor, source: torch.Generator) -> Tensor:
        """Return y `[B]`."""
        action, log_prob = self.actor(next_obs, self.normal(len(next_obs), source))
        value = self.target(next_obs, action).amin(0) - self.log_alpha.exp() * log_prob
        target: Tensor = reward + discount * value
        return target

    @torch.no_grad()
    def td_error(self, batch: relive.Batch) -> npt.NDArray[np.float32]:
        """Return the TD errors of a batch of the buffer's, float32 `[B]`: the mean of both critics' errors.

        Next actions are drawn apart from training, which goes on as if there had been no call.

        >>> trainer = SACTrainer(SACConfig(total_steps=50, start_steps=20, batch_size=8, eval_every=0))
        >>> result = trainer.train()
        >>> trainer.td_error(trainer.buffer.sample(3)).shape
        (3,)
        """
        t = self.random.tensors(batch)
        (obs, action), reward = self._inputs(t), t.reward * self.config.reward_scale
        target = self.targets(reward, _flat(t.next_obs), t.discount, self._aside)
        error: npt.NDArray[np.float32] = (self.critic(obs, action) - target).mean(0).cpu().numpy()
        return error

    def errors(self, batch: relive.Batch) -> Array:
        """Return what priorities are made of: TD errors, or precision."""
        if self.noise is None or self.config.priority == "td":
            return self.td_error(batch)
        inputs = torch.cat(self._inputs(self.random.tensors(batch)), dim=-1)
        return self.noise.priorities(self.noise.variance(inputs))

    def _inputs(self, t: Any) -> tuple[Tensor, Tensor]:
        """Return observations and scaled actions of a batch."""
        return _flat(t.obs), (_flat(t.action) - self._middle) * self._factor

    def normal(self, rows: int, source: torch.Generator) -> Tensor:
        """Return the noise of `rows` actions, `[B, A]`."""
        return torch.randn((rows, self.spaces.action_size), generator=source, device=self.random.device)

    # Records and saves ------------------------------------------------------------------------------------------------

    def scalars(self, step: int) -> dict[str, float]:
        """Return losses, the temperature, and what is known of the reward's noise."""
        found = {name: float(values.mean()) for name, values in self.seen.items()}
        if found:
            found["loss/alpha"] = math.exp(float(self.log_alpha))
        if found and self.noise is not None:
            found["noise/share"] = self.noise.share
        return found

    def parts(self) -> dict[str, Part]:
        """Return nets, optimizers, generators, the temperature, and what noise is predicted by."""
        parts: dict[str, Part] = {"actor": self.actor, "critic": self.critic, "target": self.target}
        parts |= {"actor_optimizer": self._actor_optimizer, "critic_optimizer": self._critic_optimizer}
        parts |= {"generator": self.random.generator, "generator.td_error": self._aside, "log_alpha": self.log_alpha}
        if (noise := self.noise) is not None:
            parts |= {"noise": noise.net, "noise_optimizer": noise.optimizer, "noise_sums": noise.sums}
        return parts


def _flat(values: Tensor) -> Tensor:
    return values.reshape(len(values), -1).float()


class SACTrainer(Trainer[SACConfig, SAC]):
    """Train a tanh-Gaussian policy with twin critics and an automatic temperature on any continuous environment.

    Args:
        config: All settings.
        make_env: Builds one environment; None makes `config.env_id`.
        evaluator: Replaces the evaluation that `config` describes: takes a policy (observations `[N, ...]` to actions
            `[N, ...]`) and gives the returns of a fixed set of episodes, always as many.

    Attributes:
        config: The settings.
        agent: The nets, how they act, and one update; `act` and `td_error` are its methods.
        run: The rest of a run; `evaluate`, `save` and `close` are its methods.

    Raises:
        ArgumentError: Actions are not a bounded box, observations are not a numeric box, or the device is unknown.

    >>> config = SACConfig(env_id="Pendulum-v1", total_steps=300, start_steps=200, batch_size=32, hidden_sizes=(32, 32),
    ...                    eval_every=300, eval_episodes=2, buffer_capacity=1_000, use_per=True)
    >>> result = SACTrainer(config).train()
    >>> result.eval_returns.shape, result.updates
    ((1, 2), 100)
    """

    _name, _settings, _kind = "SACTrainer", SACConfig, SAC
    # A run that did not measure noise goes on with a new model of it.
    _optional = ("noise", "noise_optimizer", "noise_sums")

    def act(self, obs: npt.ArrayLike, deterministic: bool = True) -> Array:
        """Choose actions, as `SAC.act` does."""
        return self.agent.act(obs, deterministic)

    def learn(self) -> None:
        """Do one update: draw a batch, learn from it, and hand back its priorities."""
        run, agent = self.run, self.agent
        batch, rarity = run.draw(), None
        if agent.noise is not None:
            rarity = run.buffer.priorities(batch.ids) ** -getattr(run.buffer.sampler, "alpha", 0.0)  # uniform has none
        priorities = agent.update(agent.random.tensors(batch), rarity)
        if self.config.use_per:
            run.buffer.update_priorities(batch.ids, priorities.cpu().numpy())
        run.updates += 1


def effective_share(rarity: Array) -> float:
    """Return which share of a batch its draw probabilities leave once they are corrected for: 1 for uniform draws."""
    return float(rarity.sum() ** 2 / (len(rarity) * (rarity @ rarity)))
