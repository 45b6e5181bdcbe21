"""Nested mappings of arrays."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from .._base.nests import paths, zipped
from .._base.types import Array

Nested: TypeAlias = Any  # a nested mapping of arrays, or one array


def by_name(tree: Nested, name: str = "") -> dict[str, Array]:
    """Return the arrays of a nested mapping by dotted name, sorted; that of a single array is `name`."""
    if type(tree) is np.ndarray:  # as most are
        return {name: tree}
    return {".".join(path): np.asarray(leaf) for path, leaf in sorted(paths(tree, (name,) if name else ()))}


def leaves(tree: Nested) -> list[Array]:
    """Return the arrays of a nested mapping, by sorted key."""
    return list(by_name(tree).values())


def same_bytes(a: Nested, b: Nested) -> bool:
    """Return True if every leaf has the same bytes (so NaN equals itself and 0.0 differs from -0.0)."""
    return all(x.tobytes() == y.tobytes() for x, y in zip(leaves(a), leaves(b), strict=True))


def stacked(values: list[Nested]) -> Nested:
    """Stack a list of equally nested values along a new first axis."""
    return zipped(lambda *parts: np.array(parts), *values)
