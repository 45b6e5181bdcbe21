"""One step of all lanes."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ._fields import Fields


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
