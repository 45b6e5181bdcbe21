"""The kernels in readable NumPy: the oracle of the native ones, and what runs where no compiler was found.

Names, arguments and results are those of `relive._ring._native`; draws are equal to the last bit.
"""

from __future__ import annotations

from relive._ring.kernels_numpy.calls import (
    Lock,
    adding,
    away,
    blending,
    copying,
    ending,
    joined,
    listed,
    sampling,
    updating,
)
from relive._ring.kernels_numpy.files import (
    checksums,
    copy_ranges,
    copy_steps,
    keep_arrays,
    put_rows,
    read_fields,
    read_rows,
    read_spans,
    set_ranges,
    sort_rows,
)
from relive._ring.kernels_numpy.gather import Gather
from relive._ring.kernels_numpy.power import Ordered, mass, power, shuffled, smallest, weights
from relive._ring.kernels_numpy.queue import Queue
from relive._ring.kernels_numpy.recency import Recency
from relive._ring.kernels_numpy.ring import Ring
from relive._ring.kernels_numpy.tree import Tree

__all__ = [
    "Gather",
    "Lock",
    "Ordered",
    "Queue",
    "Recency",
    "Ring",
    "Tree",
    "adding",
    "away",
    "blending",
    "checksums",
    "copy_ranges",
    "copy_steps",
    "copying",
    "ending",
    "joined",
    "keep_arrays",
    "listed",
    "mass",
    "power",
    "put_rows",
    "read_fields",
    "read_rows",
    "read_spans",
    "sampling",
    "set_ranges",
    "shuffled",
    "simd",
    "smallest",
    "sort_rows",
    "updating",
    "weights",
]


def simd() -> str:
    """Name of the instruction set in use."""
    return "numpy"
