"""Samplers of a device buffer: `Uniform`, `Prioritized`, `Recent` and their `Blend`, in operations on tensors.

They know ids and bounds, and no fields; no call waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..samplers import Blend, Prioritized, Recent, Sampler, Uniform
from .blend import BlendDraws
from .blend import Draws as Draws
from .draws import EvenDraws, WeightedDraws
from .recency import RecentDraws
from .rows import Rows

KINDS: dict[type[Any], Callable[..., EvenDraws | WeightedDraws]] = {
    Uniform: EvenDraws,
    Prioritized: WeightedDraws,
    Recent: RecentDraws,
}


def members_of(sampler: Any) -> Sequence[tuple[Any, float]]:
    """Return a sampler's members with their shares; itself, if it is no `Blend`."""
    return sampler.members if type(sampler) is Blend else [(sampler, 1.0)]


def draws_of(ring: Rows, sampler: Sampler, generator: torch.Generator | None) -> Draws:
    """Return the draws of a sampler, all of whose members are of `KINDS`."""
    members = [KINDS[type(member)](ring, member, generator) for member, _ in members_of(sampler)]
    made: Draws = members[0]
    if type(sampler) in (Blend, Recent):
        made = BlendDraws(ring, sampler, members, [share for _, share in members_of(sampler)], generator)
    made.restored()
    return made
