"""Steps that must be refused, of `add` and of `extend`: each field with every value that it cannot take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from refused_calls import LANES, assert_refused, prioritized, schema, step, steps

from relive.errors import SchemaError

# Every field that a step has: its dtype and shape, by the names on the way to it.
FIELDS = {column.keys: (column.field.dtype, column.field.shape) for column in schema().columns}
FIELDS |= {("next_obs", *keys[1:]): kept for keys, kept in FIELDS.items() if keys[0] == "obs"}
FIELDS |= {("terminated",): (np.dtype(bool), ()), ("truncated",): (np.dtype(bool), ())}
CALLS = {"add": ((LANES,), step), "extend": ((LANES, 3), lambda: steps(3))}
NAMES = {"U": "str", "S": "bytes8", "V": "void32"}


def refused(dtype: np.dtype, leading: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[tuple[Any, str]]:
    """Values that a field does not take, and what the error says before it says where."""
    whole = (*leading, *shape)
    yield from ((value, "a value, got nothing") for value in (..., None))
    yield {"a": 1}, "an array, got a mapping"
    for other in {(*whole, 1), (*whole, 2), (leading[0] + 1, *whole[1:]), (0, *whole[1:]), (1, *whole), whole[1:]}:
        yield np.zeros(other, dtype), f"shape `{whole}`, got shape `{other}`"
    for kind in ("U1", "S1", "M8[s]", [("x", "f4")], object):
        value = np.zeros(whole, kind)
        name = NAMES.get(value.dtype.kind, value.dtype)
        yield value, f"`{dtype}` of shape `{whole}`, got `{name}` of shape `{whole}`"
    yield np.zeros(whole, complex), f"`{dtype}`, got `complex128`"
    for value, text in out_of_range(dtype):
        bad = np.zeros(whole, np.asarray(value).dtype)
        bad.flat[-1] = value
        yield bad, text


def out_of_range(dtype: np.dtype) -> list[tuple[Any, str]]:
    if dtype.kind == "b":
        return [(value, f"`bool`, got `{value}`") for value in (2, -1, 0.5, -1.0, np.inf, np.nan)]
    if dtype.kind == "f":
        large = (float(np.finfo(dtype).max) * 10, -1e300, *((10**6,) if dtype.itemsize == 2 else ()))
        return [(value, f"a value that `{dtype}` can hold, got `{value}`") for value in large]
    least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    beyond = [(value, f"`{dtype}` from {least} to {most}, got `{value}`") for value in (least - 1, most + 1, 2**63)]
    return [*beyond, (0.5, f"`{dtype}`, got `float64`")]


def put(given: dict[str, Any], keys: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The same step with another value; `...` leaves the field out."""
    rest = {name: each for name, each in given.items() if name != keys[0]}
    below = put(given[keys[0]], keys[1:], value) if keys[1:] else value
    return rest if below is ... else {**rest, keys[0]: below}


@pytest.mark.parametrize("keys", FIELDS, ids=".".join)
@pytest.mark.parametrize("name", CALLS)
def test_a_field_that_does_not_fit(name: str, keys: tuple[str, ...]) -> None:
    leading, given = CALLS[name]
    at = ".".join(keys)
    for value, wanted in refused(FIELDS[keys][0], leading, FIELDS[keys][1]):
        if keys == ("action",) and np.shape(value) == (*leading, 1):
            continue  # a column of actions is taken
        if (name, *keys) == ("extend", "reward") and isinstance(value, np.ndarray) and value.ndim != 2:
            wanted = f"leading axes `[L, T]` with T >= 1, got shape `{value.shape}`"
        rounded = ": round it yourself if that is meant" if wanted.endswith("float64`") else ""
        rounded = ": `add` takes a single step" if wanted.endswith("shape `()`") and "leading" in wanted else rounded
        hinted = "…" if "nothing" in wanted or wanted.startswith("shape") else ""  # test_hints.py has the hints
        call = lambda b, value=value: getattr(b, name)(**put(given(), keys, value))  # noqa: E731
        assert_refused(prioritized, (at, SchemaError, call, f"Expected {wanted} - at `{at}`{rounded}{hinted}"))
