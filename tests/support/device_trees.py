"""Sum trees and rings twice: as the NumPy kernels have them, and as tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from random_rings import Life, ring_of

from relive import sum_tree
from relive._ring import kernels_numpy
from relive._ring.plans import Window
from relive._ring.ring import Ring
from relive.device._tree import Tree

CAPACITIES = [1, 7, 8, 9, 64, 65, 1000, 4097]


@dataclass
class Twins:
    """A tree of the NumPy kernels, and the same one as tensors."""

    capacity: int
    nodes: np.ndarray
    state: np.ndarray
    kernel: Any
    tree: Tree

    def assert_same(self) -> None:
        assert self.nodes.tobytes() == self.tree.nodes.numpy().tobytes()
        assert self.state.tobytes() == self.tree.state.numpy().tobytes()

    def copy(self) -> Tree:
        """Tensors with what the tree holds now."""
        return Tree.of(self.capacity, self.tree.nodes.clone(), self.tree.state.clone())


def leaves(rng: np.random.Generator, n: int, zeros: float = 0.5) -> np.ndarray:
    """Leaves over 36 decades, some of them zero."""
    return np.where(rng.random(n) < zeros, 0.0, 10.0 ** rng.uniform(-18, 18, n))


def twins(capacity: int, values: np.ndarray | None = None) -> Twins:
    nodes, state = np.zeros(sum_tree.size(capacity)), np.zeros(sum_tree.STATE)
    state[1], state[4] = math.inf, capacity
    kernel = kernels_numpy.Tree(*sum_tree.carve(nodes, capacity), state)
    if values is not None:
        kernel.set(np.arange(capacity), values)
    tree = Tree.of(capacity, torch.from_numpy(nodes.copy()), torch.from_numpy(state.copy()))
    return Twins(capacity, nodes, state, kernel, tree)


def uniforms(rng: np.random.Generator, n: int) -> np.ndarray:
    """Uniforms with the least and the largest that a generator gives."""
    u = rng.random(n)
    u[: n // 4 + 1] = 0.0
    u[n - n // 4 :] = 1.0 - 2.0**-53
    return u


def ring_with_a_life(rng: np.random.Generator, lanes: int, rows: int, calls: int, span: int = 2) -> Ring:
    """A ring after as many calls, with ends, cuts and lanes of different speeds."""
    ring = ring_of(kernels_numpy, lanes, rows, Window(span=span, lookback=0))
    life = Life([ring], rng)
    for _ in range(calls):
        life.go_on()
    return ring


def some_ids(rng: np.random.Generator, ring: Ring, n: int) -> np.ndarray:
    """Ids of every state: late ones, current ones, some that were never issued."""
    newest = int(ring.kernel.counters[:, 0].max()) + 2
    rows = rng.integers(max(0, newest - 3 * ring.rows), newest, n)
    ids = rows * ring.lanes + rng.integers(0, ring.lanes, n)
    ids[: n // 16] = rng.choice([-1, -5, -(2**40), 2**40, 10**15], n // 16)
    return ids
