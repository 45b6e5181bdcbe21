"""What updates and writes of a device buffer leave; the laws of its draws are in `test_recency_on_device.py`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from depth import LONG

import relive

LANES = 4


def small(item: Any = None, **choices: Any) -> relive.DeviceBuffer:
    schema = relive.Schema(obs=relive.Field(), action=relive.Field(), latent=relive.Field(2, writable=True))
    settings = {"num_envs": LANES, "device": "cpu", "boundaries": 1.0, "item": item or relive.Transitions(), **choices}
    return relive.DeviceBuffer(schema, 48, **settings)


def fill(
    buffer: relive.DeviceBuffer, calls: int, rng: np.random.Generator, holes: float = 0.0,
    **given: Callable[[], Any],
) -> None:  # fmt: skip
    zero = torch.zeros(LANES)
    for _ in range(calls):
        ends = torch.from_numpy(rng.random(LANES) < 0.1)
        more = {"mask": torch.from_numpy(rng.random(LANES) >= holes)} if holes else {}
        more |= {name: make() for name, make in given.items()}
        buffer.add(
            obs=zero, action=zero, reward=zero, latent=torch.zeros(LANES, 2), next_obs=zero, terminated=ends,
            truncated=ends & False, continues=True, **more,
        )  # fmt: skip


def items_of(buffer: relive.DeviceBuffer, end: int = 400) -> torch.Tensor:
    ids = buffer.read(torch.arange(end)).ids
    return ids[ids >= 0]


def test_extreme_priorities() -> None:
    buffer = small(sampler=relive.Prioritized(alpha=1.0, eps=0.0), seed=5)
    fill(buffer, 20, np.random.default_rng(7))
    items = torch.arange(8 * LANES, 20 * LANES)
    buffer.update_priorities(items, torch.zeros(len(items)))
    assert not buffer.can_sample(1)
    assert (buffer.sample(8).ids == -1).all()
    with pytest.raises(relive.NotEnoughData):
        buffer.check()
    assert not buffer.host().can_sample(1)
    buffer.update_priorities(items[5:6], torch.tensor([1e-9]))
    assert (buffer.sample(8).ids == items[5]).all()
    buffer.update_priorities(items, torch.logspace(-6, 6, len(items)))
    assert buffer.sample(4096).weights.isfinite().all()


@pytest.mark.parametrize(("n_step", "holes"), [(1, 0.0), (3, 0.25)])
def test_updates(n_step: int, holes: float) -> None:
    """Duplicates, late ids, errors, priorities given with steps: against a dict."""
    rng = np.random.default_rng(8)
    buffer = small(relive.Transitions(n_step=n_step), sampler=relive.Prioritized(alpha=0.6), seed=1)
    kept, largest = dict[int, float](), 0.0
    for call in range(120 if LONG else 60):
        given = rng.random(LANES) * 3 if rng.random() < 0.3 else None
        if given is not None and rng.random() < 0.2:
            given[0] = -1.0
        part = np.random.default_rng(call).random((2, LANES))[1] >= holes  # as `fill` will draw it
        more = {} if given is None else {"priority": lambda given=given: torch.from_numpy(given)}
        fill(buffer, 1, np.random.default_rng(call), holes, **more)
        if given is not None:
            largest = max([largest, *(p for p, there in zip(given, part, strict=True) if p >= 0 and there)])
        for lane in np.flatnonzero(part).tolist():
            fit = given is not None and given[lane] >= 0
            kept[call * LANES + lane] = given[lane] if fit else largest or 1.0
        if given is not None and ((given < 0) & part).any():
            with pytest.raises(relive.PriorityError, match="negative or not finite"):
                buffer.check()
        items = items_of(buffer, (call + 1) * LANES)
        if not len(items):
            continue
        _assert_priorities(buffer, items, kept)
        ids, td = torch.from_numpy(rng.choice((call + 1) * LANES, 40)), torch.from_numpy(rng.normal(size=40))
        late = buffer.stats().stale_updates
        if rng.random() < 0.1:
            td[7] = math.nan
        buffer.update_priorities(ids, td)
        fine, drawable = bool(td.isfinite().all()), {*items.tolist()}
        if not fine:
            with pytest.raises(relive.PriorityError, match="1 TD errors"):
                buffer.check()
        for i, error in zip(ids.tolist(), td.tolist(), strict=True):
            if fine and i in drawable:
                kept[i] = abs(error) + 1e-6  # the last one counts
                largest = max(largest, kept[i])
        assert buffer.stats().stale_updates - late == (sum(i not in drawable for i in ids.tolist()) if fine else 0)
        _assert_priorities(buffer, items, kept)
    buffer.check()


def _assert_priorities(buffer: relive.DeviceBuffer, items: torch.Tensor, kept: Mapping[int, float]) -> None:
    wanted = torch.tensor([kept[i] for i in items.tolist()], dtype=torch.float32)
    torch.testing.assert_close(buffer.priorities(items), wanted, rtol=4e-6, atol=4e-6)


def test_writes() -> None:
    """Late ids are left out; of several values for a step the last one counts."""
    buffer = small(seed=1)
    fill(buffer, 60, np.random.default_rng(2))
    ids = torch.arange(180, 240).repeat(2)
    values = torch.arange(2.0 * len(ids)).view(-1, 2)
    buffer.write(ids, latent=values)
    read = buffer.read(ids[:60])
    there = read.ids >= 0
    assert 0 < there.sum() < 60
    assert torch.equal(read.latent[there], values[60:][there])
