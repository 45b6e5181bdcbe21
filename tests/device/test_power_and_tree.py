"""Powers, trees and draws in torch ops have the bits of the NumPy kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from needs import needs

torch = needs("torch")

from device_trees import CAPACITIES, Twins, leaves, ring_with_a_life, some_ids, twins, uniforms
from relive.device._power import power
from relive.device._random import key_of
from torch.utils._python_dispatch import TorchDispatchMode

from relive import Anneal, Prioritized
from relive._ring import kernels_numpy
from relive._ring.kernels_numpy.power import power as numpy_power
from relive._ring.plans import State
from relive.device import _draw, _tree, _update
from relive.samplers._priorities import ProportionalSampling

NUMBERS = [0.0, 5e-324, 1e-310, 2.0**-1022, 2.0**-1000, 1.0, 2.0**960, 1.5e300]
SCALES = ["batch", "buffer", "none"]


@pytest.mark.parametrize("exponent", [0.0, 1e-3, 0.4, 0.5, 0.6, 1.0, 1.7, 4.0])
def test_powers(exponent: float) -> None:
    """An exponent that is a number, and one that may move."""
    rng = np.random.default_rng(0)
    x = np.concatenate([10.0 ** rng.uniform(-320, 305, 4000), rng.random(500), NUMBERS])
    expected = numpy_power(x, exponent).tobytes()
    assert power(torch.from_numpy(x), exponent).numpy().tobytes() == expected
    moving = torch.tensor(exponent, dtype=torch.float64)
    assert power(torch.from_numpy(x), moving).numpy().tobytes() == expected


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_draws(capacity: int) -> None:
    """Over 36 decades, with zeros, from the least to the largest uniform."""
    rng, doubtful = np.random.default_rng(capacity), 0
    for _ in range(4):
        pair = twins(capacity, leaves(rng, capacity))
        pair.assert_same()
        for stratified in (True, False):
            u = uniforms(rng, 500)
            expected = pair.kernel.draw(u, stratified)
            slots, values = _tree.draw(pair.tree, torch.from_numpy(u), stratified)
            np.testing.assert_array_equal(slots.numpy(), expected.leaves)
            assert values.numpy().tobytes() == expected.values.tobytes()
        targets = np.array([0.0, pair.state[0], np.nextafter(pair.state[0], 0.0), 2 * pair.state[0]])
        np.testing.assert_array_equal(_tree.find(pair.tree, torch.from_numpy(targets)), pair.kernel.find(targets)[0])
        doubtful += int((pair.nodes[:capacity] == 0).any())
    assert doubtful or capacity == 1


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_writes(capacity: int) -> None:
    """Leaves, sums, minima and the state: distinct slots under a mask, and several values for one slot."""
    rng, pair = np.random.default_rng(capacity), twins(capacity)
    for n in (1, 2, 5, 64, 300):
        slots, values, mask = rng.integers(0, capacity, n), leaves(rng, n, 0.3), rng.random(n) < 0.7
        pair.kernel.set(slots[mask], values[mask])
        _tree.put_last(pair.tree, *map(torch.from_numpy, (slots, values, mask)))
        _tree.rebuild(pair.tree, torch.from_numpy(slots))
        pair.assert_same()
        some = rng.permutation(capacity)[:n]
        values, mask = leaves(rng, len(some), 0.3), rng.random(len(some)) < 0.7
        pair.kernel.set(some[mask], values[mask])
        _tree.put_distinct(pair.tree, *map(torch.from_numpy, (some, values, mask)))
        _tree.rebuild(pair.tree, torch.from_numpy(some))
        pair.assert_same()


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.6, 1.0]), st.sampled_from([0.0, 1e-6]))
def test_priorities(seed: int, alpha: float, eps: float) -> None:
    """The last of several for one slot wins; the largest is that of those that won."""
    rng = np.random.default_rng(seed)
    capacity = int(rng.choice(CAPACITIES))
    pair = twins(capacity)
    for n in (3, 40, 200):
        slots, keep = rng.integers(0, capacity, n), rng.random(n) < 0.8
        td = np.round(rng.standard_normal(n), 1) * 10.0 ** rng.integers(-9, 9)
        assert pair.kernel.update(slots, td, keep, eps, alpha)
        raw = torch.from_numpy(td).abs() + eps
        _tree.set_priorities(pair.tree, torch.from_numpy(slots), raw, torch.from_numpy(keep), alpha)
        pair.assert_same()


def sampling(pair: Twins, settings: Prioritized) -> tuple[ProportionalSampling, Any]:
    """What draws from the NumPy kernel, and the draws of its twin."""
    return ProportionalSampling(settings, pair.kernel, pair.state, np.zeros(2)), torch.zeros(2, dtype=torch.float64)


@pytest.mark.parametrize("weights", SCALES)
@pytest.mark.parametrize("beta", [0.4, 1.0, Anneal(0.4, 1.0, 7)])
@pytest.mark.parametrize("stratified", [True, False])
def test_draws_with_weights(weights: str, beta: float | Anneal, stratified: bool) -> None:
    """From the same generator, beta moving, or in its place a number or a tensor."""
    settings = Prioritized(beta=beta, weights=weights, stratified=stratified)
    rng, bits = np.random.default_rng(3), np.random.Philox(7)
    pair = twins(1000, leaves(rng, 1000, 0.2))
    ours, draws = sampling(pair, settings)
    key, position = key_of(bits)
    generator = np.random.Generator(bits)
    for call in range(10):
        n = int(rng.integers(1, 300))
        other = 0.7 if call in (4, 5) else None
        given = torch.tensor(0.7, dtype=torch.float64) if call == 5 else other
        expected = ours.draw(n, generator, other)
        drawn = _draw.prioritized(pair.tree, draws, key, position, n, settings, given)
        np.testing.assert_array_equal(drawn.slots.numpy(), expected.slots)
        assert drawn.weights.numpy().tobytes() == np.asarray(expected.weights).tobytes()
        assert draws.tolist() == [call + 1, expected.beta]


class DividedByTensors(TorchDispatchMode):
    """Refuses a number as divisor: CUDA multiplies by its reciprocal, which no test on a CPU would show."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert not func._schema.name.startswith("aten::div") or isinstance(args[1], torch.Tensor)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("weights", SCALES)
