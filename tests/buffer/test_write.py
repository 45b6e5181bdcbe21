"""Values that are written back: on the step with that id and on no other, saved, loaded, copied and refused."""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import storages
from depth import MEMORY
from hypothesis import given
from hypothesis import strategies as st
from written import ITEMS, Written

import relive
from relive import Field
from relive.errors import ArgumentError, SchemaError, StaleId


@given(
    item=st.sampled_from(sorted(ITEMS)),
    storage=st.sampled_from(storages.NAMES),
    steps=st.integers(6, 30),
    calls=st.integers(1, 60),
    seed=st.integers(0, 2**63),
)
def test_programs(item: str, storage: str, steps: int, calls: int, seed: int) -> None:
    """Run random programs: wrapping rings, late and repeated ids, every item and storage, saves, loads, copies."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        Written(item, storage, steps, seed, Path(folder)).live(calls)


def small(**choices: Any) -> relive.ReplayBuffer:
    buffer = relive.ReplayBuffer(
        relive.Schema(obs=Field(), action=Field(), value=Field(writable=True), fixed=Field()), 4, seed=0, **choices
    )
    for i in range(6):
        buffer.add(obs=i, action=0, reward=i, value=i, fixed=i, next_obs=i + 1, terminated=False, truncated=False)
    return buffer


def values_of(buffer: relive.ReplayBuffer) -> dict[int, float]:
    ids = buffer.column("ids")
    return dict(sorted(zip(ids[ids >= 0].tolist(), buffer.column("value")[ids >= 0].tolist(), strict=True)))


@pytest.mark.parametrize(
    ("ids", "fields", "error", "text"),
    [
        ([4], {}, ArgumentError, "a field to write"),
        ([4], {"fixed": [1.0]}, ArgumentError, "a writable field \\(`value`\\)"),
        ([4], {"obs": [1.0]}, ArgumentError, "writable=True"),
        ([4], {"vaule": [1.0]}, ArgumentError, "vaule"),
        ([4, 5], {"value": [1.0]}, SchemaError, "shape"),
        ([4], {"value": ["a"]}, SchemaError, "float32"),
        ([4], {"value": [1e300]}, SchemaError, "can hold"),
        ([4, 6], {"value": [1.0, 1.0]}, StaleId, "`6`, never issued"),
        ([4, -2], {"value": [1.0, 1.0]}, StaleId, "`-2`, never issued"),
        ([4.5], {"value": [1.0]}, ArgumentError, "integers"),
    ],
)
def test_refusals_change_nothing(ids: list[Any], fields: dict[str, Any], error: type[Exception], text: str) -> None:
    buffer = small()
    with pytest.raises(error, match=text):
        buffer.write(ids, **fields)
    assert values_of(buffer) == {2: 2, 3: 3, 4: 4, 5: 5}


def test_late_ids_are_dropped_and_steps_that_wait_are_written() -> None:
    buffer = small(item=relive.Transitions(n_step=3))
    assert buffer.write([[0, 1], [2, 5]], value=[[10, 11], [12, 15]]) == 2
    assert values_of(buffer) == {2: 12, 3: 3, 4: 4, 5: 15}
    assert buffer.write(np.empty((0, 3), np.int64), value=np.empty((0, 3))) == 0


def test_one_id_without_a_list() -> None:
    buffer = small()
    assert buffer.write(4, value=14.0) == 1
    assert buffer.write(np.int64(0), value=np.float32(10)) == 0
    assert values_of(buffer) == {2: 2, 3: 3, 4: 14, 5: 5}


@pytest.mark.parametrize(
    ("options", "where", "text"),
    [
        ({"saved": False}, "extra", "writable=True"),
        ({"writable": True}, "obs", "extras and the reward"),
        ({"writable": 1}, "extra", "True or False"),
    ],
)
def test_fields_that_cannot_be_writable(options: dict[str, Any], where: str, text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        relive.Schema(**{"obs": Field(), "action": Field(), **{where: Field(**options)}})


def test_an_interrupt_leaves_all_or_nothing() -> None:
    """Raise in a signal's handler, at many moments of a call that writes two fields."""
    schema = relive.Schema(obs=Field(), action=Field(), a=Field(writable=True), b=Field(writable=True))
    buffer = relive.ReplayBuffer(schema, 2000, seed=0)
    for i in range(2000):
        buffer.add(obs=i, action=0, reward=0, a=0, b=0, next_obs=i + 1, terminated=False, truncated=False)
    ids, hit = np.arange(2000), 0

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for i in range(1, 400):
            values = np.full(2000, i, np.float32)
            try:
                signal.setitimer(signal.ITIMER_REAL, 2e-6 * i)
                buffer.write(ids, a=values, b=values)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                hit += 1
            a, b = (buffer.column(name)[buffer.column("ids") >= 0] for name in "ab")
            assert (a == b).all()
            assert a.min() == a.max()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert hit > 20


@pytest.mark.slow
def test_what_it_costs() -> None:
    """Time 256 numbers, 1,024 rows of 2 KB, and those of 16 sequences, some of them short; the best of many."""
    schema = relive.Schema(obs=Field(), action=Field(), value=Field(writable=True), wide=Field((512,), writable=True))
    buffer = relive.ReplayBuffer(schema, 100_000, seed=0)
    zeros = np.zeros(50_000, np.float32)
    step = {"obs": zeros, "action": zeros, "reward": zeros, "value": zeros, "next_obs": zeros}
    step |= {"wide": np.zeros((50_000, 512), np.float32), "terminated": zeros != 0, "truncated": zeros != 0}
    for _ in range(2):
        buffer.extend(**step)
    rng = np.random.default_rng(0)
    sequences = rng.integers(0, 99_900, (16, 1)) + np.arange(64)
    sequences[::8, 50:] = -1
    for ids, name, shape, most in (
        (rng.integers(0, 100_000, 256), "value", (), 200e-6),
        (rng.integers(0, 100_000, 1024), "wide", (512,), 4e-3),
        (sequences, "wide", (512,), 4e-3),
    ):
        values = {name: np.ones((*ids.shape, *shape), np.float32)}
        times = []
        for _ in range(300):
            begun = time.perf_counter()
            buffer.write(ids, **values)
            times.append(time.perf_counter() - begun)
        print(ids.shape, name, f"{min(times) * 1e6:.1f} us, median {np.median(times) * 1e6:.1f}")
        assert min(times) < most
