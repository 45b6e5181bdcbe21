"""The stored steps of a buffer as episodes: for formats that keep episodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .._base.nests import leaves
from .._base.types import Int64
from ..buffer import ReplayBuffer
from ..items import Arena, Expander, Fields, Ring, Transitions, Window
from ..schema import Schema


class Episode(NamedTuple):
    """Steps that follow each other, up to an end, a cut or the newest one, nested as the schema; arrays `[T, ...]`.

    Attributes:
        fields: `obs`, `action`, `reward`, `next_obs`, `terminated`, `truncated` and every extra.
        complete: Whether the last step's `next_obs` is known; where not, it is its `obs`.
    """

    fields: dict[str, Any]
    complete: bool


class _Single(Transitions):
    """Single steps, the newest of an environment included, whose `next_obs` may mean nothing.

    Their discount is 1 where `next_obs` is known, but for the newest ones, and 0 where it is not.
    """

    def window(self, schema: Schema) -> Window:
        """Wait for nothing."""
        return super().window(schema).__replace__(span=0)

    def bind(self, schema: Schema, ring: Ring, arena: Arena) -> Expander:
        """Prepare to expand slots of `ring`."""
        return _Expander(super().bind(schema, ring, arena), ring)


class _Expander:
    def __init__(self, single: Expander, ring: Ring) -> None:
        self._single, self._ring = single, ring

    def expand(self, slots: Int64, rng: np.random.Generator) -> Fields:
        """Return the steps at `slots`."""
        found = self._ring.windows(slots, np.ones(2, np.float32))
        return {**self._single.expand(slots, rng), "discount": found.after != found.at}


def episodes(buffer: ReplayBuffer) -> Iterator[Episode]:
    """Yield all stored steps, one environment after the other, oldest first; episodes may lack their beginnings.

    Rewards are those of single steps, whatever the buffer's item. No other thread may add meanwhile.
    """
    single, followed = _Single(n_step=1, gamma=1.0), buffer.ids(item=Transitions())
    ids = buffer.ids(item=single)
    ends = np.flatnonzero(buffer.follow(ids, 1).steps == 0) + 1
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        fields = {**buffer.read(ids[begin:end], item=single)}
        complete = ids[end - 1] in followed and bool(fields["discount"][-1])
        if not complete:
            for obs, after in zip(leaves(fields["obs"]), leaves(fields["next_obs"]), strict=True):
                after[-1] = obs[-1]
        yield Episode(fields, complete)
