"""NumPy's bit generators as JSON: their states as plain numbers, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from .nests import mapped

_NAMES = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


def state_of(rng: np.random.Generator) -> dict[str, Any]:
    """Return the state of `rng` as numbers, text, lists and dicts."""
    state = mapped(_plain, rng.bit_generator.state)
    if state["bit_generator"] not in _NAMES:
        raise ValueError(f"unknown bit generator {state['bit_generator']!r}"[:60])
    return dict(state)


def generator_of(state: Any) -> np.random.Generator:
    """Make the generator of a state. NumPy does not check positions in its buffers, so they are checked here.

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
