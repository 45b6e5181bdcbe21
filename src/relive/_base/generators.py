"""Generators of random numbers: as arguments, and their states as JSON, plain numbers, and back."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from ..errors import ArgumentError, message
from .check import integer
from .nests import mapped

_NAMES = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


def generator(seed: Any, at: str = "ReplayBuffer(seed)") -> np.random.Generator:
    """Make the generator of a `seed`: an integer, a generator, or None."""
    if isinstance(seed, np.random.Generator):
        return seed
    if seed is None:
        return np.random.default_rng()
    return np.random.default_rng(integer(seed, at, minimum=0, unbounded=True))


def source(value: Any, at: str) -> np.random.Generator:
    """Return `value` if it is an object that `rng.random(n)` can be asked of: a generator, or one of the caller's."""
    if isinstance(value, type | ModuleType) or not callable(getattr(value, "random", None)):
        remedy = "make one by `numpy.random.default_rng(seed)`"
        raise ArgumentError(message("a `numpy.random.Generator`", f"`{value!r}`", at, remedy))
    found: np.random.Generator = value
    return found


def state_of(rng: np.random.Generator) -> dict[str, Any]:
    """The state of `rng` in numbers, text, lists and dicts."""
    state = mapped(_plain, rng.bit_generator.state)
    if state["bit_generator"] not in _NAMES:
        raise ValueError(f"unknown bit generator {state['bit_generator']!r}"[:60])
    return dict(state)


def generator_of(state: Any) -> np.random.Generator:
    """The generator of a state. NumPy does not check positions in its buffers, so they are checked here.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, OverflowError: It is not a state.
    """
    name = state["bit_generator"]
    if name not in _NAMES:
        raise ValueError(f"unknown bit generator {name!r}"[:60])
    position, most = (state["state"]["pos"], 624) if name == "MT19937" else (state.get("buffer_pos", 0), 4)
    if type(position) is not int or not 0 <= position <= most:
        raise ValueError(f"invalid position {position!r}"[:60])
    bits: np.random.BitGenerator = getattr(np.random, name)()
    bits.state = state
    return np.random.Generator(bits)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
