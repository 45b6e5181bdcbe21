"""Readers of a ring look at the lanes that were written to since they last looked."""

from __future__ import annotations

import numpy as np
import pytest
from back_ends import BACKENDS, HAS_NATIVE, both, digest
from depth import some
from random_rings import Life, ring_of

from relive._ring.lanes import CLEARED, DRAWABLE, GONE, GROUP, HEAD, HELD, LOADED, MEMORY, OLDEST, READY, STORED
from relive._ring.plans import Window
from relive._ring.ring import GIVEN, Ring
from relive.sum_tree import allocate

LANES, ROWS = 2 * GROUP + 22, 6
KEEPS = (GIVEN,)

needs_native = pytest.mark.skipif(not HAS_NATIVE, reason="needs the native kernels")


class Readers:
    """A queue and a tree that follow one ring, each with what it has seen."""

    def __init__(self, module, ring: Ring) -> None:
        self._ring = ring
        self.seen = [np.zeros((ring.lanes, 3), np.int64) for _ in range(2)]
        self.places, self.firsts = (np.zeros((ring.lanes, ring.rows), np.int32) for _ in range(2))
        self.ends = np.zeros((ring.lanes, 4), np.int64)
        self.queue = module.Queue(ring.kernel, self.places, self.firsts, self.ends, self.seen[0])
        self.state = allocate(ring.slots)
        self.tree = module.Tree(*self.state)

    def refresh(self, which: int) -> int:
        if which == 0:
            return self.queue.refresh()
        return self.tree.refresh(self._ring.kernel, self.seen[1], 1.5, 0.6)

    def everything(self) -> str:
        u = np.linspace(0, 0.999, 40)
        names = ("draw", "draw_episodes", "draw_distinct")
        drawn = [*(getattr(self.queue, name)(u) for name in names), self.tree.draw(u, False)]
        kept = [self.places, self.firsts, self.ends, self.state, *self.seen]
        return digest([drawn, kept])


def write(ring: Ring, lanes: np.ndarray, steps: int = 2) -> None:
    values = [np.zeros((len(lanes), steps), column.dtype) for column in ring.columns]
    none = np.zeros((len(lanes), steps), bool)
    ring.write(values, values[:1], none, none, lanes, None)


@pytest.mark.parametrize("seed", some(range(4), 2))
def test_readers_see_what_those_see_that_look_everywhere(seed):
    """Refresh each at times of its own, after calls for a few lanes, for all of them, and cuts; sums are the lanes'."""
    rng = np.random.default_rng(seed)
    kinds = [(module, touched) for module in BACKENDS for touched in (True, False)]
    rings = [ring_of(module, LANES, ROWS, Window(span=2), KEEPS, touched=touched) for module, touched in kinds]
    life = Life(rings, rng, priorities=True)
    readers = [Readers(module, ring) for (module, _), ring in zip(kinds, rings, strict=True)]
    for _ in range(40):
        life.weights[:] = rng.choice([0.01, 0.02, 0.3, 2.0], p=[0.5, 0.3, 0.15, 0.05])
        life.go_on()
        if rng.random() < 0.05:
            for ring in rings:
                ring.clear()
        for which in np.flatnonzero(rng.random(2) < 0.5).tolist():
            assert len({reader.refresh(which) for reader in readers}) == 1
        if rng.random() < 0.6:
            counters = rings[0].counters.sum(axis=0)
            counters[[MEMORY, OLDEST, HELD, CLEARED, LOADED, GONE]] = 0
            for ring in rings:
                assert ring.kernel.sums().tolist() == counters.tolist()
                assert (ring.stored, ring.drawable) == (counters[STORED], counters[DRAWABLE])
    life.weights[:20] = 2.0
    life.go_on(), life.go_on()
    assert len({tuple(reader.refresh(which) for which in range(2)) for reader in readers}) == 1
    assert len({reader.everything() for reader in readers}) == 1
    assert len({digest(ring.touched) for ring in rings if ring.touched is not None}) == 1


