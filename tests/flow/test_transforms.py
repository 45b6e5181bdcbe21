"""`prefetch(transform=)`: work in the thread, repeatable batch by batch, that changes no draw."""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import eventually
from local import local_shards
from test_prefetch import ITEMS, SAMPLERS, WIDTH, Numbers, extend, make
from whole_rows import native

import relive
from relive._flow.transform import Transform
from relive.ray import Shards
from relive.testing.agreement import assert_same_batch
from relive.trajectories import Prefetch, TrajectoryReplayBuffer


def noisy(batch: Any, rng: np.random.Generator) -> relive.Batch:
    return relive.Batch({**batch, "obs": batch.obs + rng.standard_normal(batch.obs.shape, np.float32)})


def shards() -> Any:
    made, _ = local_shards(make(steps=0).schema, 400, num_envs=2, seed=3)
    obs, zeros = np.ones((2, WIDTH), np.float32), np.zeros(2)
    with made.writer() as writer:
        for _ in range(20):
            writer.add(obs=obs, action=zeros, reward=zeros, next_obs=obs, terminated=zeros, truncated=zeros)
    return made


def by_hand(source: Any, n: int, *rngs: np.random.Generator) -> relive.Batch:
    """Return the next transformed batch, by the rule of docs/prefetch.md."""
    numbers = [copy.deepcopy(rng).integers(2**32, size=8, dtype=np.uint32) for rng in rngs]
    rng = np.random.default_rng(np.concatenate(numbers))
    return noisy(source.sample(n), rng)


def settled(batches: Any, depth: int) -> None:
    eventually(lambda: batches._worker.ready.qsize() == depth)


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_draws_are_those_without_and_each_batch_can_be_made_by_hand(sampler: str, item: str) -> None:
    choices = {"sampler": SAMPLERS[sampler], "item": ITEMS[item]}
    ahead, plain, manual = make(**choices), make(**choices), make(**choices)
    noises = []
    with ahead.prefetch(16, depth=3, transform=noisy) as batches:
        for _ in range(4):
            batch, drawn = next(batches), plain.sample(16)
            assert_same_batch(batch, by_hand(manual, 16, manual.rng))
            assert_same_batch(relive.Batch({**batch, "obs": drawn.obs}), drawn)
            noises.append((batch.obs - drawn.obs).tobytes())
    assert len(set(noises)) == 4


@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
def test_a_run_that_is_resumed_repeats_its_batches(tmp_path: Path, sampler: str) -> None:
    buffer = make(sampler=SAMPLERS[sampler])
    with buffer.prefetch(16, depth=3, transform=noisy) as batches:
        for _ in range(5):
            next(batches)
        settled(batches, 3)
        buffer.save(tmp_path / "saved")
        for _ in range(3):  # these waited
            next(batches)
        later = [next(batches) for _ in range(6)]
    with relive.load(tmp_path / "saved").prefetch(16, depth=2, transform=noisy) as batches:
        for batch in later:
            assert_same_batch(next(batches), batch)


def test_generators_that_keep_half_a_word_differ_from_batch_to_batch() -> None:
    """Check that a half-used word is part of the state: its remaining half alone tells two draws apart."""
    transform = Transform(noisy, "here")
    rng, seeds = np.random.default_rng(0), []
    for _ in range(4):
        seeds.append(tuple(transform.seed(rng).tolist()))
        rng.integers(2**32, dtype=np.uint32)
    assert len(set(seeds)) == 4


def test_an_error_takes_the_place_of_its_batch(caplog: pytest.LogCaptureFixture) -> None:
    calls = []

    def third_fails(batch: Any, rng: np.random.Generator) -> relive.Batch:
        calls.append(threading.current_thread().name)
        if len(calls) == 3:
            raise OSError("no such augmentation")
        return noisy(batch, rng)

    buffer, twin = make(), make()
    with buffer.prefetch(8, depth=5, transform=third_fails) as batches:
        for _ in range(2):
            assert_same_batch(next(batches), by_hand(twin, 8, twin.rng))
        with pytest.raises(OSError, match="no such augmentation"):
            next(batches)
        assert list(batches) == []
    assert calls == ["relive-prefetch"] * 3  # in the thread, which did not go on behind the error
    assert buffer.stats().drawn == 16
    twin.sample(8)
    with buffer.prefetch(8, transform=third_fails) as batches:
        assert_same_batch(next(batches), by_hand(twin, 8, twin.rng))


def test_a_limiter_does_not_count_what_a_transform_refused() -> None:
    def refused(batch: Any, rng: np.random.Generator) -> relive.Batch:
        raise ValueError("refused")

    buffer = make(steps=0, limiter=relive.RateLimiter(1, min_size=10, error_buffer=10))
    extend(buffer, 20)
    with buffer.prefetch(4, transform=refused) as batches, pytest.raises(ValueError, match="refused"):
        next(batches)
    assert buffer.stats().limiter.samples == 0
    assert buffer.can_sample(20)


