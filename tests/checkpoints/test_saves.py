"""Directories of saves: what is written, kept, and refused."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import some

import relive
from relive.errors import ArgumentError, ReliveError, StorageError
from relive.testing.agreement import assert_same_batch

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
LANES = 2


def make(capacity: int = 400, **choices: Any) -> relive.ReplayBuffer:
    schema = relive.Schema(obs=relive.Field((17,)), action=relive.Field((6,)))
    return relive.ReplayBuffer(schema, capacity, num_envs=LANES, seed=3, **choices)


def fill(buffer: relive.ReplayBuffer, steps: int) -> np.ndarray:
    rng, shape = np.random.default_rng(buffer.stats().added), (LANES, steps)
    obs = rng.random((LANES, steps + 1, 17), np.float32)
    values = {"action": rng.random((*shape, 6)), "reward": rng.random(shape), "terminated": rng.random(shape) < 0.03}
    return buffer.extend(obs=obs[:, :-1], next_obs=obs[:, 1:], truncated=np.zeros(shape, bool), **values)


def files(path: Path) -> dict[str, int]:
    return {each.name: each.stat().st_size for each in path.iterdir() if each.name != "lock"}


def test_a_second_save_writes_what_is_new(tmp_path: Path) -> None:
    buffer = make(40_000, sampler=relive.Prioritized())
    fill(buffer, 18_000)
    first = buffer.save(tmp_path, wait=False)
    assert first.wait() is first
    assert (first.done, first.seconds > 0) == (True, True)
    assert re.fullmatch(r"Saved\(.*, number=1, .*\)", repr(first))
    fill(buffer, 180)
    second = buffer.save(tmp_path)
    assert (first.number, second.number) == (1, 2)
    assert first.bytes_written == first.bytes_total
    assert second.bytes_written < 0.03 * first.bytes_total + 8 * len(buffer)
    assert second.bytes_total == sum(files(tmp_path).values())
    assert relive.load(tmp_path).stats().added == 36_360


def test_more_rows_are_reserved_at_loading(tmp_path: Path) -> None:
    """Check with steps that each end their episode, and take two rows."""
    buffer = make(800, boundaries=0.25)

    def ended(buffer: relive.ReplayBuffer) -> int:
        obs, ends = np.zeros((LANES, 500, 17)), np.ones((LANES, 500), bool)
        step = {"action": np.zeros((LANES, 500, 6)), "reward": np.zeros((LANES, 500)), "truncated": ~ends}
        buffer.extend(obs=obs, next_obs=obs + 1, terminated=ends, **step)
        return len(buffer)

    stored = ended(buffer)
    assert stored == 500
    buffer.save(tmp_path)
    with pytest.raises(ArgumentError, match=r"finite number >= 0 and <= 1.*load\(boundaries\)"):
        relive.load(tmp_path, boundaries=1.5)
    loaded = relive.load(tmp_path, boundaries=1)
    assert (loaded.boundaries, len(loaded)) == (1.0, stored)
    ids = np.setdiff1d(loaded.column("ids"), [-1])
    assert_same_batch(loaded.read(ids), buffer.read(ids))
    assert ended(loaded) == loaded.capacity == 800


def test_a_directory_stays_small(tmp_path: Path) -> None:
    """Check that overwritten rows go, and files stay few, however often is saved."""
    buffer = make()
    for _ in range(45):
        fill(buffer, 7)
        buffer.save(tmp_path / "often")
    fresh = pickle.loads(pickle.dumps(buffer)).save(tmp_path / "once")
    assert sum(files(tmp_path / "often").values()) < 3 * fresh.bytes_total
    assert len(files(tmp_path / "often")) < 40


def test_a_buffer_that_was_saved_or_loaded_is_freed_as_soon_as_it_is_gone(tmp_path: Path) -> None:
    """Check that its memory does not wait for the garbage collector."""
    gc.disable()
    try:
        buffer = make(sampler=relive.Prioritized())
        fill(buffer, 50)
        buffer.save(tmp_path)
        buffer.save(tmp_path, wait=False).wait()
        for thread in threading.enumerate():
            if thread.name == "relive-save":  # has it until it ends
                thread.join()
        for choices in (None, {}, {"sampler": relive.Uniform(), "lanes": [1]}):
            buffer = buffer if choices is None else relive.load(tmp_path, **choices)
            copied = pickle.dumps(buffer)
            marks = weakref.ref(buffer._core.ring.marks)
            del buffer
            assert marks() is None
            assert pickle.loads(copied).sample(4).ids.shape == (4,)
    finally:
        gc.enable()


def test_saves_are_kept(tmp_path: Path) -> None:
    buffer, expected = make(), []
    for _ in range(5):
        fill(buffer, 30)
        buffer.save(tmp_path, keep=3)
        expected.append(pickle.loads(pickle.dumps(buffer)).sample(8))
    assert sorted(file.name for file in tmp_path.glob("*.json")) == [f"save-000000000{k}.json" for k in (3, 4, 5)]
    for number in (3, 4, 5):
        assert_same_batch(relive.load(tmp_path, number=number).sample(8), expected[number - 1])
    with pytest.raises(StorageError, match=r"Expected one of the saves \[3, 4, 5\], got `2`"):
        relive.load(tmp_path, number=2)
    # What went on from an earlier save does not build upon files that it does not share.
    older = relive.load(tmp_path, number=3)
    fill(older, 11)
    expected_older = pickle.loads(pickle.dumps(older)).sample(8)
    assert older.save(tmp_path, keep=3).number == 6
    assert_same_batch(relive.load(tmp_path).sample(8), expected_older)
    fill(buffer, 5)
    assert buffer.save(tmp_path, keep=1).number == 7
    assert relive.load(tmp_path).stats().added == buffer.stats().added
    assert len([*tmp_path.glob("*.json")]) == 1


@pytest.mark.parametrize("ours", [relive.Prioritized(alpha=0.5), relive.Prioritized(newest="stored")])
@pytest.mark.parametrize("theirs", [relive.Prioritized(alpha=0.9), relive.Prioritized(newest="stored")])
def test_another_sampler_takes_the_priorities(ours: Any, theirs: Any, tmp_path: Path) -> None:
    """Check raw ones, whichever of the two had them; new steps get the largest one of before, or their own."""
    buffer = make(sampler=ours)
    fill(buffer, 100)
    ids = buffer.sample(64).ids
    buffer.update_priorities(ids, np.linspace(1, 7, 64))
    fill(buffer, 3)
    buffer.save(tmp_path)
    assert len(relive.load(tmp_path, sampler=relive.Uniform())) == len(buffer)
    loaded = relive.load(tmp_path, sampler=theirs)
    np.testing.assert_allclose(loaded.priorities(ids), buffer.priorities(ids), rtol=1e-12)
    np.testing.assert_allclose(loaded.priorities(fill(loaded, 2).ravel()), 7 + ours.eps)


class Mine(relive.Uniform):
    """A sampler of a user's own."""


