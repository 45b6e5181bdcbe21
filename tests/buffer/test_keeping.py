"""The last batches in a file: what a learner got is there bit for bit, and no file makes a reader crash."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import some
from forking import forked
from scalars import lived, rolled

import relive
from relive._buffer.kept import PAGE, KeptFacts
from relive._ring import kernels
from relive.errors import ArgumentError, PriorityError, ReliveWarning, StorageError
from relive.testing.agreement import assert_same_batch

NESTED = relive.Schema(
    obs={"camera": relive.Field((4, 6, 6), "uint8"), "arm": {"angle": relive.Field(2, "float64")}},
    action=relive.Field((), "int64"),
    time=relive.Field(),
)
FLAT = relive.Schema(obs=relive.Field(3), action=relive.Field())
NAN, INF = float("nan"), float("inf")


def filled(schema: relive.Schema = FLAT, lanes: int = 1, **choices: Any) -> relive.ReplayBuffer:
    return rolled(schema, 40, 500, lanes=lanes, **choices)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "batches"


ITEMS = [
    relive.Transitions(),
    relive.Transitions(n_step=3, gamma=0.9),
    relive.Sequences(5, n_step=2),
    relive.Sequences(4, time_major=True),
]


@pytest.mark.parametrize(("schema", "item"), some(list(itertools.product([FLAT, NESTED], ITEMS)), 5))
def test_the_last_batches_are_kept_bit_for_bit(schema: relive.Schema, item: Any, path: Path) -> None:
    """Check `sample`, `prefetch` with a function, and `batches`, with batches of several sizes among them."""
    buffer = filled(schema, item=item, sampler=relive.Prioritized())
    buffer.keep_batches(path, last=3)
    assert relive.kept_batches(path) == []
    assert path.stat().st_mode & 0o777 == 0o600
    got = [copy.deepcopy(buffer.sample(n)) for n in (8, 8, 2, 30, 8)]
    with buffer.prefetch(4, transform=lambda batch, rng: relive.Batch({**batch, "more": rng.random(4)})) as batches:
        got += [copy.deepcopy(next(batches)) for _ in range(2)]
        for kept, batch in zip(relive.kept_batches(path), got[-3:], strict=True):
            assert_same_batch(kept, batch)  # batches that wait are none that the learner got
    got += [copy.deepcopy(batch) for batch in buffer.batches(7)]
    kept_ones = relive.kept_batches(path)
    assert [kept.number for kept in kept_ones] == [len(got) - 2, len(got) - 1, len(got)]
    for kept, batch in zip(kept_ones, got[-3:], strict=True):
        assert_same_batch(kept, batch)
    assert buffer.stats().drawn == 8 + 8 + 2 + 30 + 8 + 8


@pytest.mark.parametrize("lanes", [1, 3])
def test_ages_times_and_the_generator(lanes: int, path: Path) -> None:
    """Check that the generator draws the batch again, and that ages are those of the buffer."""
    buffer = filled(lanes=lanes)
    for kind in (np.random.PCG64, np.random.MT19937, np.random.Philox):
        buffer.rng = np.random.Generator(kind(5))
        buffer.keep_batches(path)
        batches = [buffer.sample(16) for _ in range(10)]
        for kept, batch in zip(relive.kept_batches(path), batches[-8:], strict=True):
            assert kept.generator is not None
            buffer.keep_batches(None)
            buffer.rng = kept.generator
            assert_same_batch(kept, buffer.sample(16))
            assert kept.ages is not None
            assert kept.ages.tolist() == (buffer.column("ids").max() // lanes - batch.ids // lanes).tolist()
            assert abs(kept.time - os.stat(path).st_ctime) < 600
    buffer.rng = type("Own", (), {"random": lambda self, n: np.zeros(n)})()
    buffer.keep_batches(path)
    buffer.sample(4)
    assert relive.kept_batches(path)[0].generator is None


def test_td_errors_are_kept_with_their_batch(path: Path) -> None:
    """Check late ones, tensors, and columns; those of no kept batch change nothing."""
    buffer = filled(sampler=relive.Prioritized())
    buffer.keep_batches(path, last=4)
    batches = [buffer.sample(8) for _ in range(6)]
    values = np.linspace(-1, 1, 8)
    buffer.update_priorities(batches[5].ids, values)
    buffer.update_priorities(batches[3].ids.copy(), values[:, None].astype(np.float32))
    buffer.update_priorities(batches[2].ids.tolist(), list(values * 2))
    buffer.update_priorities(batches[0].ids, values)
    buffer.update_priorities(batches[0].ids[:3], values[:3])
    kept = relive.kept_batches(path)
    assert [each.td_error is not None for each in kept] == [True, True, False, True]
    assert np.array_equal(kept[3].td_error, values)
    assert np.array_equal(kept[0].td_error, values * 2)
    assert np.allclose(kept[1].td_error, values)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_an_error_about_td_errors_names_file_and_batch(bad: float, path: Path) -> None:
    buffer = filled(sampler=relive.Prioritized())
    buffer.keep_batches(path)
    batches = [buffer.sample(4) for _ in range(3)]
    given = np.array([1.0, bad, 2.0, 3.0])
    with pytest.raises(PriorityError) as refused:
        buffer.update_priorities(batches[1].ids, given)
    expected = f"Expected a finite TD error, got `{bad}` (1 of 4) - at `td_error[1]`: check the loss; "
    assert str(refused.value) == f"{expected}`relive batches {path}` shows the batch, number 2"
    kept = relive.kept_batches(path)
    assert np.array_equal(kept[1].td_error, given, equal_nan=True)
    assert buffer.stats().updates == 0
    with pytest.raises(PriorityError, match=r"check the loss$"):
        buffer.update_priorities([0, 1], [NAN, 1.0])
    with pytest.raises(PriorityError, match=r"one per id, got shape `\(2,\)`"):
        buffer.update_priorities(batches[1].ids, given[:2])
    with pytest.raises(relive.StaleId):
        buffer.update_priorities([10**6], [1.0])


def test_draws_are_those_of_a_buffer_that_keeps_nothing(path: Path) -> None:
    plain, keeping = (filled(sampler=relive.Prioritized()) for _ in range(2))
    for number in range(6):
        if number == 2:
            keeping.keep_batches(path)
        if number == 4:
            keeping.keep_batches(None)
        one, other = plain.sample(16), keeping.sample(16, beta=None)
        assert one.ids.tolist() == other.ids.tolist()
        for buffer, batch in ((plain, one), (keeping, other)):
            buffer.update_priorities(batch.ids, batch.ids + 1.0)
    assert plain.stats() == keeping.stats()
    assert [kept.number for kept in relive.kept_batches(path)] == [1, 2]
    assert type(plain.sample) is type(keeping.sample)


def test_a_subclass_with_its_own_sample_keeps_what_it_draws(path: Path) -> None:
    class Own(relive.ReplayBuffer):
        def sample(self, batch_size: int, *, beta: float | None = None) -> relive.Batch:
            return super().sample(batch_size, beta=beta)

    buffer = lived(1, kind=Own)
    buffer.keep_batches(path)
    batch = buffer.sample(5)
    assert_same_batch(relive.kept_batches(path)[0], batch)
    with buffer.prefetch(3) as batches:
        next(batches)
    assert len(relive.kept_batches(path)[1].ids) == 3


@pytest.mark.skipif(not kernels.is_native(), reason="only native kernels share")
@pytest.mark.parametrize("kind", ["shared", "mapped", "reader"])
def test_buffers_of_several_processes(kind: str, path: Path, tmp_path: Path) -> None:
    storage = relive.Mapped(tmp_path / "ring") if kind == "mapped" else relive.Shared()
    with filled(sampler=relive.Prioritized(), storage=storage) as made, relive.open(storage.address) as reader:
        buffer = reader if kind == "reader" else made
        buffer.keep_batches(path)
        batch = buffer.sample(8)
        assert_same_batch(relive.kept_batches(path)[0], batch)
        if kind != "reader":
            buffer.update_priorities(batch.ids, np.ones(8))
            assert relive.kept_batches(path)[0].td_error is not None


def test_mixtures_keep_each_buffers_part(tmp_path: Path) -> None:
    buffers = [filled(sampler=relive.Prioritized()), filled()]
    for number, buffer in enumerate(buffers):
        buffer.keep_batches(tmp_path / str(number))
    mixture = relive.Mixture(*buffers, share=0.25)
    batch = mixture.sample(8)
    mixture.update_priorities(batch.ids, np.arange(8.0))
    with mixture.prefetch(4) as ahead:
        next(ahead)
    parts = [relive.kept_batches(tmp_path / str(number)) for number in range(2)]
    assert parts[0][0].ids.tolist() + parts[1][0].ids.tolist() == batch.ids.tolist()
    assert parts[0][0].td_error.tolist() == list(range(6))
    assert [len(part[1].ids) for part in parts] == [3, 1]


def test_a_mixtures_error_names_the_batch_of_its_part(tmp_path: Path) -> None:
    """Check nested mixtures too; parts that are not kept, or not known, leave the error as it is."""
    buffers = [filled(sampler=relive.Prioritized()) for _ in range(3)]
    for number in (0, 2):
        buffers[number].keep_batches(tmp_path / str(number))
    mixture = relive.Mixture(buffers[0], relive.Mixture(*buffers[1:]))
    batches = [mixture.sample(8) for _ in range(2)]
    words = "Expected 8 finite TD errors, one per id, got 7 of 8 - at `td_error`"
    for bad, part in ((1, 0), (7, 2), (5, None)):
        given = np.ones((8, 1))
        given[bad] = NAN
        with pytest.raises(PriorityError) as refused:
            mixture.update_priorities(batches[0].ids, given)
        named = f"; `relive batches {tmp_path / str(part)}` shows the batch, number 1" if part is not None else ""
        assert str(refused.value) == words + named
    kept = [relive.kept_batches(tmp_path / str(number))[0] for number in (0, 2)]
    assert np.isnan(kept[0].td_error).tolist() == [False, True, False, False]
    assert np.isnan(kept[1].td_error).tolist() == [False, True]
    for ids in (np.arange(8), ["a"] * 8):
        with pytest.raises(PriorityError, match=r"`td_error`$"):
            mixture.update_priorities(ids, [NAN] * 8)
    assert [buffer.stats().updates for buffer in buffers] == [0, 0, 0]


def test_copies_and_children_leave_the_file_alone(path: Path) -> None:
    buffer = filled()
    buffer.keep_batches(path)
    buffer.sample(2)
    before = path.read_bytes()
    for other in (copy.deepcopy(buffer), pickle.loads(pickle.dumps(buffer))):
        other.sample(2)

    def child() -> None:
        buffer.sample(2)
        buffer.keep_batches(f"{path}.own")
        buffer.sample(3)

    with forked(child):
        pass
    assert path.read_bytes() == before
    assert [len(kept.ids) for kept in relive.kept_batches(f"{path}.own")] == [3]
    buffer.close()
    assert path.read_bytes() == before
    with filled() as other:
        other.keep_batches(path)
        assert relive.kept_batches(path) == []


def test_other_files_are_refused_and_stay(tmp_path: Path) -> None:
    buffer, at = filled(), tmp_path / "file"
    at.write_bytes(b"precious")
    (tmp_path / "link").symlink_to(at)
    os.mkfifo(tmp_path / "pipe")
    for name in ("file", "link", "pipe", "."):
        with pytest.raises(StorageError, match="a file of kept batches, got"):
            buffer.keep_batches(tmp_path / name)
        with pytest.raises(StorageError, match="a file of kept batches, got"):
            relive.kept_batches(tmp_path / name)
    with pytest.raises(StorageError, match=r"got none - at `.*nothing`: `buffer.keep_batches\(path\)` makes one"):
        relive.kept_batches(tmp_path / "nothing")
    with pytest.raises(StorageError, match="Could not make the file"):
        buffer.keep_batches(tmp_path / "no" / "folder")
    assert at.read_bytes() == b"precious"
    buffer.keep_batches(None)
    assert sorted(os.listdir(tmp_path)) == ["file", "link", "pipe"]
    with pytest.raises(ArgumentError, match="at most 65536"):
        buffer.keep_batches(tmp_path / "x", 1 << 20)


def test_a_full_disk_ends_the_keeping_and_not_the_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = filled()
    buffer.keep_batches(path)
    buffer.sample(4)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.warns(ReliveWarning, match="No further batch is kept. Could not make the file"):
        assert len(buffer.sample(4000).ids) == 4000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        buffer.sample(4)
    assert [kept.number for kept in relive.kept_batches(path)] == [1]
    assert os.listdir(path.parent) == ["batches"]


def test_what_is_no_array_or_no_fields_dtype_is_left_out(path: Path) -> None:
    buffer = filled()
    buffer.keep_batches(path)

    def change(batch: relive.Batch, rng: np.random.Generator) -> relive.Batch:
        more = {"text": ["a"] * 4, "wide": np.zeros(4, np.longdouble), "words": np.array(["a"] * 4)}
        return relive.Batch({**batch, **more, "big": batch.reward.astype(">f4"), "number": np.arange(4)})

    with buffer.prefetch(4, transform=change) as batches:
        got = next(batches)
    (kept,) = relive.kept_batches(path)
    assert set(kept) == set(got) - {"text", "wide", "words"}
    assert kept["big"].tolist() == got.reward.tolist()
    assert (kept.number, kept["number"].tolist()) == (1, [0, 1, 2, 3])
    assert repr(kept).startswith("KeptBatch(1,\n    obs=float32[4, 3],\n")
    assert repr(relive.KeptBatch({"obs": kept.obs}, KeptFacts(3))) == "KeptBatch(3, torn, obs=float32[4, 3])"
    again = pickle.loads(pickle.dumps(kept))
    assert (again.number, again.time, type(again)) == (1, kept.time, relive.KeptBatch)


def damages(good: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Flip every bit of what a reader relies on, cut the file at many places, and fill places with large numbers.

    Each is a place, and the bytes that come there up to another one.
    """
    slot = (len(good) - PAGE) // 3
    places = [*range(40), *(PAGE + slot * k + at for k in range(3) for at in (*range(1400),))]
    for at in places:
        for bit in range(8):
            yield at, bytes([good[at] ^ 1 << bit]), at + 1
        yield at, b"\xff" * 8, at + 8
    for end in range(0, len(good), 97):
        yield end, b"", len(good)
    yield len(good), b"\0", len(good)


