"""The net of deep Q-learning: from observations as they are stored to one value for each action."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from relive.lab._nets import Floats, Perceptron

# Output channels, kernel and stride of each layer: Mnih et al. 2015, and Young and Tian 2019 (arXiv:1903.03176).
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
MINATAR = ((16, 3, 1),)
# The smallest side of an image, and the smallest that the larger net can read.
IMAGE, LARGE = 5, 36


def is_image(shape: tuple[int, ...], dtype: Any, stack: int) -> bool:
    """Whether observations look like images: bytes or bits, each frame of two or three axes, none of its sides tiny."""
    frame = shape[1:] if stack > 1 else shape
    return np.dtype(dtype).kind in "bu" and len(frame) in (2, 3) and sorted(frame)[-2] >= IMAGE


class Images(nn.Module):
    """Convolutions over images, in layers of Mnih et al. if they are `large` enough, else in one; bytes become [0, 1].

    Args:
        shape: Of an observation: `[H, W]`, `[H, W, C]` or `[C, H, W]` (the smaller end is the channels), with the stack
            in front if there is one.
        dtype: Of an observation.
        stack: Frames of an observation.
        generator: Source of the initial weights, U(-1/sqrt(in), 1/sqrt(in)).
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any, stack: int, generator: torch.Generator) -> None:
        super().__init__()
        frame = shape[1:] if stack > 1 else shape
        self._stacked, self._axes = stack > 1, len(frame)
        self._last = len(frame) == 3 and frame[2] <= frame[0]
        self._scale = 1.0 / 255.0 if np.dtype(dtype) == np.uint8 else 1.0
        with torch.no_grad():
            sample = self._channels(torch.zeros((1, *shape)))
        channels, self.large = sample.shape[1], min(sample.shape[2:]) >= LARGE
        self.layers = nn.Sequential()
        for out, kernel, stride in NATURE if self.large else MINATAR:
            layer = nn.Conv2d(channels, out, kernel, stride)
            bound = 1.0 / math.sqrt(channels * kernel * kernel)
            for weight in layer.parameters():
                nn.init.uniform_(weight, -bound, bound, generator=generator)
            self.layers.extend([layer, nn.ReLU()])
            channels = out
        self.layers.append(nn.Flatten())
        with torch.no_grad():
            self.size = int(self.layers(sample).shape[1])

    def forward(self, obs: Tensor) -> Tensor:
        """Map observations `[B, ...]` to features `[B, size]`."""
        features: Tensor = self.layers(self._channels(obs).float() * self._scale)
        return features

    def _channels(self, obs: Tensor) -> Tensor:
        """Observations `[B, ...]` as `[B, C, H, W]`; the frames of a stack are channels, too."""
        if self._axes == 2:
            return obs if self._stacked else obs.unsqueeze(1)
        planes = obs.movedim(-1, -3) if self._last else obs
        return planes.flatten(1, 2) if self._stacked else planes


class QNet(nn.Module):
    """Values of all actions, `[B, A]`, from observations `[B, ...]`.

    Args:
        shape: Of an observation; `dtype` and `stack` likewise.
        actions: Number of actions.
        images: Whether observations are images.
        hidden: Widths of the hidden layers; None chooses them by the kind of observation.
        dueling: One stream for the state's value and one for the actions' advantages. They share the convolutions, or
            else all hidden layers but the last.
        generator: Source of the initial weights.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: Any,
        actions: int,
        *,
        stack: int = 1,
        images: bool = False,
        hidden: tuple[int, ...] | None = None,
        dueling: bool = False,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.images = Images(shape, dtype, stack, generator) if images else None
        features = self.images.size if self.images else int(np.prod(shape))
        if hidden is None:
            hidden = (128, 128) if self.images is None else (512,) if self.images.large else (128,)
        self.shared: Perceptron | None = None
        if dueling and self.images is None and len(hidden) > 1:
            self.shared, features, hidden = Perceptron((features, *hidden[:-1]), 0, generator), hidden[-2], hidden[-1:]
        self.advantage = Perceptron((features, *hidden, actions), 0, generator)
        self.value = Perceptron((features, *hidden, 1), 0, generator) if dueling else None

    def forward(self, obs: Tensor) -> Tensor:
        """Map observations `[B, ...]`, in the dtype in which they are stored, to values `[B, A]`."""
        x = self.images(obs) if self.images else obs.reshape(len(obs), -1).float()
        if self.shared is not None:
            x = torch.relu(self.shared(x))
        values: Tensor = self.advantage(x)
        if self.value is not None:
            # The mean is taken off, so that the sum has one split into value and advantage.
            values = self.value(x) + values - values.mean(1, keepdim=True)
        return values

    def evaluate(self, obs: npt.NDArray[Any]) -> Floats:
        """Map observations `[N, ...]` to values `[N, A]` without gradients."""
        if self.images is not None:
            with torch.no_grad():
                found: Floats = self(torch.from_numpy(obs).to(self.advantage.weights[0].device)).cpu().numpy()
            return found
        x = obs.reshape(len(obs), -1).astype(np.float32, copy=False)
        if self.shared is not None:
            x = np.maximum(self.shared.evaluate(x), 0.0)
        values = self.advantage.evaluate(x)
        return values if self.value is None else self.value.evaluate(x) + values - values.mean(1, keepdims=True)
