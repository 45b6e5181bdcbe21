"""What a trajectory has once, and not per step: an instruction, its tokens, success. In its file it is JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from .._base.narrow import BITS, from_torch, name_of
from ..errors import SchemaError, message

Metadata: TypeAlias = Mapping[tuple[str, ...], Any]

MOST_BYTES = 1 << 18  # as JSON; the header of a file has at most four times as much
_DEEPEST = 8
_KINDS = "biuf"


def checked(value: Any, at: str) -> Any:
    """Copy a value: text, a number, an array of up to one axis, or a list of such.

    Raises:
        SchemaError: It is anything else, or too large.
    """
    return _checked(value, at, _DEEPEST, [MOST_BYTES])


def _checked(value: Any, at: str, depth: int, left: list[int]) -> Any:
    # The same text or list in a list again and again is short only as a pickle.
    left[0] -= 1 + (len(value) if isinstance(value, str) else 0)
    if left[0] < 0:
        raise SchemaError(message(f"texts and lists of at most {MOST_BYTES:,} bytes in one trajectory", "more", at))
    if isinstance(value, bool | int | float | str):
        return value.item() if isinstance(value, np.generic) else value  # np.float64 is a float
    if hasattr(value, "detach"):
        value = from_torch(value)
    if isinstance(value, list | tuple) and depth:
        return [_checked(part, at, depth - 1, left) for part in value]
    numbers = isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _KINDS and value.itemsize <= 8
    if numbers and value.ndim < 2 and name_of(value.dtype) not in BITS:
        return np.array(value) if value.ndim else value.item()
    dtype = getattr(value, "dtype", None)
    got = f"`{type(value).__name__}`" if dtype is None else f"`{dtype}` of shape `{tuple(value.shape)}`"
    wanted = "non-empty numbers or booleans of shape `(T, B, ...)`, or texts and lists of one axis"
    raise SchemaError(message(wanted, got, at))


def to_json(metadata: Metadata) -> str:
    """Return values by path as text.

    Raises:
        SchemaError: They are too large.
    """
    text = json.dumps({"/".join(path): value for path, value in metadata.items()}, default=_array_json)
    if len(text) > MOST_BYTES:
        largest = max(metadata, key=lambda path: len(json.dumps(metadata[path], default=_array_json)))
        wanted = f"texts and lists of at most {MOST_BYTES:,} bytes in one trajectory"
        remedy = "store it as an array `(T, B, ...)`, or leave it out"
        raise SchemaError(message(wanted, f"{len(text):,}", "$." + ".".join(largest), remedy))
    return text


def _array_json(array: Any) -> Any:
    return {"dtype": array.dtype.name, "values": array.tolist()}


def from_json(text: str) -> Metadata:
    """Parse a text that `to_json` wrote.

    Raises:
        ValueError: The text is anything else.
    """
    found = json.loads(text, object_hook=_array) if len(text) <= MOST_BYTES else None
    if type(found) is not dict or not all(found):
        raise ValueError("invalid metadata")
    try:
        return {tuple(name.split("/")): checked(value, name) for name, value in found.items()}
    except SchemaError as error:
        raise ValueError(str(error)) from None


def _array(found: dict[str, Any]) -> Any:
    if found.keys() != {"dtype", "values"} or type(found["values"]) is not list:
        return found
    return np.array(found["values"], np.dtype(str(found["dtype"])))
