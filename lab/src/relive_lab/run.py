"""A run: what all trainers share around their updates. New steps, evaluation, records, display, saves, the way back.

`Trainer` calls it in a loop:

    with run.training(progress, out):
        while run.next_round():                     # new steps come
            for _ in range(run.updates_due()):
                self.learn()                        # of each trainer: draw, update, hand back priorities
            run.finish_round()                      # evaluation, records, display, saves, as they are due
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
import warnings
from collections.abc import Callable, Container, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import SyncVectorEnv

import relive
from relive.errors import ArgumentError, ReliveError, ReliveWarning, event, message
from relive_lab import checks, replay, saving
from relive_lab.agent import A, Act
from relive_lab.collector import Collector
from relive_lab.config import MakeEnv, TrainerConfig
from relive_lab.crew import Crew, Job, backend_of
from relive_lab.environments import makers, vectorize
from relive_lab.evaluation import LANES, SEED, play
from relive_lab.log import Log
from relive_lab.pace import Pace
from relive_lab.results import Progress, TrainResult
from relive_lab.state import Packer, Unpacker, Unrestorable, generator_of, state_of

C = TypeVar("C", bound=TrainerConfig)
Evaluator = Callable[[Act], npt.NDArray[Any]]
Reporter = Callable[[Progress], object]
Folder = str | os.PathLike[str]

REPORT_SECONDS = 0.2
SHARE = 100  # of the clock, one part of which saves by the clock may stop training


class Run(Generic[A]):
    """Everything of a run but the updates.

    Args:
        name: What messages and saves call the trainer.
        config: The settings.
        kind: Makes the agent from the settings and environments.
        make_env: Builds one environment; None makes `config.env_id`.
        evaluator: Plays evaluations in place of this.

    Attributes:
        agent: The nets, and how they act.
        buffer: The replay buffer, or shards.
        step: Environment steps done.
        updates: Updates done.
        log: What has been seen.
        crew: The actors, while they act.
    """

    def __init__(
        self,
        name: str,
        config: C,
        kind: Callable[[C, SyncVectorEnv], A],
        *,
        make_env: MakeEnv | None = None,
        evaluator: Evaluator | None = None,
    ) -> None:
        self._name, self._config = name, config
        if config.torch_threads is not None:
            torch.set_num_threads(config.torch_threads)
        make, self._make_eval_env = makers(config, make_env)
        self._eval_envs: SyncVectorEnv | None = None
        self._evaluator, self._make_env, self._kind = evaluator, make_env, kind
        # With actors this one only says what the spaces are.
        self._own_envs = vectorize(make, 1 if config.actors else config.num_envs)
        self.agent = kind(config, self._own_envs)
        self._backend = backend_of(config)
        self.buffer: Any = replay.made(config, self.agent)
        self.log = Log(config)
        self._collector = self._collecting()
        self.step = self.updates = 0
        self._moved = 0  # steps since the last round of updates
        self._ended = True
        self.crew: Crew | None = None
        self._ahead: Any = None  # batches that are asked for before they are needed, from shards
        self._home = saving.Home()  # where the run was saved last

    def _collecting(self) -> Collector | None:
        """Return what steps the environments of this process, unless actors do."""
        if self._config.actors:
            return None
        return Collector(self._config, self.agent, self._own_envs, self.buffer, self.log.episode)

    # Training ---------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def training(self, progress: Reporter | None, out: Folder | None) -> Iterator[None]:
        """Train inside; saves the run in `out`, if given, before and after."""
        out = None if out is None else Path(out).absolute()  # an environment may change the current folder
        if out is not None and self._home.path != out:
            self.save(out)
        if out is not None and self._config.keep_batches:
            self.buffer.keep_batches(out / "batches", self._config.keep_batches)
        self._progress, self._out, self._reported, self._ended = progress, out, 0.0, False
        every = self._config.save_every
        self._pause = (checks.seconds_of(every) or 0.0) if isinstance(every, str) else None
        self._next_save = time.perf_counter() + (self._pause or 0.0)
        with self._actors():
            self._pace = Pace(self._config, self.buffer, self.step, self.updates)
            self.log.start(self.step)
            yield
        self.log.flush()
        if out is not None:
            self.save(out)

    @contextlib.contextmanager
    def _actors(self) -> Iterator[None]:
        if self._backend is None:
            yield
            return
        c = self._config
        job = Job(self._kind, c, self._make_env)
        ahead = contextlib.nullcontext() if c.cluster is None else self.buffer.prefetch(c.batch_size)
        crew = Crew(self._backend, job, self.agent, self.buffer, self.step, self.log.episode)
        with ahead as self._ahead, crew as self.crew:
            try:
                yield
            finally:
                self.crew = self._ahead = None

    def next_round(self) -> bool:
        """Bring new steps: one of every environment, or what actors did meanwhile; False where training ends."""
        if self._ended or self.step >= self._config.total_steps:
            return False
        self._begun = time.perf_counter()
        before = self.step
        if self.crew is not None:
            self.crew.publish()
            self.step = self._pace.follow(self.step, self.updates, self.crew.wait)
        elif self._collector is not None and not self._pace.blocked:  # blocked, this process would wait for itself
            self._collector.step = self.step
            self._collector.collect()
            self.step = self._collector.step
        self._moved = self.step - before
        return True

    def updates_due(self) -> int:
        """Return how many updates follow the steps of this round."""
        return self._pace.updates(self.step, self._moved)

    def draw(self) -> relive.Batch:
        """Return the next batch."""
        batch: relive.Batch
        batch = self.buffer.sample(self._config.batch_size) if self._ahead is None else next(self._ahead)
        return batch

    def finish_round(self) -> None:
        """Evaluate, write records, save and report, as they are due after the steps of this round."""
        c = self._config
        evaluated = self._passed(c.eval_every)
        if evaluated:
            self.log.evaluation(self.step, self.evaluate())
        if self.log.writes and self._passed(c.log_every):
            of_actors = {} if self.crew is None else self.crew.scalars(self.step)
            self.log.write(self.step, self.buffer, {**self.agent.scalars(self.step), **of_actors})
        now = time.perf_counter()
        self.log.seconds += now - self._begun
        if self._out is not None and self._save_due() and self.step < c.total_steps:
            self.save(self._out, wait=False)
            self._next_save = now + max(self._pause or 0.0, SHARE * (time.perf_counter() - now))
        due = evaluated or now - self._reported > REPORT_SECONDS or self.step >= c.total_steps
        if self._progress is not None and due:
            self._reported = now
            self._ended = self._progress(self.log.progress(self.step, c.total_steps, self.updates)) is False

    def _save_due(self) -> bool:
        every = self._config.save_every
        return self._passed(every) if isinstance(every, int) else time.perf_counter() >= self._next_save

    def _passed(self, every: int) -> bool:
        """Return True if the last steps reached or crossed a multiple of `every`."""
        return every > 0 and self.step // every > (self.step - self._moved) // every

    @property
    def result(self) -> TrainResult:
        """The results so far."""
        return TrainResult(**self.log.arrays(), steps=self.step, updates=self.updates, seconds=self.log.seconds)

    def evaluate(self, episodes: int | None = None) -> npt.NDArray[np.float64]:
        """Play whole episodes with the deterministic policy, in environments of their own.

        Args:
            episodes: How many; None takes `config.eval_episodes`. Episode k always starts from the same seed. An
                `evaluator` plays its own set instead.

        Returns:
            Undiscounted returns, float64 `[episodes]`.
        """
        if self._evaluator is not None:
            return np.asarray(self._evaluator(self.agent.policy()), np.float64)
        episodes = self._config.eval_episodes if episodes is None else episodes
        if not isinstance(episodes, int) or episodes < 1:
            got, at = f"`{episodes!r}`", f"{self._name}.evaluate"
            raise ArgumentError(message("a positive number of episodes", got, at))
        if self._eval_envs is None:
            self._eval_envs = vectorize(self._make_eval_env, min(self._config.eval_episodes, LANES))
        firsts = range(0, episodes, self._eval_envs.num_envs)
        rounds = [play(self._eval_envs, self.agent.policy(), SEED + first) for first in firsts]
        return np.concatenate(rounds)[:episodes]

    def close(self) -> None:
        """Close the environments, the log, and a buffer that actors write to; the agent can still act."""
        self._home.wait()
        self._own_envs.close()
        if self._eval_envs is not None:
            self._eval_envs.close()
        self.log.close()
        if self._backend is not None:
            self.buffer.close()
            self._backend.close()

    # Saves ------------------------------------------------------------------------------------------------------------

    def save(self, path: Folder, *, wait: bool = True) -> None:
        """Save the run in a folder: the learner, the buffer, all generators, and the environments.

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
        target = Path(checks.path(path, f"{self._name}.save(path)")).absolute()
        self._home.wait()
        tensors = {**saving.pack(self.agent.parts()), **self.log.tensors()}
        config = dataclasses.asdict(dataclasses.replace(self._config, env_kwargs=dict(self._config.env_kwargs)))
        rng = state_of(self.agent.random.rng)
        facts: dict[str, Any] = {"trainer": self._name, "config": config, "rng": rng, **self.log.facts()}
        facts |= {"step": self.step, "updates": self.updates, "episodes": None}
        facts |= {"why": "actors step it"} if self._collector is None else {}
        if self._collector is not None and self._collector.obs is not None:
            try:
                facts["episodes"], arrays = self._episodes(self._collector)
                tensors |= {f"episodes.{key}": torch.from_numpy(each) for key, each in arrays.items()}
            except Unrestorable as error:
                facts["why"] = str(error)
        try:
            text = json.dumps(facts)
        except TypeError as error:
            at = f"{self._name}.save"
            raise ArgumentError(message("env_kwargs that JSON can write", f"`{error}`", at)) from error
        home = self._home if self._home.path == target else saving.Home(target)
        with contextlib.nullcontext() if self.crew is None else self.crew.paused():
            home.save(partial(replay.saved, self.buffer), tensors, text, wait=wait or self.crew is not None)
        self._home = home

    def _episodes(self, collector: Collector) -> tuple[dict[str, Any], dict[str, npt.NDArray[np.uint8]]]:
        """Return where the running episodes stand, as JSON and arrays."""
        packer = Packer()
        memory = {} if collector.memory is None else collector.memory.arrays()
        now = packer.pack({"obs": collector.obs, "returns": collector.returns, **memory})
        return {"now": now, "envs": packer.pack(self._own_envs)}, packer.arrays

    def restore(self, saved: saving.Saved[C], optional: Container[str] = ()) -> None:
        """Go on where a saved run stood; parts of the agent that are `optional` may be missing in it.

        Where an environment cannot be put back into its state, new episodes begin, and a `ReliveWarning` says so.

        Raises:
            ArgumentError: The learner does not fit the environment or the settings.
            CorruptionError: The buffer is damaged; as `relive.load` says it.
        """
        try:
            self._restore(saved, optional)
        except ReliveError:
            raise
        except (RuntimeError, LookupError, ValueError, TypeError, AttributeError, OverflowError) as error:
            raise saved.refusal(error) from error

    def _restore(self, saved: saving.Saved[C], optional: Container[str]) -> None:
        tensors, facts, c = saved.tensors, saved.facts, saved.config
        self.step, self.updates = facts["step"], facts["updates"]
        self.agent.random.rng = generator_of(facts["rng"])
        self.log.restore(tensors, facts)
        saving.unpack(tensors, self.agent.parts(), optional)
        self.buffer = replay.loaded(c, self.agent, self.buffer, saved.path / saving.BUFFER, facts["buffer"])
        if self.buffer.schema != self.agent.schema:
            raise ValueError(f"its buffer stores `{self.buffer.schema!r}`")
        self._collector = collector = self._collecting()
        same = all(facts["config"][name] == getattr(c, name) for name in ("env_id", "env_kwargs"))
        if collector is not None and facts["episodes"] is not None and same:
            unpacker = Unpacker(lambda name: tensors[f"episodes.{name}"].numpy())
            now = unpacker.unpack(facts["episodes"]["now"])
            unpacker.unpack(facts["episodes"]["envs"], self._own_envs)
            collector.resume(now.pop("obs"), now.pop("returns"), now)
        elif self.step:
            why = facts.get("why", "it has other settings")
            what = f"New episodes begin: the environment cannot be put back into its state ({why})"
            warnings.warn(event(what, saved.at), ReliveWarning, stacklevel=4)
        self._home = saving.Home(saved.path)


