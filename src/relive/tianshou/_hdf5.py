"""A buffer as an HDF5 file of arrays; nothing in it is a pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np
from tianshou.data import Batch

from .._base import check
from .._base.types import Array
from .._disk.replacing import replacing
from ..errors import CorruptionError, message

_OF_CHILDREN = ("_insertion_idx", "_size", "_ep_return", "_ep_len", "_ep_start_idx", "last_index")
_FORMAT, _META = "relive.tianshou 1", "meta/"

Path = "str | os.PathLike[str]"


def write(
    path: str | os.PathLike[str],
    choices: Mapping[str, Any],
    packed: Mapping[str, Array],
    state: Mapping[str, Array],
    compression: str | None,
) -> None:
    """Write a file anew."""
    with replacing(check.path(path, "save_hdf5(path)")) as whole, h5py.File(whole, "w") as file:
        file.attrs["format"], file.attrs["choices"] = _FORMAT, json.dumps(choices)
        for name, array in packed.items():
            file.create_dataset(f"packed/{name}", data=array)
        for name, array in state.items():
            file.create_dataset(f"state/{name}", data=array, compression=compression)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Array], dict[str, Array]]:
    """Read the choices, packed arrays and state that `write` was given."""
    name = check.path(path, "load_hdf5(path)")
    try:
        with h5py.File(name, "r") as file:
            found = str(file.attrs.get("format"))
            if found != _FORMAT:
                raise CorruptionError(message(f"the format `{_FORMAT}`", f"`{found}`", str(path)))
            return json.loads(file.attrs["choices"]), _arrays(file["packed"]), _arrays(file["state"])
    except (KeyError, ValueError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise CorruptionError(message("a file of `save_hdf5`", f"{error}", str(path))) from None


def _arrays(group: Any) -> dict[str, Array]:
    found: dict[str, Array] = {}
    group.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return {name: np.asarray(array) for name, array in found.items()}


def numbers(meta: Any, at: str = _META) -> dict[str, Array]:
    """Collect the arrays of a batch that hold numbers, by path."""
    found: dict[str, Array] = {}
    for name, value in meta.items():
        if isinstance(value, Batch):
            found |= numbers(value, f"{at}{name}/")
        elif isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
            found[at + name] = value
    return found


def of_children(children: Any) -> dict[str, Array]:
    """Collect the positions of Tianshou's child buffers."""
    return {name: np.array([getattr(child, name) for child in children]) for name in _OF_CHILDREN}


def restore_children(buffer: Any, state: Mapping[str, Array]) -> None:
    """Put a vector buffer's children where others stood, with the batch that they share."""
    for name in _OF_CHILDREN:
        for child, value in zip(buffer.buffers, state[name], strict=True):
            scalar = int if name in ("_insertion_idx", "_size", "_ep_len", "_ep_start_idx") else np.array
            setattr(child, name, scalar(value))
    nested: dict[str, Any] = {"obs": {}, "act": {}}
    for path, array in state.items():
        if path.startswith(_META):
            *groups, name = path.removeprefix(_META).split("/")
            inner = nested
            for group in groups:
                inner = inner.setdefault(group, {})
            inner[name] = array
    buffer._meta = Batch(nested)
    buffer._set_batch_for_children()
    buffer._lengths = np.array([len(child) for child in buffer.buffers])
    buffer.last_index = buffer._offset + np.array([child.last_index[0] for child in buffer.buffers])
