"""Draws in torch ops: in proportion to a tree's leaves with their weights, and uniformly from the queue of anchors."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .._ring.kernels_numpy.queue import COME, GONE
from ..samplers.anneal import Anneal
from ..samplers.prioritized import SCALES, Prioritized
from . import _tree
from ._power import power
from ._random import uniforms
from ._tree import ITEMS, SMALLEST, TOTAL, Tree


class Drawn(NamedTuple):
    """What a prioritized draw gives.

    Args:
        slots: int64 `[n]`, within the tree whatever it holds.
        weights: float32 `[n]`; 0 where the tree has no positive leaf.
    """

    slots: Tensor
    weights: Tensor


def prioritized(
    tree: Tree,
    draws: Tensor,
    key: Tensor,
    position: Tensor,
    n: int,
    settings: Prioritized,
    beta: float | Tensor | None = None,
) -> Drawn:
    """Draw `n` slots with replacement, and their weights, as `Prioritized` does from the same uniforms.

    Args:
        tree: What is drawn from.
        draws: float64 `[2]`: how many draws there were, and the last one's beta. Both move.
        key: See `_random`.
        position: The same; moves by `n`.
        n: At least 1.
        settings: Those of the sampler.
        beta: In place of the sampler's: a number, or a 0-d tensor on the device.
    """
    exponent = next_beta(settings.beta, draws, beta)
    slots, values = _tree.draw(tree, uniforms(key, position, n), settings.stratified)
    return Drawn(slots, weights(tree, values, settings.weights, exponent))


def next_beta(beta: float | Anneal, draws: Tensor, given: float | Tensor | None = None) -> float | Tensor:
    """The exponent of the next draw, which `draws` counts and notes: that of the sampler unless another is given."""
    exponent = beta if given is None else given
    if isinstance(exponent, Anneal):
        count, start, end = draws[0], exponent.start, exponent.end
        share = count / torch.full_like(count, exponent.over)  # a tensor as divisor: see _power.py
        exponent = torch.where(count >= exponent.over, end, start + (end - start) * share)
    if isinstance(exponent, Tensor):
        exponent = exponent.to(torch.float64)
        draws[1].copy_(exponent)
    else:
        draws[1].fill_(exponent)
    draws[0].add_(1.0)
    return exponent


def weights(tree: Tree, values: Tensor, scale: str, beta: float | Tensor) -> Tensor:
    """The weights `(reference / value) ** beta` of drawn leaves, float32; 0 for leaves of 0.

    Args:
        tree: What they were drawn from.
        values: The leaves, float64 `[n]`.
        scale: What is the reference: the smallest leaf of the batch (`"batch"`), of the tree (`"buffer"`), or the mean
            of the items (`"none"`).
        beta: A number, or a 0-d float64 tensor.
    """
    state = tree.state
    if scale == SCALES[0]:
        reference = values.amin()
    else:
        reference = state[SMALLEST] if scale == SCALES[1] else state[TOTAL] / state[ITEMS]
    return torch.where(values > 0.0, power(reference / values, beta).to(torch.float32), 0.0)


def running(ends: Tensor) -> Tensor:
    """How many anchors the lanes up to each have, int64 `[L]`, from the counters `[L, 4]` of the queue."""
    return (ends[:, COME] - ends[:, GONE]).cumsum(0)


def uniform(places: Tensor, ends: Tensor, counts: Tensor, key: Tensor, position: Tensor, n: int) -> Tensor:
    """Draw `n` anchors with replacement, as `Uniform` does from the same uniforms; their slots, int64 `[n]`.

    Args:
        places: int32 or int64 `[L, R]`: the rows, modulo R, of each lane's anchors; see `Queue`.
        ends: int64 `[L, 4]`: the counters of the queue.
        counts: What `running` gives. Where the last of them is 0 nothing can be drawn: slots are any of the ring's.
        key: See `_random`.
        position: The same; moves by `n`.
        n: At least 1.
    """
    (lanes, rows), total = places.shape, counts[-1]
    which = (uniforms(key, position, n) * total).to(torch.int64)  # below `total`: rounding cannot lead there
    lane = torch.searchsorted(counts, which, right=True).clamp(max=lanes - 1)
    before = torch.where(lane > 0, counts[(lane - 1).clamp(min=0)], 0)
    place = places[lane, (ends[lane, GONE] + which - before) % rows]
    return place.to(torch.int64) * lanes + lane
