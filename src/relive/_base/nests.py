"""Nests: arrays in mappings and tuples of any depth, as schemas, batches and Gymnasium's observations have them.

A schema has only mappings; it names the entries of a tuple `"0"`, `"1"`, and all keys by their text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy import ndarray

from ..errors import ArgumentError, message
from .types import Int64

Path: TypeAlias = "tuple[str, ...]"

_AT = "$.infos.final_obs"


def mapped(change: Callable[..., Any], nest: Any) -> Any:
    """`nest` with `change` applied to every leaf; its mappings become dicts."""
    if type(nest) is dict or isinstance(nest, Mapping):  # most are dicts and arrays, which need no call
        return {key: change(child) if type(child) is ndarray else mapped(change, child) for key, child in nest.items()}
    if isinstance(nest, tuple):
        return tuple(mapped(change, child) for child in nest)
    return change(nest)


def zipped(join: Callable[..., Any], nest: Any, *others: Any) -> Any:
    """Build a nest like `nest`: each leaf is `join` of the leaves at the same path of `nest` and `others`.

    Entries of `others` that `nest` lacks are left out.

    Raises:
        KeyError, IndexError, TypeError: One of `others` lacks an entry.
    """
    if isinstance(nest, Mapping):
        return {name: zipped(join, child, *_entries(others, name)) for name, child in nest.items()}
    if isinstance(nest, tuple):
        return tuple(zipped(join, child, *_entries(others, index)) for index, child in enumerate(nest))
    return join(nest, *others)


def leaves(nest: Any) -> list[Any]:
    """Return all leaves, in order."""
    return [leaf for _, leaf in paths(nest)]


def paths(nest: Any, above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each path with its leaf: the names from the outermost mapping inwards, after `above`."""
    if isinstance(nest, Mapping):
        for name, child in nest.items():
            yield from paths(child, (*above, str(name)))
    elif isinstance(nest, tuple):
        for index, child in enumerate(nest):
            yield from paths(child, (*above, str(index)))
    else:
        yield above, nest


def nested(flat: Iterable[tuple[Path, Any]]) -> dict[str, Any]:
    """Nest leaves by their paths in dicts: the inverse of `paths`."""
    nest: dict[str, Any] = {}
    for path, leaf in flat:
        node = nest
        for name in path[:-1]:
            node = node.setdefault(name, {})
        node[path[-1]] = leaf
    return nest


def located(
    change: Callable[[Any, str], Any], nest: Any, at: str, parts: Callable[[Any, str], Any] | None = None
) -> Any:
    """Map the leaves as `mapped` does; `change` also gets the dotted path, from `at` on. Tuples are leaves.

    `parts` walks other trees: it gets a node and its path, and returns a mapping or tuple of children, None for a leaf.
    """
    children = nest if parts is None else parts(nest, at)
    if isinstance(children, Mapping):
        return {name: located(change, child, f"{at}.{name}", parts) for name, child in children.items()}
    if parts is not None and children is not None:
        return tuple(located(change, child, f"{at}.{place}", parts) for place, child in enumerate(children))
    return change(nest, at)


def _entries(nests: tuple[Any, ...], key: Any) -> list[Any]:
    return [nest[str(key) if isinstance(nest, Mapping) and key not in nest else key] for nest in nests]


def copied(value: Any) -> Any:
    """Copy a nest into new arrays."""
    return mapped(np.array, value)


def apart(value: Any) -> Any:
    """Copy a nest's arrays, tensors and lists, so that no one else can write them; other values stay."""

    def copy(leaf: Any) -> Any:
        if isinstance(leaf, list):
            return [apart(each) for each in leaf]
        if isinstance(leaf, np.ndarray):
            return leaf.copy()
        return leaf.clone() if hasattr(leaf, "clone") else leaf

    return mapped(copy, value)


def taken(value: Any, lanes: Int64, of: int) -> Any:
    """Take the entries of `lanes`, out of `of`; keep leaves without one entry per lane unchanged."""

    def take(leaf: Any) -> Any:
        try:
            array = np.asarray(leaf)
        except (ValueError, TypeError, RuntimeError):  # left to the schema to refuse
            return leaf
        return array[lanes] if array.ndim and len(array) == of else leaf

    return mapped(take, value)


def with_finals(obs: Any, infos: Any, lanes: Int64) -> Any:
    """Copy `obs`, with the final observations of their episodes in `lanes`.

    Raises:
        ArgumentError: `infos["final_obs"]` is missing, has none for a lane, or has one of another shape.
    """
    finals = infos.get("final_obs") if isinstance(infos, Mapping) else None
    if finals is None:
        raise ArgumentError(message("`final_obs` where an episode ended in SAME_STEP mode", "none", "$.infos"))
    filled = copied(obs)
    for lane in map(int, lanes):

        def put(target: Any, final: Any, lane: int = lane) -> None:
            # Assigned as it is, None would become NaN, and a number would fill the whole observation.
            if final is None or np.shape(final) != target.shape[1:]:
                got = "none" if final is None else f"shape `{np.shape(final)}`"
                wanted = f"a final observation of shape `{target.shape[1:]}` for lane {lane}, whose episode ended"
                raise ArgumentError(message(wanted, got, _AT))
            target[lane] = final

        try:
            # Either one object per lane, or, for nested spaces, a nest of arrays with an entry per lane.
            zipped(put, filled, mapped(lambda leaf, lane=lane: leaf[lane], finals))
        except (KeyError, IndexError, TypeError) as error:
            got = f"`{type(error).__name__}: {error}` in lane {lane}"
            raise ArgumentError(message("final observations nested as observations are", got, _AT)) from None
    return filled
