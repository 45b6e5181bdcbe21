"""Aliases shared by every layer. Axis letters: `L` lane, `T` time, `B` batch, then the field's own shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
else:  # slow to load, and nothing asks for it at run time
    NDArray = np.ndarray

Array: TypeAlias = NDArray[Any]
Bool: TypeAlias = NDArray[np.bool_]
Bytes: TypeAlias = NDArray[np.uint8]
Float32: TypeAlias = NDArray[np.float32]
Float64: TypeAlias = NDArray[np.float64]
Int32: TypeAlias = NDArray[np.int32]
Int64: TypeAlias = NDArray[np.int64]
UInt32: TypeAlias = NDArray[np.uint32]
Leaves: TypeAlias = list[tuple[tuple[str, ...], Array]]  # arrays with their paths
