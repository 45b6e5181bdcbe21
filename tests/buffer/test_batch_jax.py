"""`Batch.jax()` hands arrays over without a copy where JAX can take them so; JAX need not be installed for the test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from needs import needs
from scalars import rolled
from sizes import with_sizes

import relive
from relive._base.memory import zeros


@pytest.fixture(name="batch")
def _batch() -> relive.Batch:
    """Draw a batch of nested, stacked and plain fields."""
    obs = {"camera": relive.Field((4, 4), "uint8", stack=2), "pose": relive.Field((3,))}
    return rolled(relive.Schema(obs=obs, action=relive.Field((), "int32")), 10, 20).sample(8)


def leaves(batch: relive.Batch) -> dict[str, object]:
    """Return every array by its path."""
    found: dict[str, object] = {}
    for name, value in batch.items():
        inner = leaves(value) if isinstance(value, relive.Batch) else {"": value}
        found |= {f"{name}.{path}".rstrip("."): array for path, array in inner.items()}
    return found


def assert_same(ours: relive.Batch, theirs: relive.Batch) -> None:
    left, right = leaves(ours), leaves(theirs)
    assert left.keys() == right.keys() >= {"obs.camera", "next_obs.pose", "ids", "weights", "terminated"}
    for name, array in left.items():
        np.testing.assert_array_equal(np.asarray(right[name]), array, err_msg=name)


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a stand-in for JAX take arrays as JAX does: through DLPack as they are if they begin at a cache line."""

    def from_dlpack(array: Any) -> Any:
        return np.from_dlpack(array) if begins_a_line(array) else np.array(array)

    stub = ModuleType("jax")
    stub.numpy = SimpleNamespace(from_dlpack=from_dlpack, asarray=np.array)
    stub.config = SimpleNamespace(jax_enable_x64=True)
    monkeypatch.setitem(sys.modules, "jax", stub)


def begins_a_line(array: Any) -> bool:
    return array.ctypes.data % 64 == 0


@pytest.mark.parametrize("begin", [0, 4])
@with_sizes(dlpack=0)
def test_arrays_go_through_dlpack_where_that_copies_nothing(
    batch: relive.Batch, begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch)

    def placed(array: Any) -> Any:
        """Copy an array to where a line begins, or some bytes after."""
        room = np.zeros(array.nbytes + 128, np.uint8)
        start = -room.ctypes.data % 64 + begin * array.itemsize
        made = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        made[...] = array
        return made

    for source in (batch, batch.map(placed)):
        arrays = source.jax()
        assert isinstance(arrays, relive.Batch)
        assert_same(source, arrays)
        for name, array in leaves(source).items():
            assert np.shares_memory(leaves(arrays)[name], array) is begins_a_line(array), name
            assert source is batch or begins_a_line(array) is (begin == 0 or begin * array.itemsize % 64 == 0)


def test_neither_read_only_nor_small_arrays_go_through_dlpack(monkeypatch: pytest.MonkeyPatch) -> None:
    """DLPack would hand out memory that others may not write to, and takes longer than a small copy."""
    stand_in(monkeypatch)
    whole, fixed, small = (zeros(size, np.float32) for size in (100_000, 100_000, 3))
    fixed.flags.writeable = False
    made = relive.Batch({"reward": whole, "all_obs": fixed, "weights": small}).jax()
    assert np.shares_memory(made.reward, whole)
    assert not np.shares_memory(made.all_obs, fixed)
    assert not np.shares_memory(made.weights, small)