class Trainer(Generic[C, A]):
    """A run with its loop. A trainer adds the class of its settings, that of its agent, and `learn`, its update.

    `SACTrainer` describes arguments, attributes and errors.
    """

    _name: str  # in messages and saves
    _settings: type[Any]
    _kind: type[Any]
    _optional: tuple[str, ...] = ()  # parts of the agent that a save may lack

    def __init__(self, config: C, *, make_env: MakeEnv | None = None, evaluator: Evaluator | None = None) -> None:
        self.config = config
        self.run: Run[A] = Run(self._name, config, self._kind, make_env=make_env, evaluator=evaluator)
        self.agent = self.run.agent
        self.td_error = self.agent.td_error
        self.evaluate, self.save, self.close = self.run.evaluate, self.run.save, self.run.close

    def train(self, progress: Reporter | None = None, *, out: Folder | None = None) -> TrainResult:
        """Train until `config.total_steps` environment steps are done, and return everything seen so far.

        Args:
            progress: Called a few times a second and after every evaluation. Returning False ends the run there;
                another call of `train` goes on.
            out: A folder to save the run in, as `save` does: at the start, every `config.save_every` steps, while
                training goes on, and at the end. None saves nothing.

        Raises:
            StorageError: `out` cannot be written, or another run is saved there.
        """
        run = self.run
        with run.training(progress, out):
            while run.next_round():
                for _ in range(run.updates_due()):
                    self.learn()
                run.finish_round()
        return run.result

    def learn(self) -> None:
        """Do one update: draw a batch, learn from it, and hand back its priorities."""

    @classmethod
    def load(
        cls, path: Folder, *, make_env: MakeEnv | None = None, evaluator: Evaluator | None = None, **changes: Any
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
        saved = saving.saved_run(path, cls._name, cls._settings, changes)
        trainer = cls(saved.config, make_env=make_env, evaluator=evaluator)
        trainer.run.restore(saved, cls._optional)
        return trainer

    @property
    def buffer(self) -> relive.ReplayBuffer:
        """The replay buffer, or shards."""
        buffer: relive.ReplayBuffer = self.run.buffer
        return buffer

    @property
    def step(self) -> int:
        """Environment steps done."""
        return self.run.step

    @property
    def updates(self) -> int:
        """Gradient updates done."""
        return self.run.updates

    @property
    def result(self) -> TrainResult:
        """The results so far."""
        return self.run.result
