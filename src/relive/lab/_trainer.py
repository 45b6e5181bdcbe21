"""What all trainers share: the loop, evaluation, records, checkpoints.

A trainer's own file defines how it acts and learns: the methods of `Algorithm`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import numpy.typing as npt

import relive
from relive._base import check
from relive._base.extras import needs
from relive._base.generators import generator_of, state_of
from relive.errors import ArgumentError, ReliveError, ReliveWarning, event, message

with needs("train", "relive.lab"):
    import gymnasium  # noqa: F401 (so that MissingExtra names it)
    import torch
    from torch import Tensor

from relive.gymnasium import Recorder
from relive.lab import _checkpoint, _replay
from relive.lab._algorithm import Algorithm, Config
from relive.lab._env import Act, MakeEnv, makers, play, vectorize
from relive.lab._log import Log
from relive.lab._pace import Pace, limiter_of
from relive.lab._plain import Packer, Unpacker, Unrestorable
from relive.lab._results import Progress, TrainResult

if TYPE_CHECKING:
    from relive.lab._actors import Crew, Reports
    from relive.lab._cluster import ClusterCrew

Evaluator = Callable[[Act], npt.NDArray[Any]]
Reporter = Callable[[Progress], object]

# Evaluation episodes start from the same seeds in every run, far from any that training is likely to use.
EVAL_SEED, EVAL_LANES = 1_000_000, 16
REPORT_SECONDS = 0.2


class Trainer(Algorithm[Config]):
    """The frame of a trainer; see `SACTrainer` for its arguments and attributes."""

    def __init__(self, config: Config, *, make_env: MakeEnv | None = None, evaluator: Evaluator | None = None) -> None:
        envs = self._begun(config, make_env, evaluator)
        self._build_buffer(envs)
        self._log = Log(config)

    @classmethod
    def _for_acting(cls, config: Config, make_env: MakeEnv | None, into: Callable[[Self], Any], log: Reports) -> Self:
        """Make a trainer without a learner, whose steps go to what `into` returns."""
        made = cls.__new__(cls)
        made._envs = Recorder(made._begun(config, make_env, None), into(made))
        made._log = cast(Log, log)
        return made

    def _begun(self, config: Config, make_env: MakeEnv | None, evaluator: Evaluator | None) -> Any:
        """Do all but what needs a buffer, and return the environments."""
        self.config = config
        if config.torch_threads is not None:
            torch.set_num_threads(config.torch_threads)
        make, make_eval = makers(config) if make_env is None else (make_env, make_env)
        self._make_env = make_env
        self._make_eval_env, self._evaluator = self._wrapped(make_eval), evaluator
        self._eval_envs: Any = None
        # With actors this one only says what the spaces are.
        envs = vectorize(self._wrapped(make), 1 if config.actors else config.num_envs)
        self.step = self.updates = 0
        self._moved = 0  # steps since the last round of updates
        self._seen = {}
        self._obs: npt.NDArray[Any] | None = None  # None: episodes have to begin
        self._crew: Crew | ClusterCrew | None = None
        self._home = _checkpoint.Home()  # where the run was saved last
        self._seed()
        self._build_learner(envs)
        return envs

    # Set-up -----------------------------------------------------------------------------------------------------------

    def _seeds(self) -> list[int]:
        # Hashed, not added: the lanes of one run must not live through the episodes of the next run's lanes.
        seeds = np.random.SeedSequence((self.config.seed, self.step)).generate_state(3 + self.config.num_envs)
        return [int(seed) for seed in seeds]

    def _seed(self) -> None:
        self._buffer_seed, torch_seed, act_seed, *_ = self._seeds()
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
        beta = relive.Anneal(c.per_beta_start, c.per_beta_end, over=c.per_beta_anneal_steps)
        return relive.Prioritized(alpha=c.per_alpha, beta=beta)

    def _build_buffer(self, envs: Any) -> None:
        c = self.config
        self._leave = _replay.joined(c)
        self.buffer = _replay.made(c, self._schema(envs), seed=self._buffer_seed, **self._choices())
        self._envs: Any = envs if c.actors else Recorder(envs, self.buffer)
        self._ahead: Any = None  # batches that are asked for before they are needed, from shards

    def _choices(self) -> dict[str, Any]:
        item = self._item()
        return {"item": item, "sampler": self._sampler(), "limiter": limiter_of(self.config, item)}

    # Training ---------------------------------------------------------------------------------------------------------

    def train(
        self,
        progress: Callable[[Progress], object] | None = None,
        *,
        out: str | os.PathLike[str] | None = None,
    ) -> TrainResult:
        """Train until `config.total_steps` environment steps are done, and return everything seen so far.

        Args:
            progress: Called a few times a second and after every evaluation. Returning False ends the run there;
                another call of `train` goes on.
            out: A folder to save the run in, as `save` does: at the start, every `config.save_every` steps, while
                training goes on, and at the end. None saves nothing.

        Raises:
            StorageError: `out` cannot be written, or another run is saved there.
        """
        if out is not None and self._home.path != Path(out).absolute():
            self.save(out)
        with self._stepping() as go_on:
            self._run(go_on, progress, out)
        self._log.flush()
        if out is not None:
            self.save(out)
        return self.result

    def _run(self, go_on: Callable[[], None], progress: Reporter | None, out: str | os.PathLike[str] | None) -> None:
        c, reported = self.config, 0.0
        self._pace = Pace(self)
        self._log.start(self.step)
        while self.step < c.total_steps:
            started = time.perf_counter()
            go_on()
            for _ in range(self._pace.updates()):
                self._update()
            evaluated = self._passed(c.eval_every)
            if evaluated:
                self._log.evaluation(self.step, self.evaluate())
            if self._log.writes and self._passed(c.log_every):
                of_actors = {} if self._crew is None else self._crew.scalars()
                self._log.write(self.step, self.buffer, {**self._scalars(), **of_actors})
            now = time.perf_counter()
            self._log.seconds += now - started
            if out is not None and self._passed(c.save_every) and self.step < c.total_steps:
                self.save(out, wait=False)
            if progress and (evaluated or now - reported > REPORT_SECONDS or self.step >= c.total_steps):
                reported = now
                if progress(self._log.progress(self.step, c.total_steps, self.updates)) is False:
                    break

    @contextlib.contextmanager
    def _stepping(self) -> Iterator[Callable[[], None]]:
        """Provide what brings some new steps: this process, or actors."""
        if not self.config.actors:
            yield self._go_on
            return
        crew, ahead = _replay.crew(self, self._log, self._for_acting, self._make_env)
        with ahead as self._ahead, crew as self._crew:
            try:
                yield self._follow
            finally:
                self._crew = self._ahead = None

    def _go_on(self) -> None:
        before = self.step
        self._moved = 0
        if self.buffer.limiter is not None and self._pace.updates():
            return  # or this process would wait for itself
        obs = self._reset() if self._obs is None else self._obs
        self._obs = None
        self._obs = self._interact(obs)
        self._moved = self.step - before

    def _follow(self) -> None:
        """Take in what actors did, up to where the next update is due."""
        before = self.step
        if self._crew is not None:
            self._crew.publish()
            self.step = self._pace.follow(self._crew.wait)
        self._moved = self.step - before

    def _reset(self) -> npt.NDArray[Any]:
        """Begin new episodes in all environments."""
        obs: npt.NDArray[Any] = self._envs.reset(seed=self._seeds()[3:])[0]
        self._running = np.zeros(self.config.num_envs)
        self._begin()
        return obs

    @property
    def result(self) -> TrainResult:
        """What has been seen so far."""
        return TrainResult(**self._log.arrays(), steps=self.step, updates=self.updates, seconds=self._log.seconds)

    def _passed(self, every: int) -> bool:
        """Whether the last steps reached or crossed a multiple of `every`."""
        return every > 0 and self.step // every > (self.step - self._moved) // every

    def _do(self, action: npt.NDArray[Any], **extras: Any) -> tuple[npt.NDArray[Any], ...]:
        """Step and store, with `extras` as further fields; return observations, rewards, and where episodes ended.

        Where an episode ended, the observation is the first of the next one.
        """
        obs, reward, terminated, truncated, _ = self._envs.step(action, **extras)
        ended = terminated | truncated
        self.step += len(reward)
        self._running += reward
        for lane in np.flatnonzero(ended):
            self._log.episode(self.step, float(self._running[lane]))
            self._running[lane] = 0.0
        return obs, reward, ended

    def _update(self) -> None:
        batch = self.buffer.sample(self.config.batch_size) if self._ahead is None else next(self._ahead)
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
        """Close the environments, the log, and a buffer that actors write to; the learner can still act."""
        self._home.wait()
        self._envs.close()
        if self._eval_envs is not None:
            self._eval_envs.close()
        self._log.close()
        if self.config.actors:
            self.buffer.close()
            self._leave()

    # Checkpoints ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, wait: bool = True) -> None:
        """Save the run in a folder, for `load`: the learner, the buffer, all generators, and the environments.

        The learner is the file `learner.safetensors` with nets, optimizers, counters, generators, the history, and
        where the environments stand; the buffer is the folder `buffer`, of which later saves write what is new. The
        save is complete or not there, whenever the process is killed. Only their owner can read the files.

        Args:
            path: The folder.
            wait: Whether to return when the save is complete. Otherwise a thread writes what is there at this instant;
                the next `save` and `close` wait for it, and raise what went wrong. Actors always wait.

        Raises:
            ArgumentError: `env_kwargs` hold what JSON cannot write.
            StorageError: Another run is saved there, or the buffer cannot be written.
            OSError: The learner's file cannot be written.
        """
        name, packer = type(self).__name__, Packer()
        target = Path(check.path(path, f"{name}.save(path)")).absolute()
        self._home.wait()
        generators = {key: each.get_state() for key, each in self._generators().items()}
        tensors = {**_checkpoint.pack(self._parts()), **self._tensors(), **generators, **self._log.tensors()}
        config = dataclasses.asdict(dataclasses.replace(self.config, env_kwargs=dict(self.config.env_kwargs)))
        facts: dict[str, Any] = {"trainer": name, "config": config, "rng": state_of(self._rng), **self._log.facts()}
        facts |= {"step": self.step, "updates": self.updates, "episodes": None}
        facts |= {"why": "actors step it"} if self.config.actors else {}
        if self._obs is not None:
            try:
                now = {"obs": self._obs, "returns": self._running, **self._carried()}
                facts["episodes"] = {"now": packer.pack(now), "envs": packer.pack(self._envs.env)}
                tensors |= {f"episodes.{key}": torch.from_numpy(each) for key, each in packer.arrays.items()}
            except Unrestorable as error:
                facts["why"] = str(error)
        try:
            text = json.dumps(facts)
        except TypeError as error:
            raise ArgumentError(message("env_kwargs that JSON can write", f"`{error}`", f"{name}.save")) from error
        home = self._home if self._home.path == target else _checkpoint.Home(target)
        with self._crew.paused() if self._crew else contextlib.nullcontext():
            home.save(partial(_replay.saved, self.buffer), tensors, text, wait=wait or bool(self._crew))
        self._home = home

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        make_env: MakeEnv | None = None,
        evaluator: Evaluator | None = None,
        **changes: Any,
    ) -> Self:
        """Rebuild a trainer from a folder of `save`; `train` then goes on as if nothing had happened, to the bit.

        Where an environment cannot be put back into its state, new episodes begin, and a `ReliveWarning` says so.

        Args:
            path: The folder.
            make_env: As in the constructor.
            evaluator: As in the constructor.
            **changes: Settings that differ from now on, such as `total_steps`. `seed`, `num_envs`, `actors` and
                `samples_per_insert` cannot; with other `env_id` or `env_kwargs` new episodes begin.

        Raises:
            FileNotFoundError: No run is saved there.
            ArgumentError: The learner's file is damaged, or does not fit the environment or the changed configuration.
            CorruptionError: The buffer is damaged; as `relive.load` says it.
        """
        at, home = f"{cls.__name__}.load", Path(check.path(path, f"{cls.__name__}.load(path)")).absolute()
        tensors, facts = _checkpoint.read(home / _checkpoint.LEARNER, at)
        if facts["trainer"] != cls.__name__:
            got, remedy = f"`{path}` of `{facts['trainer']}`", f"`{facts['trainer']}.load` reads it"
            raise ArgumentError(message(f"a learner of `{cls.__name__}`", got, at, remedy))
        if unknown := set(changes) - {field.name for field in dataclasses.fields(cls.config_type)}:
            wanted = f"fields of `{cls.config_type.__name__}`"
            raise ArgumentError(message(wanted, f"`{min(unknown)}`", f"{at}(changes)"))
        before = facts["config"]
        _replay.check(before, changes, at)
        config: Any = cls.config_type(**{**before, **changes})
        trainer = cls(config, make_env=make_env, evaluator=evaluator)
        try:
            trainer._restore(tensors, facts, home)
        except ReliveError:
            raise
        except (RuntimeError, LookupError, ValueError, TypeError, AttributeError, OverflowError) as error:
            wanted = "a learner that fits this environment and configuration"
            raise ArgumentError(message(wanted, f"`{path}` ({error})", at)) from error
        return trainer

    def _restore(self, tensors: dict[str, Tensor], facts: dict[str, Any], home: Path) -> None:
        c = self.config
        self.step, self.updates, self._rng = facts["step"], facts["updates"], generator_of(facts["rng"])
        for name, generator in self._generators().items():
            generator.set_state(tensors[name])
        for name, tensor in self._tensors().items():
            tensor.copy_(tensors[name])
        self._log.restore(tensors, facts)
        _checkpoint.unpack(tensors, self._parts())
        envs, schema = self._envs if c.actors else self._envs.env, self.buffer.schema
        self.buffer = _replay.loaded(c, self.buffer, home / _checkpoint.BUFFER, facts["buffer"], **self._choices())
        if self.buffer.schema != schema:
            raise ValueError(f"its buffer stores `{self.buffer.schema!r}`")
        self._envs = envs if c.actors else Recorder(envs, self.buffer)
        same = all(facts["config"][name] == getattr(c, name) for name in ("env_id", "env_kwargs"))
        if facts["episodes"] is not None and same:
            unpacker = Unpacker(lambda name: tensors[f"episodes.{name}"].numpy())
            now = unpacker.unpack(facts["episodes"]["now"])
            unpacker.unpack(facts["episodes"]["envs"], envs)
            self._obs, self._running = now["obs"], now["returns"]
            self._carry(now)
            self._envs.resume(self._obs)
        elif self.step:
            why = facts.get("why", "it has other settings")
            what = f"New episodes begin: the environment cannot be put back into its state ({why})"
            warnings.warn(event(what, f"{type(self).__name__}.load"), ReliveWarning, stacklevel=3)
        self._home = _checkpoint.Home(home)
