"""The fields of a step: named fields of fixed shape and dtype, nested as the observation and action spaces are.

A schema is a tree of `Field`s. The ring uses it flattened, as a tuple of `Column`s, the observation's columns first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._base import check
from ._base.forks import importing
from ._base.narrow import as_array, kind_of
from ._base.nests import located, paths
from ._schema.fields import Column as Column
from ._schema.fields import Field as Field
from ._schema.fields import Tree as Tree
from .errors import SchemaError, message

# Names of a batch's computed fields, of arguments of `add`, and of methods of a batch.
RESERVED = frozenset(
    {"next_obs", "terminated", "truncated", "steps", "ids", "weights", "mask", "all_obs"}
    | {"prev_action", "prev_reward", "all_prev_action", "all_prev_reward", "env_ids", "priority", "time_major"}
    | {"torch", "jax", "map", "keys", "values", "items", "get"}
)


class Schema:
    """The fields of one step, as keyword arguments: `obs`, `action`, and any extras.

    `reward` is a `float32` scalar unless stated; `terminated` and `truncated` (boolean scalars) exist in every schema
    and cannot be redefined. `obs` is the field that has a successor (`next_obs`); it is stored once.

    With `discount=Field()` each step has a discount of its own, from 0 to 1, by which the item's `gamma` is multiplied:
    for actions that take different times, `gamma ** (duration - 1)`. The `discount` of a batch is the product over its
    window, and later rewards of the window are discounted by it.

    Args:
        obs: A `Field`, or a (nested) mapping of names to fields.
        action: Likewise.
        reward: The reward's field; a vector of rewards is allowed.
        **extras: Further fields or mappings of fields (log-probabilities, policy versions, ...), stored at every step.

    Raises:
        SchemaError: A value is not a field, a mapping is empty, a name is reserved or not an identifier, or `discount`
            is not one floating number of every step.

    >>> schema = Schema(obs=Field((3,)), action=Field((1,)), log_prob=Field())
    >>> schema.nbytes  # 12 + 4 + 4 + 4 bytes, and one each for terminated and truncated
    26
    """

    def __init__(self, *, obs: Any, action: Any, reward: Any = None, **extras: Any) -> None:
        given = {"obs": obs, "action": action, "reward": Field() if reward is None else reward, **extras}
        self._tree: dict[str, Tree] = {}
        for name, value in given.items():
            if name in RESERVED:
                remedy = "relive gives that name a meaning of its own; choose another"
                raise SchemaError(message("a field name that is free", f"`{name}`", f"$.{name}", remedy))
            if not name.isidentifier() or name.startswith("_"):
                wanted = "an identifier without a leading underscore"
                raise SchemaError(message(wanted, f"`{name!r}`", "Schema(**extras)"))
            self._tree[str.__str__(name)] = _checked_tree(value, f"$.{name}")
        self.columns: tuple[Column, ...] = tuple(Column(path, field) for path, field in paths(self._tree))
        self.num_obs: int = sum(column.keys[0] == "obs" for column in self.columns)
        if not isinstance(self._tree["reward"], Field):
            raise SchemaError(message("a single `Field`", "a mapping", "$.reward"))
        if "discount" in self._tree and not _is_number(self._tree["discount"]):
            wanted, got = (
                "a `Field` of one floating number, which is not written later",
                f"`{self._tree['discount']!r}`",
            )
            raise SchemaError(message(wanted, got, "$.discount"))
        for column in self.columns:
            if column.field.stack is not None and column.keys[0] != "obs":
                wanted = "`stack=` in fields of `obs` only"
                raise SchemaError(message(wanted, f"`{column.field!r}`", column.path))
            if column.field.every is not None and column.keys[0] in ("obs", "action", "reward", "discount"):
                wanted = "`every=` in extras only"
                raise SchemaError(message(wanted, f"`{column.field!r}`", column.path))
            if column.field.writable and column.keys[0] in ("obs", "action"):
                wanted = "`writable=True` in extras and the reward only"
                raise SchemaError(message(wanted, f"`{column.field!r}`", column.path))

    @property
    def tree(self) -> Mapping[str, Tree]:
        """The fields as they were given, `obs`, `action`, `reward` and extras; nested mappings stay nested."""
        return self._tree

    @property
    def reward(self) -> Field:
        """The reward's field."""
        field = self._tree["reward"]
        return field if isinstance(field, Field) else Field()

    @property
    def discount(self) -> Field | None:
        """The field of each step's own discount; None: there is none, and `gamma` is the same for all."""
        field = self._tree.get("discount")
        return field if isinstance(field, Field) else None

    @property
    def nbytes(self) -> int:
        """Bytes per step, of every field once, and one byte each for `terminated` and `truncated`.

        A stacked field counts one frame; a field with `every=k` counts a k-th of its bytes, rounded up.
        """
        return sum(-(-column.field.nbytes // (column.field.every or 1)) for column in self.columns) + 2

    @classmethod
    def from_spaces(
        cls,
        observation_space: Any,
        action_space: Any,
        *,
        stack: int | None = None,
        pad: str = "zero",
        stack_axis: int = 0,
        float_dtype: Any = None,
        compress: str | None = None,
        **extras: Any,
    ) -> Schema:
        """Read the schema off Gymnasium spaces (those of a single environment, not the batched ones).

        `Box`, `Discrete`, `MultiDiscrete`, `MultiBinary`, `Dict` and `Tuple` are understood; a `Tuple` becomes a
        mapping with the keys `"0"`, `"1"`, ... and its values may be given to `add` as tuples.

        Args:
            observation_space: The space of its observations.
            action_space: The space of its actions.
            stack: Frames per observation, along `stack_axis`, as frame-stack wrappers make them; each frame is then
                stored once. None: observations are stored whole.
            pad: As in `Field`.
            stack_axis: As in `Field`.
            float_dtype: Store every floating-point `Box`, of observations and of actions, as this dtype; `add` casts.
                MuJoCo's observations are `float64`, for example, and networks take `float32`. None: as the space says.
            compress: As in `Field`, for the observations that are images: `uint8` `[H, W]`, `[H, W, C]` or `[C, H, W]`.
            **extras: Further fields.

        Raises:
            SchemaError: A space of another kind, one without `stack` frames, a `float_dtype` that is not a floating
                dtype, or `compress` without images.
            MissingExtra: Gymnasium is not installed; `compress="zstd"`, and `zstandard` is not.

        >>> from gymnasium.spaces import Box, Discrete
        >>> Schema.from_spaces(Box(-1, 1, (11,), "float64"), Discrete(2), float_dtype="float32")
        Schema(obs=Field((11,), 'float32'), action=Field((), 'int64'), reward=Field((), 'float32'))
        """
        with importing:
            from ._schema.spaces import compressing, fields_of, floating, unstacked

        stored = None if float_dtype is None else floating(float_dtype)
        obs, action = fields_of(observation_space, "$.obs", stored), fields_of(action_space, "$.action", stored)
        if stack is not None:
            obs = unstacked(obs, Field(stack=stack, pad=pad, stack_axis=stack_axis), "$.obs")
        if compress is not None:
            obs = compressing(obs, compress)
        return cls(obs=obs, action=action, **extras)

    @classmethod
    def from_example(cls, step: Mapping[str, Any]) -> Schema:
        """Read the schema off one step, a mapping of names to arrays without lane or batch axes.

        NumPy values keep their dtype; Python floats become `float32`, ints `int64`. The reward is `float32` unless it
        is an integer array. `next_obs`, `terminated` and `truncated` may be there and add no field.

        >>> Schema.from_example({"obs": np.zeros(3, "float32"), "action": 1, "reward": 0.5})
        Schema(obs=Field((3,), 'float32'), action=Field((), 'int64'), reward=Field((), 'float32'))
        """
        if not isinstance(step, Mapping):
            raise SchemaError(message("a mapping of names to arrays", f"`{type(step).__name__}`", "$"))
        fields = {
            name: located(_field_of, value, f"$.{name}")
            for name, value in step.items()
            if name not in ("next_obs", "terminated", "truncated")
        }
        for name in ("obs", "action"):
            if name not in fields:
                raise SchemaError(message("an example value", "nothing", f"$.{name}"))
        reward = fields.get("reward")
        if isinstance(reward, Field) and kind_of(reward.dtype) == "f":
            fields["reward"] = Field(reward.shape, "float32")
        return cls(**fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._tree == other._tree

    def __hash__(self) -> int:
        return hash(self.columns)

    def __repr__(self) -> str:
        return "Schema(" + ", ".join(f"{name}={field!r}" for name, field in self._tree.items()) + ")"


def _checked_tree(value: Any, at: str) -> Tree:
    if isinstance(value, Field):
        return value
    if not isinstance(value, Mapping) or not value:
        got = "an empty mapping" if isinstance(value, Mapping) else f"`{value!r}`"
        raise SchemaError(message("a `Field` or a mapping of fields", got, at, "such as `relive.Field((3,))`"))
    tree: dict[str, Tree] = {}
    for name, child in value.items():
        if not check.is_name(name) or "." in name or name.startswith("_"):
            raise SchemaError(message("a name without dots or a leading underscore", f"`{name!r}`", at))
        tree[str.__str__(name)] = _checked_tree(child, f"{at}.{name}")
    return tree


def _is_number(tree: Tree) -> bool:
    """Tell if a field has one floating number."""
    return isinstance(tree, Field) and not tree.shape and kind_of(tree.dtype) == "f" and not tree.writable


def _field_of(value: Any, at: str) -> Field:
    try:
        array = as_array(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise SchemaError(message("an array", f"`{type(value).__name__}`", at, str(error))) from None
    if kind_of(array.dtype) not in "biufc":
        raise SchemaError(message("a numeric array", f"`{array.dtype}`", at))
    python_float = array.dtype == np.float64 and not isinstance(value, np.ndarray | np.generic)
    return Field(array.shape, "float32" if python_float else array.dtype)
