"""`Once` draws every item as often as it may, in order: through saves, overwriting, limiters and blends."""

from __future__ import annotations

import copy
import pickle
import threading
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from counted import extend, make
from depth import pairs
from laws import Queue, lanes_of
from sizes import with_sizes

import relive
from relive.errors import ArgumentError, NotEnoughData, RateLimitTimeout

pytestmark = pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
FORMS = [(1, 1, 1), (2, 1, 1), (1, 3, 1), (3, 4, 1), (3, 2, 3)]  # uses, lanes, every


@pytest.mark.parametrize(("form", "order"), pairs(FORMS, ["newest", "oldest"]))
def test_every_item_in_order(form: tuple[int, int, int], order: str, tmp_path: Path) -> None:
    """Compare with a list: lanes at different speeds, ends and cuts, overwriting, saves, copies and loads between."""
    uses, lanes, every = form
    rng = np.random.default_rng(5)
    buffer, queue = make(relive.Once(uses=uses, order=order, every=every), lanes), Queue(uses, order)
    for number in range(150):
        lane, n = int(rng.integers(lanes)), int(rng.integers(1, 12))
        extend(buffer, n * (lane + 1), lane, ends=rng.random(n * (lane + 1)) < 0.1)
        if number % 7 == 3:
            buffer.cut([lane])
        queue.take_in([key for key in chain(*lanes_of(buffer)) if key // lanes % every == 0])
        if number % 40 == 20:
            buffer.save(tmp_path)
            buffer = relive.load(tmp_path)
        if number % 40 == 30:
            buffer = copy.deepcopy(buffer) if number % 80 == 30 else pickle.loads(pickle.dumps(buffer))
        for size in (int(rng.integers(1, 9)), int(rng.integers(1, 30 if number % 5 else 3))):
            assert buffer.can_sample(size) == (len(queue.left) >= size)
            if len(queue.left) >= size and number % 30 < 20:  # for ten calls nothing is drawn
                assert buffer.sample(size).ids.tolist() == queue.draw(size)
        assert buffer.stats().unused == queue.unused
    assert queue.unused > 20
    assert sum(count == uses for count in queue.drawn.values()) > 50


@with_sizes(late=8)
def test_a_long_backlog() -> None:
    """Check that keys are put among others in time, and that gone ones do not pile up."""
    buffer, queue = make(relive.Once(order="newest"), 2, 60), Queue(1, "newest")
    for number in range(200):
        extend(buffer, 5, number % 2)
        queue.take_in([*chain(*lanes_of(buffer))])
        assert buffer.sample(2).ids.tolist() == queue.draw(2)
        _, main, late, _ = buffer._core.index._waiting
        assert len(main) + len(late) < 200


def test_nothing_left() -> None:
    buffer = make(relive.Once())
    extend(buffer, 5)
    buffer.sample(3)
    with pytest.raises(NotEnoughData, match=r"at least 3 drawable items.*got 2.*2 of 5 items are left"):
        buffer.sample(3)
    with pytest.raises(ArgumentError, match="a sampler that knows probabilities"):
        buffer.probability([0])
    buffer.clear()
    assert not buffer.can_sample(1)


def test_with_a_limiter_it_waits() -> None:
    """Check that a draw waits for items, and ends in time where none come."""
    buffer = make(relive.Once(), limiter=relive.RateLimiter(100.0, min_size=1, error_buffer=1e6, timeout=20.0))
    extend(buffer, 2)
    adding = threading.Timer(0.2, extend, (buffer, 3))
    adding.start()
    assert buffer.sample(5).ids.tolist() == [0, 1, 3, 4, 5]  # an observation stands between the two streams
    adding.join()
    short = make(relive.Once(), limiter=relive.RateLimiter(100.0, min_size=1, error_buffer=1e6, timeout=0.1))
    extend(short, 2)
    assert short.sample(2).ids.tolist() == [0, 1]
    with pytest.raises(RateLimitTimeout, match="more items"):
        short.sample(1)


def test_in_a_blend() -> None:
    """Check that new items come first and once, and that the others take what is left; and their weights."""
    blend = relive.Blend((relive.Once(), 0.5), (relive.Uniform(), 0.4), (relive.Recent(share=0.1), 0.1), shuffle=False)
    buffer = make(blend, rows=200)
    extend(buffer, 30)
    assert buffer.sample(20).ids[:10].tolist() == list(range(10))
    assert buffer.sample(20).ids[:10].tolist() == list(range(10, 20))
    assert buffer.sample(30).ids[:10].tolist() == list(range(20, 30))
    drawn = np.concatenate([buffer.sample(50).ids for _ in range(400)])
    expected = buffer.probability(np.arange(30)) * len(drawn)
    assert (abs(np.bincount(drawn, minlength=30) - expected) < 6 * np.sqrt(expected)).all()
    with_weights = relive.Blend((relive.Once(), 0.5), (relive.Prioritized(beta=1.0, weights="none"), 0.5))
    buffer = make(with_weights, rows=200)
    extend(buffer, 30)
    buffer.update_priorities(np.arange(30), np.arange(1.0, 31.0))
    batch = buffer.sample(16)
    masses = (np.arange(1.0, 31.0) + 1e-6) ** 0.6
    np.testing.assert_allclose(batch.weights, masses.sum() / 30 / masses[batch.ids], rtol=1e-6)


def test_more_uses_than_are_counted() -> None:
    with pytest.raises(ArgumentError, match="at most 255"):
        relive.Once(uses=256)
