"""Hypothesis strategies for random experience: what happens at each step, in which lanes, with which priorities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import MissingExtra, message
from ..schema import Schema
from .synthetic import (
    BOTH,
    GO,
    JUMP,
    MIDWAY,
    OLDER,
    SCHEMAS,
    SIGN,
    STAY,
    TERMINATED,
    TRUNCATED,
    UNRELATED,
    Script,
)

try:
    from hypothesis import strategies as st
except ImportError as error:
    remedy = "pip install 'relive[testing]'"
    raise MissingExtra(message("the package `hypothesis`", "none", "relive.testing.strategies", remedy)) from error

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def schemas() -> SearchStrategy[Schema]:
    """Schemas of every kind: flat, nested, stacked, large and small fields.

    >>> type(schemas().example()).__name__  # doctest: +SKIP
    'Schema'
    """
    return st.sampled_from([SCHEMAS[name] for name in sorted(SCHEMAS)])


def raw_priorities() -> SearchStrategy[float]:
    """Raw priorities over twelve decades, and zero."""
    return st.sampled_from([0.0, 1e-6, 0.05, 0.3, 1.0, 1.0, 2.5, 40.0, 1e6])


def scripts(prioritized: bool) -> SearchStrategy[Script]:
    """Mostly uneventful streams with ends and cuts in them; priorities only where the sampler knows them."""
    return st.builds(
        Script,
        flags=st.lists(st.sampled_from([GO] * 6 + [TERMINATED, TRUNCATED, BOTH]), min_size=1, max_size=12),
        moves=st.lists(st.sampled_from([STAY] * 8 + [JUMP, SIGN, MIDWAY, OLDER, UNRELATED]), min_size=1, max_size=7),
        give_next=st.booleans(),
        priorities=st.none() | st.lists(raw_priorities(), min_size=1, max_size=5) if prioritized else st.none(),
    )


def lane_subsets(num_envs: int) -> SearchStrategy[list[int]]:
    """Some of the lanes, in any order."""
    return st.permutations(range(num_envs)).flatmap(
        lambda order: st.integers(1, num_envs).map(lambda count: list(order[:count]))
    )
