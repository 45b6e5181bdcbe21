"""Priorities by id in torch ops: where ids are, and what TD errors set."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .._ring.lanes import HEAD, LOST, OLDEST, READY, START, STEP
from ._tree import Tree, set_priorities

ANCHOR = STEP | START


class Located(NamedTuple):
    """Where ids are.

    Args:
        slots: int64 `[n]`, within the ring whatever the ids are.
        drawable: bool `[n]`: the items at these slots have these ids, and can be drawn.
        unknown: bool `[n]`: no step ever had this id.
    """

    slots: Tensor
    drawable: Tensor
    unknown: Tensor


def locate(marks: Tensor, counters: Tensor, rows: int, ids: Tensor) -> Located:
    """Where `ids`, int64 `[n]`, are in a ring, by the rules of `Rows.locate`.

    Args:
        marks: uint8 `[blocks, L, K]`.
        counters: int64 `[L, 16]`.
        rows: R, the rows of a lane that have slots.
        ids: Any integers.
    """
    blocks, lanes, block = marks.shape
    issued = ids.clamp(min=0)
    row, lane = issued // lanes, issued % lanes
    memory = row % (blocks * block)
    mark, of_lane = marks[memory // block, lane, memory % block], counters[lane]
    inside, stored = (ids >= 0) & (row < of_lane[:, HEAD]), row >= of_lane[:, OLDEST]
    drawable = inside & stored & (row < of_lane[:, READY]) & ((mark & ANCHOR) == ANCHOR)
    unknown = ~inside | (stored & ((mark & (STEP | LOST)) == 0))
    return Located(issued % (lanes * rows), drawable, unknown)


def update(
    tree: Tree,
    marks: Tensor,
    counters: Tensor,
    rows: int,
    ids: Tensor,
    td_error: Tensor,
    late: Tensor,
    eps: float,
    alpha: float,
) -> None:
    """Set priorities `|td_error| + eps` by id; the last of several for one id wins, late ids are left out.

    All or nothing: where a priority is not finite, or no step ever had an id, only `late` changes.

    Args:
        tree: Over the slots of the ring.
        marks: See `locate`.
        counters: The same.
        rows: The same.
        ids: int64 `[n]`.
        td_error: Floats `[n]`.
        late: int64 `[4]`, counts that grow: ids left out, ids that no step ever had, priorities that are not finite,
            and priorities given by calls in which nothing was wrong.
        eps: That of the sampler.
        alpha: The same.
    """
    if not len(ids):
        return
    slots, drawable, unknown = locate(marks, counters, rows, ids)
    raw = td_error.to(torch.float64).abs() + eps
    infinite = ~torch.isfinite(raw)
    fine = ~(infinite | unknown).any()
    late.add_(torch.stack(((fine & ~drawable).sum(), unknown.sum(), infinite.sum(), fine * len(ids))))
    set_priorities(tree, slots, raw, drawable & fine, alpha)
