"""A cluster of three nodes loses one, with a shard on it: run by `test_shards_on_ray.py`, in a process of its own."""

from __future__ import annotations

import time

import numpy as np
import ray
from ray.cluster_utils import Cluster

import relive
from relive.ray import Shards

LANES, STEPS, NEXT = 6, 50, np.array([0, 1])
cluster = Cluster(
    initialize_head=True,
    connect=True,
    head_node_args={"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False},
)
nodes = [
    cluster.add_node(num_cpus=1, object_store_memory=100 << 20, resources={f"replay{number}": 1}) for number in range(2)
]
cluster.wait_for_nodes()
schema = relive.Schema(obs=relive.Field((2,), "int64"), action=relive.Field())
options = [{"resources": {"replay0": 0.1}}, {"resources": {"replay1": 0.1}}, {}]
with Shards(schema, LANES * 200, num_envs=LANES, shards=3, seed=0, actor_options=options, timeout=300.0) as shards:
    writer, no = shards.writer(), np.zeros((LANES, STEPS), bool)
    time_of = np.broadcast_to(np.arange(STEPS), (LANES, STEPS))
    obs = np.stack([np.broadcast_to(np.arange(LANES)[:, None], time_of.shape), time_of], axis=2)
    writer.extend(
        obs=obs,
        next_obs=obs + NEXT,
        action=time_of,
        reward=time_of,
        terminated=no,
        truncated=no,
    )
    assert writer.flush() == 0
    for _ in range(5):
        shards.sample(30)
    cluster.remove_node(nodes[1], allow_graceful=False)
    begun, late = time.monotonic(), 0.0
    while not shards.stats().missing and time.monotonic() - begun < 60:
        one = time.monotonic()
        batch = shards.sample(30)
        late = max(late, time.monotonic() - one)
        assert (batch.next_obs == batch.obs + NEXT).all()
        assert (batch.obs[:, 0] == batch.ids % LANES).all()
    assert not (shards.sample(30).ids % 3 == 1).any()
    stats = shards.stats()
    assert stats.missing_lanes == (1, 4), stats
    assert stats.size == 4 * STEPS, stats  # no acknowledged step of the others is lost
    print(f"draws went on after {late:.2f} s", flush=True)
    cluster.add_node(num_cpus=1, object_store_memory=100 << 20, resources={"replay1": 1})
    while shards.stats().missing and time.monotonic() - begun < 120:
        time.sleep(0.2)
    stats = shards.stats()
    assert (stats.missing, stats.shards[1].life, stats.lost) == ((), 1, 2 * STEPS), stats
    print("the shard is back", flush=True)
ray.shutdown()
cluster.shutdown()
