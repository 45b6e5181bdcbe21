"""What DQN and R2D2 share: settings, a net that a target net follows, and random actions that become rare."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor, nn

import relive
from relive_lab.agent import A, Part, Random
from relive_lab.checks import Fields
from relive_lab.config import TrainerConfig
from relive_lab.nets import move_towards
from relive_lab.run import Trainer


@dataclasses.dataclass(frozen=True, kw_only=True)
class QLearningConfig(TrainerConfig):
    """The settings common to DQN and R2D2: the target, the target net, and random actions."""

    double: bool = True
    """Let the online net choose the action whose value the target net gives."""
    dueling: bool = False
    """Estimate the value of a state and the advantages of its actions apart."""
    critic_loss: Literal["mse", "huber"] = "huber"
    """Loss of a TD error e: half its square, or Huber's, e**2 / 2 up to the threshold k and k * (|e| - k / 2) above."""
    huber_threshold: float = 1.0
    """Threshold of Huber's loss, on the scale of the rewards that are learned from; of h(Q) with `rescale`."""
    max_grad_norm: float = 10.0
    """Gradients are scaled down to this norm, all weights together."""
    target_every: int = 1
    """Updates between two moves of the target net."""

    epsilon_start: float = 1.0
    """Probability of a random action at the first step."""
    epsilon_end: float = 0.05
    """Probability of a random action from step `epsilon_steps` on."""
    epsilon_steps: int = 10_000
    """Environment steps over which that probability falls linearly."""
    eval_every: int = 5_000

    def __post_init__(self) -> None:
        super().__post_init__()
        fields = Fields(self)
        fields.integers("target_every", "epsilon_steps", minimum=1)
        fields.numbers("epsilon_start", "epsilon_end", low=0.0, high=1.0)
        fields.numbers("max_grad_norm", above=0.0)
        fields.flags("double", "dueling")


C = TypeVar("C", bound=QLearningConfig)
N = TypeVar("N", bound=nn.Module)


class QLearner(Generic[N]):
    """The part of an agent that has the nets: one that learns, and one that follows it and makes the targets.

    Args:
        config: The settings.
        make: Makes a net with other initial weights at each call.
        tau: Share by which the target net moves towards the net.
        eps: Adam's epsilon.
    """

    def __init__(
        self, config: QLearningConfig, random: Random, make: Callable[[], N], tau: float, eps: float = 1e-8
    ) -> None:
        self.random, self._tau, self._start_steps = random, tau, config.start_steps
        self.seen: dict[str, Tensor] = {}
        self.net, self.target = (make().to(random.device) for _ in range(2))
        self.target.load_state_dict(self.net.state_dict())
        self._weights: list[Tensor] = list(self.net.parameters())
        self._target_weights: list[Tensor] = [weight.requires_grad_(False) for weight in self.target.parameters()]
        self._optimizer = torch.optim.Adam(self._weights, lr=config.learning_rate, eps=eps, fused=True)
        self.epsilon = relive.Anneal(config.epsilon_start, config.epsilon_end, over=config.epsilon_steps)

    def epsilon_at(self, step: int) -> float:
        """Return the share of random actions: all at first, then ever fewer."""
        return 1.0 if step < self._start_steps else self.epsilon.at(step)

    def follow(self) -> None:
        """Move the target net towards the net."""
        move_towards(self._target_weights, self._weights, self._tau)

    def scalars(self, step: int) -> dict[str, float]:
        """Return the share of random actions, the loss, and what else the last update has seen."""
        found = {name: float(values.mean()) for name, values in self.seen.items()}
        return {"train/epsilon": self.epsilon.at(step), **found}

    def parts(self) -> dict[str, Part]:
        """Return nets, optimizer and generator."""
        nets: dict[str, Part] = {"net": self.net, "target": self.target}
        return {**nets, "optimizer": self._optimizer, "generator": self.random.generator}


class QTrainer(Trainer[C, A]):
    """A trainer of such agents."""

    agent: Any

    def learn(self) -> None:
        """Do one update: draw a batch, learn from it, hand back its priorities; move the target net if it is due."""
        run, agent, c = self.run, self.agent, self.config
        batch = run.draw()
        priorities = agent.update(agent.random.tensors(batch))
        if c.use_per:
            run.buffer.update_priorities(batch.ids, torch.as_tensor(priorities).cpu().numpy())
        run.updates += 1
        if run.updates % c.target_every == 0:
            agent.follow()
