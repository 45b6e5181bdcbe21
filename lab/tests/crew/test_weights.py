"""Weights that a learner publishes and actors read."""

from __future__ import annotations

import multiprocessing

import torch
from depth import LONG

from relive_lab.crew.weights import SharedWeights


def publish(weights: SharedWeights, numbers: int) -> None:
    for number in range(1, 2**24):
        weights.publish([torch.full((numbers,), float(number))])


def test_weights_are_never_torn() -> None:
    """Publish versions of one number each, without a pause, from another process."""
    size = 50_000
    weights, tensors = SharedWeights(size), [torch.zeros(size // 2), torch.zeros(5, size // 10)]
    process = multiprocessing.get_context("fork").Process(target=publish, args=(weights, size))
    process.start()
    version = reads = 0
    while reads < (20_000 if LONG else 200):
        before, version = version, weights.read(tensors, version)
        reads += version != before
        assert version >= before
        assert all((tensor == float(version)).all() for tensor in tensors), version
    process.kill()
    process.join()


def test_a_version_that_is_half_written_is_not_taken() -> None:
    """Check that weights stay unchanged if a slot differs from its header, as when a publisher laps a reader."""
    weights, tensors = SharedWeights(4), [torch.zeros(4)]
    weights.publish([torch.ones(4)])
    assert weights.read(tensors, 0) == 1
    weights.publish([torch.full((4,), 2.0)])
    weights._slots[0][:2] = 4.0  # version 4 begins in the slot of version 2
    assert weights.read(tensors, 1) == 1
    assert tensors[0].tolist() == [1.0] * 4
    weights.publish([torch.full((4,), 3.0)])
    assert weights.read(tensors, 1) == 3
    assert tensors[0].tolist() == [3.0] * 4
