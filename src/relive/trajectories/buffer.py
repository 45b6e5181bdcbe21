"""The buffer of batched trajectories: window, draws, retention, checkpoints."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from .._base import check, memory
from .._base.check import generator
from .._base.narrow import to_torch
from .._base.nests import nested
from .._base.page import fragment, plain, write
from .._base.warned import warn
from ..batch import Batch
from ..errors import ArgumentError, CorruptionError, StorageError, message
from . import _arguments, _directory, _rlinf_names
from ._block import packed
from ._drawing import Infos, draw
from ._draws import DrawGenerator
from ._layout import Fill
from ._lifetime import Lifetime
from ._store import Cache, Store, StoreSnapshot
from ._writer import DirectoryWriter
from .selection import Selection
from .trajectory import Trajectory

_NAME = "TrajectoryReplayBuffer"
_ATTEMPTS = 100  # of a read while trajectories are removed again and again
_T = TypeVar("_T")


class Durability(NamedTuple):
    """The numbers of trajectories that were added, and of those that would survive a crash.

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
            are there already can be drawn. None keeps everything in memory. An integer is taken as the seed: the
            positional arguments are RLinf's.
        enable_cache: False disables the cache.
        cache_size: How many trajectories of the directory are kept in memory, too.
        sample_window_size: Draw from this many of the newest trajectories; 0 draws from all.
        auto_save: RLinf's switch for writing to `path`. None: write if there is a path.
        auto_save_path: RLinf's name for `path`.
        trajectory_format: What `save_checkpoint` writes: `"safetensors"`, or `"pt"` for RLinf's layout.
        seed: An integer, or a `numpy.random.Generator`, which is used and not copied; None for fresh entropy.
        cache_bytes: Bytes of memory for cached trajectories; None is a quarter of the available memory.
        max_trajectories: Largest number of trajectories; the oldest are removed, files included.
        max_bytes: Largest total size of all trajectories.
        queue_bytes: `add_trajectories` waits while more bytes than this wait to be written.
        output: What `sample` returns: `"numpy"` for a `Batch` of arrays, `"torch"` for a dict of tensors, as in RLinf.
        select: Rules for every draw that has none of its own.
        fill: A value for fields that some trajectories lack, and for the ends of rows that are shorter than others, or
            a mapping with one for each such field, by dotted name. None: all must have the same fields.
        compress: `"zstd"`: new files have images compressed, each by itself: fields of `uint8`, `int8` or `bool` with
            at least 1 KiB in a chunk-step. The extra `relive[compress]` can do that, and any buffer reads such files
            with it. While they wait to be written, they count with their full size.

    Raises:
        ArgumentError: An argument outside its limits, or arguments that contradict each other.
        MissingExtra: `output="torch"` without PyTorch; `compress="zstd"`, or files with compressed fields, without
            `zstandard`.
        StorageError: The directory cannot be used, or another buffer writes to it.

    Draws are uniform over the chunk-steps in the window, with replacement. Methods may be called from several threads.

    Source: RLinf's `TrajectoryReplayBuffer` (RLinf 2025).

    >>> from relive.trajectories import Trajectory
    >>> buffer = TrajectoryReplayBuffer(seed=0)
    >>> buffer.add_trajectories([Trajectory(rewards=np.arange(6.0).reshape(3, 2, 1))])
    >>> buffer.sample(4).rewards.shape, len(buffer), buffer.get_stats()["total_samples"]
    ((4, 1), 1, 6)
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | int | None = None,
        enable_cache: bool = True,
        cache_size: int = 5,
        sample_window_size: int = 100,
        auto_save: bool | None = None,
        auto_save_path: str | os.PathLike[str] | None = None,
        trajectory_format: str = "safetensors",
        *,
        seed: int | np.random.Generator | None = None,
        cache_bytes: int | None = None,
        max_trajectories: int | None = None,
        max_bytes: int | None = None,
        queue_bytes: int = 256 << 20,
        output: str = "numpy",
        select: Selection | None = None,
        fill: Fill = None,
        compress: str | None = None,
    ) -> None:
        place, seed = _arguments.path_and_seed(path, seed)
        self.sample_window_size = check.integer(sample_window_size, f"{_NAME}(sample_window_size)", minimum=0)
        cache_size = check.integer(cache_size, f"{_NAME}(cache_size)", minimum=0)
        limit = memory.available_bytes() // 4 if cache_bytes is None else cache_bytes
        limit = check.integer(limit, f"{_NAME}(cache_bytes)", minimum=0)
        cached = check.flag(enable_cache, f"{_NAME}(enable_cache)")
        self._format = _arguments.layout(trajectory_format)
        most, most_bytes = (
            None if value is None else check.integer(value, f"{_NAME}({text})", minimum=1)
            for value, text in ((max_trajectories, "max_trajectories"), (max_bytes, "max_bytes"))
        )
        queue = check.integer(queue_bytes, f"{_NAME}(queue_bytes)", minimum=0)
        self.output = _arguments.output(output)
        self.select = _arguments.selection(select)
        self.path = _arguments.directory_from(place, auto_save, auto_save_path)
        self._draws = DrawGenerator(generator(seed, f"{_NAME}(seed)"))
        self._adding, self._saving = threading.Lock(), threading.Lock()
        packing = _arguments.compression(compress)
        self._store = Store(Cache(cache_size if cached else 0, limit), _arguments.fill(fill), most, most_bytes, packing)
        self._writer: DirectoryWriter | None = None
        self._infos = Infos(self._store)
        self._followed: tuple[Any, tuple[int, int], bool] | None = None
        if self.path is not None:
            self._writer, report = _directory.open_directory(self._store, self.path, queue)
            weakref.finalize(self, self._writer.abandon, os.getpid())
            if report:
                warn(report)
            self._trim()
        self._lifetime = Lifetime(self._store, self._writer)

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else f"in {self.path}"
        samples, size = self._store.index.samples, self._store.index.nbytes
        return f"TrajectoryReplayBuffer({len(self)} trajectories, {samples} chunk-steps, {size:,} bytes, {where})"

    def _repr_html_(self) -> str:
        return fragment("TrajectoryReplayBuffer", (), self._facts())

    def report(self, path: str | os.PathLike[str]) -> str:
        """Write a page of counts, and return its absolute path; `relive inspect --html` has plots of a directory.

        Raises:
            ArgumentError: `path` is no path.
        """
        text = plain("Trajectories", self._facts(), self.get_stats().items())
        return write(path, "TrajectoryReplayBuffer.report(path)", text)

    def _facts(self) -> list[tuple[str, str]]:
        index = self._store.index
        counts = {"trajectories": len(self), "chunk-steps": index.samples, "bytes": index.nbytes}
        return [("where", self.path or "memory"), *((name, f"{count:,}") for name, count in counts.items())]

    def __reduce__(self) -> tuple[Any, ...]:
        remedy = "pass its path, or save a checkpoint and load it there"
        raise ArgumentError(
            message("a path or a checkpoint", "a buffer to pickle or copy", type(self).__name__, remedy)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Return the number of trajectories."""
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
        """Return the ids of all trajectories, in the order in which they were added."""
        self._lifetime.check()
        with self._store.lock:
            return self._store.index.ids

    def iter_trajectory_metadata(self) -> Iterator[tuple[int, str, int]]:
        """Yield id, `model_weights_id` and number of chunk-steps of every trajectory; no file is opened."""
        self._lifetime.check()
        with self._store.lock:
            entries = list(self._store.index)
        return ((entry.id, entry.model_weights_id, entry.length * entry.width) for entry in entries)

    def get_trajectory_info(self, trajectory_id: int) -> dict[str, Any]:
        """Return the facts of a trajectory, without its observations.

        Returns:
            `trajectory_id`, `model_weights_id`, `max_episode_length`, `num_samples`, `shape`; `length` (T)
            and `num_envs` (B); `version` and `max_version`, the oldest and newest of its `versions`; `success`;
            `returns`, the sum of `rewards` for each environment; `task`; and `metadata`, what it has once. None where
            it has no such field.

        Raises:
            ArgumentError: There is no trajectory of this id.
        """
        return dict(self._repeated(lambda: self._infos.of(self._only(trajectory_id, "get_trajectory_info"))[0]))

    def load_trajectory(self, trajectory_id: int, model_weights_id: str | None = None) -> Trajectory:
        """Read a whole trajectory.

        Args:
            trajectory_id: Its id.
            model_weights_id: RLinf's second half of the name; checked if it is given.

        Raises:
            ArgumentError: There is no such trajectory.
            StorageError: Its file is damaged or missing.
        """

        def load() -> Trajectory:
            (stored,) = self._only(trajectory_id, "load_trajectory")
            weights = stored.entry.model_weights_id
            if model_weights_id not in (None, weights):
                at = f"{_NAME}.load_trajectory(model_weights_id)"
                raise ArgumentError(message(f"`{weights!r}`, or none", f"`{model_weights_id!r}`", at))
            return stored.block().trajectory()

        return self._repeated(load)

    @property
    def trajectory_format(self) -> str:
        """The layout that `save_checkpoint` writes."""
        return self._format.name

    @property
    def rng(self) -> Any:
        """The generator of draws, NumPy's, or PyTorch's after RLinf's checkpoint was loaded."""
        return self._draws.generator

    def add_trajectories(self, trajectories: Iterable[Any]) -> None:
        """Add trajectories: those of `Trajectory`, mappings of fields, or RLinf's own.

        They are copied, and written in the background: the call waits for the disk only while the queue is full.

        Raises:
            SchemaError: A trajectory is invalid, or has other fields than those before it. Nothing was added.
            StorageError: An earlier trajectory could not be written. It is not lost; the write is tried again.
        """
        new = _arguments.trajectories(trajectories)
        with self._adding:
            self._lifetime.check_open()
            store, writer = self._store, self._writer
            if writer is not None:
                writer.check()
            with store.lock:
                store.check(new)
            self._followed = None  # what is added here is in no other directory
            for trajectory in new:
                block = packed(trajectory, store.arena, store.counter, compress=store.compress)
                if writer is not None:
                    writer.wait(block.nbytes)
                with store.lock:
                    store.add(block)
                    removed = store.trim()
                    if writer is not None:
                        writer.put(block)
                self._remove(removed)  # after the new trajectory was queued for writing

    def sample(self, num_chunks: int, *, metadata: bool = False, **rules: Any) -> Any:
        """Draw chunk-steps from the window, uniformly and with replacement if no rules say otherwise.

        Args:
            num_chunks: How many, >= 1; may exceed the number stored.
            metadata: Also return what each row's trajectory has once: `trajectory_ids`, int64 `[num_chunks]`, and lists
                with a text, number or list for each row.
            **rules: Arguments of `Selection`, such as `max_staleness=2`; they replace the buffer's `select`.

        Returns:
            A mapping nested like the fields, of arrays `[num_chunks, ...]` owned by the caller, a `Batch`, or with
            `output="torch"` a dict of tensors.

        Raises:
            NotEnoughData: There are no trajectories, or the rules leave none, or too few chunk-steps.
            SchemaError: A drawn trajectory has other fields than the first one, or lacks what a rule looks at.
            StorageError: A file that was needed is damaged or missing.
        """
        n = check.integer(num_chunks, "TrajectoryReplayBuffer.sample(num_chunks)", minimum=1)
        check.flag(metadata, "TrajectoryReplayBuffer.sample(metadata)")
        selection = Selection(**rules) if rules else self.select
        self._lifetime.check_open()
        window = self.sample_window_size
        fields = self._repeated(lambda: draw(self._store, self._draws, self._infos, selection, window, n, metadata))
        if self.output == "torch":
            return nested((path, to_torch(value)) for path, value in fields.items())
        return Batch(nested(fields.items()))

    sample_chunks = sample

    def refresh(self) -> bool:
        """Take in what another process has added to, and removed from, the directory that `load_checkpoint` loaded.

        A draw that finds a file gone does this by itself. Nothing happens to a buffer that has a directory of its own,
        or to which anything was added since it loaded. Trajectories that the writer has not synced yet are not seen.

        Returns:
            Whether anything has changed.

        Raises:
            StorageError: The directory has become unreadable. The buffer is unchanged.

        >>> import tempfile
        >>> from relive import Trajectory
        >>> path = tempfile.mkdtemp()
        >>> writer, reader = TrajectoryReplayBuffer(path), TrajectoryReplayBuffer()
        >>> reader.load_checkpoint(path)
        >>> writer.add_trajectories([Trajectory(rewards=np.zeros((3, 2, 1)))])
        >>> _ = writer.sync()
        >>> reader.refresh(), len(reader)
        (True, 1)
        >>> writer.close()
        """
        self._lifetime.check_open()
        with self._adding:
            changed = self._followed is not None and _directory.refresh(self._store, *self._followed)
            if changed:
                self._infos.clear()
            return changed

    def is_ready(self, min_size: int = 1) -> bool:
        """Return whether there are at least `min_size` trajectories."""
        return len(self) >= check.integer(min_size, "TrajectoryReplayBuffer.is_ready", minimum=0)

    async def is_ready_async(self, min_size: int = 1) -> bool:
        """Return `is_ready`, as a coroutine."""
        return self.is_ready(min_size)

    def get_stats(self) -> dict[str, int]:
        """Return counts of trajectories and chunk-steps, the next id, bytes stored and in memory, and `Durability`."""
        self._lifetime.check()
        store = self._store
        with store.settled():
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
        self._lifetime.check_open()
        if self._writer is not None:
            self._writer.flush()
        return self._durability()

    def sync(self) -> Durability:
        """Wait until everything added so far would survive power loss.

        File names are then synced, and the index lists the trajectories, so other processes see them; removed ones
        are no longer listed.

        Raises:
            StorageError: Something could not be written. It is still in memory; the write is tried again.
        """
        self._lifetime.check_open()
        if self._writer is not None:
            self._writer.sync()
        return self._durability()

    def save_checkpoint(
        self, path: str | os.PathLike[str] | None = None, *, save_path: str | os.PathLike[str] | None = None
    ) -> None:
        """Save all trajectories, not only those in the window, and the generator's state.

        Files that an earlier save put into `path` are kept; others are hard-linked, or copied where links are
        impossible. An interrupted save leaves the earlier checkpoint. Other threads may add and draw meanwhile.
        `save_path` is RLinf's name for `path`.

        Raises:
            StorageError: The directory cannot be written to, or holds another buffer's trajectories.
        """
        path = _arguments.checkpoint(path, save_path, "save_path", "save_checkpoint")
        self.sync()
        with self._saving:
            _directory.save(self._store, self._writer, path, self._draws, self._format)

    def load_checkpoint(
        self,
        path: str | os.PathLike[str] | None = None,
        is_distributed: bool = False,
        local_rank: int = 0,
        world_size: int = 1,
        *,
        load_path: str | os.PathLike[str] | None = None,
        allow_pickle: bool = False,
    ) -> None:
        """Replace the buffer's contents by a checkpoint of relive's or RLinf's, or by one rank's share of it.

        After an interrupted load, the buffer's own directory has either the old contents or the new.

        Args:
            path: The directory.
            is_distributed: Whether to load only one rank's share.
            local_rank: The rank, in `[0, world_size)`.
            world_size: Number of shares. They are contiguous; the first ones may have one trajectory more.
            load_path: RLinf's name for `path`.
            allow_pickle: Whether to read RLinf's `pkl` files. No code in them runs, but they have no checksums.

        Raises:
            ArgumentError: A rank outside its limits, or `pkl` files without `allow_pickle`.
            StorageError: The directory is not a checkpoint, or is damaged.
        """
        self._lifetime.check_open(loading=True)
        path = _arguments.checkpoint(path, load_path, "load_path", "load_checkpoint")
        share = _arguments.share_of(is_distributed, local_rank, world_size)
        check.flag(allow_pickle, "TrajectoryReplayBuffer.load_checkpoint(allow_pickle)")
        with self._adding:
            draws = _directory.load(self._store, self._writer, path, share, allow_pickle)
            self._draws = self._draws if draws is None else draws
            self._followed = (path, share, allow_pickle) if self.path is None else None
            self._infos.clear()
            self._trim()

    def clear(self) -> None:
        """Remove all trajectories, files included. Ids are not reused.

        After `close` only memory is emptied, as in RLinf: the files stay.
        """
        self._lifetime.check()
        with self._adding, self._store.lock:
            if self._lifetime.closed:
                self._store.index.remove_oldest(len(self))
                self._store.blocks.clear()
                return
            self._lifetime.check_open()
            self._remove(self._store.remove_oldest(len(self)))
        self.sync()

    def clear_cache(self) -> None:
        """Drop from memory what can be read from files. The next draws read it again."""
        self._lifetime.check()
        with self._store.lock:
            for id_ in list(self._store.cache.ids):
                self._store.cache.drop(id_)
                self._store.blocks.pop(id_, None)
            if self._store.source is not None:
                self._store.source.forget()

    def close(self, wait: bool = True) -> None:
        """Write what is left, and close the directory. May be called twice.

        Args:
            wait: False returns at once; a thread writes what is left, and the process does not end before it has.

        Raises:
            StorageError: Something could not be written. It is still in memory, and the buffer stays open.
        """
        self._lifetime.close(check.flag(wait, f"{_NAME}.close(wait)"))

    def _repeated(self, read: Callable[[], _T]) -> _T:
        """Call `read`; again, if trajectories were removed meanwhile, here or by the writer of a loaded directory."""
        for attempt in itertools.count():
            removals, removed = self._store.removals, self._store.begin_read()
            try:
                return read()
            except StorageError as error:
                # The file is not there, or another trajectory's since the writer has loaded a checkpoint.
                gone = isinstance(error.__cause__, FileNotFoundError) or isinstance(error, CorruptionError)
                again = self._store.removed_since(removals) or (gone and self.refresh())
                if attempt == _ATTEMPTS or not (again or self._store.removed_since(removals)):  # another thread's look
                    raise
            finally:
                self._store.end_read(removed)
        raise AssertionError

    def _only(self, id_: int, method: str) -> StoreSnapshot:
        """Return a snapshot of one trajectory."""
        self._lifetime.check()
        at = f"{_NAME}.{method}"
        id_ = check.integer(id_, at)
        with self._store.settled():
            position = self._store.index.find(id_)
            if position is None:
                got = f"`{id_}`, of which there is none"
                raise ArgumentError(message("the id of a stored trajectory", got, at, "see `list_trajectory_ids()`"))
            return StoreSnapshot(self._store, [position])

    def _durability(self) -> Durability:
        with self._store.lock:
            return Durability(self._store.added, self._store.flushed, self._store.durable)

    def _trim(self) -> None:
        """Remove the oldest trajectories beyond the limits."""
        with self._store.lock:
            removed = self._store.trim()
        self._remove(removed)

    def _remove(self, ids: list[int]) -> None:
        """Delete files in the background."""
        if self._writer is not None and ids:
            self._writer.remove(ids)

    # What RLinf 0.4.0 reads of its buffer, beyond the public names.

    @property
    def _trajectory_id_list(self) -> list[int]:
        return self.list_trajectory_ids()

    @property
    def _trajectory_index(self) -> Mapping[int, dict[str, Any]]:
        return _rlinf_names.LazyInfos(self.list_trajectory_ids(), self.get_trajectory_info)

    def _load_trajectory(self, trajectory_id: int, model_weights_id: str | None = None) -> SimpleNamespace:
        return _rlinf_names.tensors_of(self.load_trajectory(trajectory_id, model_weights_id))

    def _flatten_trajectory(self, trajectory: Any) -> dict[str, Any]:
        return _rlinf_names.flattened(trajectory)