def test_choices_of_a_users_own_are_given_again(tmp_path: Path) -> None:
    buffer = make(sampler=Mine())
    fill(buffer, 50)
    buffer.save(tmp_path)
    with pytest.raises(ArgumentError, match=r"Expected `sampler=`, got none, and the save has one of `.*Mine`"):
        relive.load(tmp_path)
    assert_same_batch(relive.load(tmp_path, sampler=Mine()).sample(9), buffer.sample(9))


REFUSED: dict[str, tuple[Any, type[ReliveError], str]] = {
    "an empty directory": (relive.load, StorageError, "Expected a complete save of a buffer, got none"),
    "too small": (lambda path: saved(path, capacity=1), ArgumentError, "load(capacity)"),
    "a long window": (
        lambda path: saved(path, item=relive.Transitions(n_step=300)),
        ReliveError,
        "Transitions(n_step)",
    ),
}


def saved(path: Path, **choices: Any) -> relive.ReplayBuffer:
    make().save(path)
    return relive.load(path, **choices)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name: str, tmp_path: Path) -> None:
    call, error, text = REFUSED[name]
    with pytest.raises(error, match=re.escape(text)):
        call(tmp_path)


def test_a_generator_that_is_not_numpys_is_refused(tmp_path: Path) -> None:
    buffer = make()
    buffer.rng = np.random.RandomState(0)  # type: ignore[assignment]
    with pytest.raises(ArgumentError, match="a generator of NumPy's"):
        buffer.save(tmp_path)
    assert not files(tmp_path)
    buffer.rng = np.random.Generator(np.random.Philox(4))
    fill(buffer, 20)
    buffer.save(tmp_path)
    assert_same_batch(relive.load(tmp_path).sample(9), buffer.sample(9))


def test_first_saves_of_two_threads_are_those_of_one_buffer(tmp_path: Path) -> None:
    for round_ in some(range(20), 8):
        buffer, paths = make(), [tmp_path / f"{round_}-{k}" for k in range(3)]
        fill(buffer, 5)
        jobs = [(buffer.save, paths[0]), (buffer.save, paths[1]), (lambda _, b=buffer: pickle.dumps(b), None)]
        ready = threading.Barrier(len(jobs))

        def together(job: Any, path: Any, ready: threading.Barrier = ready) -> None:
            ready.wait()
            job(path)

        threads = [threading.Thread(target=together, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for path in paths:
            buffer.save(path)
            assert len(relive.load(path)) == 10


def test_a_copy_has_a_generator_of_its_own() -> None:
    """Check that it has the buffer's state: both draw the same as one of them would."""
    buffer = make()
    fill(buffer, 50)
    for ours in (copy.copy, copy.deepcopy, lambda buffer: pickle.loads(pickle.dumps(buffer))):
        twin = ours(buffer)
        assert twin.rng is not buffer.rng
        state = buffer.rng.bit_generator.state
        first = twin.sample(9)
        assert buffer.rng.bit_generator.state == state
        assert_same_batch(buffer.sample(9), first)
        assert_same_batch(twin.sample(9), buffer.sample(9))
