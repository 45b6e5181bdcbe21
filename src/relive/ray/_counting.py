"""Counts over all shards, for `Shards.stats`."""

from __future__ import annotations

import numpy as np

from ._drawing import Drawer
from ._ids import lanes_in
from ._wire import ShardPlan, ShardUnavailable, Transport
from .stats import ShardsStats, ShardStats

_WAIT = 1.0


def snapshot(plan: ShardPlan, transport: Transport, drawer: Drawer) -> ShardsStats:
    """Ask all shards, and put together what is known."""
    health = drawer.health
    health.look()
    drawer.settle()
    asked = [transport.call(shard, "counts", health.largest) for shard in range(plan.shards)]
    cuts = nbytes = 0
    for shard, (promise, done) in enumerate(zip(asked, transport.wait(asked, _WAIT), strict=True)):
        if not done:
            health.miss(shard, f"no answer within {_WAIT:g} s")
            continue
        try:
            status, of_it, size = transport.take(promise)
        except ShardUnavailable as error:
            health.miss(shard, str(error), error.final)
            continue
        health.hear(shard, status)
        cuts, nbytes = cuts + of_it, nbytes + size
    statuses, missing = health.statuses, np.flatnonzero(health.missing).tolist()
    there = [status for shard, status in enumerate(statuses) if not health.missing[shard]]
    added, now = health.added, drawer.clock()
    return ShardsStats(
        size=sum(status.size for status in there),
        capacity=plan.steps * plan.num_envs,
        drawable=sum(status.items for status in there),
        nbytes=nbytes,
        added=added,
        drawn=drawer.drawn,
        replay_ratio=drawer.drawn / added if added else 0.0,
        cuts=cuts,
        stale_updates=drawer.stale + health.stale,
        beta=drawer.beta,
        dropped=sum(status.dropped for status in statuses),
        lost=health.lost,
        late_batches=drawer.late,
        missing=tuple(missing),
        missing_lanes=tuple(sorted(n for s in missing for n in lanes_in(s, plan.shards, plan.num_envs).tolist())),
        shards=tuple(
            ShardStats(
                alive=shard not in missing,
                life=status.life,
                size=status.size,
                mass=status.total,
                last_heard=now - float(health.heard[shard]),
            )
            for shard, status in enumerate(statuses)
        ),
    )
