"""Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905) on relive's replay buffer, from top to bottom.

    y = r + discount * (min(Q1', Q2')(s', a') - alpha * log pi(a' | s'))        a' ~ pi(s')
    critics:      mean of w * ((Q1 - y)^2 + (Q2 - y)^2)                          w = 1 under uniform replay
    actor:        mean of alpha * log pi(a | s) - min(Q1, Q2)(s, a)              a ~ pi(s)
    temperature:  alpha follows the entropy towards its target

Uniform and prioritized replay share every line; prioritized replay also hands back the mean of |Q1 - y| and |Q2 - y|,
the priority.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import relive
from relive.errors import ArgumentError, MissingExtra, message
from relive.trainers._config import SACConfig

try:
    import gymnasium  # noqa: F401 (named here, so that what is missing is said in relive's words)
    import torch
    from torch import Tensor
except ImportError as error:
    remedy = "pip install 'relive[train]'"
    raise MissingExtra(message(f"the package `{error.name}`", "none", "relive.trainers", remedy)) from error

from relive.gymnasium import Recorder
from relive.trainers import _checkpoint
from relive.trainers._env import MakeEnv, Spaces, flat, maker, play, vectorize
from relive.trainers._log import Log
from relive.trainers._nets import Actor, TwinCritic
from relive.trainers._results import Progress, TrainResult

Evaluator = Callable[[Callable[[npt.NDArray[Any]], npt.NDArray[Any]]], npt.NDArray[Any]]

# Evaluation episodes start from the same seeds in every run, far from any that training is likely to use.
EVAL_SEED, EVAL_LANES = 1_000_000, 16
REPORT_SECONDS = 0.2


class SACTrainer:
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
        ArgumentError: Actions are not bounded and continuous, observations no numeric box, or there is no such device.
        MissingExtra: PyTorch, Gymnasium or safetensors is not installed.

    >>> config = SACConfig(env_id="Pendulum-v1", total_steps=300, start_steps=200, batch_size=32, hidden_sizes=(32, 32),
    ...                    eval_every=300, eval_episodes=2, buffer_capacity=1_000, use_per=True)
    >>> result = SACTrainer(config).train()
    >>> result.eval_returns.shape, result.updates
    ((1, 2), 100)
    """

    def __init__(
        self, config: SACConfig, *, make_env: MakeEnv | None = None, evaluator: Evaluator | None = None
    ) -> None:
        self.config = config
        if config.torch_threads is not None:
            torch.set_num_threads(config.torch_threads)
        self._make_env, self._evaluator = make_env or maker(config), evaluator
        self._eval_envs: Any = None
        envs = vectorize(self._make_env, config.num_envs)
        self._spaces = Spaces(envs)
        self.step = self.updates = 0
        self._seed(resumed_at=0)
        self._build_learner()
        self._build_buffer(envs)
        self._log = Log(config)

    # Set-up -----------------------------------------------------------------------------------------------------------

    def _seed(self, resumed_at: int) -> None:
        # Hashed, not added: the lanes of one run must not live through the episodes of the next run's lanes.
        seeds = np.random.SeedSequence((self.config.seed, resumed_at)).generate_state(3 + self.config.num_envs)
        self._buffer_seed, torch_seed, act_seed, *self._env_seeds = seeds.tolist()
        self._rng = np.random.default_rng(act_seed)
        try:
            self._device = torch.device(self.config.device)
            self._generator = torch.Generator(self._device).manual_seed(torch_seed)
        except (RuntimeError, AssertionError) as error:
            got = f"`{self.config.device}` ({error})"
            raise ArgumentError(message("a PyTorch device of this machine", got, "SACConfig(device)")) from error

    def _build_learner(self) -> None:
        c, sizes = self.config, (self._spaces.obs_size, self._spaces.action_size, self.config.hidden_sizes)
        # Initial weights are drawn on the CPU, so that they are the same on every device.
        source = torch.Generator().manual_seed(self._generator.initial_seed())
        self._actor = Actor(*sizes, source).to(self._device)
        self._critic = TwinCritic(*sizes, source).to(self._device)
        self._target = TwinCritic(*sizes, source).to(self._device)
        self._target.load_state_dict(self._critic.state_dict())
        self._log_alpha = torch.full((1,), math.log(c.init_alpha), device=self._device)
        self._actor_weights: list[Tensor] = list(self._actor.parameters())
        self._critic_weights: list[Tensor] = list(self._critic.parameters())
        self._target_weights: list[Tensor] = [weight.requires_grad_(False) for weight in self._target.parameters()]
        learned = [*self._actor_weights, self._log_alpha] if c.autotune else self._actor_weights
        self._critic_optimizer = torch.optim.Adam(self._critic_weights, lr=c.learning_rate, fused=True)
        self._actor_optimizer = torch.optim.Adam(learned, lr=c.actor_learning_rate or c.learning_rate, fused=True)
        self._target_entropy = -float(sizes[1]) if c.target_entropy == "auto" else float(c.target_entropy)
        self._middle = torch.as_tensor(self._spaces.middle, dtype=torch.float32, device=self._device)
        self._factor = torch.as_tensor(1.0 / self._spaces.half, dtype=torch.float32, device=self._device)

    def _build_buffer(self, envs: Any) -> None:
        c = self.config
        sampler: relive.Uniform | relive.Prioritized = relive.Uniform()
        if c.use_per:
            # A resumed learner goes on along the line from where it stopped.
            line = relive.Anneal(c.per_beta_start, c.per_beta_end, over=c.per_beta_anneal_steps)
            left = max(c.per_beta_anneal_steps - self.updates, 1)
            beta = relive.Anneal(line.at(self.updates), c.per_beta_end, over=left)
            sampler = relive.Prioritized(alpha=c.per_alpha, beta=beta)
        self.buffer = relive.ReplayBuffer(
            relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space),
            capacity=c.buffer_capacity,
            num_envs=c.num_envs,
            item=relive.Transitions(n_step=c.n_step, gamma=c.gamma),
            sampler=sampler,
            seed=self._buffer_seed,
        )
        self._envs = Recorder(envs, self.buffer)
        self._collected = 0

    # Training ---------------------------------------------------------------------------------------------------------

    def train(self, progress: Callable[[Progress], object] | None = None) -> TrainResult:
        """Train until `config.total_steps` environment steps are done.

        Args:
            progress: Called a few times a second and after every evaluation. Returning False ends the run there with
                the learner whole: it can be saved, and a further call of `train` goes on.

        Returns:
            Everything seen so far, as `result` gives it.
        """
        c, reported = self.config, 0.0
        obs, _ = self._envs.reset(seed=self._env_seeds)
        self._env_seeds = None  # a further call goes on with new episodes
        self._running = np.zeros(c.num_envs)
        while self.step < c.total_steps:
            started = time.perf_counter()
            obs = self._interact(obs)
            for _ in range(self._updates_due()):
                self._update()
            evaluated = self._passed(c.eval_every)
            if evaluated:
                self._log.evaluation(self.step, self.evaluate())
            if self._passed(c.log_every):
                self._log.write(self.step, self.buffer)
            now = time.perf_counter()
            self._log.seconds += now - started
            if c.log_dir is not None and self._passed(c.checkpoint_every):
                self.save(Path(c.log_dir) / "learner.safetensors")
            if progress and (evaluated or now - reported > REPORT_SECONDS or self.step >= c.total_steps):
                reported = now
                if progress(self._log.progress(self.step, c.total_steps, self.updates)) is False:
                    break
        self._log.flush()
        return self.result

    @property
    def result(self) -> TrainResult:
        """What has been seen so far."""
        return TrainResult(**self._log.arrays(), steps=self.step, updates=self.updates, seconds=self._log.seconds)

    def _passed(self, every: int) -> bool:
        """Whether the last step of all lanes reached or crossed a multiple of `every`."""
        return every > 0 and self.step // every > (self.step - self.config.num_envs) // every

    def _interact(self, obs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        shape = (self.config.num_envs, self._spaces.action_size)
        unit: npt.NDArray[Any]
        if self.step < self.config.start_steps:
            unit = self._rng.uniform(-1.0, 1.0, shape)
        else:
            unit = self._actor.act(flat(obs), self._rng.standard_normal(shape, np.float32))
        obs, reward, terminated, truncated, _ = self._envs.step(self._spaces.to_env(unit))
        self.step += len(reward)
        self._collected += len(reward)
        self._running += reward
        for lane in np.flatnonzero(terminated | truncated):
            self._log.episode(self.step, float(self._running[lane]))
            self._running[lane] = 0.0
        return obs

    def _updates_due(self) -> int:
        # Updates keep pace with environment steps whatever the number of lanes. After a resumption the buffer is empty,
        # and fills with the policy's own steps before updates go on.
        c = self.config
        if self._collected <= c.start_steps or not self.buffer.can_sample(1):
            return 0
        rounds = self._collected // c.update_every - (self._collected - c.num_envs) // c.update_every
        return rounds * c.updates_per_step

    def _update(self) -> None:
        c = self.config
        batch = self.buffer.sample(c.batch_size)
        t = batch.torch(None if self._device.type == "cpu" else self._device)
        obs, next_obs = _flat(t.obs), _flat(t.next_obs)
        action = (_flat(t.action) - self._middle) * self._factor
        reward = t.reward * c.reward_scale if c.reward_scale != 1.0 else t.reward
        critic_loss, error = self._update_critics(obs, action, reward, next_obs, t.discount, t.weights)
        actor_loss = self._update_actor(obs)
        torch._foreach_lerp_(self._target_weights, self._critic_weights, c.tau)
        if c.use_per:
            self.buffer.update_priorities(batch.ids, error.cpu().numpy())
        self.updates += 1
        self._log.losses = (critic_loss, actor_loss, self._log_alpha)

    def _update_critics(
        self, obs: Tensor, action: Tensor, reward: Tensor, next_obs: Tensor, discount: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            next_action, next_log_prob = self._actor(next_obs, self._noise(len(next_obs)))
            value = self._target(next_obs, next_action).amin(0) - self._log_alpha.exp() * next_log_prob
            target = reward + discount * value
        error = self._critic(obs, action) - target
        loss = (weights * error.square().sum(0)).mean()
        _step(self._critic_optimizer, self._critic_weights, loss)
        return loss.detach(), error.detach().abs().mean(0)

    def _update_actor(self, obs: Tensor) -> Tensor:
        action, log_prob = self._actor(obs, self._noise(len(obs)))
        loss: Tensor = (self._log_alpha.exp() * log_prob - self._critic(obs, action).amin(0)).mean()
        # The gradient of -log(alpha) * (log pi + target entropy) by log(alpha), written out.
        self._log_alpha.grad = -(log_prob.detach().mean(0, keepdim=True) + self._target_entropy)
        _step(self._actor_optimizer, self._actor_weights, loss)
        return loss.detach()

    def _noise(self, rows: int) -> Tensor:
        return torch.randn((rows, self._spaces.action_size), generator=self._generator, device=self._device)

    # Acting -----------------------------------------------------------------------------------------------------------

    def act(self, obs: npt.ArrayLike, deterministic: bool = True) -> npt.NDArray[Any]:
        """Choose actions.

        Args:
            obs: One observation, or a batch of them with a leading axis.
            deterministic: Take the squashed mean instead of a draw.

        Returns:
            An action in the environment's own scale, shape and dtype, with the leading axis if `obs` had one.

        Raises:
            ArgumentError: The observation has another shape.
        """
        rows, single = self._spaces.batch_of(obs)
        shape = (len(rows), self._spaces.action_size)
        noise = None if deterministic else self._rng.standard_normal(shape, np.float32)
        action = self._spaces.to_env(self._actor.act(rows, noise))
        return action[0] if single else action

    def evaluate(self, episodes: int | None = None) -> npt.NDArray[np.float64]:
        """Play whole episodes with the deterministic policy, in environments of their own.

        Args:
            episodes: How many; None takes `config.eval_episodes`. Episode k always starts from the same seed. With an
                `evaluator` its own set is played instead.

        Returns:
            Undiscounted returns, float64 `[episodes]`.
        """
        if self._evaluator is not None:
            return np.asarray(self._evaluator(self.act), np.float64)
        episodes = self.config.eval_episodes if episodes is None else episodes
        if not isinstance(episodes, int) or episodes < 1:
            raise ArgumentError(message("a positive number of episodes", f"`{episodes!r}`", "SACTrainer.evaluate"))
        if self._eval_envs is None:
            self._eval_envs = vectorize(self._make_env, min(self.config.eval_episodes, EVAL_LANES))
        firsts = range(0, episodes, self._eval_envs.num_envs)
        return np.concatenate([play(self._eval_envs, self.act, EVAL_SEED + first) for first in firsts])[:episodes]

    def close(self) -> None:
        """Close the environments and the log; the learner can still act."""
        self._envs.close()
        if self._eval_envs is not None:
            self._eval_envs.close()
        self._log.close()

    # Checkpoints ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the learner: nets, optimizers, temperature, counters, generators, history; not the replay buffer.

        The file is one safetensors file, readable by its owner alone, and replaced whole or not at all.

        Raises:
            ArgumentError: `env_kwargs` hold what JSON cannot write.
            OSError: The file cannot be written.
        """
        tensors = _checkpoint.pack(self._parts())
        tensors |= {"log_alpha": self._log_alpha, "generator": self._generator.get_state(), **self._log.tensors()}
        facts = {"step": self.step, "updates": self.updates, "seconds": self._log.seconds}
        config = dataclasses.asdict(dataclasses.replace(self.config, env_kwargs=dict(self.config.env_kwargs)))
        try:
            _checkpoint.write(path, tensors, {**facts, "config": config, "rng": self._rng.bit_generator.state})
        except TypeError as error:
            raise ArgumentError(message("env_kwargs that JSON can write", f"`{error}`", "SACTrainer.save")) from error

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        make_env: MakeEnv | None = None,
        evaluator: Evaluator | None = None,
        **changes: Any,
    ) -> SACTrainer:
        """Rebuild a trainer from a file of `save`; `train` then goes on where it stopped.

        The replay buffer is empty and the environments start new episodes: `start_steps` steps of the policy itself
        fill the buffer before updates go on.

        Args:
            path: The file.
            make_env: As in the constructor.
            evaluator: As in the constructor.
            **changes: Fields of `SACConfig` that differ from now on, such as `total_steps`.

        Raises:
            FileNotFoundError: There is no such file.
            ArgumentError: The file is damaged, or does not fit the environment or the changed configuration.
        """
        tensors, facts = _checkpoint.read(path, "SACTrainer.load")
        unknown = set(changes) - {field.name for field in dataclasses.fields(SACConfig)}
        if unknown:
            raise ArgumentError(message("fields of `SACConfig`", f"`{min(unknown)}`", "SACTrainer.load(changes)"))
        trainer = cls(SACConfig(**{**facts["config"], **changes}), make_env=make_env, evaluator=evaluator)
        try:
            trainer._restore(tensors, facts)
        except (RuntimeError, KeyError, ValueError) as error:
            wanted = "a learner that fits this environment and configuration"
            raise ArgumentError(message(wanted, f"`{path}` ({error})", "SACTrainer.load")) from error
        return trainer

    def _restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        self.step, self.updates = facts["step"], facts["updates"]
        self._seed(resumed_at=self.step)
        self._build_buffer(self._envs.env)
        self._rng.bit_generator.state = facts["rng"]
        self._generator.set_state(tensors["generator"])
        self._log_alpha.copy_(tensors["log_alpha"])
        self._log.restore(tensors, facts["seconds"])
        _checkpoint.unpack(tensors, self._parts())

    def _parts(self) -> dict[str, Any]:
        nets = {"actor": self._actor, "critic": self._critic, "target": self._target}
        return {**nets, "actor_optimizer": self._actor_optimizer, "critic_optimizer": self._critic_optimizer}


def _flat(values: Tensor) -> Tensor:
    return values.reshape(len(values), -1).float()


def _step(optimizer: torch.optim.Optimizer, weights: list[Tensor], loss: Tensor) -> None:
    # Gradients of these weights alone: the actor's loss runs through the critics without touching theirs.
    for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
        weight.grad = gradient
    optimizer.step()
