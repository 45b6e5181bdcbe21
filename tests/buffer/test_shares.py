"""One buffer as one of several: its share, draws by the caller's numbers, the largest priority, the next rows."""

from __future__ import annotations

import copy
from bisect import bisect_right
from itertools import accumulate, groupby
from typing import Any

import numpy as np
import pytest
import storages

import relive
from relive._buffer import drawing, stored
from relive._ring import kernels
from relive.samplers import Sampler, Share
from relive.testing import SCHEMAS, OracleBuffer, SyntheticEnvs, TransitionsModel
from relive.testing._lives import BACK_ENDS, Numbers, feed, life
from relive.testing.agreement import assert_same_batch

pytestmark = pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
LANES, STEPS, ALPHA = 3, 16, 0.7
EPISODES = relive.Uniform(over="episodes")
PRIORITIZED = relive.Prioritized(alpha=ALPHA, beta=relive.Anneal(0.4, 1.0, over=10), stratified=False)
SAMPLERS = [relive.Uniform(), EPISODES, PRIORITIZED]
NO_REPEATS = [relive.Uniform(replacement=False), relive.Prioritized(replacement=False)]


def made(sampler: Sampler, **choices: Any) -> relive.ReplayBuffer:
    item = relive.Transitions(n_step=2, gamma=0.9)
    choices = {"num_envs": LANES, "item": item, "seed": 1, **choices}
    return relive.ReplayBuffer(SCHEMAS["flat"], LANES * STEPS, sampler=sampler, **choices)


class Model:
    """What is drawable, in the order of draws, and what it is drawn in proportion to: looked up one by one."""

    def __init__(self, buffer: relive.ReplayBuffer, oracle: OracleBuffer) -> None:
        anchors, self.prioritizes = oracle.anchors(), buffer.sampler.prioritizes
        by_slot, by_lane = (lambda i: i % (LANES * oracle.rows_per_lane)), (lambda i: (i % LANES, i))
        self.ids = sorted(oracle.drawable, key=by_slot if self.prioritizes else by_lane)
        self.masses = [1.0] * len(self.ids)
        if self.prioritizes:
            self.masses = [p**ALPHA if p else 0.0 for p in buffer.priorities(self.ids).tolist()]
        of_episode = groupby(self.ids, key=lambda i: (i % LANES, id(anchors[i].episode)))
        self.episodes = [list(ids) for _, ids in of_episode] if buffer.sampler == EPISODES else []

    def share(self) -> tuple[float, int, float]:
        positive = [mass for mass in self.masses if mass]
        total = len(self.episodes) if self.episodes else sum(self.masses)
        return total, len(self.ids), min(positive, default=np.inf)

    def at(self, fraction: float) -> tuple[int, float]:
        if self.episodes:
            episode, rest = divmod(fraction * len(self.episodes), 1)
            of_it = self.episodes[int(episode)]
            return of_it[int(rest * len(of_it))], 1.0
        ends = list(accumulate(self.masses))
        k = bisect_right(ends, fraction * ends[-1])
        return self.ids[k], self.masses[k]


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_shares_and_draws_are_those_of_a_slow_model(sampler: Sampler, back_end: str) -> None:
    with kernels.use(back_end):
        buffer, rng, draws = made(sampler), np.random.default_rng(0), 0
        oracle = OracleBuffer.of(buffer, TransitionsModel(2, 0.9))
        for call in life(buffer, 40):
            feed(buffer, call, oracle)
            model, share, fractions = Model(buffer, oracle), drawing.share(buffer._core), rng.random(8)
            assert (share.total, share.count, share.smallest) == pytest.approx(model.share(), rel=1e-12)
            if not share.total:
                with pytest.raises(relive.NotEnoughData):
                    drawing.draw_at(buffer._core, fractions)
                continue
            batch, masses, same = drawing.draw_at(buffer._core, fractions)
            ids, expected = zip(*map(model.at, fractions.tolist()), strict=True)
            assert (batch.ids.tolist(), same) == (list(ids), share)
            np.testing.assert_allclose(masses, expected, rtol=1e-12)
            assert_same_batch(batch, buffer.read(batch.ids))
            draws += 1
            if sampler.prioritizes:
                errors = np.sin(batch.ids) * np.array([0.0, 1.0, 30.0])[batch.ids % 3]
                buffer.update_priorities(batch.ids, errors)
                assert drawing.share(buffer._core).largest >= np.abs(errors).max()
        assert draws > 25


