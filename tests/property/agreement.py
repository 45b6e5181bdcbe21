"""Comparing batches with what the model says."""

from __future__ import annotations

from typing import Any

import numpy as np
from oracle import OracleBuffer
from oracle_items import WHOLE
from oracle_stacks import leaves

import relive

FLOATS = {"rtol": 1e-5, "atol": 1e-5}
COMPUTED = ("reward", "discount", "prev_reward", "all_prev_reward", "steps", "terminated", "truncated", "mask")


def assert_items(batch: relive.Batch, items: list[dict[str, Any]], whole: tuple[str, ...] | None = None) -> None:
    """Every row of the batch is its item: copies to the byte, computed floats within float32 rounding.

    `whole` are the fields without a time axis in a time-major batch; None: the batch axis is always the first.
    """
    assert set(batch) == {*items[0], *WHOLE}
    for name in items[0]:
        axis = 0 if whole is None or name in whole else 1
        for got, *want in zip(leaves(batch[name]), *(leaves(item[name]) for item in items), strict=True):
            expected = np.stack(want, axis=axis)
            assert got.shape == expected.shape, (name, got.shape, expected.shape)
            if name in COMPUTED:
                np.testing.assert_allclose(got, expected, **FLOATS, err_msg=name)
            else:
                assert got.dtype == expected.dtype, name
                assert got.tobytes() == expected.tobytes(), f"{name}: {got} is not {expected}"
    if "mask" in batch:
        assert_views(batch)


def assert_views(batch: relive.Batch) -> None:
    """Dtypes of what is computed, and arrays that are parts of others rather than copies."""
    assert (batch.mask.dtype, batch.discount.dtype, batch.steps.dtype) == (bool, np.float32, np.int32)
    for name in ("obs", "prev_action", "prev_reward"):
        for part, all_of_it in zip(leaves(batch[name]), leaves(batch[f"all_{name}"]), strict=True):
            assert part.size == 0 or np.shares_memory(part, all_of_it), name


def items_agree(batch: relive.Batch, items: list[dict[str, Any]], config: Any) -> None:
    """The same, for a batch of the buffer that `config` builds."""
    time_major = bool(config.sequences) and config.sequences["time_major"]
    assert_items(batch, items, ("state",) if time_major else None)


def assert_same_buffer(buffer: relive.ReplayBuffer, oracle: OracleBuffer, config: Any, probe: int) -> None:
    """The whole drawable set, item by item; ids outside it are refused."""
    items = oracle.items()
    assert buffer.can_sample(1) is (sum(p > 0 for p in oracle.priority.values()) > 0)
    if items:
        ids = np.array(list(items), np.int64)
        batch = buffer.read(ids)
        np.testing.assert_array_equal(batch.ids, ids)
        items_agree(batch, list(items.values()), config)
    silent = oracle.silent_ids()
    for key in silent[probe % 3 :: 3]:
        assert refused(buffer, key), f"id {key} was read and should not be drawable"
    stats = buffer.stats()
    assert (stats.added, stats.cuts, stats.stale_updates) == (oracle.added, oracle.cuts, oracle.stale)
    assert (stats.size, stats.drawable) == (oracle.stored, len(items))


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
