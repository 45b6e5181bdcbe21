"""How noisy the reward is, learned beside a critic: what draws by precision go by, and a diagnosis of TD errors.

    mean, log v = net(obs, action)                       a net of the critic's shape, its own Adam, the critic's batch
    loss:  mean of (r - mean)^2 + log v + e2 / v         e2 = (r - mean)^2 without a gradient; e2 / v linear above 20
    D = running mean of TD^2 over the memory             every draw counts 1 / P, P its probability
    priority = D / (v + floor * D)                       `relive.precision_priority`

The gradient of the loss by log v is 1 - min(e2 / v, 20): v is the variance where the mean is right, and one outlier
moves it by no more than twenty ordinary items do.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

import relive

# isort: split
import torch
from torch import Tensor

from relive.lab._nets import Perceptron

Floats = npt.NDArray[np.float64]

DECAY = 0.9998  # of running means, per item drawn
LIMIT = 20.0  # on e2 / v


class RewardNoise:
    """Predicts mean and variance of the reward from observation and action.

    Args:
        inputs: Size of observation and action together.
        hidden: Widths of the hidden layers.
        learning_rate: Of Adam.
        generator: Draws the initial weights.
        device: Where the net is.

    Attributes:
        net: The net, two outputs: the mean, and the logarithm of the variance.
        optimizer: Its own.
        sums: Decaying sums over the draws, float64 `[3]`: of 1 / P, of TD^2 / P, and of v / P.
    """

    def __init__(
        self, inputs: int, hidden: tuple[int, ...], learning_rate: float, generator: torch.Generator, device: Any
    ) -> None:
        self.net = Perceptron((inputs, *hidden, 2), 0, generator).to(device)
        self._weights: list[Tensor] = list(self.net.parameters())
        self.optimizer = torch.optim.Adam(self._weights, lr=learning_rate, fused=True)
        self.sums = torch.zeros(3, dtype=torch.float64)

    def learn(self, inputs: Tensor, reward: Tensor) -> Floats:
        """Learn from a batch `[B, inputs]`, and return the variances that were predicted before, float64 `[B]`."""
        output = self.net(inputs)
        predicted = output.detach()
        slope = noise_gradient(predicted, reward) / len(reward)
        for weight, gradient in zip(self._weights, torch.autograd.grad(output, self._weights, slope), strict=True):
            weight.grad = gradient
        self.optimizer.step()
        variance: Floats = predicted[:, 1].double().exp().cpu().numpy()
        return variance

    @torch.no_grad()
    def variance(self, inputs: Tensor) -> Floats:
        """Return the variances that are predicted for `[B, inputs]`, float64 `[B]`."""
        variance: Floats = self.net(inputs)[:, 1].double().exp().cpu().numpy()
        return variance

    def note(self, td_square: Floats, variance: Floats, rarity: Floats) -> None:
        """Take squared TD errors and variances into the running means; `rarity` is 1 / P up to a factor, all `[B]`."""
        seen = torch.tensor([rarity.sum(), rarity @ td_square, rarity @ variance], dtype=torch.float64)
        keep = DECAY ** len(rarity)
        self.sums.mul_(keep).add_(seen, alpha=1.0 - keep)

    def priorities(self, variance: Floats) -> Floats:
        """Return priorities for items whose rewards have these variances; ones before the first draw."""
        total, square, _ = self.sums.tolist()
        if not total:
            return np.ones(len(variance))
        # Positive even if every TD error so far was exactly 0.
        return relive.precision_priority(variance, max(square / total, float(np.finfo(np.float64).tiny)))

    @property
    def share(self) -> float:
        """Share of the mean squared TD error that the reward's noise alone makes up, in [0, 1]; NaN before a draw."""
        _, square, variance = self.sums.tolist()
        return min(variance / square, 1.0) if square > 0.0 else math.nan


def noise_gradient(predicted: Tensor, reward: Tensor) -> Tensor:
    """Return the gradient of every item's loss by the two predictions, mean and log variance, all `[B, 2]`."""
    mean, log_variance = predicted.unbind(-1)
    error = mean - reward
    # Through the logarithm, which is finite or -inf where e2 / v would be 0 / 0.
    ratio = (error.square().log() - log_variance).exp().clamp(max=LIMIT)
    return torch.stack((2.0 * error, 1.0 - ratio), dim=-1)


def effective_share(rarity: Floats) -> float:
    """Return which share of a batch its draw probabilities leave once they are corrected for: 1 for uniform draws."""
    return float(rarity.sum() ** 2 / (len(rarity) * (rarity @ rarity)))
