"""The buffer of batched trajectories: window, draws, retention, checkpoints."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import _check, _memory
from .._files import Folder
from ..batch import Batch
from ..errors import ArgumentError, NotEnoughData, ReliveWarning, StorageError, event, message
from . import _checkpoint, _opening
from ._block import packed
from ._cache import Cache
from ._draws import Draws, NumpyDraws
from ._store import Store
from .trajectory import Trajectory, nested

FORMATS = ("safetensors", "pt")


class Durability(NamedTuple):
    """How many trajectories have been added, and how many of them would survive a crash.

    Attributes:
        added: In memory; lost with the process.
        flushed: Complete files under their final names; survive the process.
        durable: Files whose names are synced and in the index; survive power loss.

    >>> TrajectoryReplayBuffer().flush()
    Durability(added=0, flushed=0, durable=0)
    """

    added: int
    flushed: int
    durable: int


class TrajectoryReplayBuffer:
    """Store rollouts `[T, B, ...]` whole, and sample single chunk-steps of the most recent ones.

    Args:
        path: A directory, created if it does not exist. Every trajectory becomes a file there, and trajectories that
            are there already can be drawn. None keeps everything in memory.
        seed: An integer, or a `numpy.random.Generator`, which is used and not copied; None for fresh entropy.
        sample_window_size: Draw from this many of the newest trajectories; 0 draws from all.
        cache_size: How many trajectories of the directory are kept in memory, too.
        cache_bytes: Bytes of memory for them; None is a quarter of the available memory.
        enable_cache: False disables the cache.
        auto_save: RLinf's switch for writing to `path`. None: write if there is a path.
        auto_save_path: RLinf's name for `path`.
        trajectory_format: What `save_checkpoint` writes: `"safetensors"`, or `"pt"` for RLinf's layout.
        max_trajectories: Largest number of trajectories; the oldest are removed, files included.
        max_bytes: Largest total size of all trajectories.
        queue_bytes: `add_trajectories` waits while more bytes than this wait to be written.

    Raises:
        ArgumentError: An argument outside its limits, or arguments that contradict each other.
        StorageError: The directory cannot be used, or another buffer writes to it.

    Draws are uniform over the chunk-steps in the window, with replacement. Methods may be called from several threads.

    Source: RLinf's `TrajectoryReplayBuffer` (RLinf 2025).

    >>> buffer = TrajectoryReplayBuffer(seed=0)
    >>> buffer.add_trajectories([Trajectory(rewards=np.arange(6.0).reshape(3, 2, 1))])
    >>> buffer.sample(4).rewards.shape, len(buffer), buffer.get_stats()["total_samples"]
    ((4, 1), 1, 6)
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        seed: int | np.random.Generator | None = None,
        sample_window_size: int = 100,
        cache_size: int = 5,
        cache_bytes: int | None = None,
        enable_cache: bool = True,
        auto_save: bool | None = None,
        auto_save_path: str | os.PathLike[str] | None = None,
        trajectory_format: str = "safetensors",
        max_trajectories: int | None = None,
        max_bytes: int | None = None,
        queue_bytes: int = 256 << 20,
    ) -> None:
        name = "TrajectoryReplayBuffer"
        self.sample_window_size = _check.integer(sample_window_size, f"{name}(sample_window_size)", minimum=0)
        cache_size = _check.integer(cache_size, f"{name}(cache_size)", minimum=0)
        limit = _memory.available_bytes() // 4 if cache_bytes is None else cache_bytes
        limit = _check.integer(limit, f"{name}(cache_bytes)", minimum=0)
        cached = _check.flag(enable_cache, f"{name}(enable_cache)")
        self.trajectory_format = _check.one_of(trajectory_format, FORMATS, f"{name}(trajectory_format)")
        self._limits = [
            None if value is None else _check.integer(value, f"{name}({text})", minimum=1)
            for value, text in ((max_trajectories, "max_trajectories"), (max_bytes, "max_bytes"))
        ]
        queue = _check.integer(queue_bytes, f"{name}(queue_bytes)", minimum=0)
        self.path = _directory(path, auto_save, auto_save_path)
        self._draws: Draws = NumpyDraws(_generator(seed))
        self._adding, self._saving = threading.Lock(), threading.Lock()
        self._store = Store(Cache(cache_size if cached else 0, limit))
        self._closed = False
        if self.path is not None:
            report = _opening.open_directory(self._store, Folder(self.path, create=True), queue)
            if report:
                warnings.warn(report, ReliveWarning, stacklevel=2)
            self._retain()

    def __len__(self) -> int:
        """The number of trajectories."""
        return len(self._store.index)

    def __enter__(self) -> TrajectoryReplayBuffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else f"in {self.path}"
        samples, size = self._store.index.samples, self._store.index.nbytes
        return f"TrajectoryReplayBuffer({len(self)} trajectories, {samples} chunk-steps, {size:,} bytes, {where})"

    def add_trajectories(self, trajectories: Iterable[Any]) -> None:
        """Add trajectories: `Trajectory`s, mappings of fields, or RLinf's own.

        They are copied, and written in the background: the call waits for the disk only while the queue is full.

        Raises:
            SchemaError: A trajectory is invalid, or has other fields than those before it. Nothing was added.
            StorageError: An earlier trajectory could not be written. It is not lost; the write is tried again.
        """
        new = [as_trajectory(trajectory) for trajectory in trajectories]
        with self._adding:
            self._check_open()
            store = self._store
            if store.writer is not None:
                store.writer.check()
            with store.lock:
                store.check(new)
            for trajectory in new:
                block = packed(trajectory, store.arena)
                with store.lock:
                    id_ = store.add(block)
                    removed = self._remove_excess()
                if store.writer is not None:
                    store.writer.put(id_, block)
                store.delete(removed)  # after the new trajectory was queued for writing

    def sample(self, num_chunks: int) -> Batch:
        """Draw chunk-steps from the window uniformly, with replacement.

        Args:
            num_chunks: How many, >= 1; may exceed the number stored.

        Returns:
            A mapping nested like the fields, of arrays `[num_chunks, ...]` owned by the caller.

        Raises:
            NotEnoughData: There are no trajectories.
            SchemaError: A drawn trajectory has other fields than the first one.
            StorageError: A file that was needed is damaged or missing.
        """
        n = _check.integer(num_chunks, "TrajectoryReplayBuffer.sample(num_chunks)", minimum=1)
        self._check_open()
        store = self._store
        with store.lock:
            first, before, total = store.index.window(self.sample_window_size)
            if not total:
                at = "TrajectoryReplayBuffer.sample"
                raise NotEnoughData(message("at least 1 trajectory", "0", at, "add trajectories first"))
            positions, rows = store.index.locate(before + self._draws.integers(total, n), first)
            batch = store.read(positions, rows, self.sample_window_size)
        return Batch(nested(batch.run()))

    def is_ready(self, min_size: int = 1) -> bool:
        """Whether there are at least `min_size` trajectories."""
        return len(self) >= _check.integer(min_size, "TrajectoryReplayBuffer.is_ready", minimum=0)

    def get_stats(self) -> dict[str, int]:
        """Counts of trajectories and chunk-steps, the next id, bytes stored and in memory, and `Durability`."""
        store = self._store
        with store.lock:
            return {
                "num_trajectories": len(store.index),
                "total_samples": store.index.samples,
                "cache_size": len(store.blocks) if self.path is None else len(store.cache.ids),
                "trajectory_counter": store.counter,
                "nbytes": store.index.nbytes,
                "memory_bytes": sum(block.nbytes for block in store.blocks.values()),
                **self._durability()._asdict(),
            }

    def flush(self) -> Durability:
        """Wait until everything added so far would survive the end of this process.

        Every trajectory is then a complete file under its final name. A buffer without a directory returns at once.

        Raises:
            StorageError: Something could not be written. It is still in memory; the write is tried again.
        """
        self._check_open()
        if self._store.writer is not None:
            self._store.writer.flush()
        return self._durability()

    def sync(self) -> Durability:
        """Wait until everything added so far would survive power loss.

        File names are then synced, and the index lists the trajectories, so other processes see them; removed ones
        are no longer listed.

        Raises:
            StorageError: Something could not be written. It is still in memory; the write is tried again.
        """
        self._check_open()
        if self._store.writer is not None:
            self._store.writer.sync()
        return self._durability()

    def save_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Save all trajectories, not only those in the window, and the generator's state.

        Files that an earlier save put into `path` are kept; others are hard-linked, or copied where links are
        impossible. An interrupted save leaves the earlier checkpoint. Other threads may add and draw meanwhile.

        Raises:
            StorageError: The directory cannot be written to, or holds another buffer's trajectories.
        """
        self.sync()
        with self._saving:
            _checkpoint.save(self._store, path, self._draws, self.trajectory_format)

    def load_checkpoint(
        self,
        path: str | os.PathLike[str],
        is_distributed: bool = False,
        local_rank: int = 0,
        world_size: int = 1,
        *,
        allow_pickle: bool = False,
    ) -> None:
        """Replace the buffer's contents by a checkpoint of relive's or RLinf's, or by one rank's share of it.

        After an interrupted load, the buffer's own directory has either the old contents or the new.

        Args:
            path: The directory.
            is_distributed: Whether to load only one rank's share.
            local_rank: The rank, in `[0, world_size)`.
            world_size: Number of shares. They are contiguous; the first ones may have one trajectory more.
            allow_pickle: Whether to read RLinf's `pkl` files. No code in them runs, but they have no checksums.

        Raises:
            ArgumentError: A rank outside its limits, or `pkl` files without `allow_pickle`.
            StorageError: The directory is not a checkpoint, or is damaged.
        """
        self._check_open(loading=True)
        share = _share(is_distributed, local_rank, world_size)
        _check.flag(allow_pickle, "TrajectoryReplayBuffer.load_checkpoint(allow_pickle)")
        with self._adding:
            draws = _checkpoint.load(self._store, path, share, allow_pickle)
            self._draws = self._draws if draws is None else draws
            self._retain()

    def clear(self) -> None:
        """Remove all trajectories, files included. Ids are not reused."""
        self._check_open()
        with self._adding, self._store.lock:
            self._store.delete(self._store.remove_oldest(len(self)))
        self.sync()

    def close(self) -> None:
        """Write what is left, and close the directory. May be called twice.

        Raises:
            StorageError: Something could not be written. It is still in memory, and the buffer stays open.
        """
        if self._closed:
            return
        if self._store.writer is not None:
            self._store.writer.close()
        self._closed = True
        self._store.close()

    def _durability(self) -> Durability:
        with self._store.lock:
            return Durability(self._store.added, self._store.flushed, self._store.durable)

    def _check_open(self, *, loading: bool = False) -> None:
        if self._closed:
            raise ArgumentError(message("an open buffer", "a closed one", "TrajectoryReplayBuffer"))
        if self._store.half_loaded and not loading:
            remedy = "load again, or close the buffer and open the directory again"
            raise StorageError(event("The last load was interrupted", str(self.path), remedy))

    def _retain(self) -> None:
        """Apply the limits: remove the oldest trajectories and their files."""
        self._store.delete(self._remove_excess())

    def _remove_excess(self) -> list[int]:
        """Remove the oldest trajectories beyond the limits; returns the ids whose files are to be deleted."""
        store, (most, most_bytes) = self._store, self._limits
        with store.lock:
            index = store.index
            extra = max(len(index) - most, 0) if most is not None else 0
            if most_bytes is not None:
                left, count = store.nbytes, 0
                for nbytes in index.records["bytes"][:-1]:  # the newest one always stays
                    if left <= most_bytes:
                        break
                    left, count = left - int(nbytes), count + 1
                extra = max(extra, count)
            return store.remove_oldest(extra)


def as_trajectory(value: Any) -> Trajectory:
    """A `Trajectory`, a mapping of fields, or RLinf's dataclass as a `Trajectory`."""
    if isinstance(value, Trajectory):
        return value
    if is_dataclass(value) and not isinstance(value, type):  # RLinf's
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if not isinstance(value, Mapping):
        got = f"`{type(value).__name__}`"
        raise ArgumentError(message("a `Trajectory` or a mapping of fields", got, "$.trajectories"))
    return Trajectory(**value)


