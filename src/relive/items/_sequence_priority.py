"""One priority for a sequence, from the TD errors of its steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._base import check
from .._base.types import Float64
from ..errors import ArgumentError, PriorityError, message


def sequence_priority(td: Any, mask: Any, eta: float = 0.9, *, time_major: bool = False) -> Float64:
    """Return `eta * max|td| + (1 - eta) * mean|td|` over the valid steps of each sequence.

    Args:
        td: TD errors of either sign, `[B, T]`; a tensor on the CPU may require grad.
        mask: Which steps count, boolean `[B, T]`; TD errors under False are ignored, NaN included.
        eta: Share of the maximum, in [0, 1].
        time_major: Whether both are `[T, B]`.

    Returns:
        Priorities for `ReplayBuffer.update_priorities`, float64 `[B]`; 0 for a sequence without a valid step, NaN for
        one with a NaN under True (which `update_priorities` refuses).

    Raises:
        PriorityError: `td` is not an array of numbers with two axes.
        ArgumentError: `mask` is not boolean or of another shape, or `eta` lies outside its limits.

    Source: Kapturowski et al., "Recurrent Experience Replay in Distributed Reinforcement Learning", ICLR 2019.

    >>> sequence_priority([[1.0, -3.0, 99.0]], [[True, True, False]], eta=0.5)
    array([2.5])
    """
    at = "sequence_priority"
    check.unmasked(td, f"{at}(td)", PriorityError)
    check.unmasked(mask, f"{at}(mask)", ArgumentError)
    detach = getattr(td, "detach", None)
    errors, valid = np.asarray(detach() if callable(detach) else td), np.asarray(mask)
    share = check.real(eta, f"{at}(eta)", low=0.0, high=1.0)
    axis = 0 if check.flag(time_major, f"{at}(time_major)") else 1
    if errors.dtype.kind not in "iuf" or errors.ndim != 2:
        raise PriorityError(message("TD errors `[B, T]`", f"`{errors.dtype}` of shape `{errors.shape}`", f"{at}(td)"))
    if valid.dtype != np.bool_ or valid.shape != errors.shape:
        got = f"`{valid.dtype}` of shape `{valid.shape}`"
        raise ArgumentError(message(f"`bool` of shape `{errors.shape}`", got, f"{at}(mask)"))
    sizes = np.where(valid, np.abs(errors.astype(np.float64)), 0.0)
    mean = sizes.sum(axis=axis) / np.maximum(valid.sum(axis=axis), 1)
    priorities: Float64 = share * sizes.max(axis=axis, initial=0.0) + (1.0 - share) * mean
    return priorities
