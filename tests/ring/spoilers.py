"""Ways to spoil an argument, by kinds of arguments: each makes a wrong one out of a right one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Spoilers = dict[str, Callable[[Any], Any]]
ARRAYS = {"Array", "Bool", "Bytes", "Float32", "Float64", "Int32", "Int64"}

# Values that no argument of the extension takes.
JUNK: list[Any] = [
    None, "text", b"bytes", 1.5j, object(), object, Exception(), range(3), {1, 2}, frozenset(), lambda: 0, ...,
    NotImplemented, memoryview(b"abc"), bytearray(8), slice(1, 2), iter([1]), type, print, (1, "a"),
]  # fmt: skip
_OTHER_SIZE = {
    "int64": "int32",
    "int32": "int64",
    "float64": "float32",
    "float32": "float64",
    "bool": "int16",
    "uint8": "uint16",
}


def _unaligned(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.nbytes + 1, np.uint8)
    moved = memory[1:].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


def arrays() -> Spoilers:
    """Whatever an array argument is for."""
    return {
        "None": lambda a: None,
        "a list": lambda a: a.tolist(),
        "a tuple": lambda a: tuple(a.tolist()),
        "text": lambda a: "text",
        "a number": lambda a: 1,
        "a mapping": lambda a: {"a": a},
        "a buffer": lambda a: memoryview(a),
        "an object": lambda a: object(),
        "other size": lambda a: a.astype(_OTHER_SIZE[a.dtype.name]),
        "other kind": lambda a: a.view("V1" if a.dtype.itemsize == 1 else f"u{a.dtype.itemsize}"),
        "complex": lambda a: a.astype(complex),
        "of objects": lambda a: a.astype(object),
        "of text": lambda a: a.astype("U8"),
        "of times": lambda a: np.zeros(a.shape, "M8[s]"),
        "structured": lambda a: np.zeros(a.shape, [("x", a.dtype)]),
        "other byte order": lambda a: a.astype(a.dtype.newbyteorder(">" if a.dtype.itemsize > 1 else "=")),
        "unaligned": _unaligned,
        "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
        "backwards": lambda a: np.flip(np.flip(a).copy()),
        "broadcast": lambda a: np.broadcast_to(a.flat[0], a.shape),
        "Fortran order": lambda a: np.asfortranarray(np.stack([a] * 2)) if a.ndim == 1 else np.asfortranarray(a),
        "one axis more": lambda a: a[None].copy(),
        "one axis less": lambda a: a[0].copy(),
        "0-d": lambda a: np.array(a.flat[0]),
        "a scalar": lambda a: a.flat[0],
        "one fewer": lambda a: a[:-1].copy(),
        "one more": lambda a: np.concatenate([a, a[:1]]),
        "one fewer across": lambda a: a[..., :-1].copy(),
        "one more across": lambda a: np.concatenate([a, a[..., :1]], axis=-1),
        "empty": lambda a: a[:0].copy(),
    }


def _put(value: Any) -> Callable[[Any], Any]:
    def put(a: np.ndarray) -> np.ndarray:
        changed = a.copy()
        changed.flat[1] = value
        return changed

    return put


def put_in_column(column: int, value: int) -> Callable[[Any], Any]:
    """The same array, with one entry of the first row changed."""

    def put(a: np.ndarray) -> np.ndarray:
        changed = a.copy()
        changed[0, column] = value
        return changed

    return put


def numbers(*bad: float) -> Spoilers:
    """An array of numbers, in which some values are wrong."""
    return {**arrays(), **{f"{value}": _put(value) for value in bad}}


def indices(limit: int) -> Spoilers:
    """An array of indices below a limit."""
    return numbers(-1, limit, 2**62, 2**63 - 1, -(2**63))


def writable(of_arrays: Spoilers) -> Spoilers:
    """An array that is written to."""

    def frozen(a: np.ndarray) -> np.ndarray:
        copy = a.copy()
        copy.flags.writeable = False
        return copy

    return {**of_arrays, "read-only": frozen}


def lists(of_elements: Spoilers) -> Spoilers:
    """A list, of which an element is spoilt, or the list itself."""
    spoilt: Spoilers = {
        "None": lambda a: None,
        "a tuple": lambda a: tuple(a),
        "an array": lambda a: np.arange(3),
        "a mapping": lambda a: dict(enumerate(a)),
        "text": lambda a: "text",
        "a number": lambda a: 1,
        "empty": lambda a: [],
        "one fewer": lambda a: a[:-1],
        "one more": lambda a: [*a, a[0]],
        "of None": lambda a: [None] * len(a),
        "of text": lambda a: ["text"] * len(a),
        "of lists": lambda a: [[0]] * len(a),
    }
    return spoilt | {
        f"first: {name}": lambda a, spoil=spoil: [spoil(a[0]), *a[1:]] for name, spoil in of_elements.items()
    }


def _scalars(**more: Any) -> Spoilers:
    values = {
        "None": None,
        "text": "1",
        "a list": [1],
        "two": np.ones(2),
        "a mapping": {},
        "complex": 1j,
        "an object": object(),
    }
    return {name: lambda a, value=value: value for name, value in {**values, **more}.items()}


def floats(*bad: float) -> Spoilers:
    """A floating-point number."""
    return {**_scalars(huge=10**400), **{f"{value}": lambda a, value=value: value for value in bad}}


def whole_numbers(*bad: int) -> Spoilers:
    """An integer."""
    return {**_scalars(real=1.5), **{f"{value}": lambda a, value=value: value for value in bad}}


def flags() -> Spoilers:
    """True or False."""
    return _scalars(number=1, real=0.0, negative=-1)


def of_type(said: str, written: bool) -> Spoilers:
    """Whatever the stub's type of an argument is for."""
    said = said.removesuffix(" | None")
    if said.startswith("list[") and said[5:-1] in ARRAYS:
        return lists(of_type(said[5:-1], written))
    if said in ARRAYS:
        return writable(arrays()) if written else arrays()
    kinds = {"bool": flags, "float": floats, "int": whole_numbers}
    return kinds[said]() if said in kinds else {} if said.startswith(("list[", "Any")) else objects(object())


def attributes(change: Callable[..., Any], **values: list[Any]) -> Spoilers:
    """A record, of which one attribute is another."""
    return {
        f"{name}={value!r}".partition(" object at")[0]: lambda a, name=name, value=value: change(a, **{name: value})
        for name, several in values.items()
        for value in several
    }


def objects(other: Any) -> Spoilers:
    """An object of a class of its own."""
    return {**_scalars(other=other), "a class": lambda a: type(a)}
