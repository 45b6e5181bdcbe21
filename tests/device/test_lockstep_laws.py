"""Laws of a device buffer's draws, their weights, and what updates and writes leave."""

from __future__ import annotations

import collections
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


def check_law(buffer: relive.DeviceBuffer, chances: Mapping[int, float]) -> None:
    """Compare draws with their law by chi-square, within four standard deviations."""
    draws = 40 if LONG else 10
    ids = torch.cat([buffer.sample(4096).ids for _ in range(draws)])
    counts = collections.Counter(ids.tolist())
    possible = {i: chance for i, chance in chances.items() if chance > 0}
    assert counts.keys() <= possible.keys()
    found = sum((counts[i] - len(ids) * p) ** 2 / (len(ids) * p) for i, p in possible.items())
    freedom = len(possible) - 1
    assert abs(found - freedom) < 4 * math.sqrt(2 * freedom), found


@pytest.mark.parametrize(
    ("holes", "starts", "calls"), [(0.0, 1, 40), (0.4, 1, 40), (0.0, 3, 41), (0.3, 2, 39), (0.0, 1, 5)]
)
def test_uniform_draws_are_even(holes: float, starts: int, calls: int) -> None:
    item = relive.Sequences(2, n_step=2, starts=starts) if starts > 1 else relive.Transitions(n_step=2)
    buffer = small(item, seed=11)
    fill(buffer, calls, np.random.default_rng(7), holes)
    items = items_of(buffer).tolist()
    check_law(buffer, {i: 1 / len(items) for i in items})


@pytest.mark.parametrize("weights", ["batch", "buffer", "none"])
@pytest.mark.parametrize("holes", [0.0, 0.3])
@pytest.mark.parametrize("stratified", [False, True])
def test_prioritized_draws_and_their_weights(stratified: bool, holes: float, weights: str) -> None:
    rng = np.random.default_rng(7)
    sampler = relive.Prioritized(alpha=0.7, beta=0.5, stratified=stratified, weights=weights)
    buffer = small(sampler=sampler, seed=4)
    fill(buffer, 40, rng, holes)
    items = items_of(buffer)
    td = torch.from_numpy(np.exp(rng.normal(size=len(items)) * 2))
    buffer.update_priorities(items, td)
    torch.testing.assert_close(buffer.priorities(items).double(), td + 1e-6, rtol=2e-6, atol=0)
    mass = (td + 1e-6) ** 0.7
    chance = mass / mass.sum()
    of = dict(zip(items.tolist(), chance.tolist(), strict=True))
    batch = buffer.sample(1024)
    raw = torch.tensor([(len(items) * of[i]) ** -0.5 for i in batch.ids.tolist()])
    divisor = {"batch": raw.max(), "buffer": (len(items) * chance.min()) ** -0.5, "none": 1.0}[weights]
    torch.testing.assert_close(batch.weights, (raw / divisor).float(), rtol=1e-6, atol=1e-6)
    if weights == "batch" and not stratified:
        check_law(buffer, of)
    elif weights == "batch":  # in every batch, an item is drawn within two of its share
        for _ in range(20):
            counts = torch.bincount(buffer.sample(512).ids, minlength=400)[items]
            assert ((counts - 512 * chance).abs() <= 2).all()


def test_extreme_priorities() -> None:
    buffer = small(sampler=relive.Prioritized(alpha=1.0, eps=0.0), seed=5)
    fill(buffer, 20, np.random.default_rng(7))
    items = torch.arange(8 * LANES, 20 * LANES)
    buffer.update_priorities(items, torch.zeros(len(items)))
    assert not buffer.can_sample(1)
    assert (buffer.sample(8).ids == -1).all()
    with pytest.raises(relive.NotEnoughData):
        buffer.check()
    buffer.update_priorities(items[5:6], torch.tensor([1e-9]))
    assert (buffer.sample(8).ids == items[5]).all()
    buffer.update_priorities(items, torch.logspace(-6, 6, len(items)))
    assert buffer.sample(4096).weights.isfinite().all()


def test_a_beta_that_moves() -> None:
    rng, anneal = np.random.default_rng(7), relive.Anneal(0.4, 1.0, over=4)
    buffer = small(sampler=relive.Prioritized(beta=anneal), seed=5)
    fill(buffer, 20, rng, priority=lambda: torch.from_numpy(rng.random(LANES) + 0.1))
    every = torch.arange(8 * LANES, 20 * LANES)
    raw = dict(zip(every.tolist(), buffer.priorities(every).tolist(), strict=True))
    for call in range(7):
        batch = buffer.sample(64)
        wanted = torch.tensor([raw[i] ** 0.6 for i in batch.ids.tolist()]) ** -anneal.at(call)
        torch.testing.assert_close(batch.weights, wanted / wanted.max(), rtol=1e-5, atol=1e-5)
        assert abs(buffer.stats().beta - anneal.at(call)) < 1e-9


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


def test_draws_go_on_after_each_other() -> None:
    """The same seed gives the same run; another one gives another."""
    runs = []
    for seed in (0, 0, 1):
        buffer = small(sampler=relive.Prioritized(), seed=seed)
        fill(buffer, 20, np.random.default_rng(0))
        runs.append([buffer.sample(8).ids.tolist() for _ in range(3)])
    assert runs[0] == runs[1] != runs[2]
