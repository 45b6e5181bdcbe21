"""A schema as JSON, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._base.nests import located, mapped
from ..errors import MissingExtra, ReliveError
from ..schema import Field, Schema

# Any other text is read as a list of fields.
DTYPES = {"bfloat16", *(np.dtype(code).name for code in "?bBhHiIlLqQefdFD")}
_DEEPEST = 30


def fields_of(schema: Schema) -> dict[str, Any]:
    """Describe a schema as JSON: objects for mappings, lists for fields."""
    facts: dict[str, Any] = mapped(_field, schema.tree)
    return facts


def schema_of(facts: Any) -> Schema:
    """Build the schema that `fields_of` described.

    Raises:
        ValueError, KeyError, TypeError: The facts are damaged.
        MissingExtra: A field is of bfloat16, and `ml_dtypes` is not installed.
    """
    try:
        return Schema(**located(_read, (facts, 0), "$", _entries))
    except MissingExtra:
        raise
    except ReliveError as error:
        raise ValueError(str(error)) from None


def _field(field: Field) -> list[Any]:
    stack = [] if field.stack is None else [{"stack": field.stack, "pad": field.pad, "stack_axis": field.stack_axis}]
    every = [] if field.every is None else [{"every": field.every}]
    writable = [{"writable": True, "saved": field.saved}] if field.writable else []
    compress = [] if field.compress is None else [{"compress": field.compress}]
    return [field.dtype.name, list(field.shape), *stack, *every, *writable, *compress]


def _entries(node: tuple[Any, int], at: str) -> dict[str, Any] | None:
    facts, depth = node
    if depth > _DEEPEST:
        raise ValueError("fields are nested too deep")
    return {name: (entry, depth + 1) for name, entry in facts.items()} if isinstance(facts, dict) else None


def _read(node: tuple[Any, int], at: str) -> Field:
    dtype, shape, *more = node[0]
    if dtype not in DTYPES or not isinstance(shape, list):
        raise ValueError("invalid field")
    options: dict[str, Any] = {}
    for entry in more:
        options |= entry
    return Field(tuple(shape), dtype, **options)
