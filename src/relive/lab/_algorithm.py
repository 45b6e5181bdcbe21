"""What a trainer's own file defines: how it acts and learns."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import numpy.typing as npt

import relive
from relive._base.extras import needs
from relive.lab._config import TrainerConfig

with needs("train", "relive.lab"):
    import torch
    from torch import Tensor, nn

from relive.lab._env import Act, MakeEnv

Config = TypeVar("Config", bound=TrainerConfig)


class Algorithm(abc.ABC, Generic[Config]):
    """The methods that `Trainer` calls."""

    config_type: ClassVar[type[TrainerConfig]]
    config: Config
    buffer: relive.ReplayBuffer
    step: int
    updates: int
    _moved: int
    _seen: dict[str, Tensor]
    _generator: torch.Generator

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

    def _carried(self) -> dict[str, npt.NDArray[Any]]:
        """Return what acting keeps from step to step, for a save."""
        return {}

    def _carry(self, carried: dict[str, npt.NDArray[Any]]) -> None:
        """Take over what `_carried` returned; KeyError or ValueError if it does not fit."""

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

    def _generators(self) -> dict[str, torch.Generator]:
        """Return the generators of a checkpoint, by name."""
        return {"generator": self._generator}

    def _tensors(self) -> dict[str, Tensor]:
        """Return further tensors of a checkpoint, by name; a restored learner has their values copied into them."""
        return {}

    def _acting(self) -> list[Tensor]:
        """Return the tensors that actors in other processes need, always in the same order."""
        nets = [part for part in self._parts().values() if isinstance(part, nn.Module)]
        tensors = [*(weight for net in nets for weight in net.parameters()), *self._tensors().values()]
        # What travels is float32; of a float64 that is its two halves.
        return [tensor.detach().view(torch.float32) for tensor in tensors if tensor.is_floating_point()]

    def _judgement(self) -> Callable[[relive.Batch], npt.NDArray[Any]] | None:
        """Return what gives items' errors `[B]`, for actors' initial priorities; None: the largest so far."""
        return None
