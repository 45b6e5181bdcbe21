"""One priority for an item, from how noisy its target is."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._base import check
from .._base.priorities import check_given
from .._base.types import Float64
from ..errors import PriorityError, message

SMALLEST = float(np.nextafter(0.0, 1.0))
LARGEST = float(np.finfo(np.float64).max)


def precision_priority(noise_variance: Any, td_mean_square: float, floor: float = 0.3) -> Float64:
    """Return `D / (v + floor * D)`: the noisier an item's target, the less often it is drawn.

    Drawn in proportion to these priorities (`Prioritized(alpha=1, beta=0)`), items count as in least squares weighted
    by the inverse variance of their noise. `v = 0` gives `1 / floor`; `v` much larger than `D` gives about `D / v`.
    Where all items have the same variance, draws are uniform.

    Args:
        noise_variance: v, variance of the noise in each item's target, float `[B]`; a tensor on the CPU may require
            grad. Predict it from observation and action, from the reward for example. It is not the squared TD error,
            which is large where there is something to learn, too.
        td_mean_square: D, mean squared TD error over the memory, not over what is drawn: the scale on which a variance
            is large or small.
        floor: Share of D that is added to every variance; `1 / floor` bounds the priorities.

    Returns:
        Priorities for `ReplayBuffer.update_priorities`, float64 `[B]`, above 0 and at most `1 / floor`.

    Raises:
        PriorityError: A variance is negative, NaN or infinite, or these are not numbers `[B]`.
        ArgumentError: `td_mean_square` or `floor` is not a finite number above 0.

    Source: Weighted least squares (Aitken 1936). Inverse variances as loss weights in deep RL: Mai, Mani, Paull,
    "Sample Efficient Deep Reinforcement Learning via Uncertainty Estimation", ICLR 2022. Weights of a loss and
    probabilities of a draw can stand for each other: Fujimoto, Meger, Precup, "An Equivalence between Loss Functions
    and Non-Uniform Sampling in Experience Replay", NeurIPS 2020. Noise in priorities: Carrasco-Davis et al.,
    "Uncertainty Prioritized Experience Replay" (UPER), 2025. Taking the *reward's* variance is relive's variant.

    >>> precision_priority([0.0, 0.7, 9.7], td_mean_square=1.0)
    array([3.33333333, 1.        , 0.1       ])
    """
    at = "precision_priority"
    scale = check.real(td_mean_square, f"{at}(td_mean_square)", above=0.0)
    share = check.real(floor, f"{at}(floor)", above=0.0)
    where = f"{at}(noise_variance)"
    check.unmasked(noise_variance, where, PriorityError)
    detach = getattr(noise_variance, "detach", None)
    variance = np.asarray(detach() if callable(detach) else noise_variance)
    if variance.dtype.kind not in "iuf" or variance.ndim != 1:
        raise PriorityError(message("variances `[B]`", f"`{variance.dtype}` of shape `{variance.shape}`", where))
    check_given(variance, where, "variance")
    # Not the formula as it stands: `floor * D` can underflow, and `v + floor * D` overflow.
    with np.errstate(over="ignore", under="ignore"):
        priorities: Float64 = np.clip(1.0 / (variance.astype(np.float64) / scale + share), SMALLEST, LARGEST)
    return priorities
