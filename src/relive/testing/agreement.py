"""Comparing a buffer with its oracle, and batches with each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .._base.types import Array, Bool
from ..batch import Batch
from ..buffer import ReplayBuffer
from ..errors import StaleId
from .nests import by_name, leaves
from .oracle import OracleBuffer

# Fields that are computed, not copied: they agree within the rounding of float32, all others to the byte.
COMPUTED = frozenset(
    {"reward", "discount", "prev_reward", "all_prev_reward", "steps", "terminated", "truncated", "mask"}
)


def check(condition: object, message: object) -> None:
    """Raise an `AssertionError` unless `condition` holds; unlike `assert`, also under `python -O`."""
    if not condition:
        raise AssertionError(message)


def check_bytes(got: Array, want: Array, name: str) -> None:
    """Raise an `AssertionError` unless two arrays are the same to the byte: dtype, shape, NaNs and signs of zeros."""
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        raise AssertionError(f"{name}: {got.dtype} {got.shape}, not {want.dtype} {want.shape}")
    if got.tobytes() != want.tobytes():  # text of arrays takes a hundred times as long as their comparison
        raise AssertionError(f"{name}: {got} is not {want}")


def _check_close(got: Array, want: Array, tolerance: float, name: str) -> None:
    """Raise an `AssertionError` unless numbers agree; in the usual case, without the ways of NumPy's own check."""
    with np.errstate(invalid="ignore"):
        gap = np.subtract(got, want, dtype=np.float64) if got.shape == want.shape else np.array(np.nan)
        near: Bool = np.abs(gap) < tolerance * (1 + np.abs(want))
    if not near.all():
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=name)


def refuses(error: type[Exception], method: Callable[..., object], *arguments: Any, **named: Any) -> None:
    """Raise an `AssertionError` unless the call raises `error`."""
    try:
        method(*arguments, **named)
    except error:
        return
    raise AssertionError(f"`{method.__name__}` was not refused with `{error.__name__}`")


def is_refused(buffer: ReplayBuffer, key: int) -> bool:
    """Return True if `read` refuses this id."""
    try:
        buffer.read([key])
    except StaleId:
        return True
    return False


def assert_same_batch(ours: Batch, theirs: Batch, without: tuple[str, ...] = (), rtol: float = 0.0) -> None:
    """Check every field to the byte, and computed ones to `rtol`."""
    check(set(ours) == set(theirs), f"fields {sorted(ours)}, not {sorted(theirs)}")
    for name in set(ours) - set(without):
        for (path, one), other in zip(by_name(ours[name], name).items(), leaves(theirs[name]), strict=True):
            if rtol and name in ("reward", "discount", "weights"):
                _check_close(one, other, rtol, name)
            else:
                check_bytes(one, other, path)


def assert_items(batch: Batch, items: list[dict[str, Any]], whole: Iterable[str] | None = None) -> None:
    """Check that every row of the batch equals its item, to the byte and of the same dtypes.

    Fields called reward, discount, prev_reward, all_prev_reward, steps, terminated, truncated and mask are computed:
    they agree within the rounding of float32.

    Args:
        batch: What `sample` or `read` returned.
        items: The oracle's items, one per row.
        whole: Of a time-major batch, the fields without a time axis; None: the batch axis is always the first.

    Raises:
        AssertionError: They differ; the message names the field, `obs.image` where it is nested.

    >>> batch = Batch({"obs": np.zeros(2), "ids": np.arange(2), "weights": np.ones(2)})
    >>> assert_items(batch, [{"obs": np.zeros(())}, {"obs": np.zeros(())}])
    """
    check(set(batch) == {*items[0], "ids", "weights"}, f"fields {sorted(batch)}, not {sorted(items[0])}")
    for name in items[0]:
        axis = 0 if whole is None or name in whole else 1
        arrays = by_name(batch[name], name).items()
        for (path, got), *want in zip(arrays, *(leaves(item[name]) for item in items), strict=True):
            expected = np.stack(want, axis=min(axis, np.ndim(want[0])))
            if name in COMPUTED:
                check(got.shape == expected.shape, f"{name}: shape {got.shape}, not {expected.shape}")
                _check_close(got, expected, 1e-5, name)
            else:
                check_bytes(got, expected, path)


def assert_same_buffer(
    buffer: ReplayBuffer, oracle: OracleBuffer, whole: Iterable[str] | None = None, probe: int = 0
) -> None:
    """Check the whole drawable set, item by item, and the counters; ids outside the set are refused.

    Where priorities are updated, the oracle is told so by its own `update`.

    Args:
        buffer: The buffer under test.
        oracle: Its model, fed with the same steps.
        whole: As in `assert_items`.
        probe: Every third undrawable id is tried, from `probe % 3` on: count it up from call to call.

    Raises:
        AssertionError: They differ.

    >>> from relive.testing import GO, STAY, SCHEMAS, Script, SyntheticEnvs, TransitionsModel
    >>> buffer = ReplayBuffer(SCHEMAS["flat"], 10)
    >>> oracle = OracleBuffer.of(buffer, TransitionsModel(n=1, gamma=0.99))
    >>> steps = SyntheticEnvs(buffer.schema, 1).rollout([0], 25, Script([GO], [STAY], give_next=True))
    >>> bool((buffer.extend(**steps) == oracle.extend([0], steps)).all())
    True
    >>> assert_same_buffer(buffer, oracle)
    """
    items = oracle.items()
    can_draw = any(priority > 0 for priority in oracle.priority.values())
    check(buffer.can_sample(1) is can_draw, f"can_sample(1) is not {can_draw}")
    if items:
        ids = np.array(list(items), np.int64)
        batch = buffer.read(ids)
        check_bytes(batch.ids, ids, "ids")
        assert_items(batch, list(items.values()), whole)
    for key in oracle.undrawable()[probe % 3 :: 3]:
        check(is_refused(buffer, key), f"id {key} was read and should not be drawable")
    assert_same_streams(buffer, oracle, probe)
    stats, lanes = buffer.stats(), oracle.lanes
    got = (stats.added, stats.cuts, stats.size, stats.drawable)
    want = (sum(lane.steps for lane in lanes), sum(lane.cuts for lane in lanes), len(oracle.anchors()), len(items))
    check(got == want, f"(added, cuts, size, drawable) are {got}, not {want}")
    check(stats.stale_updates == oracle.stale, f"stale updates are not {oracle.stale}")


def assert_same_streams(buffer: ReplayBuffer, oracle: OracleBuffer, probe: int = 0) -> None:
    """Check that stored steps are the oracle's, in the same rows, and that steps ahead or back lead to the same ids."""
    anchors = oracle.anchors()
    ids = np.array(sorted(anchors), np.int64)
    steps = (np.arange(len(ids)) + probe) % 11 - 5
    reached, made = buffer.follow(ids, steps)
    want = oracle.follow(ids.tolist(), steps.tolist())
    if list(zip(reached.tolist(), made.tolist(), strict=True)) != want:
        raise AssertionError(f"{steps} steps from {ids}")
    check((buffer.follow(reached, -made).ids == ids).all(), "back is not where the steps began")
    places = np.full((oracle.num_envs, oracle.rows_per_lane), -1)
    places[ids % oracle.num_envs, ids // oracle.num_envs % oracle.rows_per_lane] = ids
    check_bytes(buffer.column("ids"), places, "ids")
    for name in ("terminated", "truncated"):
        want_flags = np.zeros(places.shape, bool)
        want_flags[places >= 0] = [getattr(anchors[key].step, name) for key in places[places >= 0].tolist()]
        check_bytes(buffer.column(name), want_flags, name)
