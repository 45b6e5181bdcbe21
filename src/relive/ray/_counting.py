"""Counts over all shards, for `Shards.stats`."""

from __future__ import annotations

import numpy as np

from ._drawing import Drawer
from ._ids import lanes_in
from ._wire import Gone, Lines, Plan
from .stats import ShardsStats, ShardStats

_WAIT = 1.0


def snapshot(plan: Plan, lines: Lines, drawer: Drawer) -> ShardsStats:
    """Ask all shards, and put together what is known."""
    health = drawer.health
    health.look()
    drawer.settle()
    asked = [lines.call(shard, "counts", health.largest) for shard in range(plan.shards)]
    cuts = nbytes = 0
    for shard, (promise, done) in enumerate(zip(asked, lines.wait(asked, _WAIT), strict=True)):
        if not done:
            health.miss(shard, f"no answer within {_WAIT:g} s")
            continue
        try:
            word, of_it, size = lines.take(promise)
        except Gone as error:
            health.miss(shard, str(error), error.final)
            continue
        health.hear(shard, word)
        cuts, nbytes = cuts + of_it, nbytes + size
    words, missing = health.words, np.flatnonzero(health.missing).tolist()
    there = [word for shard, word in enumerate(words) if not health.missing[shard]]
    added, now = health.added, drawer.clock()
    return ShardsStats(
        size=sum(word.size for word in there),
        capacity=plan.steps * plan.num_envs,
        drawable=sum(word.items for word in there),
        nbytes=nbytes,
        added=added,
        drawn=drawer.drawn,
        replay_ratio=drawer.drawn / added if added else 0.0,
        cuts=cuts,
        stale_updates=drawer.stale + health.stale,
        beta=drawer.beta,
        dropped=sum(word.dropped for word in words),
        lost=health.lost,
        late_batches=drawer.late,
        missing=tuple(missing),
        missing_lanes=tuple(sorted(n for s in missing for n in lanes_in(s, plan.shards, plan.num_envs).tolist())),
        shards=tuple(
            ShardStats(
                alive=shard not in missing,
                life=word.life,
                size=word.size,
                mass=word.total,
                last_heard=now - float(health.heard[shard]),
            )
            for shard, word in enumerate(words)
        ),
    )
