"""A limiter lets through what Reverb would, step by step and item by item."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relive
from relive.storage import ArraySpec

SCHEMA = relive.Schema(obs=relive.Field((), "int64", stack=2), action=relive.Field())


@dataclass
class Reverb:
    """Reverb's `SampleToInsertRatio`, asked for one step or one item at a time as its server asks."""

    rate: float
    size: int
    least: float
    most: float
    inserts: int = 0
    samples: int = 0

    def insert(self, steps: int) -> bool:
        """Insert all of `steps` without a draw in between, or none of them."""
        for step in range(self.inserts, self.inserts + steps):
            if step + 1 > self.size and (1 + step) * self.rate - self.samples > self.most:
                return False
        self.inserts += steps
        return True

    def most_items(self) -> int:
        """Count the items that can be drawn at once."""
        twin, items = replace(self), 0
        while twin.sample(1):
            items += 1
        return items

    def sample(self, items: int) -> bool:
        """Draw all of `items` without an insert in between, or none of them."""
        for sample in range(self.samples, self.samples + items):
            if self.inserts < self.size or self.inserts * self.rate - sample - 1 < self.least:
                return False
        self.samples += items
        return True


class Open(relive.Ram):
    """Memory that others might write, too, for all that its limiter knows."""

    def open(self, spec: Mapping[str, ArraySpec], identity: bytes) -> object:
        memory = super().open(spec, identity)
        memory.private = False
        return memory


# Numbers that doubles hold exactly: the order in which they are added does not matter then.
RATES = [0.125, 0.5, 1.0, 1.5, 4.0, 8.0]


@st.composite
def limiters(draw: st.DrawFn) -> relive.RateLimiter:
    rate = draw(st.sampled_from(RATES))
    size, more = draw(st.integers(1, 12)), st.integers(0, 80).map(lambda more: max(1.0, rate) + more / 2)
    pairs = st.tuples(more, more).map(lambda two: (rate * size - two[0], rate * size + two[1]))
    return relive.RateLimiter(rate, size, draw(st.none() | more | pairs), timeout=0)


CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sets(st.integers(0, 2), min_size=1), st.integers(0, 9)),
        st.tuples(st.just("extend"), st.sets(st.integers(0, 2), min_size=1), st.integers(1, 5)),
        st.tuples(st.just("sample"), st.just(()), st.integers(1, 30)),
        st.tuples(st.sampled_from(["cut", "clear", "copy"]), st.just(()), st.just(0)),
    ),
    max_size=15,
)


def steps(lanes: set[int], number: int, length: int) -> dict[str, object]:
    """Make steps that are cut off from those before; every third call ends its episodes, with a final observation."""
    shape = (len(lanes), length)
    frames = np.full((*shape, 2), number, np.int64)
    ends = np.zeros(shape, bool)
    ends[:, -1] = number % 3 == 0
    step = {"obs": frames, "next_obs": frames + np.arange(2), "action": np.zeros(shape), "reward": np.zeros(shape)}
    return {**step, "terminated": ends, "truncated": ends & False, "env_ids": sorted(lanes)}


@pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
@given(storage=st.sampled_from([relive.Ram(), Open()]), limiter=limiters(), calls=CALLS)
def test_a_limiter_lets_through_what_reverb_would(
    storage: relive.Ram, limiter: relive.RateLimiter, calls: list[tuple[str, set[int], int]]
) -> None:
    buffer = relive.ReplayBuffer(SCHEMA, 3 * 20, num_envs=3, storage=storage, limiter=limiter, seed=0)
    center = limiter.min_size * limiter.samples_per_insert
    width = limiter.error_buffer
    limits = width if isinstance(width, tuple) else (center - width, center + width)
    assert (limiter.least, limiter.most) == limits
    model = Reverb(limiter.samples_per_insert, limiter.min_size, *limits)
    for number, (name, lanes, count) in enumerate(calls):
        before = state(buffer)
        if name in ("add", "extend"):
            step = steps(lanes, number, count if name == "extend" else 1)
            if name == "add":
                step = {key: value[:, 0] if key != "env_ids" else value for key, value in step.items()}
            may = model.insert(len(lanes) * (count if name == "extend" else 1))
            assert passes(getattr(buffer, name), **step) == may
        elif name == "sample":
            possible = buffer._core.ring.drawable > 0
            may = model.sample(count) if possible else False
            assert buffer.can_sample(count) == may
            if possible:
                assert passes(buffer.sample, batch_size=count) == may
        elif name == "copy":
            may, buffer = True, pickle.loads(pickle.dumps(buffer))
        else:
            may = True
            getattr(buffer, name)()
            if name == "clear":
                model.inserts = model.samples = 0
        if not may:
            assert state(buffer) == before
        if buffer._core.ring.drawable:
            most = model.most_items()
            assert most == 0 or buffer.can_sample(most)
            assert not buffer.can_sample(most + 1)
        found = buffer._core.limit.report()
        assert (found.inserts, found.samples) == (model.inserts, model.samples)
        assert found.error == (model.inserts - model.size) * model.rate - model.samples
        assert (found.insert_waits, found.sample_waits) == (0, 0)


def state(buffer: relive.ReplayBuffer) -> list[object]:
    """Return the state that a refused call leaves unchanged."""
    ring = buffer._core.ring
    return [ring.counters.tobytes(), ring.marks.tobytes(), buffer._core.limit.report(), buffer.rng.bit_generator.state]


def passes(call: object, **arguments: object) -> bool:
    try:
        call(**arguments)  # type: ignore[operator]
    except relive.RateLimitTimeout:
        return False
    return True
