"""Nested arrays, and the oracle's rules for stacked frames: which follow each other, and which rows they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from .._types import Array

Nested: TypeAlias = Any  # a nested mapping of arrays, or one array


def tree_map(function: Callable[..., Any], *trees: Nested) -> Nested:
    """Apply `function` to the leaves of equally nested mappings."""
    if hasattr(trees[0], "keys"):
        return {key: tree_map(function, *(tree[key] for tree in trees)) for key in trees[0]}
    return function(*trees)


def leaves(tree: Nested) -> list[Array]:
    """The arrays of a nested mapping, by sorted key."""
    if hasattr(tree, "keys"):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key])]
    return [np.asarray(tree)]


def same_bytes(a: Nested, b: Nested) -> bool:
    """True when every leaf has the same bytes (so NaN equals itself and 0.0 differs from -0.0)."""
    return all(x.tobytes() == y.tobytes() for x, y in zip(leaves(a), leaves(b), strict=True))


def stacked(values: list[Nested]) -> Nested:
    """A list of equally nested values as one, along a new first axis."""
    return tree_map(lambda *parts: np.stack([np.asarray(part) for part in parts]), *values)


@dataclass(frozen=True)
class Stack:
    """How one field is stacked: `k` frames, oldest first, along `axis`."""

    k: int
    pad: str = "zero"
    axis: int = 0

    def frames(self, value: Array) -> list[bytes]:
        """The frames of a stack, oldest first."""
        return [np.ascontiguousarray(np.take(value, i, axis=self.axis)).tobytes() for i in range(self.k)]

    def history(self, value: Array) -> int:
        """The fewest older frames that must be kept for padding to give the rest."""
        frames = self.frames(value)
        for kept in range(self.k - 1):
            known = frames[self.k - 1 - kept :]
            padding = known[0] if self.pad == "first" else bytes(len(known[0]))
            if [padding] * (self.k - 1 - kept) + known == frames:
                return kept
        return self.k - 1


def stacks_of(fields: Nested) -> Nested:
    """The stacks of an observation's (nested) fields; None for a field without one."""
    if isinstance(fields, dict):
        return {name: stacks_of(child) for name, child in fields.items()}
    return None if fields.stack is None else Stack(fields.stack, fields.pad, fields.stack_axis)


def most_frames(stacks: Nested) -> int:
    """Frames of the largest stack; 1 where nothing is stacked."""
    if isinstance(stacks, dict):
        return max(most_frames(child) for child in stacks.values())
    return 1 if stacks is None else int(stacks.k)


def history_of(stacks: Nested, obs: Nested) -> int:
    """Rows of older frames that an observation needs at the start of a stream: as many as its neediest field."""
    if isinstance(stacks, dict):
        return max(history_of(stacks[name], obs[name]) for name in stacks)
    return 0 if stacks is None else int(stacks.history(np.asarray(obs)))


def follows(stacks: Nested, before: Nested, after: Nested) -> bool:
    """Whether the older frames of `after` are the newer frames of `before`, in every stacked field."""
    if isinstance(stacks, dict):
        return all(follows(stacks[name], before[name], after[name]) for name in stacks)
    return stacks is None or stacks.frames(np.asarray(before))[1:] == stacks.frames(np.asarray(after))[:-1]


def start(stack: Stack | None, frame: Array) -> Array:
    """What an episode begins with: one frame behind padding."""
    if stack is None:
        return frame
    older = frame if stack.pad == "first" else np.zeros_like(frame)
    return np.stack([older] * (stack.k - 1) + [frame], axis=stack.axis)


def shift(stack: Stack | None, before: Array, frame: Array) -> Array:
    """The stack after `before` when `frame` has come."""
    if stack is None:
        return frame
    frames = [np.take(before, i, axis=stack.axis) for i in range(1, stack.k)]
    return np.stack([*frames, frame], axis=stack.axis)
