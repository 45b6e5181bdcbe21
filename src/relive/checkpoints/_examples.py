"""Examples of what a save holds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._base.types import Array, Int64
from ..schema import Column

_EXAMPLES = 12


def examples(
    column: Column, lanes: Int64, rows: Int64, value: Callable[[Column, int, int], Array]
) -> list[tuple[int, int, Array]]:
    """Read the values of up to 12 of the steps in these rows of these lanes; of stacks the newest frame."""
    at = np.unique(np.linspace(0, len(rows) - 1, _EXAMPLES).astype(int)) if len(rows) else slice(0)
    chosen = zip(lanes[at].tolist(), rows[at].tolist(), strict=True)
    return [(lane, row, value(column, lane, row)) for lane, row in chosen]
