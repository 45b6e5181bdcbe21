"""What every storage promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from .._types import Array

Spec: TypeAlias = Mapping[str, tuple[tuple[int, ...], "np.dtype[Any]"]]


@runtime_checkable
class Storage(Protocol):
    """Reserves arrays. The ring's counters are asked for in the same way as the columns, so that both can be mapped."""

    def allocate(self, spec: Spec) -> dict[str, Array]:
        """Return one zeroed, C-contiguous array for every name of `spec`, a mapping to `(shape, dtype)`.

        Raises:
            ArgumentError: The arrays cannot fit; nothing has been reserved.
        """
        ...
