"""Gymnasium spaces as fields."""

from __future__ import annotations

from typing import Any

from .errors import MissingExtra, SchemaError, message
from .schema import Field, Tree


def fields_of(space: Any, at: str) -> Tree:
    """Return the field, or the tree of fields, that holds one sample of `space`."""
    try:
        from gymnasium import spaces
    except ImportError as error:
        remedy = "pip install 'relive[gymnasium]'"
        raise MissingExtra(message("the package `gymnasium`", "none", "Schema.from_spaces", remedy)) from error
    if isinstance(space, spaces.Dict):
        return {str(name): fields_of(child, f"{at}.{name}") for name, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return {str(index): fields_of(child, f"{at}.{index}") for index, child in enumerate(space.spaces)}
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return Field(tuple(space.shape or ()), space.dtype)
    wanted = "a `Box`, `Discrete`, `MultiDiscrete`, `MultiBinary`, `Dict` or `Tuple` space"
    raise SchemaError(message(wanted, f"`{type(space).__name__}`", at))


def unstacked(tree: Tree, like: Field, at: str) -> Tree:
    """Return `tree` with every field as a stack of as many frames as `like` has, along its axis."""
    if not isinstance(tree, Field):
        return {name: unstacked(child, like, f"{at}.{name}") for name, child in tree.items()}
    axis = like.stack_axis
    if not tree.shape or tree.shape[axis] != like.stack:
        raise SchemaError(message(f"{like.stack} frames along axis {axis}", f"shape `{tree.shape}`", at))
    shape = tree.shape[1:] if axis == 0 else tree.shape[:-1]
    return Field(shape, tree.dtype, stack=like.stack, pad=like.pad, stack_axis=axis)
