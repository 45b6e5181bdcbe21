"""Batches mixed from two buffers, such as replay and demonstrations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import numpy as np

from ._base import check
from ._base.narrow import from_torch
from .batch import Batch
from .errors import ArgumentError, PriorityError, SchemaError, message

if TYPE_CHECKING:
    from .device import DeviceBuffer


class Sampled(Protocol):
    """Anything that batches can be drawn from."""

    def sample(self, num_chunks: int, /) -> Batch:
        """Draw `num_chunks` items."""
        ...


class Mixture:
    """Draw a share of every batch from one buffer and the rest from another: replay buffers or trajectories.

    Args:
        replay: The buffer that the agent fills.
        demonstrations: The buffer of demonstrations.
        share: Share of demonstrations in a batch, between 0 and 1; their number is rounded down.

    Raises:
        ArgumentError: `share` is outside its limits, or a buffer has no `sample`.

    Rows of `replay` come first. Fields that only one of the buffers has are left out. With a `DeviceBuffer` among them
    a batch is of tensors on its device, where the items of an ordinary buffer are copied.

    Source: Ball et al. 2023 (RLPD) and RLinf's `ReplayBufferDataset`; both use a share of 0.5.

    >>> import numpy as np, relive
    >>> schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    >>> replay, offline = (relive.ReplayBuffer(schema, 100, seed=seed) for seed in range(2))
    >>> for buffer, value in ((replay, 0.0), (offline, 1.0)):
    ...     step = dict(obs=value, action=0.0, reward=value, next_obs=value, terminated=False, truncated=False)
    ...     ids = buffer.add(**step)
    >>> Mixture(replay, offline).sample(6).reward.tolist()
    [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
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
        self.share = check.real(share, "Mixture(share)", low=0.0, high=1.0)

    def sample(self, num_chunks: int, /) -> Batch:
        """Draw a batch of `num_chunks` rows from both buffers; `ids` name the steps of the buffer that a row is from.

        Raises:
            NotEnoughData: One of the buffers is empty.
            SchemaError: A field that both have differs in dtype or shape.
        """
        n = check.integer(num_chunks, "Mixture.sample(num_chunks)", minimum=1)
        demonstrations = int(n * self.share)
        counts = [(self.replay, n - demonstrations), (self.demonstrations, demonstrations)]
        batches = [buffer.sample(count) for buffer, count in counts if count]
        if len(batches) == 1:
            return batches[0]
        device = next((buffer.device for buffer in (self.replay, self.demonstrations) if _on_device(buffer)), None)
        if device is not None:
            batches = [batch if hasattr(batch["ids"], "detach") else batch.torch(device) for batch in batches]
        joined: Any = _joined(batches[0], batches[1], "$")
        return Batch(joined) if isinstance(batches[0], Batch) else joined  # a dict of tensors stays one

    def update_priorities(self, ids: Any, td_error: Any) -> int | None:
        """Set the priorities of a whole batch, in both buffers; one without priorities is passed over.

        A `DeviceBuffer` gets its part without a wait. For the part of an ordinary buffer beside it the call waits.

        Args:
            ids: The ids of the batch, all of them and in its order: the first ones are those of `replay`.
            td_error: One number per id, of either sign, `[B]` or `[B, 1]`.

        Returns:
            How many were applied; None where a `DeviceBuffer` has some of the items.

        Raises:
            PriorityError: There are not as many TD errors as ids, or one of them is not finite. Nothing has changed.
            StaleId: An id was never issued.
        """
        count = len(ids)
        first = count - int(count * self.share)
        parts: Any = ((self.replay, slice(first)), (self.demonstrations, slice(first, None)))
        parts = [(buffer, part) for buffer, part in parts if _prioritizes(buffer) and len(ids[part])]
        if _on_device(self.replay) or _on_device(self.demonstrations):
            for buffer, part in parts:
                given = ids[part], td_error[part]
                buffer.update_priorities(*(given if _on_device(buffer) else map(from_torch, given)))
            return None
        detach = getattr(td_error, "detach", None)
        errors = np.asarray(detach() if callable(detach) else td_error)
        if len(errors) != count or not np.isfinite(errors).all():
            wanted, got = f"{count} finite TD errors, one per id", f"{np.isfinite(errors).sum()} of {len(errors)}"
            raise PriorityError(message(wanted, got, "$.td_error"))
        return sum(int(buffer.update_priorities(ids[part], errors[part])) for buffer, part in parts)


def _prioritizes(buffer: Any) -> bool:
    """Whether a buffer has priorities; trajectories have no sampler."""
    sampler = getattr(buffer, "sampler", None)
    return sampler is not None and bool(sampler.prioritizes)


def _on_device(buffer: Any) -> TypeGuard[DeviceBuffer]:
    """Whether a buffer's batches are tensors of a device."""
    return hasattr(buffer, "device")


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
        if hasattr(one, "detach"):
            import torch

            joined[name] = torch.cat([one, other])
        else:
            joined[name] = np.concatenate([one, other])
    return joined


def _kind(array: Any) -> tuple[str, tuple[int, ...]]:
    return str(array.dtype), tuple(array.shape[1:])


def _described(value: Any) -> str:
    return "a mapping" if isinstance(value, Mapping) else "`{}` of shape `{}`".format(*_kind(value))
