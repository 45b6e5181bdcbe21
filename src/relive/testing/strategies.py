"""Hypothesis strategies for random experience: what happens at each step, in which lanes, with which priorities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._base.extras import needs
from .synthetic import BOTH, GO, JUMP, STAY, TERMINATED, TRUNCATED, Script

with needs("testing", "relive.testing.strategies"):
    from hypothesis import strategies as st

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def raw_priorities() -> SearchStrategy[float]:
    """Draw raw priorities over twelve decades, and zero."""
    return st.sampled_from([0.0, 1e-6, 0.05, 0.3, 1.0, 1.0, 2.5, 40.0, 1e6])


def scripts(prioritized: bool, moves: Sequence[int] = (JUMP,)) -> SearchStrategy[Script]:
    """Draw mostly uneventful streams with ends and cuts in them; priorities only if the sampler knows them.

    >>> import hypothesis
    >>> from relive import ReplayBuffer
    >>> from relive.testing import SCHEMAS, OracleBuffer, SyntheticEnvs, TransitionsModel, assert_same_buffer
    >>> @hypothesis.settings(max_examples=5, database=None)
    ... @hypothesis.given(scripts(prioritized=False))
    ... def test_buffer_and_oracle_agree(script):
    ...     buffer = ReplayBuffer(SCHEMAS["flat"], 10)
    ...     oracle = OracleBuffer.of(buffer, TransitionsModel(n=1, gamma=0.99))
    ...     steps = SyntheticEnvs(buffer.schema, 1).rollout([0], 25, script)
    ...     assert (buffer.extend(**steps) == oracle.extend([0], steps)).all()
    ...     assert_same_buffer(buffer, oracle)
    >>> test_buffer_and_oracle_agree()
    """
    return st.builds(
        Script,
        flags=st.lists(st.sampled_from([GO] * 6 + [TERMINATED, TRUNCATED, BOTH]), min_size=1, max_size=12),
        moves=st.lists(st.sampled_from([STAY] * 8 + [*moves]), min_size=1, max_size=7),
        give_next=st.booleans(),
        priorities=st.none() | st.lists(raw_priorities(), min_size=1, max_size=5) if prioritized else st.none(),
    )


def lane_subsets(num_envs: int) -> SearchStrategy[list[int]]:
    """Draw some of the lanes, in any order."""
    return st.permutations(range(num_envs)).flatmap(
        lambda order: st.integers(1, num_envs).map(lambda count: list(order[:count]))
    )
