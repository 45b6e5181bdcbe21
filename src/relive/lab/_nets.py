"""The nets of soft actor-critic: a tanh-Gaussian actor, and two critics evaluated as one.

At the small sizes that control needs, the number of PyTorch calls decides what an update costs. So log-probabilities
are written out by hand, and the critics are one batched product.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

Floats = npt.NDArray[np.float32]

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0


@torch.no_grad()
def move_towards(target: list[Tensor], weights: list[Tensor], share: float) -> None:
    """Move a target net's weights towards those of the net it follows, by a share of the distance; 1 copies them."""
    torch._foreach_lerp_(target, weights, share)


def loss_of(error: Tensor, kind: str, threshold: float) -> Tensor:
    """Return the loss of every TD error e: `e**2`; with huber `k * (2 |e| - k)` where `|e|` is above the threshold."""
    if kind == "mse":
        return error.square()
    return 2.0 * functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=threshold)


class Perceptron(nn.Module):
    """A ReLU net of widths `sizes`, or `copies` of it that run as one batched product, with a leading axis.

    Initial weights are drawn from U(-1/sqrt(in), 1/sqrt(in)) by `generator`.
    """

    def __init__(self, sizes: tuple[int, ...], copies: int, generator: torch.Generator) -> None:
        super().__init__()
        lead = (copies,) if copies else ()
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for width, following in itertools.pairwise(sizes):
            bound = 1.0 / math.sqrt(width)
            bias = (copies, 1, following) if copies else (following,)
            for store, shape in ((self.weights, (*lead, width, following)), (self.biases, bias)):
                store.append(nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator)))
        self.multiply = torch.baddbmm if copies else torch.addmm
        # Attribute access on modules is slow enough to show in an update; the tensors themselves never change identity.
        self._layers = list(zip(self.weights, self.biases, strict=True))
        self._arrays: list[tuple[Floats, Floats]] = []

    def forward(self, x: Tensor) -> Tensor:
        """Map `[B, in]` to `[B, out]`, or `[copies, B, in]` to `[copies, B, out]`."""
        last = len(self._layers) - 1
        for depth, (weight, bias) in enumerate(self._layers):
            x = self.multiply(bias, x, weight)
            if depth < last:
                x = torch.relu(x)
        return x

    def evaluate(self, x: Floats) -> Floats:
        """Map `[N, in]` to `[N, out]` without gradients.

        On the CPU this runs in NumPy on the weights' own memory: several times faster for one observation.
        """
        if not self.weights[0].is_cpu:
            with torch.no_grad():
                found: Floats = self(torch.from_numpy(x).to(self.weights[0].device)).cpu().numpy()
            return found
        if not self._arrays:
            self._arrays = [(w.detach().numpy(), b.detach().numpy()) for w, b in self._layers]
        last = len(self._arrays) - 1
        for depth, (weight, bias) in enumerate(self._arrays):
            x = x @ weight + bias
            if depth < last:
                x = np.maximum(x, 0.0)
        return x


class Actor(nn.Module):
    """A Gaussian squashed by tanh: actions and their log-probabilities (Haarnoja et al. 2018, appendix C)."""

    def __init__(self, obs_size: int, action_size: int, hidden: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        self.net = Perceptron((obs_size, *hidden, 2 * action_size), 0, generator)

    def forward(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions `[B, A]` and their log-probabilities `[B]`, from standard normal noise `[B, A]`."""
        mean, log_std = self.net(obs).chunk(2, dim=-1)
        log_std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
        pre = mean + log_std.exp() * noise
        # log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)) stays finite where 1 - tanh(u)^2 underflows.
        squash = pre + functional.softplus(-2.0 * pre)
        per_axis = 2.0 * squash - log_std - 0.5 * noise * noise
        constant = (0.5 * math.log(2.0 * math.pi) + 2.0 * math.log(2.0)) * noise.shape[-1]
        return torch.tanh(pre), per_axis.sum(-1) - constant

    def act(self, obs: Floats, noise: Floats | None) -> Floats:
        """Return actions in [-1, 1] for observations `[N, D]`; without noise the mean, squashed."""
        out = self.net.evaluate(obs)
        size = out.shape[-1] // 2
        pre: Floats = out[:, :size]
        if noise is not None:
            std: Floats = np.exp(out[:, size:].clip(LOG_STD_MIN, LOG_STD_MAX))
            pre = pre + std * noise
        return np.tanh(pre)


class TwinCritic(nn.Module):
    """Two independent estimates of the value of an action; their minimum keeps targets from drifting upwards."""

    def __init__(self, obs_size: int, action_size: int, hidden: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        self.net = Perceptron((obs_size + action_size, *hidden, 1), 2, generator)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return both values of each observation and action, `[2, B]`."""
        x = torch.cat((obs, action), dim=-1)
        values: Tensor = self.net(x.expand(2, *x.shape))
        return values.squeeze(-1)