def test_divisors_are_tensors(weights: str) -> None:
    settings, pair = Prioritized(beta=Anneal(0.4, 1.0, 7), weights=weights), twins(9, np.ones(9))
    draws = torch.zeros(2, dtype=torch.float64)
    with DividedByTensors():
        drawn = _draw.prioritized(pair.tree, draws, *key_of(np.random.Philox(7)), 9, settings)
        _tree.set_priorities(pair.tree, drawn.slots, torch.ones(9).double(), drawn.weights > 0, 0.6)
        with pytest.raises(AssertionError):
            draws / 3.0


@pytest.mark.parametrize("weights", SCALES)
def test_a_draw_of_an_empty_tree_stays_inside(weights: str) -> None:
    settings, draws = Prioritized(weights=weights), torch.zeros(2, dtype=torch.float64)
    tree = twins(1000).tree
    tree.state[4] = 0.0
    drawn = _draw.prioritized(tree, draws, *key_of(np.random.Philox(7)), 9, settings)
    assert drawn.slots.tolist() == [0] * 9
    assert drawn.weights.tolist() == [0.0] * 9
    assert tree.state[_tree.COUNT] == 0


@pytest.mark.parametrize(("lanes", "rows"), [(1, 9), (3, 8), (7, 33), (64, 20)])
def test_uniform_draws(lanes: int, rows: int) -> None:
    """Of the anchors in a ring's queue, from the first step on."""
    rng, bits = np.random.default_rng(lanes), np.random.Philox(7)
    (key, position), generator = key_of(bits), np.random.Generator(bits)
    for calls in (0, 1, 2, 30):
        ring = ring_with_a_life(rng, lanes, rows, calls)
        places, ends = np.zeros((lanes, rows), np.int32), np.zeros((lanes, 4), np.int64)
        queue = kernels_numpy.Queue(ring.kernel, places, None, ends, np.zeros((lanes, 3), np.int64))
        items = queue.refresh()
        counts = _draw.running(torch.from_numpy(ends))
        assert counts[-1] == items
        slots = _draw.uniform(torch.from_numpy(places), torch.from_numpy(ends), counts, key, position, 200)
        u = generator.random(200)
        assert ((slots >= 0) & (slots < lanes * rows)).all()
        if items:
            np.testing.assert_array_equal(slots, queue.draw(u))


@pytest.mark.parametrize(("lanes", "rows"), [(1, 9), (3, 40), (7, 300)])
def test_updates_by_id(lanes: int, rows: int) -> None:
    """Late ids are left out and counted; one that no step ever had, or one NaN, and nothing but counts changes."""
    rng = np.random.default_rng(lanes)
    ring, pair = ring_with_a_life(rng, lanes, rows, 120), twins(lanes * rows)
    marks, counters = map(torch.from_numpy, (ring.kernel.marks, ring.kernel.counters))
    late, expected = torch.zeros(4, dtype=torch.int64), np.zeros(4, np.int64)
    for call in range(12):
        ids = some_ids(rng, ring, 200)
        slots, states = ring.kernel.locate(ids)
        assert states is not None
        located = _update.locate(marks, counters, rows, torch.from_numpy(ids))
        np.testing.assert_array_equal(located.drawable, states == State.DRAWABLE)
        np.testing.assert_array_equal(located.unknown, states == State.NEVER_ISSUED)
        np.testing.assert_array_equal(located.slots[located.drawable], slots[states == State.DRAWABLE])
        if call % 3:
            known = states != State.NEVER_ISSUED
            ids, slots, states = ids[known], slots[known], states[known]
        td = rng.standard_normal(len(ids)).astype(np.float32 if call % 2 else np.float64)
        if call % 3 == 2:
            td[:: len(td) // 3] = [math.nan, math.inf, -math.inf, 0.0][: len(td[:: len(td) // 3])]
        unknown, infinite = int((states == State.NEVER_ISSUED).sum()), int((~np.isfinite(td)).sum())
        expected += (0, unknown, infinite, 0)
        if not unknown and not infinite:
            keep = states == State.DRAWABLE
            assert pair.kernel.update(slots, td.astype(np.float64), keep, 1e-6, 0.6)
            expected += ((~keep).sum(), 0, 0, len(ids))
        _update.update(pair.tree, marks, counters, rows, torch.from_numpy(ids), torch.from_numpy(td), late, 1e-6, 0.6)
        pair.assert_same()
        np.testing.assert_array_equal(late, expected)
    assert (expected > 0).all()
    assert pair.state[3] > 0
