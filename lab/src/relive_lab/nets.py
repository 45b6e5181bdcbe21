"""What the nets of all trainers are made of: layers, and steps of gradients.

At the small sizes that control needs, the number of PyTorch calls decides what an update costs. So layers of several
nets are one batched product, and acting on the CPU runs in NumPy.
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


def best_value(values: Tensor, judged: Tensor) -> Tensor:
    """Return the value of the action that `judged` rates highest, `[...]` of `[..., A]`."""
    return values.gather(-1, judged.argmax(-1, keepdim=True)).squeeze(-1)


def step_apart(optimizer: torch.optim.Optimizer, weights: list[Tensor], loss: Tensor) -> None:
    """Change `weights` by the gradients of a loss, and no others that the loss runs through."""
    for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
        weight.grad = gradient
    optimizer.step()


def step_clipped(optimizer: torch.optim.Optimizer, weights: list[Tensor], loss: Tensor, norm: float) -> None:
    """Change `weights` by the gradients of a loss, scaled down to `norm` all together."""
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(weights, norm)
    optimizer.step()
