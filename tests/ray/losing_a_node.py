"""On a cluster of three nodes a shard is stopped, one is killed, and a node and a raylet are lost with their shards.

Run by `test_shards_on_ray.py`, in a process of its own.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster

import relive
from relive.ray import Shards

LANES, STEPS, NEXT = 6, 50, np.array([0, 1])
SIZES: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 100 << 20}
BOUND = 4.0  # seconds; draws go on within 2 on a machine that is not crowded


def steps() -> dict[str, Any]:
    """Make the steps of environments that count: a step holds its lane and time."""
    time_of, no = np.broadcast_to(np.arange(STEPS), (LANES, STEPS)), np.zeros((LANES, STEPS), bool)
    obs = np.stack([np.broadcast_to(np.arange(LANES)[:, None], time_of.shape), time_of], axis=2)
    flags = {"terminated": no, "truncated": no}
    return {"obs": obs, "next_obs": obs + NEXT, "action": time_of, "reward": time_of, **flags}


def fault(shards: Shards, shard: int, what: str, strike: Callable[[], Any]) -> None:
    """Draw while it happens: nothing is wrong, nobody waits for long, and the others have all that they had."""
    for _ in range(5):
        shards.sample(30)
    before = shards.stats()
    strike()
    begun, late = time.monotonic(), 0.0
    while shards._drawer.late == before.late_batches and time.monotonic() - begun < 60:
        one = time.monotonic()
        batch = shards.sample(30)
        late = max(late, time.monotonic() - one)
        assert (batch.next_obs == batch.obs + NEXT).all()
        assert (batch.obs[:, 0] == batch.ids % LANES).all()
    assert late < BOUND, late
    assert not (batch.ids % 3 == shard).any()  # it was drawn from the others
    after = shards.stats()
    assert after.missing_lanes in ((shard, shard + 3), ()), after  # it may be back by now
    others = [number for number in range(3) if number != shard]
    assert all(after.shards[other].size == before.shards[other].size for other in others), after
    print(f"{what}: draws went on after {late:.2f} s", flush=True)


def returned(shards: Shards, shard: int, life: int, lost: int, added: int = LANES * STEPS) -> None:
    """Wait until the shard is back."""
    begun = time.monotonic()
    while (shards.stats().missing or shards.stats().shards[shard].life != life) and time.monotonic() - begun < 120:
        time.sleep(0.2)
    stats = shards.stats()
    assert (stats.missing, stats.shards[shard].life, stats.lost) == ((), life, lost), stats
    assert stats.size == added - lost


head = {**SIZES, "include_dashboard": False, "resources": {"head": 1}}
cluster = Cluster(initialize_head=True, connect=True, head_node_args=head)
nodes = [cluster.add_node(**SIZES, resources={f"replay{number}": 1}) for number in range(2)]
cluster.wait_for_nodes()
schema = relive.Schema(obs=relive.Field((2,), "int64"), action=relive.Field())
options = [{"resources": {"replay0": 0.1}}, {"resources": {"replay1": 0.1}}, {"resources": {"head": 0.1}}]
with Shards(schema, LANES * 200, num_envs=LANES, shards=3, seed=0, actor_options=options, timeout=300.0) as shards:
    writer = shards.writer()
    writer.extend(**steps())
    assert writer.flush() == 0
    lines = shards._transport
    pids = [lines.take(lines.call(shard, "ready"))[2] for shard in range(3)]

    fault(shards, 0, "a stopped shard", lambda: os.kill(pids[0], signal.SIGSTOP))
    os.kill(pids[0], signal.SIGCONT)
    returned(shards, 0, life=0, lost=0)

    fault(shards, 2, "a killed shard", lambda: os.kill(pids[2], signal.SIGKILL))
    returned(shards, 2, life=1, lost=2 * STEPS)

    fault(shards, 1, "a lost node", lambda: cluster.remove_node(nodes[1], allow_graceful=False))
    cluster.add_node(**SIZES, resources={"replay1": 1})
    returned(shards, 1, life=1, lost=4 * STEPS)

    writer.extend(**steps())
    assert writer.flush() == 0
    (raylet,) = nodes[0].all_processes["raylet"]
    fault(shards, 0, "a lost raylet", lambda: os.kill(raylet.process.pid, signal.SIGKILL))
    cluster.add_node(**SIZES, resources={"replay0": 1})
    returned(shards, 0, life=1, lost=8 * STEPS, added=2 * LANES * STEPS)
    print("the shards are back", flush=True)
ray.shutdown()
cluster.shutdown()
