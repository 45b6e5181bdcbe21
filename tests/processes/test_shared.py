"""`Shared` and `Mapped`: lanes that one writer has at a time, rows that are whole, nothing left behind."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from forking import forked
from shipped import SAMPLERS
from whole_rows import make, native, steps, torn

import relive
from relive._ring import kernels
from relive.processes._description import CHOICES, BufferDescription
from relive.processes.joint import JointAccess
from relive.storage import Shared
from relive.storage._segment import Segment
from relive.storage.shared import FOLDER, segments

pytestmark = [pytest.mark.filterwarnings("ignore:Expected:relive.errors.ReliveWarning"), native]


def test_a_mapped_file_in_memory_is_no_shared_buffer() -> None:
    """Check in a directory next to shared buffers, with a name like theirs."""
    with tempfile.TemporaryDirectory(prefix="relive-", dir=FOLDER) as folder:
        make(1, 40, storage=relive.Mapped(f"{folder}/ring")).close()
        with relive.open(f"{folder}/ring") as buffer:
            assert buffer.storage == relive.Mapped(f"{folder}/ring")
        assert folder not in segments()


@pytest.mark.parametrize("name", SAMPLERS)
def test_who_writes_makes_no_difference(name: str, tmp_path: Path) -> None:
    """Check that creator, a local writer and a forked one get the same ids, batches and priorities."""
    given = {"priority": np.linspace(0.0, 9.0, 20)[None]} if SAMPLERS[name].prioritizes else {}
    with ExitStack() as stack:
        made = [
            make(3, 40, sampler=SAMPLERS[name], storage=each)
            for each in (relive.Shared(), relive.Mapped(tmp_path / "ring"), relive.Ram())
        ]
        shared, mapped, alone = (stack.enter_context(buffer) for buffer in made)
        writers = stack.enter_context(shared.writer([0])), stack.enter_context(relive.Writer(mapped.storage.path, [1]))
        for t in range(0, 120, 20):
            for lane in (0, 1):
                more = given if t % 40 else {}
                expected = alone.extend(**steps(3, t, 20, lane), **more)
                for buffer, writer, its_lane in zip((shared, mapped), writers, (0, 1), strict=True):
                    by = writer if lane == its_lane else buffer
                    np.testing.assert_array_equal(by.extend(**steps(3, t, 20, lane), **more), expected)
            if t == 40:
                for buffer in (shared, mapped, alone):
                    buffer.cut([0]) if buffer is not shared else writers[0].cut()
            batches = [buffer.sample(16) for buffer in (shared, mapped, alone)]
            for batch in batches[:2]:
                for field in batch:
                    np.testing.assert_array_equal(batch[field], batches[2][field])
            if alone.sampler.prioritizes:
                for buffer in (shared, mapped, alone):
                    buffer.update_priorities(batches[2].ids, np.sin(batches[2].ids))


def test_readers_have_samplers_of_their_own(storage: object) -> None:
    with make(3, 40, sampler=relive.Prioritized(), storage=storage) as buffer:
        ids = buffer.extend(**steps(3, 0, 30, 0), priority=np.arange(30.0)[None])
        with (
            relive.open(storage.address, seed=3) as reader,
            relive.open(storage.address, sampler=relive.Uniform()) as other,
        ):
            np.testing.assert_array_equal(reader.priorities(ids[0]), buffer.priorities(ids[0]))
            reader.update_priorities(ids[0], np.full(30, 5.0))
            np.testing.assert_allclose(buffer.priorities(ids[0])[3], 3.0)
            assert other.sampler == relive.Uniform()
            assert not torn(other.sample(8)).any()
            buffer.extend(**steps(3, 30, 5, 0))
            assert len(reader) == 35
            assert reader.read(buffer.sample(4).ids).reward.shape == (4,)
            with pytest.raises(relive.ArgumentError, match="only reads"):
                reader.add(obs=np.zeros((2, 3)), action=[0, 0], reward=[0, 0], next_obs=np.zeros((2, 3)),
                           terminated=[False] * 2, truncated=[False] * 2)  # fmt: skip


def test_a_lane_has_one_writer(storage: object) -> None:
    with make(3, 40, lanes=4, storage=storage) as buffer:
        with relive.Writer(storage.address, env_ids=[1, 2]) as writer:
            for claim in ([2], [0, 2]):
                with pytest.raises(relive.ArgumentError, match="which process"):
                    relive.Writer(storage.address, env_ids=claim)
            with pytest.raises(relive.ArgumentError, match="own lanes"):
                writer.extend(**steps(3, 0, 5, 0))
            with pytest.raises(relive.ArgumentError, match="which process"):
                buffer.extend(**steps(3, 0, 5, 1))
            assert len(buffer) == 0
            assert relive.Writer(storage.address).env_ids == (0, 3)
            writer.extend(**steps(3, 0, 5, 2))
            ids = writer.add(**{key: value for key, value in steps(3, 5, 1, 2).items() if key != "env_ids"} | {
                "obs": np.zeros((2, 3)), "next_obs": np.zeros((2, 3)), "action": [1, 2], "reward": [0, 0],
                "terminated": [False] * 2, "truncated": [False] * 2})  # fmt: skip
            assert (ids % 4).tolist() == [1, 2]
        cuts = buffer.stats().cuts
        with relive.Writer(storage.address, env_ids=[2]) as second:
            second.extend(**steps(3, 5, 5, 2))
        assert buffer.stats().cuts == cuts + 1  # no item runs from one writer into the next
        with pytest.raises(relive.ReliveError, match="closed"):
            writer.cut()


@pytest.mark.parametrize("wanted", [[1], None])
def test_a_writer_waits_for_whoever_is_opening_the_buffer(wanted: list[int] | None, storage: object) -> None:
    """Check that opening, which takes all free lanes for a while, is no reason to refuse a writer."""
    with make(3, 40, storage=storage) as buffer:
        buffer.writer([1]).extend(**steps(3, 0, 5, 1))  # a lane that had an owner
        opening = Segment.attach(storage.file, "")
        about = BufferDescription.decoded(opening.raw(CHOICES), "")
        opening.typed(about.ring_spec() | about.spec())
        access = JointAccess(opening, about)
        assert access.busy == []
        opened = threading.Event()
        after = threading.Timer(0.5, lambda: (opened.set(), access.memory.close()))
        after.start()
        with relive.Writer(storage.address, env_ids=wanted) as writer:
            assert opened.is_set()
            assert writer.env_ids == (tuple(wanted) if wanted else (0, 1))
            writer.extend(**steps(3, 5, 5, 1))
        after.join()


def test_writers_travel_before_they_claim(storage: object) -> None:
    with make(3, 40, storage=storage) as buffer:
        sent = pickle.dumps(buffer.writer([1]))
        with pickle.loads(sent) as writer:
            writer.extend(**steps(3, 0, 5, 1))
            with pytest.raises(relive.ReliveError, match="has not claimed"):
                pickle.dumps(writer)
        assert len(buffer) == 5
        with pytest.raises(relive.ArgumentError, match="distinct"):
            buffer.writer([1, 1])
    with pytest.raises(relive.ArgumentError, match="several processes"):
        make(3, 40).writer()


def test_a_forked_child_adds_to_free_lanes_and_cannot_draw(storage: object) -> None:
    def child() -> None:
        buffer.extend(**steps(3, 0, 5, 1))
        for refused in (lambda: buffer.extend(**steps(3, 0, 5, 0)), lambda: buffer.sample(1), buffer.sync):
            with pytest.raises(relive.ReliveError):
                refused()
        buffer.close()

    closed = [make(3, 40, storage=relive.Shared()) for _ in range(4)]  # somebody may keep them
    for each in closed:
        each.close()
    with make(3, 40, storage=storage) as buffer:
        buffer.extend(**steps(3, 0, 5, 0))
        with forked(child):
            pass
        assert len(buffer) == 10
        assert os.path.exists(storage.file)
        assert not torn(buffer.sample(20)).any()


def test_a_mapped_buffer_goes_on(tmp_path: Path) -> None:
    """Check steps, priorities, generator and clock: it draws the same; the streams are cut."""
    path, sampler = tmp_path / "ring", relive.Prioritized(beta=relive.Anneal(0.4, 1.0, over=20))
    with make(3, 40, sampler=sampler, storage=relive.Mapped(path)) as buffer:
        alone = make(3, 40, sampler=sampler)
        for each in (buffer, alone):
            each.extend(**steps(3, 0, 70, 0))
            each.update_priorities(each.sample(16).ids, np.arange(16.0))
    with relive.open(path) as again:
        for _ in range(3):
            np.testing.assert_array_equal(again.sample(8).weights, alone.sample(8).weights)
        assert {**vars(again.stats()), "nbytes": 0} == {**vars(alone.stats()), "nbytes": 0}
        for each in (again, alone):
            each.cut() if each is alone else None
            each.extend(**steps(3, 70, 5, 0))
        np.testing.assert_array_equal(again.sample(8).ids, alone.sample(8).ids)
        assert again.stats().cuts == alone.stats().cuts == 1
        with pytest.raises(relive.StorageError, match=r"relive\.open"):
            make(3, 40, sampler=sampler, storage=relive.Mapped(path))


def test_what_is_refused(tmp_path: Path, storage: object) -> None:
    with make(3, 40, storage=storage), pytest.raises(relive.StorageError, match="in use"):
        make(3, 40, storage=storage)
    path = str(tmp_path / "other")
    for content in (b"", b"x" * 5000, b"relive\0\1" + b"\7" * 5000, b"relive\0\1"):
        Path(path).write_bytes(content)
        Path(path).chmod(0o600)
        for call in (relive.open, relive.Writer):
            with pytest.raises(relive.StorageError):
                call(path)
    Path(path).chmod(0o644)
    with pytest.raises(relive.StorageError, match="only its owner"):
        relive.open(path)
    for call in (relive.open, relive.Writer):
        with pytest.raises(relive.StorageError, match="got none"):
            call("no-such-buffer")
    for name in ("", "a/b", "é", 3):
        with pytest.raises(relive.ArgumentError):
            relive.Shared(name)


@pytest.mark.parametrize("place", [1500, 4000, 40_000])
def test_every_damaged_header_is_refused(place: int, tmp_path: Path) -> None:
    """Flip each byte of the header: it is refused, or the byte has no meaning."""
    path = tmp_path / "ring"
    with make(3, 40, storage=relive.Mapped(path)) as buffer:
        buffer.extend(**steps(3, 0, 30, 0))
    whole = path.read_bytes()
    for at in range(0, 400, 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(relive.StorageError):
            relive.open(path).close()
    path.write_bytes(whole[:place])
    with pytest.raises(relive.StorageError):
        relive.open(path)


def test_a_full_file_system_is_an_error_at_construction(monkeypatch: pytest.MonkeyPatch, storage: object) -> None:
    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(relive.StorageError, match="Could not reserve"):
        make(3, 40, storage=storage)
    assert not os.path.exists(storage.file)


def test_the_numpy_kernels_cannot_share() -> None:
    with kernels.use("numpy"), pytest.raises(relive.ArgumentError, match="publish steps in order"):
        make(3, 40, storage=relive.Shared())


def test_names_are_random_unless_given() -> None:
    assert Shared().name != Shared().name
    assert Shared("x").file.endswith("relive-x")


def test_a_limiter_holds_for_all_writers() -> None:
    limiter = relive.RateLimiter(samples_per_insert=2, min_size=5, error_buffer=4, timeout=0.05)
    with make(3, 40, storage=relive.Shared(), limiter=limiter) as buffer, buffer.writer([0]) as writer:
        writer.extend(**steps(3, 0, 6, 0))
        buffer.extend(**steps(3, 0, 1, 1))
        for blocked in (writer, buffer):
            with pytest.raises(relive.RateLimitTimeout):
                blocked.extend(**steps(3, 6, 1, 0 if blocked is writer else 1))
        relive.open(buffer.storage.name).sample(8)  # a reader neither waits nor counts
        assert not buffer.can_sample(9)
        buffer.sample(8)
        with pytest.raises(relive.RateLimitTimeout):
            buffer.sample(8)
        writer.extend(**steps(3, 6, 4, 0))
        assert (len(buffer), buffer.stats().limiter.samples_per_insert) == (11, 8 / 11)


class Lapped(relive.Prioritized):
    """Calls `laps` once, before or after its index has refreshed."""

    laps: ClassVar[dict[str, Callable[[], Any]]] = {}

    def index(self, ring: Any, memory: Any) -> Any:
        index: Any = super().index(ring, memory)
        refresh = index.refresh

        def refreshed() -> int:
            self.laps.pop("before", int)()
            drawable = refresh()
            self.laps.pop("after", int)()
            return drawable

        index.refresh, index.chooser = refreshed, None
        return index


@pytest.mark.parametrize("call", ["sample", "update_priorities", "priorities"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lap_while_the_sampler_takes_changes_in(when: str, call: str) -> None:
    """Overwrite every row while this process refreshes its sampler: no slot is mistaken for its old row.

    Rows are steps and boundary rows in turns, and a lane has an odd number of them, so that each lap changes which
    slots are steps.
    """

    def episodes(first: int, count: int) -> dict[str, object]:
        return {**steps(3, first, count, 0), "terminated": np.ones((1, count), bool)}

    with make(3, 9, lanes=1, sampler=Lapped(), storage=relive.Shared()) as buffer, buffer.writer() as writer:
        ids = writer.extend(**episodes(0, 3))[0]
        assert len(buffer.priorities(ids)) == 3
        Lapped.laps[when] = lambda: writer.extend(**episodes(3, 6))
        if call == "sample":
            assert_steps(buffer.sample(64))
        elif call == "update_priorities":
            # Of the writer's rows the sampler may not know yet. Integers take the general path, in Python.
            every = np.concatenate([ids, ids[-1] + 2 + ids, ids[-1] + 8 + ids])
            assert buffer.update_priorities(every, np.full(9, 100)) == 0
        else:
            with pytest.raises(relive.StaleId):
                buffer.priorities(ids)
        assert not Lapped.laps
        assert_steps(buffer.sample(64))


def assert_steps(batch: relive.Batch) -> None:
    """Check that every item is the step of its id; the other rows are boundary rows."""
    np.testing.assert_array_equal(batch.ids % 2, 0)
    np.testing.assert_array_equal(batch.action // 100, batch.ids // 2)
    assert not torn(batch).any()


def test_a_file_system_that_does_not_say_how_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check with no blocks at all, as a tmpfs without a limit, and ramfs."""
    known = os.fstatvfs

    class Unknown:
        def __init__(self, fd: int) -> None:
            self.f_frsize, self.f_blocks, self.f_bavail = known(fd).f_frsize, 0, 0

    monkeypatch.setattr(os, "fstatvfs", Unknown)
    with make(3, 10, storage=relive.Shared()) as buffer:
        assert len(buffer) == 0


CHILDREN = """
import os, signal, socket, sys
import relive
from relive.storage.shared import _Sweeper

signal.signal(signal.SIGPIPE, signal.SIG_DFL)
schema = relive.Schema(obs=relive.Field(), action=relive.Field())
buffer = relive.ReplayBuffer(schema, 10, storage=relive.Shared())
try:
    while True:
        os.wait()
except ChildProcessError:
    print("no children")
line = socket.socket(fileno=_Sweeper.of_this_process()._fd)
line.shutdown(2)  # as if the sweeper were dead
line.detach()
buffer.close()
print("closed")
"""


def test_the_sweeper_is_no_child_and_nobody_needs_it() -> None:
    """Check that a server that waits for all of its children continues, and so does one without its sweeper."""
    done = subprocess.run([sys.executable, "-c", CHILDREN], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "no children\nclosed\n", "")
