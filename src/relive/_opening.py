"""The functions that return buffers made before: `load` those of saves, `open` those of another process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias, overload

import numpy as np

from ._base.forks import importing
from ._flow.limiter import RateLimiter
from .buffer import ReplayBuffer
from .errors import ArgumentError, message
from .items import Item
from .samplers import Sampler
from .storage import Storage

if TYPE_CHECKING:
    import torch

    from .device import DeviceBuffer

Path: TypeAlias = "str | os.PathLike[str]"


@overload
def load(
    path: Path | Sequence[Path],
    *,
    number: int | None = ...,
    lanes: Sequence[int] | Sequence[Sequence[int]] | None = ...,
    capacity: int | None = ...,
    boundaries: float | None = ...,
    item: Item | None = ...,
    sampler: Sampler | None = ...,
    storage: Storage | None = ...,
    limiter: RateLimiter | None = ...,
    seed: int | np.random.Generator | None = ...,
    device: None = ...,
) -> ReplayBuffer: ...
@overload
def load(
    path: Path | Sequence[Path],
    *,
    number: int | None = ...,
    lanes: Sequence[int] | Sequence[Sequence[int]] | None = ...,
    capacity: int | None = ...,
    boundaries: float | None = ...,
    item: Item | None = ...,
    sampler: Sampler | None = ...,
    seed: int | np.random.Generator | None = ...,
    device: torch.device | str,
) -> DeviceBuffer: ...
def load(
    path: Path | Sequence[Path],
    *,
    number: int | None = None,
    lanes: Sequence[int] | Sequence[Sequence[int]] | None = None,
    capacity: int | None = None,
    boundaries: float | None = None,
    item: Item | None = None,
    sampler: Sampler | None = None,
    storage: Storage | None = None,
    limiter: RateLimiter | None = None,
    seed: int | np.random.Generator | None = None,
    device: torch.device | str | None = None,
) -> ReplayBuffer | DeviceBuffer:
    """Build the buffer that `ReplayBuffer.save` or `DeviceBuffer.save` saved.

    With `path` alone it goes on exactly as the one that was saved would have: ids, batches, weights and statistics, to
    the bit. The other arguments load the same steps under other choices: ids stay, and so do priorities, where both
    samplers have them. The clock of an `Anneal` goes on under another storage, limiter or seed; it begins anew under
    other lanes, another capacity, sampler or item, unless that one needs the same rows as the saved one.

    Args:
        path: The directory; or several, whose lanes become those of one buffer, one directory after the other.
        number: A save that `keep=` kept; None: the newest.
        lanes: The lanes to load, in this order; with several directories a list for each. Lane k of the result is the
            k-th of them, and its ids follow from that: `row * num_envs + lane`. None: all.
        capacity: Steps that are kept, over all lanes. A smaller one keeps the newest steps of each lane; a larger one
            brings nothing back that was overwritten.
        boundaries: Rows reserved for final observations, as in `ReplayBuffer`; None: as it was saved.
        item: What a draw expands to; None: as it was saved.
        sampler: Which items are drawn. One with other settings gets the raw priorities, the largest of them included,
            as they are; where the saved one had no priorities, they are `initial`.
        storage: Where the bytes live.
        limiter: A `RateLimiter`; None: the saved one. Another one than that, or one of chosen lanes, starts as if
            `min_size` steps had just been added and nothing been drawn.
        seed: A new generator; None: the saved one goes on, or a fresh one if lanes are chosen.
        device: A device of PyTorch's: build a `DeviceBuffer` there. What a `DeviceBuffer` saved needs it, and takes no
            other choices than `number` and `seed`; of what a `ReplayBuffer` saved, ids are new.

    Raises:
        MissingSave: No complete save is there; it is a `FileNotFoundError`, too.
        StorageError: It cannot be read.
        CorruptionError: The save is damaged. The message names the file and the offset, and, if it is the newest, the
            last sound one.
        ArgumentError: A choice that does not fit the steps, or one that has to be given, because no class is
            `relive.saved_as` its name.

    >>> import numpy as np, relive, tempfile
    >>> buffer = relive.ReplayBuffer(relive.Schema(obs=relive.Field((3,)), action=relive.Field()), 1000, seed=0)
    >>> ids = buffer.add(obs=np.zeros(3), action=0.5, reward=1, next_obs=np.ones(3), terminated=False, truncated=False)
    >>> path = tempfile.mkdtemp()
    >>> saved = buffer.save(path)
    >>> relive.load(path).sample(2).reward.tolist()
    [1.0, 1.0]
    """
    if device is not None and storage is not None:
        raise ArgumentError(message("`device` or `storage`", "both", "load(device)"))
    with importing:
        from .checkpoints._loading import loaded

    if device is not None and isinstance(path, str | os.PathLike):
        with importing:
            from .device._loading import saved_on_device

        others = {"lanes": lanes, "capacity": capacity, "boundaries": boundaries, "item": item, "sampler": sampler}
        found = saved_on_device(path, number, device, seed, {**others, "limiter": limiter})
        if found is not None:
            return found
    core = loaded(path, number, lanes, capacity, boundaries, item, sampler, storage, limiter, seed)
    buffer = ReplayBuffer._of(core)
    if device is None:
        return buffer
    with importing:
        from .device import DeviceBuffer

    return DeviceBuffer.of(buffer, device=device, seed=seed if isinstance(seed, int) else None)


def open(  # `relive.open`, as `gzip.open`
    name: str | os.PathLike[str],
    *,
    item: Item | None = None,
    sampler: Sampler | None = None,
    seed: int | np.random.Generator | None = None,
) -> ReplayBuffer:
    """Open a `Shared` or `Mapped` buffer that another process made, or a `Mapped` one that no process has open.

    While its creator lives, this is one more process that draws: with a sampler, priorities and a generator of its
    own. It can save the buffer, and cannot add to it; `relive.Writer` can. A limiter does not keep it waiting.

    A mapped buffer without a creator is taken over: steps and priorities are those that were left, and adding goes on,
    with the streams cut.

    Args:
        name: The buffer's name, or the path of its file.
        item: What a draw expands to; None: as its creator says.
        sampler: Which items are drawn; None: as its creator says, with priorities of its own.
        seed: None: fresh entropy, or the generator as of the last `sync()` or `close()` where a buffer is taken over.

    Raises:
        MissingSave: There is no such buffer; it is a `FileNotFoundError`, too.
        StorageError: The file is not one that relive wrote, or another version of it did.
        ArgumentError: A choice that does not fit, or one that has to be given, because no class is `saved_as` its name.

    >>> import relive
    >>> schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    >>> step = dict(obs=0.0, action=0.0, reward=1.0, next_obs=1.0, terminated=True, truncated=False)
    >>> with relive.ReplayBuffer(schema, 1000, storage=relive.Shared("open-example")) as buffer:
    ...     ids = buffer.add(**step)
    ...     with relive.open("open-example", sampler=relive.Prioritized(), seed=0) as reader:
    ...         reader.sample(2).reward.tolist(), reader.update_priorities(ids, [3.0])
    ([1.0, 1.0], 1)
    """
    with importing:
        from .processes.joining import joined

    return ReplayBuffer._of(joined(name, item, sampler, seed))
