"""State as JSON and arrays, and back: what an environment or a run keeps from one step to the next.

Numbers, text, lists, tuples, dicts, deques, arrays and NumPy's generators are packed as they are. An object of
Gymnasium or of relive is packed as its attributes, and unpacked into an object that is already there: no class is ever
looked up, and nothing is unpickled. What is mutable and reached twice is packed once.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from enum import Enum
from types import FunctionType
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec

from relive_lab.mujoco import floats_of, is_simulation, put_back

# NumPy's generators whose states are plain numbers, without a position in a buffer that NumPy would not check.
GENERATORS = ("PCG64", "PCG64DXSM", "SFC64")
# Classes whose attributes are all they keep.
KNOWN = re.compile(r"gymnasium\.|relive_lab\.(envs\.|atari$)")
CONSTANT = (gymnasium.Space, EnvSpec, Enum, type)
# How an environment was made, and what a check of Gymnasium's keeps of the first steps.
LEFT_OUT = {"env_fns", "metadata", "_metadata", "_saved_kwargs", "_cached_spec", "_previous_data"}
LEFT_OUT |= {"model", "mujoco_renderer"}
DTYPE = re.compile(r"[<>|][biufcSU]\d+")


class Unrestorable(ValueError):
    """Something that cannot be packed; its text says what."""


def state_of(rng: np.random.Generator) -> dict[str, Any]:
    """Return the state of a generator as numbers and text; Unrestorable if it is of another kind than NumPy's own."""
    name, state = rng.bit_generator.state["bit_generator"], dict(rng.bit_generator.state)
    if name not in GENERATORS:
        raise Unrestorable(f"a generator of kind `{name}`")
    numbers = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in state["state"].items()}
    return {**state, "state": numbers}


def generator_of(state: Any) -> np.random.Generator:
    """Return the generator of a state; ValueError, KeyError, TypeError or OverflowError if it is none."""
    if state["bit_generator"] not in GENERATORS:
        raise ValueError(f"unknown bit generator {state['bit_generator']!r}"[:60])
    bits: np.random.BitGenerator = getattr(np.random, state["bit_generator"])()
    bits.state = state
    return np.random.Generator(bits)


