"""One step of all lanes, and the flags of a row."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ._fields import Fields

# A row without STEP is a hole: its lane took no part. PAUSE: a hole follows in mid-episode. FIRST: the first step of a
# stream. LOST: the final was never known.
STEP, TERMINATED, TRUNCATED, CUT, PAUSE, FIRST, LOST = (1 << bit for bit in range(7))
OVER = TERMINATED | TRUNCATED | CUT  # the successor is a final
STOP = OVER | PAUSE  # windows end here


class LanesStep(NamedTuple):
    """One step of all lanes, checked.

    Attributes:
        values: The fields.
        nexts: The observations after the step.
        finals: The same, but those of the episode in lanes that ended.
        known: Which finals are known; None: all.
        terminated: Which lanes ended in a terminal state.
        truncated: Which lanes were ended from outside.
        mask: Which lanes take part; None: all.
        continues: True if observations are promised to be the successors that were stored.
    """

    values: Fields
    nexts: Fields
    finals: Fields
    known: Tensor | None
    terminated: Tensor
    truncated: Tensor
    mask: Tensor | None
    continues: bool
