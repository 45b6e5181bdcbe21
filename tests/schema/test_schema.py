"""Schemas: sizes without overflow, as many axes as a batch can have, dtypes read off spaces."""

from __future__ import annotations

import secrets
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import relive

DOUBLE, SINGLE = spaces.Box(-9, 9, (3,), np.float64), spaces.Box(-9, 9, (2,), np.float32)
FIELD = relive.Field


@pytest.mark.parametrize(("shape", "nbytes"), [((2**40, 2**40), 2**82), ((2**33, 2**31), 2**66), ((3, 2), 24), ((), 4)])
def test_bytes_of_a_field_do_not_overflow(shape: tuple[int, ...], nbytes: int) -> None:
    assert FIELD(shape).nbytes == nbytes
    assert relive.Schema(obs=FIELD(shape), action=FIELD()).nbytes == nbytes + 4 + 4 + 2


def test_a_buffer_that_cannot_be_is_refused_with_the_bytes_of_every_field() -> None:
    schema = relive.Schema(obs={"a": FIELD((2**33, 2**31)), "b": FIELD((2**20,))}, action=FIELD())
    with pytest.raises(relive.errors.ReliveError) as caught:
        relive.ReplayBuffer(schema, capacity=10, boundaries=0)
    assert f"`obs.a` {2**66 * 12:,}, `obs.b` {2**22 * 12:,}" in str(caught.value)


@pytest.mark.parametrize("item", [relive.Transitions(n_step=2), relive.Sequences(2, burn_in=1, n_step=2)])
@pytest.mark.parametrize("stack", [None, 2])
def test_as_many_axes_as_a_field_may_have_can_be_drawn(item: Any, stack: int | None) -> None:
    many = (1,) * (62 if stack is None else 61)
    schema = relive.Schema(obs=FIELD(many, stack=stack), action=FIELD((1,) * 62))
    buffer = relive.ReplayBuffer(schema, 40, item=item, seed=0)
    value = np.zeros((8, *schema.columns[0].field.full_shape))
    flags = np.zeros(8, bool)
    buffer.extend(obs=value, action=np.zeros((8, *(1,) * 62)), reward=flags, terminated=flags, truncated=flags)
    batch = buffer.sample(3)
    assert max(batch.obs.ndim, batch.next_obs.ndim) <= 64


def test_float_dtype_replaces_the_dtypes_of_floating_boxes_alone() -> None:
    observation = spaces.Dict({"joints": DOUBLE, "pixels": spaces.Box(0, 255, (4,), np.uint8), "n": spaces.Discrete(3)})
    actions = spaces.Tuple((DOUBLE, SINGLE))
    kept = {column.path: column.field.dtype.name for column in relive.Schema.from_spaces(observation, actions).columns}
    cast = relive.Schema.from_spaces(observation, actions, float_dtype="float32")
    assert kept["$.obs.joints"] == kept["$.action.0"] == "float64"
    assert {column.path: column.field.dtype.name for column in cast.columns} == {
        **kept, "$.obs.joints": "float32", "$.action.0": "float32",
    }  # fmt: skip


def test_compress_is_for_images_alone() -> None:
    pytest.importorskip("zstandard")
    image = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    observation = spaces.Dict({"image": image, "touch": spaces.Box(0, 255, (4,), np.uint8), "joints": DOUBLE})
    schema = relive.Schema.from_spaces(observation, DOUBLE, compress="zstd")
    assert {c.keys[-1] for c in schema.columns if c.field.compress} == {"image"}
    stacked = relive.Schema.from_spaces(image, DOUBLE, stack=4, pad="first", compress="zstd")
    assert stacked.columns[0].field == relive.Field((84, 84), "uint8", stack=4, pad="first", compress="zstd")
    for wrong, space in (("zstd", DOUBLE), ("lz4", image)):
        with pytest.raises(relive.errors.SchemaError, match="compress"):
            relive.Schema.from_spaces(space, DOUBLE, compress=wrong)


def test_steps_in_float64_go_on_in_a_schema_of_float32() -> None:
    schema = relive.Schema.from_spaces(DOUBLE, DOUBLE, float_dtype=np.float32)
    buffer = relive.ReplayBuffer(schema, 100, num_envs=2)
    lived = np.random.default_rng(0).normal(size=(6, 2, 3))
    zeros = np.zeros(2, bool)
    for obs, following in pairwise(lived):
        ids = buffer.add(obs=obs, action=obs, reward=zeros, next_obs=following, terminated=zeros, truncated=zeros)
    batch = buffer.read(ids)
    assert batch.obs.dtype == batch.action.dtype == np.float32
    np.testing.assert_array_equal(batch.next_obs, lived[-1].astype(np.float32))
    assert buffer.stats().cuts == 0


def test_seeds_may_be_longer_than_64_bits() -> None:
    seed = secrets.randbits(128) | 1 << 127
    schema = relive.Schema(obs=FIELD(), action=FIELD())
    assert relive.ReplayBuffer(schema, 10, seed=seed).rng.random() == np.random.default_rng(seed).random()


@pytest.mark.parametrize("name", ["\ud800", "a\udc80"])
def test_half_a_character_is_no_name(name: str) -> None:
    for obs in ({name: FIELD()}, {"a": {name: FIELD()}}):
        with pytest.raises(relive.SchemaError, match=r"Expected a name .* - at `obs"):
            relive.Schema(obs=obs, action=FIELD())