class Packer:
    """Packs values.

    Attributes:
        arrays: The bytes of all arrays so far, by name.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, npt.NDArray[np.uint8]] = {}
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no `id` comes twice

    def pack(self, value: Any, objects: bool = True) -> Any:
        """Return a value as JSON; its arrays are in `arrays`.

        Args:
            value: What to pack.
            objects: Whether `Unpacker` will know which objects to unpack into: by an attribute, or by place in a list.

        Raises:
            Unrestorable: It cannot be packed.
        """
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is tuple:
            return ["tuple", [self.pack(each, False) for each in value]]
        if isinstance(value, np.generic):
            return ["number", self._array(np.asarray(value))]
        if id(value) in self._seen:
            return ["same", self._seen[id(value)]]
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return self._mutable(value, objects)

    def _mutable(self, value: Any, objects: bool) -> Any:
        kind = type(value)
        if kind is np.ndarray:
            return ["array", self._array(value)]
        if kind is list:
            return ["list", [self.pack(each, objects) for each in value]]
        if kind is deque:
            return ["deque", [self.pack(each, False) for each in value], value.maxlen]
        if kind is dict:
            return ["dict", [[self.pack(key, False), self.pack(each, False)] for key, each in value.items()]]
        if kind is np.random.Generator:
            return ["generator", state_of(value)]
        name = f"`{kind.__module__}.{kind.__name__}`"
        if not objects:
            raise Unrestorable(f"{name} in a tuple, dict or deque")
        if is_simulation(value):
            return ["simulation", self.pack(floats_of(value))]
        if all(callable(getattr(kind, method, None)) for method in ("state", "restore")):
            return ["own", self.pack(value.state()), self.pack(vars(value).get("env"))]
        if not KNOWN.match(kind.__module__):
            raise Unrestorable(f"{name} has no `state()` and `restore(state)`")
        return ["object", {key: self.pack(each) for key, each in vars(value).items() if not left_out(key, each)}]

    def _array(self, value: npt.NDArray[Any]) -> list[Any]:
        if not DTYPE.fullmatch(value.dtype.str):
            raise Unrestorable(f"an array of dtype `{value.dtype}`")
        for other in self._kept:
            views = type(other) is np.ndarray and other is not value and not (value.base is None is other.base)
            if views and np.may_share_memory(value, other):
                raise Unrestorable("two arrays that share memory")
        name = f"{len(self.arrays)}"
        self.arrays[name] = value.reshape(-1).view(np.uint8).copy()
        return [name, value.dtype.str, list(value.shape)]


def left_out(name: str, value: Any) -> bool:
    """Return True if an attribute does not change once its object is made."""
    plain = isinstance(value, FunctionType) and value.__closure__ is None
    return name in LEFT_OUT or name.startswith("_ezpickle") or isinstance(value, CONSTANT) or plain


class Unpacker:
    """Unpacks what `Packer` packed.

    Args:
        array: Returns the bytes of an array by its name.
    """

    def __init__(self, array: Callable[[str], npt.NDArray[np.uint8]]) -> None:
        self._bytes = array
        self._seen: list[Any] = []

    def unpack(self, packed: Any, target: Any = None) -> Any:
        """Return a packed value; an object is `target` itself, with its state.

        Raises:
            ValueError, LookupError, TypeError, AttributeError, OverflowError: It is damaged, or does not fit `target`.
        """
        if not isinstance(packed, list):
            return packed
        kind, *content = packed
        if kind == "same":
            return self._seen[content[0]]
        if kind == "tuple":
            return tuple(self.unpack(each) for each in content[0])
        if kind == "number":
            return self._array(*content[0])[()]
        if kind in ("own", "object", "simulation"):
            return self._object(kind, content, target)
        return self._value(kind, content, target)

    def _value(self, kind: str, content: list[Any], target: Any) -> Any:
        if kind == "array":
            return self._noted(self._array(*content[0]))
        if kind == "generator":
            return self._noted(generator_of(content[0]))
        if kind == "dict":
            found: dict[Any, Any] = self._noted({})
            found.update((self.unpack(key), self.unpack(value)) for key, value in content[0])
            return found
        values: Any = self._noted([] if kind == "list" else deque(maxlen=content[1]))
        before = target if type(target) is list and len(target) == len(content[0]) else [None] * len(content[0])
        values.extend(self.unpack(each, old) for each, old in zip(content[0], before, strict=True))
        return values

    def _object(self, kind: str, content: list[Any], target: Any) -> Any:
        self._noted(target)
        if kind == "simulation":
            if not is_simulation(target):
                raise ValueError("the state of a simulation")
            put_back(target, self.unpack(content[0]))
            return target
        if kind == "own":
            target.restore(self.unpack(content[0]))
            self.unpack(content[1], vars(target).get("env"))
            return target
        if not KNOWN.match(type(target).__module__):
            raise ValueError(f"the state of another class than `{type(target).__name__}`")
        own = vars(target)
        for name, value in content[0].items():
            if callable(getattr(type(target), name, None)):
                raise ValueError(f"`{type(target).__name__}` has a method `{name[:40]}`")
            own[name] = self.unpack(value, own.get(name))
        return target

    def _noted(self, value: Any) -> Any:
        self._seen.append(value)
        return value

    def _array(self, name: str, dtype: str, shape: list[int]) -> npt.NDArray[Any]:
        if not DTYPE.fullmatch(dtype):
            raise ValueError(f"invalid dtype `{dtype[:20]}`")
        return self._bytes(name).view(np.uint8).copy().view(np.dtype(dtype)).reshape(shape)
