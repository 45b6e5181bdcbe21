"""Nested mappings of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from .._base.types import Array

Nested: TypeAlias = Any  # a nested mapping of arrays, or one array


def tree_map(function: Callable[..., Any], *trees: Nested) -> Nested:
    """Apply `function` to the leaves of equally nested mappings."""
    if hasattr(trees[0], "keys"):
        return {key: tree_map(function, *(tree[key] for tree in trees)) for key in trees[0]}
    return function(*trees)


def by_name(tree: Nested, name: str = "") -> dict[str, Array]:
    """The arrays of a nested mapping by dotted name, sorted; that of a single array is `name`."""
    if hasattr(tree, "keys"):
        children = [by_name(tree[key], f"{name}.{key}".removeprefix(".")) for key in sorted(tree)]
        return {path: array for child in children for path, array in child.items()}
    return {name: np.asarray(tree)}


def leaves(tree: Nested) -> list[Array]:
    """The arrays of a nested mapping, by sorted key."""
    return list(by_name(tree).values())


def same_bytes(a: Nested, b: Nested) -> bool:
    """True when every leaf has the same bytes (so NaN equals itself and 0.0 differs from -0.0)."""
    return all(x.tobytes() == y.tobytes() for x, y in zip(leaves(a), leaves(b), strict=True))


def stacked(values: list[Nested]) -> Nested:
    """A list of equally nested values as one, along a new first axis."""
    return tree_map(lambda *parts: np.stack([np.asarray(part) for part in parts]), *values)
