"""What DQN and R2D2 share: a Q-net that a target net follows, the pace of random actions, and a step of gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import relive
from relive.lab._config import QLearningConfig
from relive.lab._trainer import Trainer  # first: says what to install where PyTorch is missing

# isort: split
import torch
from torch import Tensor, nn

from relive.lab._env import Discrete
from relive.lab._nets import move_towards

Config = TypeVar("Config", bound=QLearningConfig)
Net = TypeVar("Net", bound=nn.Module)


class QTrainer(Trainer[Config], Generic[Config, Net]):
    """The frame of a trainer for discrete actions."""

    _spaces: Discrete

    def _build_nets(self, make: Callable[[], Net], eps: float = 1e-8) -> None:
        c = self.config
        self._net, self._target = make().to(self._device), make().to(self._device)
        self._target.load_state_dict(self._net.state_dict())
        self._weights: list[Tensor] = list(self._net.parameters())
        self._target_weights: list[Tensor] = [weight.requires_grad_(False) for weight in self._target.parameters()]
        self._optimizer = torch.optim.Adam(self._weights, lr=c.learning_rate, eps=eps, fused=True)
        self._epsilon = relive.Anneal(c.epsilon_start, c.epsilon_end, over=c.epsilon_steps)

    def _exploration(self) -> float:
        """Return the probability of a random action in training."""
        return 1.0 if self.step < self.config.start_steps else self._epsilon.at(self.step)

    def _descend(self, loss: Tensor, tau: float = 1.0) -> None:
        """Change the net by the gradients of a loss, and move the target net by `tau` if it is due."""
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._weights, self.config.max_grad_norm)
        self._optimizer.step()
        if (self.updates + 1) % self.config.target_every == 0:
            move_towards(self._target_weights, self._weights, tau)

    def _scalars(self) -> dict[str, float]:
        return {"train/epsilon": self._epsilon.at(self.step), **super()._scalars()}

    def _parts(self) -> dict[str, Any]:
        return {"net": self._net, "target": self._target, "optimizer": self._optimizer}


def best_value(values: Tensor, judged: Tensor) -> Tensor:
    """Return the value of the action that `judged` rates highest, `[...]` of `[..., A]`."""
    return values.gather(-1, judged.argmax(-1, keepdim=True)).squeeze(-1)