def write_unseen(ring: Ring, lanes: tuple[int, ...]) -> None:
    """Give lanes the two rows of lane 3, without a call of the kernel."""
    for lane in lanes:
        ring.counters[lane] = ring.counters[3]
        for row in range(2):
            ring.marks[ring.at(np.array([row]), lane)] = ring.marks[ring.at(np.array([row]), 3)]


@both
@pytest.mark.parametrize("touched", [True, False])
@pytest.mark.parametrize("which", range(2))
def test_only_groups_that_were_touched_are_looked_at(kernels, touched, which):
    """Write rows past `write`: they are seen without counts, else together with the next in the group."""
    ring = ring_of(kernels, LANES, ROWS, Window(span=1), KEEPS, touched=touched)
    readers, everywhere = Readers(kernels, ring), not touched or kernels is BACKENDS[0]
    write(ring, np.array([3, 70]))
    assert readers.refresh(which) == 4
    write_unseen(ring, (4, 71, LANES - 1))
    assert readers.refresh(which) == (10 if everywhere else 4)
    write(ring, np.array([72, 3]))  # beside those that changed unseen
    assert readers.refresh(which) == (14 if everywhere else 12)
    ring.clear()
    assert readers.refresh(which) == 0
    assert (readers.seen[which] == ring.counters[:, [OLDEST, READY, HEAD]]).all()


@needs_native
@pytest.mark.parametrize("which", range(2))
def test_a_group_in_which_a_writer_is_at_work_is_looked_at(which):
    """Begin a call without its end, as a killed writer does."""
    ring = ring_of(BACKENDS[-1], LANES, ROWS, Window(span=1), KEEPS)
    readers = Readers(BACKENDS[-1], ring)
    write(ring, np.array([3, 70]))
    ring.touched[0, 1] += 1
    assert readers.refresh(which) == 4
    write_unseen(ring, (4, 71, LANES - 1))
    assert readers.refresh(which) == 6
    write_unseen(ring, (72,))
    assert readers.refresh(which) == 8
    ring.touched[1, 1] += 1
    write_unseen(ring, (73,))
    assert readers.refresh(which) == 10
    write_unseen(ring, (74,))
    assert readers.refresh(which) == 10


@both
def test_a_look_before_a_draw_sees_what_became_ready(kernels):
    ring = ring_of(kernels, LANES, ROWS, Window(span=1), KEEPS)
    for lanes in ([3], [LANES - 1], [3, 70], np.arange(LANES)):
        ring.kernel.look()
        before = ring.counters[:, HEAD].copy()
        write(ring, np.array(lanes), 1)
        ids = np.array([before[lane] * LANES + lane for lane in lanes])
        assert ring.kernel.overtaken(ids).all()  # not ready when it looked
        ring.kernel.look()
        assert ring.kernel.overtaken(ids) is None


@needs_native
def test_a_reader_that_failed_looks_again():
    """Check that rows taken in by a failed call are in the next one, and that nothing can be drawn before it."""
    module = BACKENDS[-1]
    ring = ring_of(module, LANES, ROWS, Window(span=1), KEEPS)
    readers = Readers(module, ring)
    write(ring, np.arange(LANES), 1)
    for which in range(2):
        readers.seen[which][140] = 9  # nobody has seen that
        with pytest.raises(ValueError, match="never seen"):
            readers.refresh(which)
        with pytest.raises(ValueError, match=r"empty|more than there are"):
            readers.queue.draw(np.zeros(1)) if which == 0 else readers.tree.draw_distinct(np.zeros(1))
        readers.seen[which][140] = 0
        assert readers.refresh(which) == LANES


@both
def test_a_tree_that_comes_to_another_ring_looks_everywhere(kernels):
    rings = [ring_of(kernels, LANES, ROWS, Window(span=1)) for _ in range(2)]
    tree, seen = kernels.Tree(*allocate(rings[0].slots)), [np.zeros((LANES, 3), np.int64) for _ in range(2)]
    for ring, own in zip(rings, seen, strict=True):
        write(ring, np.arange(LANES), 1)
        assert tree.refresh(ring.kernel, own, 1.0, 1.0) == LANES
        assert (own == [0, 1, 1]).all()
