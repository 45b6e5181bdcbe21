"""The state of MuJoCo's simulations as arrays of floats.

What MuJoCo integrates is not enough: environments also read positions and forces that the last step left behind.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[np.float64]]
INTEGRATED = "integrated"


def is_simulation(value: Any) -> bool:
    """Return True if `value` is a `mujoco.MjData`."""
    return type(value).__module__.startswith("mujoco.") and type(value).__name__ == "MjData"


def floats_of(data: Any) -> Arrays:
    """Return all that a simulation keeps between two steps, except for contacts, which the next step finds anew."""
    import mujoco

    every = int(mujoco.mjtState.mjSTATE_INTEGRATION)
    integrated = np.empty(mujoco.mj_stateSize(data.model, every))
    mujoco.mj_getState(data.model, data, integrated, every)
    return {**{name: array.copy() for name, array in _views(data).items()}, INTEGRATED: integrated}


def put_back(data: Any, floats: Arrays) -> None:
    """Bring a simulation of the same model to where `floats_of` found another; ValueError if it does not fit."""
    import mujoco

    every, integrated = int(mujoco.mjtState.mjSTATE_INTEGRATION), floats[INTEGRATED]
    if integrated.dtype != np.float64 or integrated.shape != (mujoco.mj_stateSize(data.model, every),):
        raise ValueError("the state of another simulation")
    for name, array in _views(data).items():
        if name in floats and floats[name].shape == array.shape:  # others are those of contacts
            array[...] = floats[name]
    mujoco.mj_setState(data.model, data, integrated, every)


def _views(data: Any) -> Arrays:
    found = {name: getattr(data, name) for name in dir(data) if not name.startswith("_")}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, np.ndarray) and value.dtype == np.float64 and value.flags.writeable
    }