@pytest.mark.parametrize("sampler", [*SAMPLERS, *NO_REPEATS], ids=repr)
@pytest.mark.parametrize("storage", [name for name in storages.NAMES if name != "mapped"])
def test_a_draw_at_given_numbers_is_that_of_a_generator_that_gives_them(sampler: Sampler, storage: str) -> None:
    if isinstance(sampler, relive.Prioritized):
        sampler = sampler.__replace__(stratified=False)
    buffer = made(sampler, storage=storages.new(storage))
    for call in life(buffer, 20):
        feed(buffer, call)
    state, stats = copy.deepcopy(buffer.rng.bit_generator.state), buffer.stats()
    for number in (0.0, 0.3, 1 - 2**-53):
        batch, masses, _ = drawing.draw_at(buffer._core, np.full(5, number))
        after = buffer.rng.bit_generator.state
        buffer.rng, rng = Numbers(number), buffer.rng
        assert_same_batch(batch, buffer.sample(5), without=("weights",))
        buffer.rng = rng
        assert after == state
        assert (batch.weights == 1).all()
        assert (masses > 0).all()
    assert buffer.stats().drawn == stats.drawn + 15  # by `sample`
    drawing.draw_at(buffer._core, [0.5])
    assert buffer.stats().drawn == stats.drawn + 15
    assert buffer.stats().beta == (0.4 + 0.6 * 2 / 10 if sampler == PRIORITIZED else buffer.stats().beta)
    buffer.close()


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_new_items_get_the_largest_priority_of_another_buffer(back_end: str) -> None:
    with kernels.use(back_end):
        buffer = made(relive.Prioritized(alpha=1.0, initial=3.0), item=relive.Transitions())
        envs = SyntheticEnvs(buffer.schema, LANES)
        before = buffer.add(**envs.step(0, True, 0, 0, None), env_ids=[0])
        drawing.raise_priority(buffer._core, 7.0)
        after = buffer.add(**envs.step(0, True, 0, 0, None), env_ids=[0])
        drawing.raise_priority(buffer._core, 2.0)
        last = buffer.add(**envs.step(0, True, 0, 0, None), env_ids=[0])
        assert buffer.priorities([*before, *after, *last]).tolist() == [3.0, 7.0, 7.0]
        assert drawing.share(buffer._core) == Share(17.0, 3, 3.0, 7.0)


def test_ids_to_come_are_told_by_the_next_rows() -> None:
    buffer, steps = made(relive.Uniform()), np.zeros(LANES, np.int64)
    for call in life(buffer, 60):
        rows = stored.next_rows(buffer._core)
        ids = feed(buffer, call)
        stored.next_rows(buffer._core)[:] = 0
        assert (ids // LANES >= rows[call.lanes][:, None]).all() if call.steps else not ids.size
        if call.steps:
            steps[call.lanes] += ids.shape[1]
        assert stored.lane_steps(buffer._core).tolist() == steps.tolist()
        if call.steps:
            assert (stored.next_rows(buffer._core)[call.lanes] > (ids // LANES).max(axis=1)).all()


def test_refusals() -> None:
    ranked, uniform, full = made(relive.Ranked()), made(relive.Uniform()), made(NO_REPEATS[0])
    calls = drawing.share, lambda core: drawing.draw_at(core, [0.5]), lambda core: drawing.raise_priority(core, 1.0)
    for call in calls:
        with pytest.raises(relive.ArgumentError, match=r"Ranked\(.*a rank is one among all items.*`Prioritized\(\)`"):
            call(ranked._core)
    for fractions in ([], [1.0], [-0.1], [np.nan], [[0.5]], 0.5):
        with pytest.raises(relive.ArgumentError, match=r"Expected numbers in \[0, 1\)"):
            drawing.draw_at(uniform._core, fractions)
    with pytest.raises(relive.ArgumentError, match="a sampler with priorities"):
        drawing.raise_priority(uniform._core, 1.0)
    for raw in (-1.0, np.inf, np.nan):
        with pytest.raises(relive.ArgumentError, match="a finite number >= 0"):
            drawing.raise_priority(made(PRIORITIZED)._core, raw)
    for call in life(full, 3):
        feed(full, call)
    with pytest.raises(relive.NotEnoughData):
        drawing.draw_at(full._core, np.linspace(0, 0.99, drawing.share(full._core).count + 1))