def _generator(seed: Any) -> np.random.Generator:
    if isinstance(seed, np.random.Generator):
        return seed
    at = "TrajectoryReplayBuffer(seed)"
    return np.random.default_rng(None if seed is None else _check.integer(seed, at, minimum=0, unbounded=True))


def _directory(path: Any, auto_save: bool | None, auto_save_path: Any) -> str | None:
    if auto_save is not None:
        _check.flag(auto_save, "TrajectoryReplayBuffer(auto_save)")
    if path is not None and (auto_save_path or auto_save is False):
        got = "`auto_save_path` or `auto_save=False` as well"
        raise ArgumentError(message("only `path`", got, "TrajectoryReplayBuffer(path)"))
    chosen = path if path is not None else (auto_save_path or None) if auto_save else None
    if auto_save and chosen is None:
        raise ArgumentError(message("a `path` to write to", "none", "TrajectoryReplayBuffer(auto_save)"))
    return None if chosen is None else os.path.abspath(os.fspath(chosen))


def _share(is_distributed: bool, local_rank: int, world_size: int) -> tuple[int, int]:
    at = "TrajectoryReplayBuffer.load_checkpoint"
    if not _check.flag(is_distributed, f"{at}(is_distributed)"):
        return 0, 1
    world = _check.integer(world_size, f"{at}(world_size)", minimum=1)
    rank = _check.integer(local_rank, f"{at}(local_rank)", minimum=0)
    if rank >= world:
        raise ArgumentError(message(f"a rank below {world}", f"`{rank}`", f"{at}(local_rank)"))
    return rank, world
