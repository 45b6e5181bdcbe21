"""What a run and its actors ask of an algorithm, and where the random numbers of one come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

import relive
from relive.errors import ArgumentError, message
from relive_lab.config import TrainerConfig

Array = npt.NDArray[Any]
Act = Callable[[Array], Array]
"""A policy: observations `[N, ...]` to actions `[N, ...]`."""
Part = nn.Module | torch.optim.Optimizer | torch.Generator | Tensor


class Choice(NamedTuple):
    """Actions of a step, and what else is stored with it.

    Attributes:
        action: In the environment's own scale, `[N, ...]`.
        extras: Further fields of the step, each `[N, ...]`.
    """

    action: Array
    extras: Mapping[str, Array] = {}


class Memory(Protocol):
    """The memory for acting from step to step, for several environments."""

    def after(self, reward: npt.ArrayLike, ended: npt.ArrayLike) -> None:
        """Take in the rewards `[N]` of the last actions, and which episodes ended, `[N]`."""

    def arrays(self) -> dict[str, Array]:
        """Return all of it, for a save."""

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Take over what `arrays` returned; KeyError or ValueError if it does not fit."""


class Agent(Protocol):
    """Nets, and how they act. Trainers have one, and so does each actor; only a trainer's learns.

    Attributes:
        random: Where its random numbers come from.
        schema: What a step holds.
        item: What one draw returns.
    """

    random: Random
    schema: relive.Schema
    item: Any

    def parts(self) -> dict[str, Part]:
        """Return all that a save holds of it, by name, always in the same order."""

    def memory(self, num_envs: int) -> Memory | None:
        """Return what acting keeps at the first step of an episode, if anything."""

    def explore(self, obs: Array, step: int, memory: Any) -> Choice:
        """Choose actions to learn from, at step `step` of the run; `memory` is moved on."""

    def policy(self) -> Act:
        """Return the policy that is evaluated, fresh for the episodes of one round."""

    def errors(self, batch: relive.Batch) -> Array:
        """Return what the priorities of a batch's items are made of, `[B]`; actors give theirs by it."""

    def td_error(self, batch: relive.Batch) -> Array:
        """Return the TD errors of a batch of the buffer's, `[B]`."""

    def scalars(self, step: int) -> dict[str, float]:
        """Return what a TensorBoard entry says of the learner."""


A = TypeVar("A", bound=Agent)


class Random:
    """The random numbers of an agent.

    Attributes:
        rng: NumPy's, which exploration draws from.
        device: Of the nets.
        generator: PyTorch's, on that device.
    """

    def __init__(self, config: TrainerConfig) -> None:
        _, torch_seed, act_seed, *_ = config.seeds(0)
        self.rng = np.random.default_rng(act_seed)
        try:
            self.device = torch.device(config.device)
            self.generator = torch.Generator(self.device).manual_seed(torch_seed)
        except (RuntimeError, AssertionError) as error:
            got, at = f"`{config.device}` ({error})", f"{type(config).__name__}(device)"
            raise ArgumentError(message("a PyTorch device of this machine", got, at)) from error

    def initial(self) -> torch.Generator:
        """Return the source of initial weights: on the CPU, so that they are the same on every device."""
        return torch.Generator().manual_seed(self.generator.initial_seed())

    def tensors(self, batch: relive.Batch) -> Any:
        """Return a batch of tensors on the device."""
        return batch.torch(None if self.device.type == "cpu" else self.device)


def weights_of(agent: Agent) -> list[Tensor]:
    """Return the tensors that an actor needs of a learner, as float32 views; of float64 these are its two halves."""
    parts = agent.parts().values()
    weights = [weight for part in parts if isinstance(part, nn.Module) for weight in part.parameters()]
    tensors = [part for part in parts if isinstance(part, Tensor)]
    return [each.detach().view(torch.float32) for each in [*weights, *tensors] if each.is_floating_point()]
