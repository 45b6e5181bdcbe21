"""Batches mixed from two buffers, such as replay and demonstrations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from .. import _check
from .._types import Array
from ..batch import Batch
from ..errors import ArgumentError, SchemaError, message


class Sampled(Protocol):
    """Anything that batches can be drawn from."""

    def sample(self, num_chunks: int, /) -> Batch:
        """Draw `num_chunks` items."""
        ...


class Mixture:
    """Draw a share of every batch from one buffer and the rest from another.

    Args:
        replay: The buffer that the agent fills.
        demonstrations: The buffer of demonstrations.
        share: Share of demonstrations in a batch, between 0 and 1; their number is rounded down.

    Raises:
        ArgumentError: `share` is outside its limits, or a buffer has no `sample`.

    Rows of `replay` come first. Fields that only one of the buffers has are left out.

    Source: RLinf's `ReplayBufferDataset`, which uses a share of 0.5.

    >>> from relive.trajectories import Trajectory, TrajectoryReplayBuffer
    >>> replay, demonstrations = TrajectoryReplayBuffer(seed=0), TrajectoryReplayBuffer(seed=1)
    >>> replay.add_trajectories([Trajectory(rewards=np.zeros((5, 2, 1)))])
    >>> demonstrations.add_trajectories([Trajectory(rewards=np.ones((5, 2, 1)))])
    >>> Mixture(replay, demonstrations).sample(6).rewards[:, 0].tolist()
    [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    """

    def __init__(self, replay: Sampled, demonstrations: Sampled, *, share: float = 0.5) -> None:
        for name, buffer in (("replay", replay), ("demonstrations", demonstrations)):
            if not callable(getattr(buffer, "sample", None)):
                wanted = "a buffer with `sample`"
                raise ArgumentError(message(wanted, f"`{type(buffer).__name__}`", f"Mixture({name})"))
        self.replay, self.demonstrations = replay, demonstrations
        self.share = _check.real(share, "Mixture(share)", low=0.0, high=1.0)

    def sample(self, num_chunks: int, /) -> Batch:
        """Draw a batch of `num_chunks` rows from both buffers.

        Raises:
            NotEnoughData: One of the buffers is empty.
            SchemaError: A field that both have differs in dtype or shape.
        """
        n = _check.integer(num_chunks, "Mixture.sample(num_chunks)", minimum=1)
        demonstrations = int(n * self.share)
        counts = [(self.replay, n - demonstrations), (self.demonstrations, demonstrations)]
        batches = [buffer.sample(count) for buffer, count in counts if count]
        if len(batches) == 1:
            return batches[0]
        return Batch(_joined(batches[0], batches[1], "$"))


def _joined(first: Mapping[str, Any], second: Mapping[str, Any], at: str) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for name in first:
        if name not in second:
            continue
        one, other = first[name], second[name]
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            joined[name] = _joined(one, other, f"{at}.{name}")
            continue
        if isinstance(one, Mapping) or isinstance(other, Mapping) or _kind(one) != _kind(other):
            raise SchemaError(message(f"{_described(one)}, as in the replay", _described(other), f"{at}.{name}"))
        joined[name] = np.concatenate([one, other])
    return joined


def _kind(array: Array) -> tuple[str, tuple[int, ...]]:
    return array.dtype.name, array.shape[1:]


def _described(value: Any) -> str:
    return "a mapping" if isinstance(value, Mapping) else "`{}` of shape `{}`".format(*_kind(value))
