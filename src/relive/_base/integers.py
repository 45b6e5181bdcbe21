"""Whole numbers by which callers name things: arrays of them, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentError, message
from .check import unmasked
from .types import Int64


def integers(value: Any, at: str) -> Int64:
    """Return `[n]` integers, or refuse the value."""
    unmasked(value, at, ArgumentError)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):
        array = np.empty(0, object)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        if array.shape == (0,) and array.dtype.kind == "f":
            return np.empty(0, np.int64)  # an empty list
        got = f"`{array.dtype}` of shape `{array.shape}`"
        raise ArgumentError(message("integers of shape `(n,)`", got, at))
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise ArgumentError(message("integers below 2**63", f"`{array.max()}`", at))
    return array.astype(np.int64, "C", copy=not array.flags.aligned)


def lanes_of(env_ids: Any, num_envs: int) -> Int64:
    """Return the lane numbers of a call that is not about all lanes."""
    lanes = integers(env_ids, "$.env_ids")
    outside = (lanes < 0) | (lanes >= num_envs)
    if not len(lanes) or outside.any() or len(distinct(lanes)) != len(lanes):
        got = f"`{lanes[outside][0]}`" if outside.any() else f"`{lanes.tolist()}`"
        raise ArgumentError(message(f"distinct lanes from 0 to {num_envs - 1}", got, "$.env_ids"))
    return lanes


def distinct(numbers: Int64) -> Int64:
    """Return the small numbers, >= 0, that occur in an array, in order.

    `np.unique` lets go of the interpreter inside of C++: a daemon thread that is in it when a process ends aborts that.
    """
    return np.flatnonzero(np.bincount(numbers.astype(np.intp, copy=False))).astype(np.int64, copy=False)
