"""Samplers of a device buffer: `Uniform`, `Prioritized`, `Recent` and their `Blend`, in operations on tensors.

They know ids and bounds, and no fields; no call waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..samplers import Blend, Prioritized, Recent, Sampler
from .blend import BlendDraws
from .blend import Draws as Draws
from .draws import EvenDraws, WeightedDraws
from .recency import RecentDraws
from .rows import Rows


def members_of(sampler: Sampler) -> Sequence[tuple[Sampler, float]]:
    """Return a sampler's members with their shares; itself, if it is no `Blend`."""
    return sampler.members if type(sampler) is Blend else [(sampler, 1.0)]


def draws_of(ring: Rows, sampler: Sampler, generator: torch.Generator | None) -> Draws:
    """Return the draws of a sampler."""
    each = [
        WeightedDraws(ring, member, generator)
        if isinstance(member, Prioritized)
        else RecentDraws(ring, member)
        if isinstance(member, Recent)
        else EvenDraws(ring, generator)
        for member, _ in members_of(sampler)
    ]
    made: Draws = each[0]
    if isinstance(sampler, Blend | Recent):
        made = BlendDraws(ring, sampler, each, [share for _, share in members_of(sampler)], generator)
    made.restored()
    return made
