"""One law over all shards: how many items each is asked for, where, and what they weigh.

Shard s was last heard to have the total `K_s`, so it is chosen with `q_s = K_s / K`. It draws at a *fraction* of what
it has by then, `M_s`. Item i was therefore drawn with probability `q_s * m_i / M_s`, whatever the age of `K`: weights
that use it make every estimate unbiased. With fresh totals the law is that of one buffer, `m_i / M`.
"""

from __future__ import annotations

import numpy as np

from .._base.types import Float32, Float64, Int64
from .._ring import kernels

_BELOW_ONE = 1 - 2.0**-53


def points(uniforms: Float64, stratified: bool) -> Float64:
    """Return numbers in [0, 1) to draw at: one in each of as many equal slices, or the uniforms themselves."""
    if not stratified:
        return uniforms
    return np.minimum((np.arange(len(uniforms)) + uniforms) / len(uniforms), _BELOW_ONE)


def allotted(at: Float64, totals: Float64) -> tuple[Int64, Float64]:
    """Find the shard that each point in [0, 1) of the sum of all totals lies in, and the fraction of it.

    A shard whose total is 0 is never chosen.
    """
    ends = np.cumsum(totals)
    targets = at * ends[-1]
    last = int(np.flatnonzero(totals)[-1])
    shards = np.minimum(np.searchsorted(ends, targets, "right"), last)  # rounding can lead past the end
    fractions = (targets - (ends - totals)[shards]) / totals[shards]
    return shards, np.clip(fractions, 0.0, _BELOW_ONE)


def divided(n: int, counts: Int64, rng: np.random.Generator) -> Int64:
    """Draw the shard of each of `n` items without replacement, in random order."""
    numbers = rng.multivariate_hypergeometric(counts, n)
    return rng.permutation(np.repeat(np.arange(len(counts)), numbers))


def probabilities(chances: Float64, shards: Int64, masses: Float64, totals: Float64) -> Float64:
    """Return the probability with which each item was drawn.

    Args:
        chances: With which probability a place of the batch went to each shard.
        shards: Each item's.
        masses: What each item was drawn in proportion to.
        totals: The sum of these in its shard, at the moment of the draw.
    """
    return chances[shards] * (masses / totals)


def weights(chance: Float64, items: float, beta: float, scale: str, least: float) -> Float32:
    """Compute importance-sampling weights `(N P)**-beta`, divided by the largest of batch or buffer, or not.

    Args:
        chance: The items' probabilities P.
        items: N.
        beta: The exponent.
        scale: `"batch"`, `"buffer"` or `"none"`.
        least: The smallest positive probability of any item.
    """
    reference = {"batch": float(chance.min()), "buffer": min(least, float(chance.min())), "none": 1.0 / items}[scale]
    return kernels.active().weights(chance, reference, beta)
