"""R2-Dreamer's buffer, which writes latents back by slot; a stand-in where its source, or TorchRL, is not there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from .._pipeline import Item
from ._loops import Run, Runner, calls_of
from ._sources import imported

Sampled = tuple[dict[str, Any], Any]  # columns of pairs of steps `[B, 2]`, and what `update` takes for each
_NAMES = ("obs", "reward", "is_first", "is_terminal", "episode", "stoch", "deter", "action")


class SlotLatents:
    """Arrays `[rows]`; `update` writes to slots, and if `repaired` only where they hold the step that was drawn."""

    def __init__(self, size: int, repaired: bool) -> None:
        self._arrays = {name: np.zeros(size) for name in _NAMES}
        self._number, self._head, self._repaired = np.full(size, -1), 0, repaired
        self._rng = np.random.default_rng(0)

    def add(self, **step: float) -> None:
        """Add a step."""
        at = self._head % len(self._number)
        for name, value in step.items():
            self._arrays[name][at] = value
        self._number[at], self._head = self._head, self._head + 1

    def every(self) -> Sampled:
        """Return all pairs of two steps of one episode."""
        after = np.roll(np.arange(len(self._number)), -1)
        whole = (self._number[after] == self._number + 1) & (self._number >= 0)
        return self._pairs(np.flatnonzero(whole & (self._arrays["episode"][after] == self._arrays["episode"])))

    def sample(self, n: int) -> Sampled:
        """Draw pairs."""
        known = [at for at, _ in self.every()[1]]
        return self._pairs(self._rng.choice(known, n))

    def _pairs(self, at: Any) -> Sampled:
        both = np.stack([at, (at + 1) % len(self._number)], 1)
        handles = [*zip(at.tolist(), self._number[at].tolist(), strict=True)]
        return {name: values[both] for name, values in self._arrays.items()}, handles

    def update(self, handles: Any, values: Any) -> None:
        """Write latents."""
        for (at, number), value in zip(handles, values, strict=True):
            if not self._repaired or self._number[at] == number:
                self._arrays["stoch"][at] = value


class TheirSlices:
    """The same calls of R2-Dreamer's own class."""

    def __init__(self, module: Any, size: int) -> None:
        import torch
        from tensordict import TensorDict

        self._torch, self._dict = torch, TensorDict
        config = {"device": "cpu", "storage_device": "cpu", "batch_size": 1, "batch_length": 1, "max_size": size}
        self._buffer = module.Buffer(SimpleNamespace(**config))
        self._slices = vars(self._buffer)["_buffer"]  # TorchRL's, without the columns that a learner leaves out

    def add(self, **step: float) -> None:
        """Add a step."""
        columns = {name: self._torch.tensor([[value]]) for name, value in step.items()}
        self._buffer.add_transition(self._dict({**columns, "episode": columns["episode"][:, 0]}, batch_size=[1]))

    def every(self) -> Sampled:
        """Return all pairs of two steps of one episode."""
        stored = {name: self._slices[:][name].reshape(-1).numpy() for name in _NAMES}
        after = {name: np.roll(column, -1) for name, column in stored.items()}
        whole = (after["episode"] == stored["episode"]) & (after["obs"] == stored["obs"] + 1)
        return {name: np.stack([stored[name], after[name]], 1)[whole] for name in _NAMES}, [None] * int(whole.sum())

    def sample(self, n: int) -> Sampled:
        """Draw pairs; the class gives latents of the first step, and all else of the second one alone."""
        drawn, handles = [], []
        for _ in range(n):
            pair, info = self._slices.sample(return_info=True)
            drawn.append({name: pair[name].reshape(2).numpy() for name in _NAMES if name != "action"})
            handles.append([index[:1].reshape(1, 1) for index in info["index"]])
        return {name: np.stack([pair[name] for pair in drawn]) for name in drawn[0]}, handles

    def update(self, handles: Any, values: Any) -> None:
        """Write latents, as its learner does after a batch."""
        for handle, value in zip(handles, values, strict=True):
            latent = self._torch.tensor([[[float(value)]]])
            self._buffer.update(handle, latent, latent)


class R2Dreamer(Runner):
    """R2-Dreamer's buffer, or a stand-in."""

    modes, lanes = (AutoresetMode.DISABLED,), 1

    def __init__(self, repaired: bool = False) -> None:
        super().__init__()
        self._repaired, self._theirs, self._episode = repaired, imported("r2dreamer", ".", "buffer"), 0.0

    def _made(self, run: Run) -> Any:
        return TheirSlices(self._theirs, run.size) if self._theirs else SlotLatents(run.size, self._repaired)

    def _fill(self, run: Run) -> None:
        reward, terminal = 0.0, 0.0
        self._episode += 1
        for call in calls_of(run):
            self._episode += call.reset
            self._add(call.obs, reward * (not call.reset), terminal)
            reward, terminal = float(call.reward[0]), float(call.terminated[0])
            if call.terminated[0] or call.truncated[0]:
                self._add(call.next_obs, reward, terminal)
                reward, terminal, self._episode = 0.0, 0.0, self._episode + 1

    def _add(self, obs: Any, reward: float, terminal: float) -> None:
        step = float(obs[0, 0]), reward, 0.0, terminal, self._episode, 0.0, 0.0, 0.0
        self._buffer.add(**dict(zip(_NAMES, step, strict=True)))

    def items(self) -> list[Item]:
        """Return every item that can be drawn."""
        return self._items(*self._buffer.every())

    def values(self) -> list[float]:
        """Return the latents of `items`."""
        latents: list[float] = self._buffer.every()[0]["stoch"][:, 0].tolist()
        return latents

    def sample(self, n: int) -> list[Item]:
        """Draw items."""
        return self._items(*self._buffer.sample(n))

    def _items(self, columns: dict[str, Any], handles: Any) -> list[Item]:
        one, two = ({name: column[:, i].tolist() for name, column in columns.items()} for i in range(2))
        bootstrap = [self._gamma * (1 - ended) for ended in two["is_terminal"]]
        rows = zip(one["obs"], two["reward"], bootstrap, two["obs"], handles, strict=True)
        return [Item(*row) for row in rows]

    def write(self, handles: Any, values: list[float]) -> None:
        """Write latents back."""
        self._buffer.update(handles, values)
