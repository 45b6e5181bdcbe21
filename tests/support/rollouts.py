"""Trajectories whose every step says which one it is, and the fields that go with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

DTYPES = ["bool", "u1", "i1", "i2", "u2", "f2", "i4", "u4", "f4", "f8", "i8", "u8"]


@dataclass(frozen=True)
class Fields:
    """The fields of all trajectories of one buffer: names, dtypes and the shape of one row."""

    plain: dict[str, tuple[str, tuple[int, ...]]]
    observed: dict[str, tuple[str, tuple[int, ...]]]
    flags: tuple[str, ...]
    values: bool


@dataclass(frozen=True)
class Size:
    """Of one trajectory: steps, environments, rollout epochs whose further rows it brings (0: none)."""

    length: int
    width: int
    epochs: int = 0
    shared: bool = True


_rows = st.tuples(st.sampled_from(DTYPES), st.sampled_from([(), (1,), (3,), (2, 2), (1, 5, 1)]))
fields = st.builds(
    Fields,
    plain=st.dictionaries(st.sampled_from(["rewards", "actions", "versions", "extra"]), _rows, max_size=3),
    observed=st.dictionaries(st.sampled_from(["states", "main", "wrist"]), _rows, max_size=2),
    flags=st.sampled_from([(), ("dones",), ("dones", "terminations", "truncations")]),
    values=st.booleans(),
)
sizes = st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(0, 2), st.booleans()).map(
    lambda told: Size(told[0] * max(told[2], 1), *told[1:])
)


def noise(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Any:
    """Draw any bytes that the dtype can hold, NaNs included."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    kind = np.dtype(dtype)
    return np.frombuffer(rng.bytes(int(np.prod(shape)) * kind.itemsize), kind).reshape(shape)


def rollout(kinds: Fields, size: Size, serial: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make an algorithm's trajectory, and the part that a buffer has to keep."""
    rng = np.random.default_rng(serial)
    t, b = np.indices((size.length, size.width))
    code = np.stack([np.full_like(t, serial), t, b], axis=2)
    given: dict[str, Any] = {"code": code}
    for name, (dtype, shape) in kinds.plain.items():
        given[name] = noise(rng, dtype, (size.length, size.width, *shape))
    now, later = {}, {}
    for name, (dtype, shape) in kinds.observed.items():
        steps = noise(rng, dtype, (size.length + 1, size.width, *shape))
        now[name] = steps[:-1]
        later[name] = steps[1:] if size.shared else noise(rng, dtype, (size.length, size.width, *shape))
    given |= {"curr_obs": {**now, "deep": {"er": code % 7}}, "next_obs": later}
    kept = {name: value for name, value in given.items() if value is not later or later}
    for name in kinds.flags:
        given[name], kept[name] = with_further_rows(rng, size, first=True)
    if kinds.values:
        given["prev_values"], kept["prev_values"] = with_further_rows(rng, size, first=False)
    return given, kept


def with_further_rows(rng: np.random.Generator, size: Size, *, first: bool) -> tuple[Any, Any]:
    """Make flags or values with a further row for each epoch, at its beginning or its end; and without."""
    kept = noise(rng, "bool" if first else "f4", (size.length, size.width, 1))
    if not size.epochs:
        return kept, kept
    parts = []
    for epoch in np.split(kept, size.epochs):
        further = noise(rng, kept.dtype.str, (1, *kept.shape[1:])) if kept.dtype != bool else ~epoch[:1]
        parts += [further, epoch] if first else [epoch, further]
    return np.concatenate(parts), kept


def as_tensors(tree: Any) -> Any:
    """Convert to PyTorch tensors, if that has such a dtype."""
    if isinstance(tree, Mapping):
        return {name: as_tensors(value) for name, value in tree.items()}
    return tree if tree.dtype.kind == "u" and tree.dtype.itemsize > 1 else torch.from_numpy(tree.copy())


def leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every array by its dotted name."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield above + name, value


def simple(serial: int, length: int = 5, width: int = 2, cells: int = 4, *, shared: bool = True) -> dict[str, Any]:
    """Make a trajectory of one kind, float32 observations that follow from its serial number."""
    kinds = Fields({"rewards": ("f4", (1,))}, {"states": ("f4", (cells,))}, ("dones",), False)
    return rollout(kinds, Size(length, width, 0, shared), serial)[0]
