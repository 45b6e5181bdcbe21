"""Comparing batches with what the model says."""

from __future__ import annotations

import numpy as np
from oracle import Item, OracleBuffer, leaves

import relive

FLOATS = {"rtol": 1e-5, "atol": 1e-5}


def assert_items(batch: relive.Batch, items: list[Item]) -> None:
    """Every row of the batch is its item: copies to the byte, computed floats within float32 rounding."""
    for name in ("obs", "action", "next_obs"):
        for got, *want in zip(leaves(batch[name]), *(leaves(getattr(i, name)) for i in items), strict=True):
            expected = np.stack(want)
            assert (got.shape, got.dtype) == (expected.shape, expected.dtype), name
            assert got.tobytes() == expected.tobytes(), f"{name}: {got} is not {expected}"
    np.testing.assert_allclose(batch.reward, [i.reward for i in items], **FLOATS)
    np.testing.assert_allclose(batch.discount, [i.discount for i in items], **FLOATS)
    for name in ("terminated", "truncated", "steps"):
        np.testing.assert_array_equal(batch[name], [getattr(i, name) for i in items], err_msg=name)
    for name in items[0].extras:
        for got, *want in zip(leaves(batch[name]), *(leaves(i.extras[name]) for i in items), strict=True):
            assert got.tobytes() == np.stack(want).tobytes(), name


def assert_same_buffer(buffer: relive.ReplayBuffer, oracle: OracleBuffer, probe: int) -> None:
    """The whole drawable set, item by item; ids outside it are refused."""
    items = oracle.items()
    assert buffer.can_sample(1) is (sum(p > 0 for p in oracle.priority.values()) > 0)
    if items:
        ids = np.array(list(items), np.int64)
        batch = buffer.read(ids)
        np.testing.assert_array_equal(batch.ids, ids)
        assert_items(batch, list(items.values()))
    silent = oracle.silent_ids()
    for key in silent[probe % 3 :: 3]:
        assert refused(buffer, key), f"id {key} was read and should not be drawable"
    stats = buffer.stats()
    assert (stats.added, stats.cuts, stats.stale_updates) == (oracle.added, oracle.cuts, oracle.stale)


def refused(buffer: relive.ReplayBuffer, key: int) -> bool:
    """True when `read` says that this id is not drawable."""
    try:
        buffer.read([key])
    except relive.errors.StaleId:
        return True
    return False


def assert_priorities(buffer: relive.ReplayBuffer, oracle: OracleBuffer, alpha: float) -> None:
    """Raw priorities of every drawable id; with alpha = 0 only whether they are positive is kept."""
    ids = oracle.anchors()
    if ids:
        raw = np.array([oracle.priority[i] for i in ids])
        np.testing.assert_allclose(buffer.priorities(ids), raw if alpha else raw > 0, rtol=1e-11)
