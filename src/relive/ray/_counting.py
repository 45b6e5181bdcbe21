"""Counts over all shards, for `Shards.stats`."""

from __future__ import annotations

import numpy as np

from .._base.capabilities import completed
from .._buffer.stats import evenness
from ..samplers import Sampler
from ._drawing import Drawer
from ._ids import lanes_in
from ._wire import ShardPlan, Transport
from .stats import ShardsStats, ShardStats

_WAIT = 1.0


def snapshot(plan: ShardPlan, transport: Transport, drawer: Drawer) -> ShardsStats:
    """Ask all shards, and put together what is known."""
    health = drawer.health
    health.look()
    drawer.settle()
    ids, chances, items = drawer.last
    asked = [transport.call(shard, "counts", ids, health.largest) for shard in range(plan.shards)]
    cuts, nbytes, replied = 0, 0, [ids[:0]]
    for shard, (promise, done) in enumerate(zip(asked, transport.wait(asked, _WAIT), strict=True)):
        reply = health.taken(shard, promise, done, f"no answer within {_WAIT:g} s", status_at=0)
        if reply is not None:
            cuts, nbytes = cuts + reply[1], nbytes + reply[2]
            replied.append(reply[3])
    statuses, missing = health.statuses, np.flatnonzero(health.missing).tolist()
    there = [status for shard, status in enumerate(statuses) if not health.missing[shard]]
    added, now, ages = health.added, drawer.clock(), np.concatenate(replied)
    lawful = len(ids) and completed(plan.sampler, Sampler).masses is not None  # chances are of items
    return ShardsStats(
        size=sum(status.size for status in there),
        capacity=plan.steps * plan.num_envs,
        drawable=sum(status.items for status in there),
        nbytes=nbytes,
        added=added,
        drawn=drawer.drawn,
        replay_ratio=drawer.drawn / added if added else 0.0,
        draw_age=(float(ages.mean()), float(np.quantile(ages, 0.95))) if len(ages) else (),
        draw_entropy=evenness(chances, items) if lawful else None,
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
