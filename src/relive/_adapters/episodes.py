"""What a buffer stores, as episodes: for formats that keep episodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .._base.memory import Arena
from .._base.nests import leaves
from .._base.types import Bool, Int64
from .._ring.lanes import HEAD, HELD, LOST
from ..buffer import ReplayBuffer
from ..items import Transitions


class Episode(NamedTuple):
    """Steps that follow each other, up to an end, a cut or the newest one, nested as the schema; arrays `[T, ...]`.

    Attributes:
        fields: `obs`, `action`, `reward`, `next_obs`, `terminated`, `truncated` and every extra.
        complete: Whether the last step's `next_obs` is known; where not, it is its `obs`.
    """

    fields: dict[str, Any]
    complete: bool


def episodes(buffer: ReplayBuffer) -> Iterator[Episode]:
    """Yield the stored episodes, lane by lane, oldest first; one whose beginning was overwritten lacks it.

    Rewards are those of single steps, whatever the buffer's item. No other thread may add meanwhile.
    """
    ring = buffer._core.ring
    single = Transitions(n_step=1, gamma=1.0).bind(buffer.schema, ring, Arena())
    stored = buffer.column("ids")
    for lane in stored:
        ids = np.sort(lane[lane >= 0])
        if not len(ids):
            continue
        ends = np.flatnonzero(buffer.follow(ids, 1).steps == 0) + 1
        for begin, end in zip([0, *ends[:-1]], ends, strict=True):
            part = ids[begin:end]
            fields = single.expand(part % buffer._core.ring.slots, buffer.rng)
            known = _known(buffer, part[-1:])
            if not known.all():
                for obs, after in zip(leaves(fields["obs"]), leaves(fields["next_obs"]), strict=True):
                    after[-1] = obs[-1]
            yield Episode(fields, bool(known.all()))


def _known(buffer: ReplayBuffer, ids: Int64) -> Bool:
    """Mark the steps, all of them at the end of their streams, whose successors are stored."""
    ring = buffer._core.ring
    rows, lanes = np.divmod(ids, buffer.num_envs)
    head, held = ring.counters[lanes, HEAD], ring.counters[lanes, HELD]
    lost = (ring.marks[ring.at(rows, lanes)] & LOST) > 0
    waits = (rows == head - 1) & (held != head)
    return np.asarray(~(lost | waits))
