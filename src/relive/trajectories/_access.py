"""What a buffer of trajectories does besides adding and drawing: count, read by id, close."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Self

from .._base import check
from .._base.memory import Arena
from .._base.narrow import named, to_torch
from .._base.nests import mapped, nested
from ..errors import ArgumentError, ReliveError, StorageError, event, message
from ._block import packed
from ._drawing import Infos
from ._store import Snapshot, Store
from ._writer import Writer
from .trajectory import MAPPINGS, TENSORS, Trajectory, as_trajectory

_NAME = "TrajectoryReplayBuffer"


class Access:
    """The part of `TrajectoryReplayBuffer` that reads trajectories by id, closes it, and says who may use it."""

    path: str | None
    _store: Store
    _writer: Writer | None
    _infos: Infos
    _process: int

    def __init__(self) -> None:
        self._closed, self._written, self._closing = False, False, threading.Lock()
        self._process = os.getpid()

    def __len__(self) -> int:
        """The number of trajectories."""
        return len(self._store.index)

    @property
    def size(self) -> int:
        """The number of trajectories."""
        return len(self)

    @property
    def total_samples(self) -> int:
        """Chunk-steps of all trajectories."""
        return self._store.index.samples

    @property
    def trajectory_counter(self) -> int:
        """The id of the next trajectory."""
        return self._store.counter

    def list_trajectory_ids(self) -> list[int]:
        """The ids of all trajectories, in the order in which they were added."""
        self._check_process()
        with self._store.lock:
            return self._store.index.ids

    def iter_trajectory_metadata(self) -> Iterator[tuple[int, str, int]]:
        """Yield id, `model_weights_id` and number of chunk-steps of every trajectory; no file is opened."""
        self._check_process()
        with self._store.lock:
            entries = list(self._store.index)
        return ((entry.id, entry.model_weights_id, entry.length * entry.width) for entry in entries)

    def get_trajectory_info(self, trajectory_id: int) -> dict[str, Any]:
        """What is known of a trajectory without its observations.

        Returns:
            `trajectory_id`, `model_weights_id`, `max_episode_length`, `num_samples`, `shape`; `length` (T)
            and `num_envs` (B); `version` and `max_version`, the oldest and newest of its `versions`; `success`;
            `returns`, the sum of `rewards` for each environment; `task`; and `metadata`, what it has once. None where
            it has no such field.

        Raises:
            ArgumentError: There is no trajectory of this id.
        """
        with self._only(trajectory_id, "get_trajectory_info") as snapshot:
            return dict(self._infos.of(snapshot)[0])

    def load_trajectory(self, trajectory_id: int, model_weights_id: str | None = None) -> Trajectory:
        """Read a whole trajectory.

        Args:
            trajectory_id: Its id.
            model_weights_id: RLinf's second half of the name; checked if it is given.

        Raises:
            ArgumentError: There is no such trajectory.
            StorageError: Its file is damaged or missing.
        """
        with self._only(trajectory_id, "load_trajectory") as (stored,):
            weights = stored.entry.model_weights_id
            if model_weights_id not in (None, weights):
                at = f"{_NAME}.load_trajectory(model_weights_id)"
                raise ArgumentError(message(f"`{weights!r}`, or none", f"`{model_weights_id!r}`", at))
            return stored.block().trajectory()

    # RLinf 0.4.0's RLT worker and its tools read these names of its buffer; they work on tensors.

    @property
    def _trajectory_id_list(self) -> list[int]:
        return self.list_trajectory_ids()

    @property
    def _trajectory_index(self) -> Mapping[int, dict[str, Any]]:
        return _Index(self)

    def _load_trajectory(self, trajectory_id: int, model_weights_id: str | None = None) -> SimpleNamespace:
        """A whole trajectory, `[T, B, ...]`; fields that it lacks are None."""
        loaded = self.load_trajectory(trajectory_id, model_weights_id)
        facts = {"max_episode_length": loaded.max_episode_length, "model_weights_id": loaded.model_weights_id}
        fields = {name: mapped(to_torch, value) for name, value in loaded.items()}
        return SimpleNamespace(**{**dict.fromkeys(TENSORS), **{name: {} for name in MAPPINGS}, **facts, **fields})

    def _flatten_trajectory(self, trajectory: Any) -> dict[str, Any]:
        """The chunk-steps of a trajectory that need not be stored, `[T * B, ...]`, row `t * B + b`."""
        block = packed(as_trajectory(trajectory), Arena(), 0)
        rows = {c.path: named(block.rows(c.path), c.dtype) for c in block.entry.layout.columns}
        return nested((path, to_torch(array)) for path, array in rows.items())

    def _only(self, id_: int, method: str) -> Snapshot:
        """A snapshot of one trajectory."""
        self._check_process()
        at = f"{_NAME}.{method}"
        id_ = check.integer(id_, at)
        with self._store.settled():
            position = self._store.index.find(id_)
            if position is None:
                got = f"`{id_}`, of which there is none"
                raise ArgumentError(message("the id of a stored trajectory", got, at, "see `list_trajectory_ids()`"))
            return Snapshot(self._store, [position])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, wait: bool = True) -> None:
        """Write what is left, and close the directory. May be called twice.

        Args:
            wait: False returns at once; a thread writes what is left, and the process does not end before it has.

        Raises:
            StorageError: Something could not be written. It is still in memory, and the buffer stays open.
        """
        if os.getpid() != self._process:
            self._closed = True
            return
        if not check.flag(wait, f"{_NAME}.close(wait)"):
            self._closed = True
            threading.Thread(target=self.close, name="relive-closing").start()
            return
        with self._closing:
            if self._written:
                return
            self._closed = True
            try:
                if self._writer is not None:
                    self._writer.finish()
            except BaseException:
                self._closed = False
                raise
            (self._writer or self._store).close()
            self._written = True

    def __reduce__(self) -> tuple[Any, ...]:
        remedy = "pass its path, or save a checkpoint and load it there"
        raise ArgumentError(
            message("a path or a checkpoint", "a buffer to pickle or copy", type(self).__name__, remedy)
        )

    def _check_process(self) -> None:
        """Refuse to work in a forked child: locks may be held and threads are missing there, and draws would repeat."""
        if os.getpid() != self._process:
            wanted, got = f"a call in process {self._process}, which made the buffer", f"its child {os.getpid()}"
            remedy = "make a buffer in the child and `load_checkpoint` the directory, or start processes by `spawn`"
            raise ReliveError(message(wanted, got, _NAME, remedy))

    def _check_open(self, *, loading: bool = False) -> None:
        self._check_process()
        if self._closed:
            raise ArgumentError(message("an open buffer", "a closed one", _NAME))
        if self._store.half_loaded and not loading:
            with self._store.settled():  # a load that is going on will be over
                if self._store.half_loaded:
                    remedy = "load again, or close the buffer and open the directory again"
                    raise StorageError(event("The last load was interrupted", str(self.path), remedy))


class _Index(Mapping[int, dict[str, Any]]):
    """What is known of each trajectory, by id."""

    def __init__(self, buffer: Access) -> None:
        self._buffer = buffer

    def __getitem__(self, id_: int) -> dict[str, Any]:
        if id_ not in self._buffer.list_trajectory_ids():
            raise KeyError(id_)
        return self._buffer.get_trajectory_info(id_)

    def __iter__(self) -> Iterator[int]:
        return iter(self._buffer.list_trajectory_ids())

    def __len__(self) -> int:
        return len(self._buffer)
