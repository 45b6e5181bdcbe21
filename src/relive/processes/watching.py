"""Monitoring: the figures of a buffer that other processes use."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from .._base.arrays import Memory, quantiles
from .._base.capabilities import completed
from .._base.frozen import Frozen
from .._base.types import Float64, Int64
from .._flow.limit import Limit
from .._flow.limiter import LimiterStats
from .._ring.lanes import CUTS, HEAD, STEPS, STORED
from ..samplers import Sampler
from ..storage._segment import CREATOR
from ._description import CHOICES, COUNTS, DRAWN, LAST_ID, OWNERS, RARITY, REDRAWN, STALE, UPDATES, BufferDescription
from .writer import attached, file_of

_SAMPLE = 10_000  # slots whose priorities are looked at, of a larger buffer
_AGES = 64  # batches whose ages are remembered


class LaneSeen(Frozen, kw_only=True):
    """One lane.

    Attributes:
        lane: Its number.
        writer: The process that writes it; 0: none.
        steps: Steps ever added.
        stored: Steps stored now.
        cuts: Streams cut.
        adds_per_second: Since the last look.
    """

    lane: int
    writer: int
    steps: int
    stored: int
    cuts: int
    adds_per_second: float


class Seen(Frozen, kw_only=True):
    """A buffer at one moment.

    Attributes:
        file: Its file.
        creator_alive: Whether the process that made it, or took it over, has it open.
        capacity: The most steps that are stored.
        stored: Steps stored now.
        added: Steps ever added.
        drawn: Items that its creator drew.
        updates: Priorities that it updated.
        stale_updates: Those whose step had been overwritten by then.
        redrawn: Items that a writer overwrote while they were copied, and that were drawn again.
        adds_per_second: Since the last look, like the next one.
        draws_per_second: Items.
        samples_per_insert: Items drawn for each step added, since the last look.
        priority_quantiles: Least, quarter, middle, three quarters, largest of the raw priorities; empty without them.
        ages: The same of how many rows of their lane were newer than items of the last batches; empty before a draw.
        replay_volume: Items drawn for each step added, in all; of late it is `samples_per_insert`.
        draw_age: Mean of the ages, and the age below which 95 % of them are; empty before a draw.
        draw_entropy: As in `Stats`, of the last batches; None before a draw.
        limiter: What its limiter counted; None without one.
        lanes: Each of them.
    """

    file: str
    creator_alive: bool
    capacity: int
    stored: int
    added: int
    drawn: int
    updates: int
    stale_updates: int
    redrawn: int
    adds_per_second: float
    draws_per_second: float
    samples_per_insert: float
    priority_quantiles: tuple[float, ...]
    ages: tuple[float, ...]
    replay_volume: float
    draw_age: tuple[float, ...]
    draw_entropy: float | None
    limiter: LimiterStats | None
    lanes: tuple[LaneSeen, ...]


class Watch:
    """Looks at a `Shared` or `Mapped` buffer again and again, from any process; nothing of it changes.

    Args:
        name: The buffer's name, or the path of its file.

    Attributes:
        about: What it was built from.

    Raises:
        StorageError: There is no such buffer, or the file is not one.
    """

    def __init__(self, name: str | os.PathLike[str]) -> None:
        file = file_of(name)
        self._segment = segment = attached(file)
        self.about = about = BufferDescription.decoded(segment.raw(CHOICES), file)
        spec = about.ring_spec() | about.spec()
        if about.sampler is not None:
            kept = about.sampler.spec(about.lanes, about.rows)
            spec |= {f"sampler/{key}": wanted for key, wanted in kept.items()}
        segment.typed(spec)
        self._memory: Memory = segment
        self._before: tuple[float, Int64, int] | None = None
        self._ages: list[int] = []
        self._rarities: list[float] = []

    def look(self) -> Seen:
        """Return the buffer's present figures, with rates since the last look."""
        now = time.monotonic()
        counters = self._memory.host("ring/counters").copy()
        counts: Any = self._memory.host(COUNTS).tolist()
        owners = self._memory.host(OWNERS).tolist()
        steps = counters[:, STEPS]
        then, steps_then, drawn_then = self._before or (now, steps, counts[DRAWN])
        seconds = max(now - then, 1e-9)
        rates = (steps - steps_then) / seconds
        self._before = (now, steps, counts[DRAWN])
        locks = self._segment.locks
        lanes = tuple(
            LaneSeen(
                lane=lane,
                writer=owners[lane] if locks.taken(lane + 1) else 0,
                steps=int(row[STEPS]),
                stored=int(row[STORED]),
                cuts=int(row[CUTS]),
                adds_per_second=float(rates[lane]),
            )
            for lane, row in enumerate(counters)
        )
        ages = self._age(counters, counts)
        inserts, samples = int((steps - steps_then).sum()), counts[DRAWN] - drawn_then
        limiter = self.about.limiter
        return Seen(
            file=self._segment.path,
            creator_alive=locks.taken(CREATOR),
            capacity=self.about.lanes * self.about.steps,
            stored=int(counters[:, STORED].sum()),
            added=int(steps.sum()),
            drawn=counts[DRAWN],
            updates=counts[UPDATES],
            stale_updates=counts[STALE],
            redrawn=counts[REDRAWN],
            adds_per_second=float(rates.sum()),
            draws_per_second=samples / seconds,
            samples_per_insert=samples / inserts if inserts else 0.0,
            priority_quantiles=tuple(quantiles(self._priorities())),
            ages=tuple(quantiles(ages)),
            replay_volume=counts[DRAWN] / added if (added := int(steps.sum())) else 0.0,
            draw_age=(float(ages.mean()), float(np.quantile(ages, 0.95))) if len(ages) else (),
            draw_entropy=-float(np.mean(self._rarities)) + 0.0 if self._rarities else None,
            limiter=None if limiter is None else Limit(limiter, counters, self._memory).report(),
            lanes=lanes,
        )

    def _priorities(self) -> Float64:
        """Return positive raw priorities of some slots."""
        sampler, slots = self.about.sampler, self.about.lanes * self.about.rows
        carried = None if sampler is None else completed(sampler, Sampler).carried
        if sampler is None or carried is None:
            return np.empty(0)
        kept = sampler.spec(self.about.lanes, self.about.rows)
        arrays = {key: self._memory.host(f"sampler/{key}") for key in kept}
        step = -(-slots // _SAMPLE)
        chosen = {key: arrays[key][:slots:step].copy() for key, wanted in kept.items() if wanted.saved == "slots"}
        whole = {key: arrays[key].copy() for key, wanted in kept.items() if wanted.saved == "whole"}
        raw = np.abs(carried(chosen, whole).raw)
        return np.asarray(raw[raw > 0])

    def _age(self, counters: Int64, counts: list[int]) -> Float64:
        if counts[DRAWN]:
            row, lane = divmod(counts[LAST_ID], self.about.lanes)
            self._ages = [*self._ages[-_AGES + 1 :], int(counters[lane, HEAD]) - 1 - row]
            self._rarities = [*self._rarities[-_AGES + 1 :], counts[RARITY] / 1e9]
        return np.array(self._ages, float)
