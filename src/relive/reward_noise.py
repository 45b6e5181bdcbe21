"""How noisy the reward is, learned beside a critic: what draws by precision go by, and a diagnosis of TD errors.

    mean, log v = net(obs, action)                       a net of the critic's shape, its own Adam, the critic's batch
    loss:  mean of (r - mean)^2 + log v + e2 / v         e2 = (r - mean)^2 without a gradient; e2 / v linear above 20
    D = running mean of TD^2 over the memory             every draw counts 1 / P, P its probability
    priority = D / (v + floor * D)                       `relive.precision_priority`

The gradient of the loss by log v is 1 - min(e2 / v, 20): v is the variance where the mean is right, and one outlier
moves it by no more than twenty ordinary items do.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from ._base.extras import needs
from ._base.types import Float64
from .items import precision_priority

with needs("torch", "relive.reward_noise"):
    import torch
    from torch import Tensor, nn

DECAY = 0.9998  # of running means, per item drawn
LIMIT = 20.0  # on e2 / v


class RewardNoise:
    """Predicts mean and variance of the reward from observation and action.

    For a learner's loop: `learn` from each batch, `note` its TD errors, and hand `priorities` back to the buffer, whose
    sampler is `relive.Prioritized(alpha=1.0, beta=0.0)`.

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

    >>> noise = RewardNoise(3, (16,), 1e-3, torch.Generator().manual_seed(0), "cpu")
    >>> variance = noise.learn(torch.zeros(8, 3), torch.randn(8, generator=torch.Generator().manual_seed(0)))
    >>> noise.note(np.ones(8), variance, np.ones(8))
    >>> noise.priorities(variance).shape
    (8,)
    """

    def __init__(
        self, inputs: int, hidden: tuple[int, ...], learning_rate: float, generator: torch.Generator, device: Any
    ) -> None:
        self.net = Net((inputs, *hidden, 2), generator).to(device)
        self._weights: list[Tensor] = list(self.net.parameters())
        self.optimizer = torch.optim.Adam(self._weights, lr=learning_rate, fused=True)
        self.sums = torch.zeros(3, dtype=torch.float64)

    def learn(self, inputs: Tensor, reward: Tensor) -> Float64:
        """Learn from a batch `[B, inputs]`, and return the variances that were predicted before, float64 `[B]`."""
        output = self.net(inputs)
        predicted = output.detach()
        slope = noise_gradient(predicted, reward) / len(reward)
        for weight, gradient in zip(self._weights, torch.autograd.grad(output, self._weights, slope), strict=True):
            weight.grad = gradient
        self.optimizer.step()
        variance: Float64 = predicted[:, 1].double().exp().cpu().numpy()
        return variance

    @torch.no_grad()
    def variance(self, inputs: Tensor) -> Float64:
        """Return the variances that are predicted for `[B, inputs]`, float64 `[B]`."""
        variance: Float64 = self.net(inputs)[:, 1].double().exp().cpu().numpy()
        return variance

    def note(self, td_square: Float64, variance: Float64, rarity: Float64) -> None:
        """Take squared TD errors and variances into the running means; `rarity` is 1 / P up to a factor, all `[B]`."""
        seen = torch.tensor([rarity.sum(), rarity @ td_square, rarity @ variance], dtype=torch.float64)
        keep = DECAY ** len(rarity)
        self.sums.mul_(keep).add_(seen, alpha=1.0 - keep)

    def priorities(self, variance: Float64) -> Float64:
        """Return priorities for items whose rewards have these variances; ones before the first draw."""
        total, square, _ = self.sums.tolist()
        if not total:
            return np.ones(len(variance))
        # Positive even if every TD error so far was exactly 0.
        return precision_priority(variance, max(square / total, float(np.finfo(np.float64).tiny)))

    @property
    def share(self) -> float:
        """Share of the mean squared TD error that the reward's noise alone makes up, in [0, 1]; NaN before a draw."""
        _, square, variance = self.sums.tolist()
        return min(variance / square, 1.0) if square > 0.0 else math.nan


class Net(nn.Module):
    """A ReLU net of widths `sizes`; initial weights are drawn from U(-1/sqrt(in), 1/sqrt(in)) by `generator`."""

    def __init__(self, sizes: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for width, following in itertools.pairwise(sizes):
            for store, shape in ((self.weights, (width, following)), (self.biases, (following,))):
                bound = 1.0 / math.sqrt(width)
                store.append(nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator)))

    def forward(self, x: Tensor) -> Tensor:
        """Map `[B, in]` to `[B, out]`."""
        for depth, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.addmm(bias, torch.relu(x) if depth else x, weight)
        return x


def noise_gradient(predicted: Tensor, reward: Tensor) -> Tensor:
    """Return the gradient of every item's loss by the two predictions, mean and log variance, all `[B, 2]`."""
    mean, log_variance = predicted.unbind(-1)
    error = mean - reward
    # Through the logarithm, which is finite or -inf where e2 / v would be 0 / 0.
    ratio = (error.square().log() - log_variance).exp().clamp(max=LIMIT)
    return torch.stack((2.0 * error, 1.0 - ratio), dim=-1)
