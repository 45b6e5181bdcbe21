"""TorchRL's `TensorDictReplayBuffer` on relive, with n-step windows and priorities.

TorchRL's own prioritized sampler needs an extension that matches the installed torch; this one does not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from .._adapters.copies import no_assignment
from .._adapters.saves import opened, packed
from .._base import check
from .._base.capabilities import completed
from .._base.extras import needs
from .._disk.files import replacing
from .._flow.call_lock import AdapterLock, one_at_a_time
from ..batch import Batch
from ..buffer import ReplayBuffer
from ..errors import ArgumentError, CorruptionError, NotEnoughData, SchemaError, message
from ..items import Transitions
from ..samplers import Sampler, Uniform
from ..schema import Schema

with needs("torchrl", "relive.torchrl"):
    import torch
    from tensordict import TensorDict

    from ._arguments import capacity_of, check_elsewhere, own_sampler
    from ._layout import Layout, array_of, largest

__all__ = ["TensorDictReplayBuffer"]
_LAYOUT, _STATE = "layout", "relive.npz"


class TensorDictReplayBuffer:
    """A replay buffer of TensorDicts, as TorchRL's collectors, losses and trainers use it.

    What is stored follows the first TensorDict. A key that is also in `"next"` is an observation: it is stored once,
    and where the next step does not continue it byte for byte the stream is cut. Flags at the root are False in
    samples. Keys that begin with `_` are left out.

    Args:
        capacity: How many steps it holds, over all environments.
        storage: Instead of `capacity`: an empty storage of TorchRL that keeps its steps in RAM, such as
            `LazyTensorStorage(capacity)`, or a function that makes one. Its `max_size` counts; the bytes are relive's.
        batch_size: Items that `sample()` draws if it is given no number.
        n_step: Longest window. `("next", ...)` is what follows its last step, `("next", "reward")` the discounted sum,
            `"steps_to_next_obs"` its length: TorchRL's losses take `gamma` to that power.
        gamma: Discount per step, the loss module's.
        sampler: `relive.Uniform()`, `relive.Prioritized(...)` or `relive.Ranked(...)`.
        priority_key: Where a TensorDict has its TD errors, any shape; the largest of an item's counts.
        device: Where samples go; None: the CPU.
        seed: An integer, a `numpy.random.Generator`, or None.
        writable: Whether `relive.write(ids, reward=...)` may change stored rewards; saves then hold all of them anew.
        **elsewhere: Further arguments of TorchRL's, at the values that they have by default.

    Attributes:
        relive: The `relive.ReplayBuffer` with the steps: `stats`, `follow`, `read`; None before the first step.

    Raises:
        ArgumentError: A choice that is not there, with what to do instead.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> t = torch.arange(4.0)[:, None]
    >>> next = {"observation": t + 1, "reward": torch.ones(4, 1), "done": t == 3, "terminated": t == 3}
    >>> rb = TensorDictReplayBuffer(100, batch_size=2, n_step=2, gamma=0.5, seed=0)
    >>> rb.extend(TensorDict({"observation": t, "action": t, "next": next}, [4]))
    tensor([0, 1, 2, 3])
    >>> rb.sample()["next", "reward"].shape, rb[:]["next", "reward"][:, 0]
    (torch.Size([2, 1]), tensor([1.5000, 1.5000, 1.5000, 1.0000]))
    """

    def __init__(
        self,
        capacity: int | None = None,
        *,
        storage: Any = None,
        batch_size: int | None = None,
        n_step: int = 1,
        gamma: float = 0.99,
        sampler: Any = None,
        priority_key: str = "td_error",
        device: Any = None,
        seed: int | np.random.Generator | None = None,
        writable: bool = False,
        **elsewhere: Any,
    ) -> None:
        check_elsewhere(elsewhere)
        sampler = own_sampler(sampler)
        if storage is not None:
            capacity = capacity_of(capacity, storage)
        self._writable = check.flag(writable, "TensorDictReplayBuffer(writable)")
        self._capacity = check.integer(capacity, "TensorDictReplayBuffer(capacity)", minimum=1)
        self._item, self._sampler, self._seed = Transitions(n_step=n_step, gamma=gamma), sampler, seed
        self.batch_size, self.priority_key, self._device = batch_size, priority_key, device
        self._outer = AdapterLock()
        self._layout: Layout | None = None
        self.relive: ReplayBuffer | None = None
        self.write_count = 0

    @property
    def sampler(self) -> Any:
        """What was given as `sampler`."""
        return self._sampler

    def __len__(self) -> int:
        return 0 if self.relive is None else len(self.relive)

    def __repr__(self) -> str:
        return f"TensorDictReplayBuffer({len(self)} of {self._capacity} steps, {self._item!r}, {self._sampler!r})"

    @one_at_a_time
    def add(self, data: Any) -> Any:
        """Add one step: a TensorDict without batch axes, or `[environments]`.

        Returns:
            Its index, an int; or int64 `[environments]`.

        Raises:
            SchemaError: A key is missing, unknown, or does not fit. Nothing has changed.
        """
        if data.batch_dims > 1:
            raise SchemaError(
                message("a step with at most one batch axis", f"`{tuple(data.shape)}`", "add", "`extend`")
            )
        ids = self._put(data[None, None] if data.batch_dims == 0 else data[:, None])
        return int(ids[0, 0]) if data.batch_dims == 0 else torch.from_numpy(ids[:, 0])

    @one_at_a_time
    def extend(self, tensordicts: Any, *, update_priority: bool | None = None) -> Any:
        """Add steps in the order of time: `[T]` of one environment, or `[environments, T]` as a collector gives it.

        A TensorDict that a collector gave for several environments must keep both axes: flattened, every environment's
        part would end the windows of the one before.

        Args:
            tensordicts: The steps.
            update_priority: Whether to take the priorities of new steps from `priority_key`, where it is there; None:
                they are.

        Returns:
            Their indices, int64, shaped likewise.

        Raises:
            SchemaError: A key is missing, unknown, or does not fit. Nothing has changed.
        """
        if tensordicts.batch_dims not in (1, 2):
            wanted = "batch axes `[T]` or `[environments, T]`"
            raise SchemaError(message(wanted, f"`{tuple(tensordicts.shape)}`", "extend"))
        flat = tensordicts.batch_dims == 1
        ids = self._put(tensordicts[None] if flat else tensordicts, update_priority in (None, True))
        return torch.from_numpy(ids[0] if flat else ids)

    def _put(self, data: Any, update_priority: bool = True) -> Any:
        lanes = len(data)
        layout = self._layout or Layout.of(data, self.priority_key, self._item.n_step)
        buffer = self._make(layout.schema(data, self._writable), lanes) if self.relive is None else self.relive
        if lanes != buffer.num_envs:
            wanted = f"steps of {buffer.num_envs} environments, as the first time"
            raise SchemaError(message(wanted, f"of {lanes}", "TensorDictReplayBuffer"))
        step = layout.step(data)
        td_error = data.get(self.priority_key, None) if update_priority and buffer.sampler.prioritizes else None
        if td_error is not None:
            step["priority"] = np.abs(largest(td_error, 2)) + completed(buffer.sampler, Sampler).eps
        ids = buffer.extend(**step)
        self.relive, self._layout = buffer, layout
        self.write_count += ids.size
        return ids

    def _make(self, schema: Schema, lanes: int) -> ReplayBuffer:
        # As many rows for final observations as for steps: no episode is too short, and TorchRL stores "next", too.
        choices = {"item": self._item, "sampler": self._sampler, "seed": self._seed, "boundaries": 1.0}
        return ReplayBuffer(schema, self._rounded(lanes), num_envs=lanes, **choices)

    def _rounded(self, lanes: int) -> int:
        """The capacity as a multiple of the lanes."""
        return -(-self._capacity // lanes) * lanes

    @one_at_a_time
    def sample(self, batch_size: int | None = None, return_info: bool = False, include_info: bool | None = None) -> Any:
        """Draw items.

        Args:
            batch_size: B; None: that of the buffer.
            return_info: Whether to return `(tensordict, info)`, as TorchRL does.
            include_info: Nothing, as in TorchRL: a sample has its index and weights.

        Returns:
            A TensorDict `[B]` with the keys that were stored, and `"index"`, int64; `"_weight"` and, with priorities,
            `"priority_weight"`, float32; `"steps_to_next_obs"`, int64 `[B, 1]`.

        Raises:
            NotEnoughData: Nothing can be drawn yet.
            ArgumentError: There is no batch size.
        """
        count = self.batch_size if batch_size is None else batch_size
        if count is None:
            raise ArgumentError(message("a `batch_size`, here or in the constructor", "none", "sample"))
        if self.relive is None:
            raise NotEnoughData(message("at least 1 drawable item", "0", "TensorDictReplayBuffer.sample"))
        data = self._named(self.relive.sample(check.integer(count, "sample(batch_size)", minimum=1)))
        info = {name: data[name] for name in ("index", "_weight")}
        return (data, info) if return_info else data

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self.sample()

    @one_at_a_time
    def __getitem__(self, index: Any) -> Any:
        """Items by index, without drawing: a tensor of indices, or `[:]` for all, one environment after the other.

        They are copies: what is written into them is not stored.
        """
        buffer = self.relive
        if buffer is None:
            raise NotEnoughData(message("at least 1 drawable item", "0", "TensorDictReplayBuffer[...]"))
        with buffer.hold():
            ids = buffer.ids()[index] if isinstance(index, slice) else np.asanyarray(index).reshape(-1)
            return self._named(buffer.read(ids))

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        self._refuse()

    def _refuse(self, *arguments: Any, **choices: Any) -> NoReturn:
        """Refuse assignments: steps come in by `add` and `extend`; `relive.write` changes rewards."""
        raise no_assignment("TensorDictReplayBuffer[...]", "`TensorDictReplayBuffer(..., writable=True)`")

    set_ = set_at_ = update_ = _refuse

    def _named(self, batch: Batch) -> Any:
        layout, count = self._layout, len(batch.ids)
        found = {} if layout is None else layout.named(batch)
        found["index"], found["_weight"] = torch.from_numpy(batch.ids), torch.from_numpy(batch.weights)
        if self._prioritizes:
            found["priority_weight"] = found["_weight"]
        found["steps_to_next_obs"] = torch.from_numpy(batch.steps.astype(np.int64))[:, None]
        data = TensorDict(found, [count])
        return data if self._device is None else data.to(self._device)

    @property
    def _prioritizes(self) -> bool:
        return self.relive is not None and self.relive.sampler.prioritizes

    def update_tensordict_priority(self, data: Any) -> None:
        """Set the priorities of a sample from its `priority_key`; nothing without priorities.

        Raises:
            PriorityError: A TD error is NaN or infinite. Nothing has changed.
        """
        if self._prioritizes:
            self.update_priority(data.get("index"), largest(data.get(self.priority_key), 1))

    @one_at_a_time
    def update_priority(self, index: Any, priority: Any) -> int:
        """Set priorities, `|priority| + eps`; those of steps that are no longer stored are dropped and counted.

        Args:
            index: What a sample had as `"index"`.
            priority: One number for each, or one for all.

        Returns:
            How many were applied.

        Raises:
            PriorityError: One is NaN or infinite, or there are not as many. Nothing has changed.
            ArgumentError: The sampler has no priorities.
        """
        if self.relive is None or not self._prioritizes:
            remedy = "`sampler=relive.Prioritized(...)`"
            raise ArgumentError(message("a sampler with priorities", f"`{self._sampler!r}`", "update_priority", remedy))
        ids = np.atleast_1d(array_of(index))
        given = array_of(priority)
        return self.relive.update_priorities(
            ids, np.broadcast_to(given, ids.shape).copy() if given.ndim == 0 else given
        )

    @one_at_a_time
    def empty(self, empty_write_count: bool = True) -> None:
        """Forget all steps. Indices are never used again.

        Args:
            empty_write_count: Whether `write_count` begins again at 0.
        """
        if self.relive is not None:
            self.relive.clear()
        if empty_write_count:
            self.write_count = 0

    @one_at_a_time
    def state_dict(self) -> dict[str, Any]:
        """Everything as tensors, for `torch.save`; `torch.load(weights_only=True)` reads it."""
        if self.relive is None or self._layout is None:
            return {}
        arrays = {name: torch.from_numpy(array) for name, array in packed(self.relive).items()}
        layout = np.frombuffer(json.dumps(self._layout.plain()).encode(), np.uint8).copy()
        return {**arrays, _LAYOUT: torch.from_numpy(layout), "written": torch.tensor(self.write_count)}

    @one_at_a_time
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on as the buffer whose state it is, with this one's item and sampler; a smaller one keeps the newest.

        Raises:
            CorruptionError: A part is missing or damaged.
        """
        if not state_dict:
            self.empty()
            return
        arrays = {name: array_of(value) for name, value in state_dict.items()}
        if _LAYOUT not in arrays or "written" not in arrays:
            raise CorruptionError(message("the state of a `TensorDictReplayBuffer`", f"`{sorted(arrays)}`", "$.state"))
        try:
            layout = Layout.made(json.loads(arrays[_LAYOUT].tobytes()))
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptionError(message("a layout of keys", f"{error!r}", f"$.{_LAYOUT}")) from None
        lanes = opened(arrays).num_envs
        choices = {"item": self._item, "sampler": self._sampler or Uniform(), "boundaries": 1.0}
        self.relive = opened(arrays, capacity=self._rounded(lanes), **choices)
        self._layout, self.write_count = layout, int(arrays["written"])

    def dumps(self, path: str | os.PathLike[str]) -> None:
        """Save everything in a directory, without pickles."""
        folder = Path(check.path(path, "dumps(path)"))
        folder.mkdir(parents=True, exist_ok=True)
        state: dict[str, Any] = {name: array_of(value) for name, value in self.state_dict().items()}
        with replacing(str(folder / _STATE)) as file:
            np.savez(file, **state)

    def loads(self, path: str | os.PathLike[str]) -> None:
        """Go on as the buffer that `dumps` saved.

        Raises:
            CorruptionError: It is damaged.
        """
        folder = Path(check.path(path, "loads(path)"))
        try:
            with np.load(folder / _STATE, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except (ValueError, KeyError, EOFError) as error:
            raise CorruptionError(message("what `dumps` wrote", f"{error}", str(path))) from None
        self.load_state_dict(arrays)