def test_without_jax_the_error_names_the_command(batch: relive.Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(relive.MissingExtra) as caught:
        batch.jax()
    assert str(caught.value) == "Expected the package `jax`, got none - at `Batch.jax`: pip install 'relive[jax]'"


def test_jax_itself(batch: relive.Batch) -> None:
    jax = needs("jax")
    jax.config.update("jax_enable_x64", True)  # ids are int64
    arrays = batch.jax()
    assert_same(batch, arrays)
    assert isinstance(arrays.obs.pose, jax.Array)


@pytest.fixture(name="narrow")
def _narrow() -> Iterator[Any]:
    """Yield JAX in its default mode, of 32 bits."""
    jax = needs("jax")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", False)
    yield jax
    jax.config.update("jax_enable_x64", before)


def of(dtype: str, *values: Any, item: Any = None) -> relive.ReplayBuffer:
    """Make a buffer whose observations are these numbers."""
    schema = relive.Schema(obs={"number": relive.Field((), dtype)}, action=relive.Field())
    buffer = relive.ReplayBuffer(schema, 20, item=item, sampler=relive.Prioritized(), seed=0)
    for value in values:
        obs = {"number": np.array(value, dtype)}
        buffer.add(obs=obs, action=0, reward=0, next_obs=obs, terminated=True, truncated=False)
    return buffer


FITS = [("int64", 2**31 - 1), ("int64", -(2**31)), ("uint64", 2**32 - 1), ("float64", 3e38), ("float64", np.inf),
        ("float64", 0.1), ("int32", 7), ("complex128", 1j)]  # fmt: skip
WRAPS = [("int64", 2**31, "int32"), ("int64", -(2**40), "int32"), ("uint64", 2**63 + 3, "uint32"),
         ("float64", 1e300, "float32"), ("float64", -4e38, "float32")]  # fmt: skip
ITEMS = [relive.Transitions(), relive.Sequences(2), relive.Sequences(2, time_major=True)]


@pytest.mark.parametrize("item", ITEMS, ids=repr)
@pytest.mark.parametrize(("dtype", "value"), FITS, ids=repr)
def test_numbers_of_64_bits_that_fit(dtype: str, value: Any, item: Any, narrow: Any) -> None:
    found = of(dtype, value, item=item).sample(2).jax().obs.number
    assert isinstance(found, narrow.Array)
    np.testing.assert_allclose(np.asarray(found), np.full(found.shape, value), rtol=1e-7)


@pytest.mark.parametrize("item", ITEMS, ids=repr)
@pytest.mark.parametrize(("dtype", "value", "wanted"), WRAPS, ids=repr)
def test_numbers_that_would_wrap(dtype: str, value: Any, wanted: str, item: Any, narrow: Any) -> None:
    buffer = of(dtype, 1, value, item=item)
    batch = buffer.read(next(buffer.batches(2, shuffle=False)).ids)
    with pytest.raises(relive.ArgumentError) as caught:
        batch.jax()
    at = "all_obs" if isinstance(item, relive.Sequences) else "obs"
    assert str(caught.value) == (
        f"Expected numbers that fit `{wanted}`, in which JAX holds them, got `{np.array(value, dtype)[()]}` - at "
        f'`$.{at}.number`: `jax.config.update("jax_enable_x64", True)`, or a field of `{wanted}` in the schema'
    )
    for to in ({}, {"device": narrow.devices()[0]}):
        with buffer.prefetch(20, to="jax", **to) as batches, pytest.raises(relive.ArgumentError, match=wanted):
            next(batches)
    narrow.config.update("jax_enable_x64", True)
    assert (np.asarray(batch.jax().obs.number) == batch.obs.number).all()


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("device", [False, True])
def test_ids_name_steps_for_ever(wide: bool, device: bool, narrow: Any) -> None:
    """Check past 2**31, too: ids stay NumPy's, or become JAX's of 64 bits, and updates reach their steps."""
    narrow.config.update("jax_enable_x64", wide)
    schema = relive.Schema(obs=relive.Field(), action=relive.Field(), value=relive.Field(writable=True))
    item = relive.Sequences(2, step_ids=True)
    small = relive.ReplayBuffer(schema, 40, item=item, sampler=relive.Prioritized(), seed=0)
    for t in range(10):
        small.add(obs=t, action=0, reward=0, next_obs=t + 1, terminated=False, truncated=False, value=0)
    options = {"device": narrow.devices()[0]} if device else {}
    with small.prefetch(3, to="jax", **options) as batches:
        batch = next(batches)
    assert batch.ids.dtype == batch.step_ids.dtype == np.int64
    assert isinstance(batch.ids, narrow.Array) is wide
    assert small.update_priorities(batch.ids, np.full(3, 5.0)) == 3
    assert small.write(batch.step_ids, value=np.asarray(batch.all_obs)[:, :2]) == 6
    huge = relive.Batch({"ids": np.array([2332033029, -1]), "step_ids": np.array([[2**40]])}).jax()
    assert np.asarray(huge.ids).tolist() == [2332033029, -1]
    assert np.asarray(huge.step_ids).tolist() == [[2**40]]
