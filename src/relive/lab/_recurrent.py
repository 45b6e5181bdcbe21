"""The net of recurrent Q-learning: an LSTM over observations, previous actions and previous rewards."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from relive.lab._nets import Floats, Perceptron

Ints = npt.NDArray[np.int64]

FORGET_BIAS = 1.0


class RecurrentQNet(nn.Module):
    """Values of all actions after everything that was seen: [layers,] an LSTM, and a linear head, or two if dueling.

    What an agent remembers is one array `[..., 2, H]`: the LSTM's output and its cells. Initial weights are drawn by
    `generator` from U(-1/sqrt(in), 1/sqrt(in)), in the LSTM U(-1/sqrt(H), 1/sqrt(H)); the forget gates' biases are
    higher by 1. `hidden` has the widths of ReLU layers between observation and LSTM, `size` is H.

    Source: Hausknecht and Stone 2015, arXiv:1507.06527; inputs as in Kapturowski et al. 2019.
    """

    def __init__(
        self, obs_size: int, actions: int, hidden: tuple[int, ...], size: int, dueling: bool, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.actions, self.size = actions, size
        self.encoder = Perceptron((obs_size, *hidden), 0, generator) if hidden else None
        features = hidden[-1] if hidden else obs_size
        # On no device at first: PyTorch's own initial values would come from its global generator.
        self.lstm: nn.LSTM = nn.LSTM(features + actions + 1, size, device="meta").to_empty(device="cpu")
        for weight in self.lstm.parameters():
            nn.init.uniform_(weight, -1.0 / math.sqrt(size), 1.0 / math.sqrt(size), generator=generator)
        with torch.no_grad():
            # Cells that keep what they hold from the first update on (Gers et al. 2000; Jozefowicz et al. 2015).
            self.lstm.get_parameter("bias_ih_l0")[size : 2 * size] += FORGET_BIAS
        self.advantage = Perceptron((size, actions), 0, generator)
        self.value = Perceptron((size, 1), 0, generator) if dueling else None
        self._arrays: tuple[Floats, ...] = ()

    def forward(self, obs: Tensor, action: Tensor, reward: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Read sequences: values `[T, B, A]`, and the memory after the last observation.

        Args:
            obs: Observations, float32 `[T, B, D]`.
            action: Index of the action before each observation, int64 `[T, B]`.
            reward: Reward before each observation, float32 `[T, B]`.
            state: Memory before the first observation, float32 `[B, 2, H]`.
        """
        steps, rows = action.shape
        x = obs.reshape(steps * rows, -1)
        if self.encoder is not None:
            x = torch.relu(self.encoder(x))
        last = nn.functional.one_hot(action, self.actions).to(x.dtype).view(steps * rows, -1)
        x = torch.cat((x, last, reward.reshape(-1, 1)), 1).view(steps, rows, -1)
        h, c = (part.contiguous().unsqueeze(0) for part in state.unbind(1))
        y, (h, c) = self.lstm(x, (h, c))
        y = y.reshape(steps * rows, -1)
        values = self.advantage(y)
        if self.value is not None:
            values = self.value(y) + values - values.mean(1, keepdim=True)
        return values.view(steps, rows, -1), torch.stack((h[0], c[0]), 1)

    def step(self, obs: Floats, action: Ints, reward: Floats, state: Floats) -> tuple[Floats, Floats]:
        """Read one observation of each row without gradients: values `[N, A]`, and the memory after it.

        The arguments are those of `forward` without the time axis, as arrays. On the CPU this runs in NumPy on the
        weights' own memory: several times faster for a few rows.
        """
        device = self.advantage.weights[0].device
        if device.type != "cpu":
            with torch.no_grad():
                given = (torch.from_numpy(part).to(device)[None] for part in (obs, action, reward))
                values, memory = self(*given, torch.from_numpy(state).to(device))
            return values[0].cpu().numpy(), memory.cpu().numpy()
        if not self._arrays:
            self._arrays = tuple(weight.detach().numpy() for weight in self.lstm.parameters())
        from_input, from_output, *biases = self._arrays
        x = obs if self.encoder is None else np.maximum(self.encoder.evaluate(obs), 0.0)
        x = np.concatenate((x, np.eye(self.actions, dtype=np.float32)[action], reward[:, None]), 1)
        gates = x @ from_input.T + state[:, 0] @ from_output.T + (biases[0] + biases[1])
        take, keep, new, show = np.split(gates, 4, 1)
        cells = _sigmoid(keep) * state[:, 1] + _sigmoid(take) * np.tanh(new)
        y = _sigmoid(show) * np.tanh(cells)
        out = self.advantage.evaluate(y)
        if self.value is not None:
            out = self.value.evaluate(y) + out - out.mean(1, keepdims=True)
        return out, np.stack((y, cells), 1)


def _sigmoid(x: Floats) -> Floats:
    # By way of tanh, which cannot overflow.
    half: Floats = 0.5 * np.tanh(0.5 * x) + np.float32(0.5)
    return half


class Memory:
    """What agents remember, one in each of several environments: the net's memory, the last action and reward.

    Attributes:
        state: The net's memory, float32 `[N, 2, H]`.
        action: Index of the last action, int64 `[N]`; `blank` at an episode's first step.
        reward: The last reward, float32 `[N]`; 0 at an episode's first step.
        first: Whether an episode begins, bool `[N]`.
    """

    def __init__(self, rows: int, size: int, blank: int = 0) -> None:
        self._blank = blank
        self.state = np.zeros((rows, 2, size), np.float32)
        self.action = np.full(rows, blank, np.int64)
        self.reward = np.zeros(rows, np.float32)
        self.first = np.ones(rows, bool)

    def after(self, reward: npt.ArrayLike, ended: npt.ArrayLike) -> None:
        """Take in the rewards `[N]` of the last actions; where an episode ended, `ended` `[N]`, all is forgotten."""
        self.first = np.array(ended, bool, ndmin=1)
        self.reward = np.where(self.first, 0.0, reward).astype(np.float32)
        self.action = np.where(self.first, self._blank, self.action)
        # A new array: the one before may be on its way to the replay buffer.
        self.state = np.where(self.first[:, None, None], np.float32(0.0), self.state)
