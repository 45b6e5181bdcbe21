"""Steps that must be refused, of `add` and of `extend`: each field with every value that it cannot take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from refused_calls import LANES, assert_refused, flat_step, prioritized, step, steps, uniform

import relive
from relive.errors import SchemaError

Keys = tuple[str, ...]
# By name: the method, the buffer, the leading axes of its fields, and a step that it takes.
CALLS: dict[str, tuple[str, Callable[[], Any], tuple[int, ...], Callable[[], dict[str, Any]]]] = {
    "add": ("add", prioritized, (LANES,), step),
    "extend": ("extend", prioritized, (LANES, 3), lambda: steps(3)),
    "add to one lane": ("add", uniform, (), flat_step),
}


def fields_of(schema: relive.Schema) -> dict[Keys, tuple[np.dtype, tuple[int, ...]]]:
    """Every field that a step has: its dtype and shape, by the names on the way to it."""
    found = {column.keys: (column.field.dtype, column.field.shape) for column in schema.columns}
    found |= {("next_obs", *keys[1:]): kept for keys, kept in found.items() if keys[0] == "obs"}
    return found | {("terminated",): (np.dtype(bool), ()), ("truncated",): (np.dtype(bool), ())}


FIELDS = {name: fields_of(make().schema) for name, (_, make, _, _) in CALLS.items()}
NAMES = {"U": "str", "S": "bytes8", "V": "void32"}


def refused(dtype: np.dtype, leading: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[tuple[Any, str]]:
    """Values that a field does not take, and what the error says before it says where."""
    whole = (*leading, *shape)
    yield from ((value, "a value, got nothing") for value in (..., None))
    yield {"a": 1}, "an array, got a mapping"
    others = {(*whole, 1), (*whole, 2)}
    if whole:
        others |= {(whole[0] + 1, *whole[1:]), (0, *whole[1:]), (1, *whole), whole[1:]}
    for other in others if leading else others - {(1, *whole)}:
        yield np.zeros(other, dtype), f"shape `{whole}`, got shape `{other}`"
    for kind in ("U1", "S1", "M8[s]", [("x", "f4")], object):
        value = np.zeros(whole, kind)
        name = NAMES.get(value.dtype.kind, value.dtype)
        yield value, f"`{dtype}` of shape `{whole}`, got `{name}` of shape `{whole}`"
    yield np.zeros(whole, complex), f"`{dtype}`, got `complex128`"
    for value, text in out_of_range(dtype):
        bad = np.zeros(whole, np.asarray(value).dtype)
        bad.flat[-1] = value
        text = f"`{dtype}` of shape `{whole}`, got `object` of shape `{whole}`" if bad.dtype == object else text
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


@pytest.mark.parametrize(("name", "keys"), [(name, keys) for name, fields in FIELDS.items() for keys in fields])
def test_a_field_that_does_not_fit(name: str, keys: Keys) -> None:
    method, make, leading, given = CALLS[name]
    at = ".".join(keys)
    for value, wanted in refused(FIELDS[name][keys][0], leading, FIELDS[name][keys][1]):
        if keys == ("action",) and np.shape(value) == (*leading, 1):
            continue  # a column of actions is taken
        if keys == ("next_obs",) and (value is None or value is ...):
            continue  # it may come with the next step
        if (method, *keys) == ("extend", "reward") and isinstance(value, np.ndarray) and value.ndim != 2:
            wanted = f"leading axes `[L, T]` with T >= 1, got shape `{value.shape}`"
        rounded = ": round it yourself if that is meant" if wanted.endswith("float64`") else ""
        rounded = ": `add` takes a single step" if wanted.endswith("shape `()`") and "leading" in wanted else rounded
        hinted = "…" if "nothing" in wanted or wanted.startswith("shape") else ""  # test_hints.py has the hints
        call = lambda b, value=value: getattr(b, method)(**put(given(), keys, value))  # noqa: E731
        assert_refused(make, (at, SchemaError, call, f"Expected {wanted} - at `{at}`{rounded}{hinted}"))
