"""Shards that die, come back or are late: what goes on, what is lost, and that no id names another step."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local import Local
from shard_steps import LANES, Counting, check_items, filled, made

import relive
from relive.ray._ids import ROW_BITS, Ids, lanes_in
from relive.ray.shards import Shards


def full(**choices: Any) -> tuple[Shards, Local]:
    shards, lines = made(**choices)
    filled(shards)
    return shards, lines


@pytest.mark.parametrize("fault", ["kill", "hold"])
def test_draws_go_on_with_the_others_and_follow_their_law(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    shards, lines = full()
    shards.sample(8)
    getattr(lines, fault)(1)
    begun = lines.seconds
    with caplog.at_level(logging.WARNING, "relive"):
        batch = shards.sample(60)
    assert lines.seconds - begun < 2
    check_items(batch)
    assert not (batch.ids % LANES % 3 == 1).any()
    np.testing.assert_allclose(batch.weights, 1, rtol=1e-6)  # all priorities are equal, over the shards that answered
    assert "Shard 1 does not answer" in caplog.text
    stats = shards.stats()
    assert (stats.missing, stats.missing_lanes, stats.late_batches) == ((1,), (1, 4), 1)
    assert stats.size == 80
    begun = lines.seconds
    assert shards.sample(60).ids.shape == (60,)
    assert lines.seconds == begun  # nobody waits for it twice
    assert shards.update_priorities([1, 7, 3], [1.0, 1.0, 1.0]) == 1
    assert shards.stats().stale_updates == 2


def test_a_shard_that_was_stopped_returns_with_all_it_had() -> None:
    shards, lines = full()
    lines.hold(2)
    shards.sample(30)
    lines.release(2)
    lines.seconds += 0.3
    for _ in range(2):
        shards.sample(30)
    assert shards.stats().missing == ()
    assert shards.stats().lost == 0
    assert {2, 5} <= set((shards.sample(300).ids % LANES).tolist())


def test_a_lone_shard_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """Check that a machine that is busy for a while is no error, if there is no other to draw from."""
    shards, lines = full(shards=1)
    for seconds in (3.0, 6.0):
        begun = lines.seconds
        lines.hold(0, seconds)
        with caplog.at_level(logging.WARNING, "relive"):
            batch = shards.sample(30)
        check_items(batch)
        assert seconds <= lines.seconds - begun < seconds + 0.1
    assert caplog.text.count("A draw has waited for 5 s for shards [0]; there are no others") == 1
    lines.hold(0, 3.0)
    assert shards.update_priorities(np.unique(batch.ids), np.ones(len(np.unique(batch.ids)))) == len(set(batch.ids))
    lines.hold(0, 3.0)
    with shards.prefetch(30, depth=4) as batches:
        for _, batch in zip(range(6), batches, strict=False):
            check_items(batch)
    lines.hold(0, 0.8)
    assert not shards.can_sample(2_000) or lines.held  # looks, and never waits for long
    stats = shards.stats()
    assert (stats.missing, stats.late_batches, stats.stale_updates) == ((), 0, 0)
    lines.hold(0)
    begun = lines.seconds
    with pytest.raises(relive.StorageError, match=r"None of the shards \[0\] answers"):
        shards.sample(4)
    assert 30 <= lines.seconds - begun < 32


@pytest.mark.parametrize("count", [1, 3])
def test_without_any_shard_the_error_names_them_at_once(count: int) -> None:
    shards, lines = full(shards=count)
    for shard in range(count):
        lines.kill(shard)
    begun = lines.seconds
    with pytest.raises(relive.StorageError, match=rf"None of the shards {re.escape(str([*range(count)]))} answers"):
        shards.sample(4)
    assert lines.seconds - begun < 1
    assert not shards.can_sample(1)
    assert shards.stats().missing == tuple(range(count))
    for shard in range(count):
        lines.restart(shard)
    lines.seconds += 1
    filled(shards)
    check_items(shards.sample(4))


def test_where_all_are_slow_the_first_ones_are_enough() -> None:
    """Check that a stopped shard among slow ones delays nobody, and is not waited for twice."""
    shards, lines = full()
    with shards.prefetch(60, depth=4) as batches:
        next(batches)
        for shard, seconds in enumerate((0.7, 0.9, None)):
            lines.hold(shard, seconds)
        begun = lines.seconds
        for number in range(7):
            batch = next(batches)
            check_items(batch)
            assert number < 4 or set((batch.ids % 3).tolist()) == {0, 1}
        assert lines.seconds - begun < 2


def test_a_draw_that_asks_a_stopped_shard_alone_goes_on_with_the_others() -> None:
    shards, lines = full()
    shards.sample(60)
    lines.hold(1)
    begun = lines.seconds
    for _ in range(40):
        check_items(shards.sample(1))
    assert shards.stats().late_batches == 1
    assert lines.seconds - begun < 2


def test_the_limit_grows_with_what_draws_take_but_not_for_long() -> None:
    shards, _ = made()
    for usual, limit in ((0.001, 0.5), (0.08, 0.8), (0.3, 1.0), (0.9, 1.8)):
        shards._drawer._took.extend([usual] * 40)
        assert shards._drawer.deadline == pytest.approx(limit)


def test_prefetched_batches_survive_a_death() -> None:
    shards, lines = full()
    with shards.prefetch(60, depth=4) as batches:
        next(batches)
        lines.hold(0)
        asked = [next(batches) for _ in range(2)]
        lines.kill(0)
        asked += [next(batches) for _ in range(8)]
        assert shards.update_priorities(asked[0].ids, np.ones(60)) is None
    for batch in asked:
        check_items(batch)
        np.testing.assert_allclose(batch.weights, 1, rtol=1e-6)


def test_without_replacement_nothing_repeats_when_a_shard_dies() -> None:
    shards, lines = full(sampler=relive.Uniform(replacement=False))
    lines.kill(1)
    assert len(set(shards.sample(80).ids.tolist())) == 80
    with pytest.raises(relive.NotEnoughData, match=r"at least 81 drawable items, got 80.*shards \[1\] do not answer"):
        shards.sample(81)


# Lives.


@pytest.mark.parametrize("saves", [False, True])
def test_a_shard_comes_back_with_what_it_saved_and_no_id_is_used_twice(saves: bool, tmp_path: Path) -> None:
    """Let a shard die and come back from a save older than its last steps, twice; late updates name all lives."""
    shards, lines = made(save_dir=str(tmp_path) if saves else None)

    def own() -> set[int]:
        """Return the ids of the shard's steps."""
        shards.stats()  # after which it is known how much they have
        batch = shards.sample(900)
        check_items(batch)
        return {key for key in batch.ids.tolist() if key % 3 == 1}

    envs = filled(shards)
    kept, lost = own() if saves else set(), 20 if saves else 60
    if saves:
        lines.objects[1].save_by_clock()
    filled(shards, 10, envs)
    late = own() - kept
    assert late
    for life in (1, 2):
        lines.kill(1)
        shards.sample(10)
        lines.restart(1)
        lines.seconds += 1
        shards.sample(10)
        shards.sample(10)
        stats = shards.stats()
        assert (stats.missing, stats.shards[1].life, stats.lost) == ((), life, lost)
        assert own() == kept  # what was saved has the ids that it had
        assert shards.update_priorities([*late], np.full(len(late), 99.0)) == 0
        if life == 1:
            filled(shards, 10, envs)
            fresh, lost = own() - kept, lost + 20
            assert {key // LANES >> ROW_BITS for key in fresh} == {1}
            assert not fresh & late
            assert shards.update_priorities([*late], np.full(len(late), 99.0)) == 0
            assert shards.update_priorities([*fresh], np.full(len(fresh), 0.5)) == len(fresh)
            late |= fresh
    assert shards.stats().stale_updates > len(late)


@pytest.mark.filterwarnings("ignore::relive.ReliveWarning")
@pytest.mark.parametrize(
    ("rounds", "late"), [(12, 300), pytest.param(60, 2_000, marks=pytest.mark.slow, id="all of 10^5")]
)
def test_late_updates_land_on_their_own_step_or_nowhere(rounds: int, late: int, tmp_path: Path) -> None:
    """Give each step a priority of its own. Shards die and return, rings wrap, and updates of all ages come."""
    shards, lines = made(save_dir=str(tmp_path))
    rng, envs, lost = np.random.default_rng(0), Counting(), 0
    ids, codes = np.empty(0, np.int64), np.empty(0)
    for number in range(rounds):
        with shards.writer() as writer:
            for _ in range(int(rng.integers(1, 20))):
                step = envs.step(np.arange(LANES))
                writer.add(**step, priority=code(step["obs"]))
            assert writer.flush() == 0
        if number % 4 == 1:
            lines.objects[number % 3].save_by_clock()
        if number % 3 == 2:
            dead = int(rng.integers(3))
            lines.kill(dead)
            shards.sample(10)
            lines.restart(dead)
        lines.seconds += 1
        for _ in range(3):
            batch = shards.sample(300)
            check_items(batch)
        ids, codes = np.append(ids, batch.ids), np.append(codes, code(batch.obs))
        chosen = rng.integers(len(ids), size=late)
        applied = shards.update_priorities(ids[chosen], codes[chosen])
        lost += late - applied
        for shard in lines.objects:
            for part in shard.buffer.batches(128, shuffle=False):
                np.testing.assert_array_equal(shard.buffer.priorities(part.ids), code(part.obs))
    assert 0.05 * rounds * late < lost < rounds * late


def code(obs: Any) -> Any:
    """Return a number for each step: its lane and its time."""
    return 1.0 + obs[..., 0] + LANES * obs[..., 1]


def test_ids_name_one_step_whatever_the_lives() -> None:
    """Check every id that was ever issued, against a table of saved, lost and written steps."""
    rng, lanes = np.random.default_rng(0), lanes_in(1, 3, 8)
    ids, heads, alive = Ids.new(lanes, 8), np.zeros(len(lanes), np.int64), dict[int, tuple[int, int]]()
    issued = set[int]()
    for life in range(1, 30):
        written = rng.integers(0, 5, len(lanes))
        for lane, count in enumerate(written.tolist()):
            for row in range(heads[lane], heads[lane] + count):
                (outer,) = ids.outer(np.array([row * len(lanes) + lane])).tolist()
                assert outer not in issued
                assert outer % 8 == lanes[lane]
                issued.add(outer)
                alive[outer] = (lane, row)
        heads = heads + written
        names = np.array([*issued, -1, 3, 2**62])
        inner, known = ids.inner(names, heads)
        assert names[known].tolist() == [key for key in names.tolist() if key in alive]
        assert inner.tolist() == [alive[key][1] * len(lanes) + alive[key][0] for key in names[known].tolist()]
        saved = np.maximum(0, heads - rng.integers(0, 4, len(lanes)))  # rows after the save are lost
        alive = {key: (lane, row) for key, (lane, row) in alive.items() if row < saved[lane]}
        heads = saved
        ids = ids.reborn(life, saved)
