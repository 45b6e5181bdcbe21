"""An actor: environments, an agent whose weights are the learner's, and a writer of some lanes of its buffer."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import torch

from relive_lab.agent import Agent, weights_of
from relive_lab.collector import Collector
from relive_lab.config import MakeEnv, TrainerConfig
from relive_lab.crew.outbox import Outbox
from relive_lab.environments import makers, vectorize


@dataclasses.dataclass(frozen=True)
class Job:
    """The parts to make an actor from: the same as for the learner's agent.

    Attributes:
        kind: Makes the agent from settings and environments.
        config: The settings; an actor's have its own seed.
        make_env: Builds an environment; None: what the settings say.
    """

    kind: Callable[..., Agent]
    config: TrainerConfig
    make_env: MakeEnv | None


@dataclasses.dataclass(frozen=True)
class Reply:
    """The outcome of an actor's call.

    Attributes:
        steps: Steps, over its environments.
        returns: Returns of the episodes that ended.
        seconds: How long it took.
    """

    steps: int
    returns: list[float]
    seconds: float


class Actor:
    """Acts when it is asked to.

    Args:
        job: What it is made from.
        writer: Of its lanes.

    Attributes:
        agent: The agent.
        weights: Tensors that the learner's are copied into.
        outbox: Holds steps back until they have priorities, where draws go by priority.
    """

    def __init__(self, job: Job, writer: Any) -> None:
        torch.set_num_threads(1)
        envs = vectorize(makers(job.config, job.make_env).train, job.config.num_envs)
        self.agent = job.kind(job.config, envs)
        self.weights = weights_of(self.agent)
        sampler = job.config.sampler()
        self.outbox: Outbox | None = None
        if sampler.prioritizes:
            self.outbox = Outbox(writer, self.agent.item, sampler.eps, self.agent.errors)
        self._writer, self._returns = writer, list[float]()
        self.collector = Collector(job.config, self.agent, envs, self.outbox or writer, self._note)

    def _note(self, step: int, value: float) -> None:
        self._returns.append(value)

    def act(self, step: int, rounds: int) -> Reply:
        """Step all environments `rounds` times; `step` is how many steps all actors have done."""
        begun, collector = time.monotonic(), self.collector
        collector.step = step
        steps = sum(collector.collect() for _ in range(rounds))
        returns, self._returns = self._returns, []
        return Reply(steps, returns, time.monotonic() - begun)

    def flush(self) -> None:
        """Add all steps that are held back."""
        if self.outbox is not None:
            self.outbox.flush()

    def close(self) -> None:
        """End, with all steps added."""
        self.flush()
        self.collector.envs.close()
        self._writer.close()
