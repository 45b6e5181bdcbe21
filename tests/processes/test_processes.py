"""What a storage makes possible: forked writers, readers that draw meanwhile, buffers whose process was killed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from depth import LONG
from forked_storage import Forked
from forking import forked
from whole_rows import make, native, steps, torn

import relive
from relive._ring.kernels_numpy.rows import HEAD, HELD, OLDEST, READY
from relive.testing.agreement import assert_same_batch

pytestmark = pytest.mark.filterwarnings("ignore:Expected:relive.errors.ReliveWarning")


def counted(buffer: relive.ReplayBuffer) -> dict[str, object]:
    """Return the buffer's numbers, except those that each process counts for itself."""
    return {name: value for name, value in vars(buffer.stats()).items() if name != "slow_adds"}


def assert_alike(ours: relive.ReplayBuffer, alone: relive.ReplayBuffer, draws: int = 3) -> None:
    for _ in range(draws):
        batch, expected = ours.sample(16), alone.sample(16)
        for name in batch:
            np.testing.assert_array_equal(batch[name], expected[name])
        if ours.sampler.prioritizes:
            for buffer in (ours, alone):
                assert buffer.update_priorities(batch.ids, np.sin(batch.ids)) == 16
    assert counted(ours) == counted(alone)


@pytest.mark.parametrize("sampler", [relive.Uniform(), relive.Prioritized()], ids=repr)
def test_two_writers_lose_nothing(sampler: relive.Uniform) -> None:
    """Check that the parent draws what forked children wrote, to a storage of one's own, and cut."""

    def write(buffer: relive.ReplayBuffer, lane: int) -> None:
        for t in range(0, 2000, 5):
            ids = buffer.extend(**steps(5, t, 5, lane))
            assert (ids % 2 == lane).all()
            if t % 500 == 0:
                buffer.cut([lane])

    ours, alone = (make(5, 3000, sampler=sampler, storage=storage) for storage in (Forked(), relive.Ram()))
    with forked(lambda: write(ours, 0)), forked(lambda: write(ours, 1)):
        pass
    for lane in (0, 1):
        write(alone, lane)
    assert ours.stats().added == 4000
    np.testing.assert_array_equal(ours._core.ring.counters, alone._core.ring.counters)
    assert_alike(ours, alone)
    ids = np.sort(ours.sample(20_000).ids)
    assert not torn(ours.read(ids)).any()


@native
def test_a_draw_that_was_killed_halfway_leaves_its_items_their_priorities() -> None:
    """Check without replacement, which hides drawn items in the storage's own arrays until the draw ends."""
    storage, sampler = Forked(), relive.Prioritized(replacement=False)
    buffer = make(2, 50, 1, sampler=sampler, storage=storage)
    ids = buffer.extend(**steps(2, 0, 40, 0), priority=np.arange(1.0, 41.0)[None])[0]
    buffer.sample(20)
    before = buffer.priorities(ids)
    storage._arrays["sampler/priorities"][:9] *= -1  # as `draw_and_hide` leaves them
    storage._arrays["sampler/priorities.state"][2] = 0
    buffer = make(2, 50, 1, sampler=sampler, storage=storage)
    np.testing.assert_array_equal(buffer.priorities(ids), before)
    assert sorted(buffer.sample(40).ids) == sorted(ids)


@native
@pytest.mark.parametrize("stores", range(2, 8))  # from the first change on
def test_a_clear_that_was_killed_halfway_ends_when_the_buffer_opens(stores: int, monkeypatch) -> None:
    storage, item = Forked(), relive.Sequences(2, across_episodes=True)
    make(2, 9, 2, item=item, storage=storage).extend(**steps(2, 0, 30, 0))
    made = itertools.count()

    def put(journal, array, key, value):
        if next(made) == stores:
            raise SystemExit
        array[key] = value

    doomed = make(2, 9, 2, item=item, storage=storage)
    with monkeypatch.context() as patch:
        patch.setattr("relive._base.journal.Journal.put", put)
        patch.setattr("relive._base.journal.Journal.__exit__", lambda *_: None)
        with pytest.raises(SystemExit):
            doomed.clear()
    buffer, new = make(2, 9, 2, item=item, storage=storage), make(2, 9, 2, item=item)
    for t in range(30, 50):
        for each in (buffer, new):
            each.extend(**steps(2, t, 1, 0))
        assert (len(buffer), buffer.stats().drawable) == (len(new), new.stats().drawable)
        if new.can_sample(1):
            assert_same_batch(buffer.sample(1), new.sample(1), without=("ids",))


# What is published when a call ends, in this order. A kill may come before any of it: the counters that keep their old
# values then.
ALL_BUT_OLDEST = [column for column in range(16) if column != OLDEST]
MOMENTS = {"rows": ALL_BUT_OLDEST, "counters": [HEAD, HELD, READY], "head": [HELD, READY], "held": [READY], "all": []}


@native
@pytest.mark.parametrize("published", MOMENTS)
def test_a_call_that_was_killed_halfway(published: str) -> None:
    rng, t, storage, read = np.random.default_rng(0), 0, Forked(), 0
    killed, after = False, 0
    for number in range(300 if LONG else 100):
        if killed or number % 10 == 0:
            buffer = make(2, 9, 1, item=relive.Transitions(n_step=2), storage=storage)
        if killed:
            buffer.cut()  # nobody goes on with the episode
        elif published == "all":
            np.testing.assert_array_equal(storage._arrays["ring/counters"], after)
        if buffer.can_sample(1):
            batch = buffer.sample(50)
            assert not torn(batch)[batch.discount > 0].any()
            assert len(set(batch.ids.tolist())) <= buffer.stats().drawable <= buffer.stats().size <= 9
            read += 1
        counters = storage._arrays["ring/counters"]
        before = counters.copy()
        terminated, truncated = rng.random((2, 1, 1)) < 0.15
        arguments = {**steps(2, t, 1, 0), "terminated": terminated, "truncated": truncated}
        waits = rng.random() < 0.2
        if waits:
            del arguments["next_obs"]
        if rng.random() < 0.1:
            buffer.cut()
        else:
            buffer.extend(**arguments)
        after, killed = counters.copy(), rng.random() < 0.3
        t += 1 if waits or (rng.random() < 0.8 and not killed) else 1000
        if killed:
            counters[:, MOMENTS[published]] = before[:, MOMENTS[published]]
    assert read > number / 2


@native
@pytest.mark.parametrize("published", ["rows", "counters", "head", "held"])
def test_a_writer_puts_right_the_lane_that_it_claims(published: str) -> None:
    """Check a lane of a writer that was killed in the middle of a call: the counts are those of the stored steps."""
    with make(3, 40, storage=relive.Shared()) as buffer:
        counters = buffer._core.ring.counters
        with relive.Writer(buffer.storage.name, env_ids=[0]) as writer:
            writer.extend(**steps(3, 0, 5, 0))
            before = counters.copy()
            writer.extend(**steps(3, 5, 1, 0))
        counters[0, MOMENTS[published]] = before[0, MOMENTS[published]]
        buffer.extend(**steps(3, 100, 5, 0))  # which claims it
        ids = np.concatenate([batch.ids for batch in buffer.batches(64, shuffle=False)])
        stats, stored = buffer.stats(), buffer.column("ids")
        assert (stats.drawable, stats.size) == (len(ids), (stored >= 0).sum())
        assert not torn(buffer.read(ids)).any()
