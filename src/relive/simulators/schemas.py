"""Schemas of simulators' environments."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .._base.nests import located
from .._schema.fields import Field, Tree
from ..errors import SchemaError, message
from ..schema import Schema
from ._tensors import parts_of
from .kinds import IsaacLab, ManiSkill, MjLab
from .playground import Playground
from .simulator import Simulator

# The first that fits.
KINDS: tuple[type[Simulator], ...] = (IsaacLab, MjLab, ManiSkill, Playground, Simulator)


def kind_of(env: Any) -> type[Simulator] | None:
    """Find the class of a simulator's environment; return None for any other environment."""
    return next((kind for kind in KINDS if not isinstance(env, type) and kind.fits(env)), None)


def schema_of(env: Any, obs: Any = None, *, simulator: type[Simulator] | None = None, **extras: Any) -> Schema:
    """Derive the schema of a simulator's steps, for its `relive.DeviceBuffer`.

    Args:
        env: The environment.
        obs: An observation of all lanes, as `reset` returned it: fields are read off its tensors. None: off the
            environment's spaces, in which some simulators say `float32` of images.
        simulator: As in `Recorder`.
        **extras: Further fields, and `reward` if it is no `float32` scalar.

    Raises:
        SchemaError: The environment does not say which observations or actions it has.

    >>> from types import SimpleNamespace as Space
    >>> groups = Space(spaces={"policy": Space(shape=(48,)), "critic": Space(shape=(60,))})
    >>> env = Space(num_envs=4096, single_observation_space=groups, single_action_space=Space(shape=(12,)))
    >>> schema_of(env).tree["obs"]
    {'policy': Field((48,), 'float32'), 'critic': Field((60,), 'float32')}
    """
    kind = simulator or kind_of(env) or Simulator
    observation, action = kind.spaces_of(env)
    fields = field_tree(observation, "$.obs") if obs is None else located(_of_tensor, obs, "$.obs", parts_of)
    return Schema(obs=fields, action=field_tree(action, "$.action"), **extras)


def field_tree(space: Any, at: str) -> Tree:
    """Derive the fields of a space of one lane: Gymnasium's or of that form, a number of entries, or a shape."""
    fields: Tree = located(_field, space, at, lambda space, at: parts_of(getattr(space, "spaces", space)))
    return fields


def _field(space: Any, at: str) -> Field:
    if isinstance(space, int | np.integer | tuple):
        return Field(space if isinstance(space, tuple) else int(space))
    shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
    if shape is None:
        raise SchemaError(message("a space with a shape", f"`{space!r}`", at, "make the `relive.Schema` by hand"))
    return Field(tuple(shape), "float32" if dtype is None else dtype)


def same_parts(tree: Tree, fields: Tree, at: str) -> None:
    """Refuse fields of which `tree`, the environment's, lacks one or has another shape."""
    if isinstance(tree, Field) or isinstance(fields, Field):
        if isinstance(tree, Field) and isinstance(fields, Field) and tree.shape == fields.full_shape:
            return
        raise SchemaError(message(f"{_said(tree)}, as the environment has", _said(fields), at))
    for name, field in fields.items():
        if name not in tree:
            raise SchemaError(message(f"one of `{sorted(tree)}`, which the environment has", f"`{name}`", at))
        same_parts(tree[name], field, f"{at}.{name}")


def _said(tree: Tree) -> str:
    return f"shape `{tree.full_shape}`" if isinstance(tree, Field) else f"a mapping of `{sorted(tree)}`"


def _of_tensor(value: Any, at: str) -> Field:
    if isinstance(value, torch.Tensor):
        return Field(tuple(value.shape[1:]), str(value.dtype).removeprefix("torch."))
    array = np.asarray(value)  # JAX's
    return Field(array.shape[1:], array.dtype)
