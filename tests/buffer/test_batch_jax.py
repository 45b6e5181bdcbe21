"""`Batch.jax()` hands every array over through DLPack, without a copy; JAX need not be installed for the test."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from needs import needs

import relive


@pytest.fixture(name="batch")
def _batch() -> relive.Batch:
    """A drawn batch of nested, stacked and plain fields."""
    schema = relive.Schema(
        obs={"camera": relive.Field((4, 4), "uint8", stack=2), "pose": relive.Field((3,))},
        action=relive.Field((), "int32"),
    )
    buffer = relive.ReplayBuffer(schema, 20, sampler=relive.Prioritized(), seed=0)
    for t in range(10):
        obs = {"camera": np.full((2, 4, 4), t, np.uint8), "pose": np.full(3, t, np.float32)}
        buffer.add(obs=obs, action=t, reward=float(t), terminated=t % 3 == 2, truncated=False)
    return buffer.sample(8)


def leaves(batch: relive.Batch) -> dict[str, object]:
    """Every array by its path."""
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


def test_every_array_goes_through_dlpack(batch: relive.Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for JAX that takes DLPack as JAX does."""
    stub = ModuleType("jax")
    stub.numpy = SimpleNamespace(from_dlpack=np.from_dlpack)
    monkeypatch.setitem(sys.modules, "jax", stub)
    arrays = batch.jax()
    assert isinstance(arrays, relive.Batch)
    assert_same(batch, arrays)
    for name, array in leaves(batch).items():
        assert np.shares_memory(leaves(arrays)[name], array), f"{name} was copied"


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