@pytest.mark.parametrize(
    ("returns", "got"),
    [(lambda batch: None, "NoneType"), (dict, "dict"), (lambda batch: batch.obs, "ndarray")],
)
@pytest.mark.parametrize(("source", "at"), [(make, "ReplayBuffer"), (shards, "Shards")])
def test_something_else_than_a_batch_is_an_error_in_its_place(source: Any, at: str, returns: Any, got: str) -> None:
    with source().prefetch(4, transform=lambda batch, rng: returns(batch)) as batches:
        with pytest.raises(relive.ArgumentError) as caught:
            next(batches)
        assert list(batches) == []
    assert str(caught.value) == (
        f"Expected a function that returns a `Batch`, got `{got}` - at `{at}.prefetch(transform)`: "
        "return `relive.Batch({**batch, name: values})`"
    )


def test_what_is_no_function_is_refused_at_once() -> None:
    wanted = "Expected a function `f(batch, rng)` that returns a batch, or None, got "
    remedy = "write one function that calls the others in their order"
    for call, at in (
        (make().prefetch, "ReplayBuffer.prefetch"),
        (shards().prefetch, "Shards.prefetch"),
        (lambda n, transform: Prefetch(make(), n, transform=transform), "Prefetch"),
    ):
        for given, end in (("flip", f"`str` - at `{at}(transform)`"),
                           ([noisy, noisy], f"`list` - at `{at}(transform)`: {remedy}")):  # fmt: skip
            with pytest.raises(relive.ArgumentError) as caught:
                call(4, transform=given)
            assert str(caught.value) == wanted + end


def test_a_source_without_a_generator_is_refused_at_once() -> None:
    for source in (Numbers(), relive.Mixture(make(), Numbers())):
        with pytest.raises(relive.ArgumentError) as caught:
            Prefetch(source, 4, transform=noisy)
        text = "Expected draws by a `numpy.random.Generator`, got `Numbers` - at `Prefetch(transform)`"
        assert str(caught.value) == text


def test_the_converted_batch_is_the_one_that_was_transformed() -> None:
    torch = pytest.importorskip("torch")

    def nested(batch: Any, rng: np.random.Generator) -> relive.Batch:
        assert isinstance(batch.obs.a, np.ndarray)
        return relive.Batch({**batch, "noise": rng.random(4)})

    schema = relive.Schema(obs={"a": relive.Field((2,)), "b": relive.Field()}, action=relive.Field())
    buffer = relive.ReplayBuffer(schema, 10, seed=0)
    obs = {"a": [1.0, 2.0], "b": 3.0}
    buffer.add(obs=obs, action=0.0, reward=0.0, next_obs=obs, terminated=False, truncated=False)
    for device in (None, "cpu"):
        with buffer.prefetch(4, to="torch", device=device, transform=nested) as batches:
            batch = next(batches)
        assert all(isinstance(x, torch.Tensor) for x in (batch.obs.a, batch["next_obs"]["b"], batch.noise))


def trajectories(seed: int) -> TrajectoryReplayBuffer:
    buffer = TrajectoryReplayBuffer(seed=seed)
    buffer.add_trajectories([{"obs": np.arange(40, dtype=np.float32).reshape(20, 2, 1)}])
    return buffer


@pytest.mark.parametrize(
    "sources",
    [
        lambda: (make(), make(steps=100)),
        lambda: (trajectories(0), trajectories(1)),
        lambda: (trajectories(0),),
        lambda: (shards(),),
    ],
    ids=["buffers", "trajectories", "one", "shards"],
)
def test_mixtures_trajectories_and_shards_have_it(sources: Any) -> None:
    def made() -> tuple[Any, list[np.random.Generator]]:
        parts = sources()
        source = relive.Mixture(*parts, share=0.25) if len(parts) > 1 else parts[0]
        return source, [part.rng for part in parts]

    (manual, rngs), ahead = made(), made()[0]
    own = isinstance(ahead, Shards)
    for batch, _ in zip(
        ahead.prefetch(8, depth=3, transform=noisy) if own else Prefetch(ahead, 8, batches=3, transform=noisy),
        range(3),
        strict=not own,
    ):
        assert_same_batch(batch, by_hand(manual, 8, *rngs))


@native
def test_readers_of_a_shared_buffer_have_their_own() -> None:
    storage = relive.Shared()
    with (
        make(storage=storage),
        relive.open(storage.address, seed=5) as reader,
        relive.open(storage.address, seed=5) as manual,
        reader.prefetch(8, transform=noisy) as batches,
    ):
        for _ in range(3):
            assert_same_batch(next(batches), by_hand(manual, 8, manual.rng))
