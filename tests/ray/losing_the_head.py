"""A cluster's head is lost, with the driver's raylet: the driver ends, and what shards saved by the clock is loaded.

Run by `test_shards_on_ray.py`, in a process of its own. `losing_the_head.py ADDRESS FOLDER` is the driver.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray

import relive
from relive.ray import Shards
from relive.ray._keeping import newest

LANES, STEPS, BOUND = 6, 50, 60.0
RECONNECT = "RAY_gcs_rpc_server_reconnect_timeout_s"  # a minute, unless told otherwise


def steps() -> dict[str, Any]:
    time_of, no = np.broadcast_to(np.arange(STEPS), (LANES, STEPS)), np.zeros((LANES, STEPS), bool)
    numbers = {"obs": time_of, "next_obs": time_of + 1, "action": time_of, "reward": time_of}
    return {**numbers, "terminated": no, "truncated": no}


def drive(address: str, folder: str) -> None:
    ray.init(address=address, log_to_driver=False)
    schema = relive.Schema(obs=relive.Field((), "int64"), action=relive.Field())
    sizes: dict[str, Any] = {"num_envs": LANES, "shards": 2, "seed": 0, "timeout": 300.0}
    with Shards(schema, LANES * 200, **sizes, save_dir=folder, save_every=0.2) as shards, shards.writer() as writer:
        writer.extend(**steps())
        writer.flush()
        while not all(newest(folder, shard) for shard in range(2)):
            time.sleep(0.1)
        time.sleep(1.0)
        print("saved", flush=True)
        while True:
            batch = shards.sample(30)
            assert (batch.next_obs == batch.obs + 1).all()


def main(folder: str) -> None:
    from ray.cluster_utils import Cluster

    os.environ[RECONNECT] = "5"
    sizes: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 100 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**sizes, "include_dashboard": False})
    cluster.add_node(**sizes)
    cluster.wait_for_nodes()
    program = [sys.executable, __file__, cluster.address, folder]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "saved\n"
        begun = time.monotonic()
        for each in ("gcs_server", "raylet"):
            for process in cluster.head_node.all_processes[each]:
                os.kill(process.process.pid, signal.SIGKILL)
        try:
            code = driver.wait(BOUND)
        finally:
            driver.kill()
        print(f"the driver ended with {code} after {time.monotonic() - begun:.0f} s", flush=True)
        assert code != 0
    cluster.shutdown()
    ray.init(log_to_driver=False, include_dashboard=False, **{**sizes, "num_cpus": 2})
    with Shards.load(folder) as again:
        stats = again.stats()
        assert (stats.size, stats.missing) == (LANES * STEPS, ()), stats
        batch = again.sample(200)
        assert (batch.next_obs == batch.obs + 1).all()
    ray.shutdown()
    print("the steps are back", flush=True)


if __name__ == "__main__":
    drive(*sys.argv[1:]) if len(sys.argv) > 2 else main(str(Path(sys.argv[1]).absolute()))
