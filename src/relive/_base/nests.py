"""Nested values: arrays in mappings, and observations and actions as Gymnasium nests them, with one entry per lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import ArgumentError, message
from .types import Int64

_AT = "$.infos.final_obs"


def mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """`value` with `change` applied to every leaf of nested mappings and tuples."""
    if isinstance(value, Mapping):
        return {name: mapped(change, child) for name, child in value.items()}
    if isinstance(value, tuple):
        return tuple(mapped(change, child) for child in value)
    return change(value)


def nested(flat: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Values by their keys from the outermost mapping inwards, as nested dicts."""
    tree: dict[str, Any] = {}
    for keys, value in flat.items():
        node = tree
        for key in keys[:-1]:
            node = node.setdefault(key, {})
        node[keys[-1]] = value
    return tree


def copied(value: Any) -> Any:
    """A nest of new arrays."""
    return mapped(np.array, value)


def taken(value: Any, lanes: Int64, of: int) -> Any:
    """The entries of `lanes`, out of `of`; leaves that do not have one per lane stay as they are."""

    def take(leaf: Any) -> Any:
        try:
            array = np.asarray(leaf)
        except (ValueError, TypeError, RuntimeError):  # left to the schema to refuse
            return leaf
        return array[lanes] if array.ndim and len(array) == of else leaf

    return mapped(take, value)


def with_finals(obs: Any, infos: Any, lanes: Int64) -> Any:
    """A copy of `obs` in which `lanes` have their episode's final observation.

    Raises:
        ArgumentError: `infos["final_obs"]` is missing, has none for a lane, or has one of another shape.
    """
    finals = infos.get("final_obs") if isinstance(infos, Mapping) else None
    if finals is None:
        raise ArgumentError(message("`final_obs` where an episode ended in SAME_STEP mode", "none", "$.infos"))
    filled = copied(obs)
    for lane in lanes:
        try:
            _fill(filled, finals, int(lane))
        except (KeyError, IndexError, TypeError) as error:
            got = f"`{type(error).__name__}: {error}` in lane {lane}"
            raise ArgumentError(message("final observations nested as observations are", got, _AT)) from None
    return filled


def _fill(target: Any, finals: Any, lane: int) -> None:
    # Either one object per lane, or, for nested spaces, a nest of arrays with an entry per lane.
    if isinstance(finals, list) or (isinstance(finals, np.ndarray) and finals.dtype == object):
        _put(target, finals[lane], lane)
    elif isinstance(target, dict):
        for name, child in target.items():
            _fill(child, finals[name], lane)
    elif isinstance(target, tuple):
        for position, child in enumerate(target):
            _fill(child, finals[position], lane)
    else:
        _put(target, finals[lane], lane)


def _put(target: Any, final: Any, lane: int) -> None:
    if isinstance(target, dict):
        for name, child in target.items():
            _put(child, final[name], lane)
    elif isinstance(target, tuple):
        for position, child in enumerate(target):
            _put(child, final[position], lane)
    else:
        # Assigned as it is, None would become NaN, and a number would fill the whole observation.
        if final is None or np.shape(final) != target.shape[1:]:
            got = "none" if final is None else f"shape `{np.shape(final)}`"
            wanted = f"a final observation of shape `{target.shape[1:]}` for lane {lane}, whose episode ended"
            raise ArgumentError(message(wanted, got, _AT))
        target[lane] = final
