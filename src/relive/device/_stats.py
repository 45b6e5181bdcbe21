"""Statistics of a device buffer, counted from its tensors when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .._buffer.stats import Stats, evenness
from .._device_samplers import Draws
from .._disk.device_counts import ABSENT, APPLIED, DRAWN, DRAWS, UPDATED
from .._disk.device_rows import CUT, LOST, TERMINATED, TRUNCATED
from ._ring import LanesRing

if TYPE_CHECKING:
    from .._buffer.stats import AutosaveStats
    from ..samplers import Sampler

_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


def stats_of(
    ring: LanesRing,
    draws: Draws,
    sampler: Sampler,
    last: tuple[Tensor, Tensor] | None,
    capacity: int,
    nbytes: int,
    autosave: AutosaveStats | None,
) -> Stats:
    """Count what is stored; wait for the device.

    Args:
        ring: The rows.
        draws: Their sampler.
        sampler: Its settings.
        last: Ids and weights of the last batch.
        capacity: Steps that are stored at most.
        nbytes: Of all tensors.
        autosave: What it did so far.
    """
    stored, counts = ring.stored(), ring.counts.tolist()
    flags = ring.flags[stored % ring.size]
    calls = int(ring.call)
    added = calls * ring.lanes - counts[ABSENT]
    raw = torch.empty(0)
    if draws.weighted:
        raw = draws.weighted.raw(stored[ring.drawable(stored)] % ring.size)
        raw = raw[raw > 0]
    beta = sampler.beta_at(max(counts[DRAWS] - 1, 0)) if sampler.weights and last is not None else 0.0
    ids, weights = (ring.clock[:0], torch.empty(0)) if last is None else (last[0], last[1].cpu().double())
    ids = ids[ids >= 0]
    there, ages = ids[ring.drawable(ids)], (calls - 1 - ids // ring.lanes).cpu().double()
    return Stats(
        size=len(stored),
        capacity=capacity,
        drawable=int(draws.items()),
        waiting=int((stored >= ring.bounds()[1]).sum()),
        nbytes=nbytes,
        added=added,
        drawn=counts[DRAWN],
        replay_ratio=counts[DRAWN] / added if added else 0.0,
        cuts=int(((flags & CUT) > 0).sum()),
        unbootstrapped=int(((flags & (LOST | TERMINATED)) == LOST).sum()),
        ends=int(((flags & (TERMINATED | TRUNCATED)) > 0).sum()),
        repeated_finals=0,
        updates=counts[UPDATED],
        stale_updates=counts[UPDATED] - counts[APPLIED],
        slow_adds=0,
        beta=float(beta),
        effective_sample_size=float(weights.sum() ** 2 / (weights**2).sum()) if weights.any() else 0.0,
        priority_quantiles=_quantiles(raw.cpu()),
        age_quantiles=_quantiles(ages),
        limiter=None,
        autosave=autosave,
        draw_age=(float(ages.mean()), *_quantiles(ages, (0.95,))) if len(ages) else (),
        draw_entropy=evenness(draws.chance(there).cpu().numpy(), int(draws.items())),
    )


def _quantiles(values: Tensor, points: tuple[float, ...] = _QUANTILES) -> tuple[float, ...]:
    if not len(values):
        return ()
    ordered = values.double().sort().values
    at = torch.tensor(points, dtype=torch.float64) * (len(ordered) - 1)
    low, high = ordered[at.floor().long()], ordered[at.ceil().long()]
    return tuple((low + (high - low) * (at - at.floor())).tolist())
