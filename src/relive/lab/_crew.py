"""What crews of actors have in common, wherever these run: how far they may go, their weights, how an actor is made."""

from __future__ import annotations

import abc
import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

import relive
from relive.lab._config import TrainerConfig
from relive.lab._env import MakeEnv
from relive.lab._outbox import Judge, Outbox

if TYPE_CHECKING:
    from relive.lab._algorithm import Algorithm
    from relive.lab._log import Log

# How many steps actors may be ahead of the learner, at least, and in rounds of updates.
LEAD, LEAD_ROUNDS = 64, 4
# Seconds: the longest wait of a call, and between two looks.
PATIENCE, NAP = 0.1, 0.002
PUBLISH, PUBLISH_SHARE = 0.02, 0.05  # seconds between two versions of the weights, and the share of time they may take
GRACE, HASTE = 5.0, 0.5  # seconds that actors are given to end by themselves, and after an error


class Acting(Protocol):
    """What an actor asks of a trainer; see `Algorithm` and `Trainer`."""

    step: int

    def _acting(self) -> list[Tensor]: ...
    def _item(self) -> Any: ...
    def _judgement(self) -> Judge | None: ...
    def _sampler(self) -> relive.Uniform | relive.Prioritized: ...
    def _reset(self) -> npt.NDArray[Any]: ...
    def _interact(self, obs: npt.NDArray[Any]) -> npt.NDArray[Any]: ...
    def close(self) -> None: ...


class AnyCrew(abc.ABC):
    """The learner's actors, while it trains; a context manager.

    Args:
        trainer: The learner, with its buffer.
        log: The learner's.
        make: Makes an actor of settings, `make_env`, what gives it a buffer, and its log.
        make_env: Builds an actor's environment; None: what the settings say.
        ahead: How many steps of every environment actors may be ahead of the learner, at least.
    """

    def __init__(
        self, trainer: Algorithm[Any], log: Log, make: Callable[..., Acting], make_env: MakeEnv | None, ahead: int
    ) -> None:
        self._trainer, self._log, self._make, self._make_env = trainer, log, make, make_env
        self._tensors, c = trainer._acting(), trainer.config
        self._lead = max(LEAD, LEAD_ROUNDS * c.update_every, ahead * c.num_envs * c.actors)
        self._published, self._every = 0.0, PUBLISH

    def __exit__(self, kind: object, *exception: object) -> None:
        self._end(GRACE if kind is None else HASTE)

    @abc.abstractmethod
    def wait(self, step: int, allowed: int | None = None) -> int:
        """Wait until actors have done `step` steps in all, or for a moment; return how many they have.

        Args:
            step: As above.
            allowed: How many they may do; None: somewhat more than that.

        Raises:
            ReliveError: An actor failed, or is gone for good.
        """

    def publish(self) -> None:
        """Give actors the weights as they are, unless they were given some a moment ago."""
        if time.monotonic() - self._published > self._every:
            self._publish()

    @abc.abstractmethod
    def scalars(self) -> dict[str, float]:
        """What a TensorBoard entry says of the actors, since the last one."""

    def _publish(self) -> None:
        begun = time.monotonic()
        self._give_weights()
        self._published = time.monotonic()
        self._every = max(PUBLISH, (self._published - begun) / PUBLISH_SHARE)

    @abc.abstractmethod
    def _give_weights(self) -> None:
        """Send the weights as they are."""

    @abc.abstractmethod
    def _end(self, grace: float) -> None:
        """End all actors; give them some seconds to do so by themselves."""

    def _most(self, step: int, allowed: int | None) -> int:
        """How many steps actors may do now; the arguments are those of `wait`."""
        total: int = self._trainer.config.total_steps
        return min(total, max(step, self._trainer.step + self._lead) if allowed is None else allowed)

    def _of(self, number: int, step: int, **own: Any) -> tuple[TrainerConfig, list[int]]:
        """An actor's settings, if it begins when `step` steps were done, and its lanes."""
        c = self._trainer.config
        seed = int(np.random.SeedSequence((c.seed, step, 1 + number)).generate_state(1)[0])
        own |= {"seed": seed, "actors": 0, "device": "cpu", "torch_threads": 1, "log_dir": None}
        return dataclasses.replace(c, **own), list(range(number * c.num_envs, (number + 1) * c.num_envs))


def acting(
    make: Callable[..., Acting],
    config: TrainerConfig,
    make_env: MakeEnv | None,
    writer: Any,
    log: Any,
) -> tuple[Acting, Outbox | None]:
    """Make an actor whose steps go to `writer`, and what holds them back until it has judged them, if anything does.

    Args:
        make: Makes an actor of settings, `make_env`, what gives it a buffer, and its log.
        config: The actor's settings.
        make_env: Builds an environment; None: what the settings say.
        writer: A `relive.Writer`, or one of shards.
        log: Where returns of episodes go.
    """
    outbox: list[Outbox] = []

    def into(actor: Acting) -> Any:
        sampler, judge = actor._sampler(), actor._judgement()
        if judge is None or not sampler.prioritizes:
            return writer
        outbox.append(Outbox(writer, actor._item(), sampler.eps, judge))
        return outbox[0]

    return make(config, make_env, into, log), outbox[0] if outbox else None
