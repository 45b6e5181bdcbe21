"""`Prioritized(newest="stored")`: new items get the largest priority that is stored, not the largest ever set."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import LONG, pairs
from local import local_shards

import relive
from relive._base.priorities import falling
from relive._buffer import drawing
from relive._ring import kernels as _kernels
from relive.errors import ArgumentError
from relive.testing._lives import BACK_ENDS

LANES, STEPS, INITIAL = 2, 12, 3.0
SCHEMA = relive.Schema(obs=relive.Field(), action=relive.Field())


def sampler(alpha: float = 0.6, **choices: Any) -> relive.Prioritized:
    return relive.Prioritized(alpha=alpha, eps=0.0, initial=INITIAL, newest="stored", **choices)


class Model:
    """A list of priorities by id, of which each lane keeps the newest."""

    def __init__(self) -> None:
        self.raw: dict[int, float] = {}
        self.largest = 0.0

    def add(self, ids: np.ndarray, given: np.ndarray | None) -> None:
        for number, key in enumerate(ids.tolist()):
            self.raw[key] = (self.largest or INITIAL) if given is None else float(given[number])
        if given is not None:
            self.largest = max(self.largest, float(given.max()))
        for lane in range(LANES):
            kept = sorted(key for key in self.raw if key % LANES == lane)
            for key in kept[:-STEPS]:
                del self.raw[key]

    def update(self, ids: np.ndarray, errors: np.ndarray) -> None:
        for key, error in zip(ids.tolist(), np.abs(errors).tolist(), strict=True):
            if key in self.raw:
                self.raw[key] = error
        self.largest = max(self.raw.values())

    def clear(self) -> None:
        self.raw, self.largest = {}, 0.0


def steps(t: int) -> dict[str, Any]:
    now, no = np.full(LANES, float(t)), np.zeros(LANES, bool)
    return {"obs": now, "action": now, "reward": now, "next_obs": now + 1, "terminated": no, "truncated": no}


def live(buffer: relive.ReplayBuffer, model: Model, rng: np.random.Generator, calls: int, start: int = 0) -> list[Any]:
    """Run a random program on both; return the draws."""
    drawn = []
    for t in range(start, start + calls):
        given = np.round(rng.exponential(2, LANES), 2) if rng.random() < 0.2 else None
        model.add(buffer.add(**steps(t), **({} if given is None else {"priority": given})), given)
        if given is not None:
            buffer.can_sample(1)  # what is given counts as long as it is stored when the sampler looks
        if rng.random() < 0.5 and buffer.can_sample(4):
            batch = buffer.sample(4)
            drawn.append((batch.ids.copy(), batch.weights.copy()))
            # Few values, so that some are equal, and now and then one that is much larger, or 0.
            errors = rng.choice([0.0, 0.5, 1.0, 2.0, 1e6], 4, p=[0.05, 0.4, 0.3, 0.2, 0.05])
            late = rng.random() < 0.2
            ids = np.concatenate([batch.ids, [0]]) if late else batch.ids
            errors = np.append(errors, 5.0) if late else errors
            buffer.update_priorities(ids, errors)
            model.update(ids, errors)
        if rng.random() < 0.01:
            buffer.clear()
            model.clear()
        keys = np.array(sorted(model.raw), np.int64)
        np.testing.assert_array_equal(buffer.priorities(keys), [model.raw[key] for key in keys.tolist()])
        if len(keys) and not any(model.raw.values()):  # nothing could be drawn
            model.update(keys[:1], np.ones(1))
            buffer.update_priorities(keys[:1], np.ones(1))
    return drawn


def opened(storage: str, tmp_path: Path, **choices: Any) -> relive.ReplayBuffer:
    where = {"ram": relive.Ram, "shared": relive.Shared, "mapped": lambda: relive.Mapped(tmp_path / "ring")}[storage]()
    choices = {"sampler": sampler(), **choices}
    return relive.ReplayBuffer(SCHEMA, LANES * STEPS, num_envs=LANES, storage=where, seed=0, **choices)


@pytest.mark.parametrize(
    ("storage", "form"), pairs(["ram", "shared", "mapped", "ram"], [*product([True, False], [0.6, 1.0, 0.0])][::-1])
)
def test_priorities_are_those_of_a_list(storage: str, form: tuple[bool, float], tmp_path: Path) -> None:
    """Check to the bit, for every alpha: raw priorities are kept unchanged; both kernels draw the same."""
    replacement, alpha = form
    back_ends = BACK_ENDS if storage == "ram" else [name for name in BACK_ENDS if name == "native"]
    runs = []
    for name in back_ends:
        with _kernels.use(name), opened(storage, tmp_path, sampler=sampler(alpha, replacement=replacement)) as buffer:
            calls = 3000 if LONG else 75 if name == "numpy" else 400
            runs.append(live(buffer, Model(), np.random.default_rng(1), calls))
    if not runs:
        pytest.skip("only native kernels share")
    for (ids, weights), (others, their_weights) in zip(runs[0], runs[-1], strict=False):
        np.testing.assert_array_equal(ids, others)
        np.testing.assert_array_equal(weights, their_weights)


@pytest.mark.parametrize("how", ["another layout", "reopen"])
def test_it_goes_on_as_it_was(how: str, tmp_path: Path) -> None:
    """Check where the contract does not: in a save of another layout, and in a file."""
    if how == "reopen" and not _kernels.is_native():
        pytest.skip("only native kernels map")
    model, rng = Model(), np.random.default_rng(3)
    buffer = opened("mapped" if how == "reopen" else "ram", tmp_path)
    live(buffer, model, rng, 100)
    if how == "reopen":
        buffer.close()
        again = relive.open(tmp_path / "ring")
    else:
        buffer.save(tmp_path / "saves")
        again = relive.load(tmp_path / "saves", boundaries=0.5)
    assert again.sampler == buffer.sampler
    keys = np.array(sorted(model.raw), np.int64)
    np.testing.assert_array_equal(again.priorities(keys), [model.raw[key] for key in keys.tolist()])
    if how == "another layout":  # priorities are given to the sampler anew; a reader does not add
        model.largest = max(model.raw.values())
        live(again, model, rng, 100, start=100)


def test_loads_under_other_choices(tmp_path: Path) -> None:
    """Check that raw priorities are kept, also for another alpha; the largest of the stored ones counts then."""
    buffer = opened("ram", tmp_path, sampler=sampler(0.0))
    ids = np.concatenate([buffer.add(**steps(t)) for t in range(3)])
    buffer.update_priorities(ids, [1e6, 2.0, 0.5, 0.25, 4.0, 0.0])
    buffer.update_priorities(ids[:1], [1.0])
    buffer.save(tmp_path / "saves")
    wanted = [1.0, 2.0, 0.5, 0.25, 4.0, 0.0]
    for other in (sampler(0.6), sampler(0.0), relive.Prioritized(alpha=0.6, eps=0.0)):
        loaded = relive.load(tmp_path / "saves", sampler=other)
        np.testing.assert_allclose(loaded.priorities(ids), wanted, rtol=1e-15)
        assert loaded.priorities(loaded.add(**steps(3))).tolist() == pytest.approx([4.0, 4.0])
    earlier = relive.Prioritized(alpha=0.6, eps=0.0)
    relive.load(tmp_path / "saves", sampler=earlier).save(tmp_path / "others")
    loaded = relive.load(tmp_path / "others", sampler=sampler(0.6))
    np.testing.assert_allclose(loaded.priorities(ids), wanted, rtol=1e-15)
    loaded.update_priorities(ids[4:5], [0.1])
    assert loaded.priorities(loaded.add(**steps(3))).tolist() == pytest.approx([2.0, 2.0])


def test_before_there_is_a_priority() -> None:
    """Check that new items get `initial`; also if all that are stored have priority 0."""
    buffer = opened("ram", Path())
    ids = buffer.add(**steps(0))
    assert buffer.priorities(ids).tolist() == [INITIAL, INITIAL]
    buffer.update_priorities(ids, [0.0, 0.0])
    assert buffer.priorities(buffer.add(**steps(1))).tolist() == [INITIAL, INITIAL]
    drawing.raise_priority(buffer._core, 8.0)
    assert buffer.priorities(buffer.add(**steps(2))).tolist() == [8.0, 8.0]
    buffer.update_priorities(ids, [1e300, 5e-324])
    assert buffer.priorities(ids).tolist() == [1e300, 5e-324]
    assert buffer.priorities(buffer.add(**steps(3))).tolist() == [1e300, 1e300]


def test_where_it_cannot_be() -> None:
    with pytest.raises(
        ArgumentError, match=r"Expected one of `'largest'`, `'stored'`, got `'new'` - at `Prioritized\(n"
    ):
        relive.Prioritized(newest="new")
    with pytest.raises(ArgumentError, match=r"no shard knows the priorities that others store; use `newest='largest'`"):
        local_shards(SCHEMA, 40, num_envs=2, shards=2, sampler=sampler())
    torch = pytest.importorskip("torch")
    with pytest.raises(ArgumentError, match=r"Expected `newest='largest'`, got .* - at `DeviceBuffer\(sampler\)`"):
        relive.DeviceBuffer(SCHEMA, 40, sampler=sampler(), device=torch.device("cpu"))


def test_what_earlier_versions_know_stays_as_it_is() -> None:
    """Check the name and the saved facts of a sampler that does not use it."""
    from relive._buffer.saved_as import described

    assert "newest" not in repr(relive.Prioritized())
    assert "newest" not in described(relive.Prioritized())
    assert described(sampler())["newest"] == "stored"
    assert "newest='stored'" in repr(sampler())


def test_the_order_is_reversed_exactly() -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate([10.0 ** rng.uniform(-300, 300, 1000), [5e-324, 1.0, np.finfo(float).max]])
    np.testing.assert_array_equal(falling(falling(values)), values)
    np.testing.assert_array_equal(np.argsort(falling(values)), np.argsort(-values))
    assert falling(np.array([0.0, np.inf])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("newest", ["largest", "stored"])
@pytest.mark.parametrize("lanes", [1, 4])
def test_quantiles_of_many_priorities_come_from_a_sample_with_exact_ends(newest: str, lanes: int) -> None:
    sampler = relive.Prioritized(alpha=0.5, eps=0.0, newest=newest)
    schema, count = relive.Schema(obs=relive.Field(), action=relive.Field()), 25_000
    buffer = relive.ReplayBuffer(schema, 4 * count * lanes, num_envs=lanes, sampler=sampler, seed=0)
    given = np.random.default_rng(0).exponential(size=(lanes, count)) * (1 + np.arange(lanes)[:, None])
    given[0, :5], given[-1, 77] = 0.0, 1e6
    values, no = np.zeros((lanes, count)), np.zeros((lanes, count), bool)
    step = {"obs": values, "next_obs": values, "action": values, "reward": values, "priority": given}
    buffer.extend(**step, terminated=no, truncated=no)
    low, *middle, high = buffer.stats().priority_quantiles
    positive = np.sort(given[given > 0])
    assert (low, high) == pytest.approx((positive[0], 1e6), rel=1e-9)
    assert np.searchsorted(positive, middle) / len(positive) == pytest.approx([0.25, 0.5, 0.75], abs=0.02)
