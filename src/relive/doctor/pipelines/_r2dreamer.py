"""R2-Dreamer's buffer, which writes latents back by slot; a stand-in where its source, or TorchRL, is not there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from ._latents import Latents
from ._loops import Run
from ._sources import imported
from ._stand_ins import Pair, SlotLatents, State

_NAMES = ("obs", "reward", "is_first", "is_terminal")
_BATCH = 16


class TheirSlices:
    """The calls of the stand-in, of R2-Dreamer's own class; it writes to the second state of a pair."""

    def __init__(self, module: Any, size: int) -> None:
        import torch
        from tensordict import TensorDict

        self._torch, self._dict, self._episode = torch, TensorDict, 0
        config = {"device": "cpu", "storage_device": "cpu", "batch_size": _BATCH, "batch_length": 1, "max_size": size}
        self._buffer = module.Buffer(SimpleNamespace(**config))
        self._slices = vars(self._buffer)["_buffer"]  # TorchRL's

    def add(self, state: State) -> None:
        """Add a state."""
        self._episode += state["is_first"]
        columns = {**state, "stoch": state["latent"], "deter": 0.0, "action": 0.0}
        tensors = {name: self._torch.tensor([[float(value)]]) for name, value in columns.items() if name != "latent"}
        self._buffer.add_transition(self._dict({**tensors, "episode": self._torch.tensor([self._episode])}, [1]))

    def pairs(self) -> Iterator[Pair]:
        """Yield all pairs of states, in the order of the steps."""
        states = sorted(self._states(self._slices[:]), key=lambda state: (state["episode"], state["obs"]))
        for one, two in pairwise(states):
            if two["episode"] == one["episode"]:
                yield None, {**one, "latent": two["stoch"]}, two

    def sample(self, n: int) -> list[Pair]:
        """Draw pairs; the class gives the second state of each, and where it is."""
        drawn = list[Pair]()
        while len(drawn) < n:
            data, index, _ = self._buffer.sample()
            before = self._slices[index[1][:, 0], (index[0][:, 0] - 1) % len(self._slices)]
            handles = ([part[i : i + 1] for part in index] for i in range(_BATCH))
            drawn += zip(handles, self._states(before), self._states(data), strict=True)
        return drawn

    def _states(self, stored: Any) -> list[State]:
        columns = {name: stored[name].reshape(-1).tolist() for name in (*_NAMES, "stoch", "episode")}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def update(self, index: Any, latent: float) -> None:
        """Write a latent, as its learner does after a batch."""
        value = self._torch.tensor([[[float(latent)]]])
        self._buffer.update(index, value, value)


class R2Dreamer(Latents):
    """R2-Dreamer's buffer, or a stand-in."""

    def _made(self, run: Run) -> Any:
        theirs = imported("r2dreamer", "buffer")
        return TheirSlices(theirs, run.size) if theirs else SlotLatents(run.size, self._repaired)
