"""A buffer that is loaded into any storage goes on as the one that was saved would have."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from depth import LONG
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_rows import native

import relive

SCHEMA = relive.Schema(obs=relive.Field((), "int64", stack=2), action=relive.Field((), "int64"))
ITEMS = [
    relive.Transitions(),
    relive.Transitions(n_step=3),
    relive.Transitions(n_step=2, chunk=True),
    relive.Sequences(3, burn_in=1, starts=2),
]
LANES = 2
pytestmark = native  # which `Shared` needs
NEXT, TERMINATED, TRUNCATED, JUMP = 1, 2, 4, 8
CALLS = st.lists(st.tuples(st.integers(1, 2**LANES - 1), st.sampled_from([0, 1, 1, 1, 3, 5, 7, 2, 4, 9])), max_size=40)


class Streams:
    """Steps whose observations count on; what each call does is given by bits."""

    def __init__(self) -> None:
        self.now = np.zeros((LANES, 2), np.int64)

    def add(self, write: Callable[..., np.ndarray], lanes: int, kind: int) -> list[int]:
        chosen = np.flatnonzero([lanes >> lane & 1 for lane in range(LANES)])
        if kind & JUMP:
            self.now[chosen] += 100
        obs = self.now[chosen]
        after = np.stack([obs[:, 1], obs[:, 1] + 1], axis=1)
        self.now[chosen] = after + 10 if kind & (TERMINATED | TRUNCATED) else after
        following = {"next_obs": after} if kind & NEXT else {}
        ends = {
            name: np.full(len(chosen), bool(kind & bit))
            for name, bit in (("terminated", TERMINATED), ("truncated", TRUNCATED))
        }
        return list(write(obs=obs, action=chosen, reward=obs[:, 0], env_ids=chosen, **following, **ends).tolist())


def facts(buffer: relive.ReplayBuffer) -> list[np.ndarray]:
    stats = buffer.stats()
    counts = np.array([stats.size, stats.added, stats.drawable, stats.cuts, stats.unbootstrapped, stats.ends])
    batches = [*buffer.batches(1000, shuffle=False), *([buffer.sample(8)] if buffer.can_sample(1) else [])]
    return [counts, buffer.column("ids"), *(np.asarray(batch[name]) for batch in batches for name in sorted(batch))]


@pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
@given(
    before=CALLS,
    after=CALLS,
    item=st.sampled_from(ITEMS),
    other=st.sampled_from([*ITEMS, None]),
    capacity=st.sampled_from([None, 20, 200]),
    again=st.booleans(),
)
@settings(max_examples=settings().max_examples // (1 if LONG else 2))
def test_a_load_goes_on(
    before: list[tuple[int, int]],
    after: list[tuple[int, int]],
    item: relive.Transitions,
    other: relive.Transitions | None,
    capacity: int | None,
    again: bool,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        streams = Streams()
        with relive.ReplayBuffer(SCHEMA, 40, num_envs=LANES, item=item, seed=0) as buffer:
            for lanes, kind in before:
                streams.add(buffer.add, lanes, kind)
            buffer.save(f"{folder}/save")
        found = []
        for storage in (relive.Ram(), relive.Shared(), relive.Mapped(f"{folder}/mapped")):
            goes_on = Streams()
            goes_on.now = streams.now.copy()
            with relive.load(f"{folder}/save", item=other, capacity=capacity, storage=storage) as loaded:
                if again:
                    loaded.save(f"{folder}/again")
                ids = [given for lanes, kind in after for given in goes_on.add(loaded.add, lanes, kind)]
                found.append([*facts(loaded), np.array(ids)])
        for seen in found[1:]:
            assert len(seen) == len(found[0])
            for mine, rams in zip(seen, found[0], strict=True):
                np.testing.assert_array_equal(mine, rams)


def test_a_writer_goes_on_where_the_save_was(tmp_path: Path) -> None:
    """Check that this holds once: a lane written since begins a new stream with its next writer."""
    item = relive.Transitions(n_step=3)
    streams = Streams()
    with relive.ReplayBuffer(SCHEMA, 40, num_envs=LANES, item=item) as buffer:
        for _ in range(5):
            streams.add(buffer.add, 3, NEXT)
        buffer.save(tmp_path)
    with relive.load(tmp_path, storage=relive.Shared()) as loaded:
        for cuts, first in ((0, 10), (LANES, 18)):
            with relive.Writer(loaded.storage.name, env_ids=[0, 1]) as writer:
                ids = [streams.add(writer.add, 3, NEXT) for _ in range(2)]
            assert ids == [[first, first + 1], [first + 2, first + 3]]
            assert loaded.stats().cuts == cuts
        assert loaded.read([6, 7]).steps.tolist() == [3, 3]
