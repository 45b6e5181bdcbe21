"""What all trainers share: the loop, evaluation, records, checkpoints.

A trainer's own file defines how it acts and learns: the methods under "The algorithm" below.
"""

from __future__ import annotations

import abc
import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

import relive
from relive._extras import needs
from relive.errors import ArgumentError, message
from relive.lab._config import TrainerConfig

with needs("train", "relive.lab"):
    import gymnasium  # noqa: F401 (so that MissingExtra names it)
    import torch
    from torch import Tensor

from relive.gymnasium import Recorder
from relive.lab import _checkpoint
from relive.lab._env import Act, MakeEnv, makers, play, vectorize
from relive.lab._log import Log
from relive.lab._results import Progress, TrainResult

Evaluator = Callable[[Act], npt.NDArray[Any]]
Config = TypeVar("Config", bound=TrainerConfig)

# Evaluation episodes start from the same seeds in every run, far from any that training is likely to use.
EVAL_SEED, EVAL_LANES = 1_000_000, 16
REPORT_SECONDS = 0.2


class Trainer(abc.ABC, Generic[Config]):
    """The frame of a trainer; see `SACTrainer` for its arguments and attributes."""

    config_type: ClassVar[type[TrainerConfig]]

    def __init__(self, config: Config, *, make_env: MakeEnv | None = None, evaluator: Evaluator | None = None) -> None:
        self.config = config
        if config.torch_threads is not None:
            torch.set_num_threads(config.torch_threads)
        make, make_eval = makers(config) if make_env is None else (make_env, make_env)
        self._make_eval_env, self._evaluator = self._wrapped(make_eval), evaluator
        self._eval_envs: Any = None
        envs = vectorize(self._wrapped(make), config.num_envs)
        self.step = self.updates = 0
        self._seen: dict[str, Tensor] = {}
        self._seed(resumed_at=0)
        self._build_learner(envs)
        self._build_buffer(envs)
        self._log = Log(config)

    # The algorithm ----------------------------------------------------------------------------------------------------

    def _wrapped(self, make: MakeEnv) -> MakeEnv:
        """Return a function that builds the environment with the wrappers that the settings ask for."""
        return make

    @abc.abstractmethod
    def _build_learner(self, envs: Any) -> None:
        """Read the spaces, and make nets and optimizers; all random numbers from `_source()`."""

    def _schema(self, envs: Any) -> relive.Schema:
        """Return what the buffer stores at each step."""
        return relive.Schema.from_spaces(envs.single_observation_space, envs.single_action_space)

    def _item(self) -> Any:
        """Return what one draw expands to."""
        return relive.Transitions(n_step=self.config.n_step, gamma=self.config.gamma)

    def _begin(self) -> None:
        """Prepare for new episodes in all environments."""

    @abc.abstractmethod
    def _interact(self, obs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Choose actions, step with `_do`, and return the next observations."""

    @abc.abstractmethod
    def _learn(self, t: Any) -> Tensor:
        """Learn from a batch of tensors, note what was seen in `_seen`, and return new priorities, `[B]`."""

    def _scalars(self) -> dict[str, float]:
        """Return what a TensorBoard entry says of the learner; asked for only when one is written."""
        return {name: float(values.mean()) for name, values in self._seen.items()}

    @abc.abstractmethod
    def act(self, obs: npt.ArrayLike, deterministic: bool = True) -> npt.NDArray[Any]:
        """Choose actions."""

    def _policy(self) -> Act:
        """Return the policy that is evaluated, fresh for the episodes of one round."""
        return self.act

    @abc.abstractmethod
    def _parts(self) -> dict[str, Any]:
        """Return the nets and optimizers of a checkpoint, by name."""

    def _tensors(self) -> dict[str, Tensor]:
        """Return further tensors of a checkpoint, by name; a restored learner has their values copied into them."""
        return {}

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
            got, at = f"`{self.config.device}` ({error})", f"{type(self.config).__name__}(device)"
            raise ArgumentError(message("a PyTorch device of this machine", got, at)) from error

    def _source(self) -> torch.Generator:
        # Initial weights are drawn on the CPU, so that they are the same on every device.
        return torch.Generator().manual_seed(self._generator.initial_seed())

    def _sampler(self) -> relive.Uniform | relive.Prioritized:
        """Return how items are drawn."""
        c = self.config
        if not c.use_per:
            return relive.Uniform()
        # A resumed learner continues the schedule from where it stopped.
        line = relive.Anneal(c.per_beta_start, c.per_beta_end, over=c.per_beta_anneal_steps)
        left = max(c.per_beta_anneal_steps - self.updates, 1)
        beta = relive.Anneal(line.at(self.updates), c.per_beta_end, over=left)
        return relive.Prioritized(alpha=c.per_alpha, beta=beta)

    def _build_buffer(self, envs: Any) -> None:
        c = self.config
        choices: dict[str, Any] = {"item": self._item(), "sampler": self._sampler(), "seed": self._buffer_seed}
        self.buffer = relive.ReplayBuffer(self._schema(envs), c.buffer_capacity, num_envs=c.num_envs, **choices)
        self._envs = Recorder(envs, self.buffer)
        self._collected = 0

    # Training ---------------------------------------------------------------------------------------------------------

    def train(self, progress: Callable[[Progress], object] | None = None) -> TrainResult:
        """Train until `config.total_steps` environment steps are done, and return everything seen so far.

        Args:
            progress: Called a few times a second and after every evaluation. Returning False ends the run there; the
                learner can be saved, and another call of `train` continues.
        """
        c, reported = self.config, 0.0
        obs, _ = self._envs.reset(seed=self._env_seeds)
        self._env_seeds = None  # another call continues with new episodes
        self._running = np.zeros(c.num_envs)
        self._begin()
        self._log.start(self.step)
        while self.step < c.total_steps:
            started = time.perf_counter()
            obs = self._interact(obs)
            for _ in range(self._updates_due()):
                self._update()
            evaluated = self._passed(c.eval_every)
            if evaluated:
                self._log.evaluation(self.step, self.evaluate())
            if self._log.writes and self._passed(c.log_every):
                self._log.write(self.step, self.buffer, self._scalars())
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

    def _do(self, action: npt.NDArray[Any], **extras: Any) -> tuple[npt.NDArray[Any], ...]:
        """Step and store, with `extras` as further fields; return observations, rewards, and where episodes ended.

        Where an episode ended, the observation is the first of the next one.
        """
        obs, reward, terminated, truncated, _ = self._envs.step(action, **extras)
        ended = terminated | truncated
        self.step, self._collected = self.step + len(reward), self._collected + len(reward)
        self._running += reward
        for lane in np.flatnonzero(ended):
            self._log.episode(self.step, float(self._running[lane]))
            self._running[lane] = 0.0
        return obs, reward, ended

    def _updates_due(self) -> int:
        # Counted over all lanes. After a resumption the policy fills the empty buffer before updates continue.
        c = self.config
        if self._collected <= c.start_steps or not self.buffer.can_sample(1):
            return 0
        rounds = self._collected // c.update_every - (self._collected - c.num_envs) // c.update_every
        return rounds * c.updates_per_step

    def _update(self) -> None:
        batch = self.buffer.sample(self.config.batch_size)
        priorities = self._learn(batch.torch(None if self._device.type == "cpu" else self._device))
        if self.config.use_per:
            self.buffer.update_priorities(batch.ids, priorities.cpu().numpy())
        self.updates += 1

    def evaluate(self, episodes: int | None = None) -> npt.NDArray[np.float64]:
        """Play whole episodes with the deterministic policy, in environments of their own.

        Args:
            episodes: How many; None takes `config.eval_episodes`. Episode k always starts from the same seed. An
                `evaluator` plays its own set instead.

        Returns:
            Undiscounted returns, float64 `[episodes]`.
        """
        if self._evaluator is not None:
            return np.asarray(self._evaluator(self._policy()), np.float64)
        episodes = self.config.eval_episodes if episodes is None else episodes
        if not isinstance(episodes, int) or episodes < 1:
            got, at = f"`{episodes!r}`", f"{type(self).__name__}.evaluate"
            raise ArgumentError(message("a positive number of episodes", got, at))
        if self._eval_envs is None:
            self._eval_envs = vectorize(self._make_eval_env, min(self.config.eval_episodes, EVAL_LANES))
        firsts = range(0, episodes, self._eval_envs.num_envs)
        rounds = [play(self._eval_envs, self._policy(), EVAL_SEED + first) for first in firsts]
        return np.concatenate(rounds)[:episodes]

    def close(self) -> None:
        """Close the environments and the log; the learner can still act."""
        self._envs.close()
        if self._eval_envs is not None:
            self._eval_envs.close()
        self._log.close()

    # Checkpoints ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the learner as one safetensors file: nets, optimizers, counters, generators, history; not the buffer.

        The file is readable by its owner alone, and replaced whole or not at all.

        Raises:
            ArgumentError: `env_kwargs` hold what JSON cannot write.
            OSError: The file cannot be written.
        """
        name = type(self).__name__
        tensors = {**_checkpoint.pack(self._parts()), **self._tensors(), **self._log.tensors()}
        tensors["generator"] = self._generator.get_state()
        config = dataclasses.asdict(dataclasses.replace(self.config, env_kwargs=dict(self.config.env_kwargs)))
        facts: dict[str, Any] = {"trainer": name, "config": config, "rng": self._rng.bit_generator.state}
        facts |= {"step": self.step, "updates": self.updates, "seconds": self._log.seconds}
        try:
            _checkpoint.write(path, tensors, facts)
        except TypeError as error:
            raise ArgumentError(message("env_kwargs that JSON can write", f"`{error}`", f"{name}.save")) from error

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        make_env: MakeEnv | None = None,
        evaluator: Evaluator | None = None,
        **changes: Any,
    ) -> Self:
        """Rebuild a trainer from a file of `save`; `train` then continues where it stopped.

        The replay buffer is empty and the environments start new episodes: the policy itself fills the buffer for
        `start_steps` steps before updates continue.

        Args:
            path: The file.
            make_env: As in the constructor.
            evaluator: As in the constructor.
            **changes: Settings that differ from now on, such as `total_steps`.

        Raises:
            FileNotFoundError: There is no such file.
            ArgumentError: The file is damaged, or does not fit the environment or the changed configuration.
        """
        at = f"{cls.__name__}.load"
        tensors, facts = _checkpoint.read(path, at)
        wrote = facts.get("trainer", "SACTrainer")  # missing in the first files
        if wrote != cls.__name__:
            got, remedy = f"`{path}` of `{wrote}`", f"`{wrote}.load` reads it"
            raise ArgumentError(message(f"a learner of `{cls.__name__}`", got, at, remedy))
        if unknown := set(changes) - {field.name for field in dataclasses.fields(cls.config_type)}:
            wanted = f"fields of `{cls.config_type.__name__}`"
            raise ArgumentError(message(wanted, f"`{min(unknown)}`", f"{at}(changes)"))
        config: Any = cls.config_type(**{**facts["config"], **changes})
        trainer = cls(config, make_env=make_env, evaluator=evaluator)
        try:
            trainer._restore(tensors, facts)
        except (RuntimeError, KeyError, ValueError) as error:
            wanted = "a learner that fits this environment and configuration"
            raise ArgumentError(message(wanted, f"`{path}` ({error})", at)) from error
        return trainer

    def _restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        self.step, self.updates = facts["step"], facts["updates"]
        self._seed(resumed_at=self.step)
        self._build_buffer(self._envs.env)
        self._rng.bit_generator.state = facts["rng"]
        self._generator.set_state(tensors["generator"])
        for name, tensor in self._tensors().items():
            tensor.copy_(tensors[name])
        self._log.restore(tensors, facts["seconds"])
        _checkpoint.unpack(tensors, self._parts())
