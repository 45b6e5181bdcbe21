"""Gymnasium spaces as fields."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from .._base.extras import needs
from .._base.narrow import kind_of
from .._base.nests import located, mapped, paths
from ..errors import SchemaError, message
from .fields import Field, Tree, is_image


def fields_of(space: object, at: str, float_dtype: np.dtype[Any] | None) -> Tree:
    """Return the field, or the tree of fields, that holds one sample of `space`.

    Args:
        space: A Gymnasium space of a single environment.
        at: The path of the field in error messages.
        float_dtype: The dtype of fields for floating-point `Box` spaces; None keeps the space's.
    """
    with needs("gymnasium", "Schema.from_spaces"):
        from gymnasium import spaces

    def parts(space: object, at: str) -> dict[str, object] | None:
        if isinstance(space, spaces.Tuple):
            return {str(index): child for index, child in enumerate(space.spaces)}
        return {str(name): child for name, child in space.items()} if isinstance(space, spaces.Dict) else None

    def field(space: object, at: str) -> Field:
        if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            floating = space.dtype is not None and space.dtype.kind == "f"
            return Field(tuple(space.shape or ()), float_dtype if floating and float_dtype is not None else space.dtype)
        wanted = "a `Box`, `Discrete`, `MultiDiscrete`, `MultiBinary`, `Dict` or `Tuple` space"
        raise SchemaError(message(wanted, f"`{type(space).__name__}`", at))

    return cast("Tree", located(field, space, at, parts))


def floating(dtype: Any) -> np.dtype[Any]:
    """Return `dtype` as a NumPy dtype if it is a floating one that a field can have."""
    try:
        found = Field((), dtype).dtype
    except SchemaError:
        found = None
    if found is None or kind_of(found) != "f":
        wanted = "`'float16'`, `'float32'`, `'float64'` or None"
        raise SchemaError(message(wanted, f"`{dtype!r}`", "Schema.from_spaces(float_dtype)"))
    return found


def unstacked(tree: Tree, like: Field, at: str) -> Tree:
    """Return `tree` with every field as a stack of as many frames as `like` has, along its axis."""
    axis = like.stack_axis

    def frames_of(field: Field, at: str) -> Field:
        if not field.shape or field.shape[axis] != like.stack:
            raise SchemaError(message(f"{like.stack} frames along axis {axis}", f"shape `{field.shape}`", at))
        shape = field.shape[1:] if axis == 0 else field.shape[:-1]
        return Field(shape, field.dtype, stack=like.stack, pad=like.pad, stack_axis=axis)

    return cast("Tree", located(frames_of, tree, at))


def compressing(tree: Tree, how: str) -> Tree:
    """Return `tree` with all images compressed in saves."""
    if not any(is_image(field.dtype, field.shape) for _, field in paths({"obs": tree})):
        raise SchemaError(message("observations that are images", "none", "Schema.from_spaces(compress)"))

    def packed(field: Field) -> Field:
        return field.__replace__(compress=how) if is_image(field.dtype, field.shape) else field

    return cast("Tree", mapped(packed, tree))
