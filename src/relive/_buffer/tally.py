"""The state of a buffer outside its arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from .._base.types import Float32, Int64
from ..batch import Batch
from .stats import AutosaveStats


class SaverOfBuffer(Protocol):
    """The writer of a buffer's saves; `checkpoints` makes it."""

    @property
    def known(self) -> set[str]:
        """Tokens of the saves that the buffer continues."""

    @property
    def taken(self) -> bool:
        """True in a thread that is saving."""


class AutosaveOfBuffer(Protocol):
    """The thread that saves a buffer again and again; `checkpoints` makes it."""

    path: str

    @property
    def closed(self) -> bool:
        """True once it has ended."""

    def stats(self) -> AutosaveStats:
        """Report the saves so far."""

    def close(self) -> None:
        """End it, with a last save."""


class KeeperOfBatches(Protocol):
    """The writer of a file of the last batches; `keeping` makes it."""

    def state_before(self, core: Any) -> bytes: ...
    def sample(self, core: Any, draw: Callable[..., Batch], batch_size: Any, *, beta: Any = None) -> Batch: ...
    def drew(self, core: Any, batch: Batch, state: bytes = b"") -> None: ...
    def around(self, core: Any, calls: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]: ...
    def update(self, apply: Callable[[Any, Any], int], ids: Any, td_error: Any) -> int: ...
    def end(self) -> None: ...


class Tally:
    """The state of a buffer outside its arrays.

    Attributes:
        rng: The generator of its draws.
        numbers: `drawn`, `updates` and `stale`, int64 `[3]`, which a native kernel counts in.
        written: Values of steps that were written back by this process.
        last: The ids of the last batch, int64, and behind them its weights, float32.
        identity: Names the buffer and its copies in directories of saves.
        saver: Writes these saves; None: there is none yet.
        autosave: Saves by itself; None: nothing does.
        keeping: Keeps the last batches in a file; None: nothing does.
    """

    __slots__ = ("autosave", "identity", "keeping", "last", "numbers", "rng", "saver", "written")

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.numbers: Int64 = np.zeros(3, np.int64)
        self.last, self.written = b"", 0
        self.renew()

    @property
    def drawn(self) -> int:
        """Items drawn."""
        return int(self.numbers[0])

    @property
    def updates(self) -> int:
        """Priorities that `update_priorities` was given."""
        return int(self.numbers[1])

    def count(self, drawn: int = 0, updates: int = 0, stale: int = 0) -> None:
        """Count items drawn, priorities given, and those of them whose item was gone."""
        self.numbers += drawn, updates, stale

    def note(self, ids: Int64, weights: Float32) -> None:
        """Keep the ids and weights of a batch as the last one's."""
        self.last = ids.tobytes() + weights.tobytes()

    @property
    def last_ids(self) -> Int64:
        """The ids of the last batch."""
        return np.frombuffer(self.last, np.int64, self._last_items)

    @property
    def last_weights(self) -> Float32:
        """The weights of the last batch."""
        return np.frombuffer(self.last, np.float32, offset=8 * self._last_items)

    @property
    def _last_items(self) -> int:
        return len(self.last) // 12

    def renew(self) -> None:
        """Be another buffer than that whose saves this one was loaded from."""
        self.identity = os.urandom(16).hex()
        self.saver: SaverOfBuffer | None = None
        self.autosave: AutosaveOfBuffer | None = None
        self.keeping: KeeperOfBatches | None = None

    def counts(self) -> dict[str, int]:
        """Return the counts of draws and updates, by their names in saves."""
        return dict(zip(("drawn", "updates", "stale_updates"), self.numbers.tolist(), strict=True))

    def restore(self, counts: Mapping[str, int]) -> None:
        """Continue the counts of another buffer."""
        self.numbers[:] = [counts.get(name, 0) for name in self.counts()]
