"""The model's law of prioritized draws: cumulative sums, searched with NumPy."""

from __future__ import annotations

import numpy as np


def stratified_targets(u: np.ndarray, total: float, stratified: bool) -> np.ndarray:
    """Return the uniforms' targets on the cumulative priorities."""
    if not stratified:
        return u * total
    return (np.arange(len(u)) + u) * (total / len(u))


def draw(mass: np.ndarray, targets: np.ndarray, slack: float = 1e-9) -> tuple[np.ndarray, np.ndarray]:
    """Index of the half-open interval that holds each target, and whether rounding could not have changed it."""
    edges = np.cumsum(mass)
    index = np.searchsorted(edges, targets, side="right")
    index = np.minimum(index, np.flatnonzero(mass > 0)[-1])
    near = np.abs(edges[None, :] - targets[:, None]).min(axis=1)
    return index, near > slack * edges[-1]


def is_weights(mass: np.ndarray, drawn: np.ndarray, beta: float, normalise: str) -> np.ndarray:
    """Compute (N P)^-beta, divided by the largest in the batch, in the buffer, or not."""
    weights = (len(mass) * mass[drawn] / mass.sum()) ** -beta
    if normalise == "batch":
        return weights / weights.max()
    if normalise == "buffer":
        return weights / ((len(mass) * mass[mass > 0].min() / mass.sum()) ** -beta)
    return weights