def test_no_damage_makes_a_reader_crash(path: Path, tmp_path: Path) -> None:
    """Check that each damage is refused as such, or read as numbers that were changed."""
    buffer = filled(NESTED, sampler=relive.Prioritized())
    buffer.keep_batches(path, last=3)
    for _ in range(4):
        buffer.update_priorities(buffer.sample(2).ids, [0.5, 1.0])
    good, bad, outcomes = path.read_bytes(), tmp_path / "bad", set()
    for damage in some(damages(good), 300):
        begin, part, end = damage
        bad.write_bytes(good[:begin] + part + good[end:])
        try:
            found = relive.kept_batches(bad)
        except StorageError:
            outcomes.add("refused")
        else:
            assert len(found) in (2, 3), damage
            outcomes.add("torn" if any(kept.torn for kept in found) else "read")
    assert outcomes == {"refused", "torn", "read"}


def test_a_torn_batch_is_known_as_torn(path: Path) -> None:
    buffer = filled()
    buffer.keep_batches(path, last=3)
    for _ in range(4):
        buffer.sample(2)
    data = bytearray(path.read_bytes())
    slot = (len(data) - PAGE) // 3
    data[PAGE + slot * 2] = 5  # the next number, whose batch was not copied any more
    path.write_bytes(data)
    found = relive.kept_batches(path)
    assert [(kept.number, kept.torn, len(kept)) for kept in found] == [(3, False, 10), (4, False, 10), (5, True, 0)]
    assert repr(found[-1]) == "KeptBatch(5, torn)"


def test_a_grown_file_has_the_batches_of_the_one_before(path: Path) -> None:
    buffer = filled(sampler=relive.Prioritized())
    buffer.keep_batches(path, last=4)
    small = [buffer.sample(2) for _ in range(3)]
    shutil.copy(path, f"{path}.before")
    buffer.sample(300)
    buffer.update_priorities(small[2].ids, [1.0, 2.0])
    kept = relive.kept_batches(path)
    for one, batch in zip(kept, small, strict=False):
        assert_same_batch(one, batch)
    assert [len(each.ids) for each in kept] == [2, 2, 2, 300]
    assert kept[2].td_error.tolist() == [1.0, 2.0]
