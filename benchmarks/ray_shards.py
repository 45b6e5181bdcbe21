"""What shards on Ray cost: adds and turns of 1, 2 and 4 shards, in CPU time, beside an empty actor call.

    python -m benchmarks.ray_shards [--shards 1 2 4 8 16] [--rllib] [--reverb] [--address ADDRESS]

CPU is that of all threads of this process and of the actors; the wall says little where one core does everything.
"""

from __future__ import annotations

import argparse
import os
import pickle
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import ray

import relive
from benchmarks.peers.reverb import ask
from relive.ray import Shards
from relive.ray._cluster import Actors

LANES, ROWS, BATCH = 32, 4096, 256
SCHEMA = relive.Schema(obs=relive.Field((17,)), action=relive.Field((6,)))
SAMPLER = relive.Prioritized(alpha=0.6, beta=0.4)


class Steps:
    """Rows like HalfCheetah's, 32 lanes a step."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._frames = rng.normal(size=(65, LANES, 17)).astype(np.float32)
        self._action, self._reward = np.zeros((LANES, 6), np.float32), np.ones(LANES, np.float32)
        self._flags = np.zeros(LANES, bool)

    def at(self, step: int) -> dict[str, Any]:
        obs, after = self._frames[step % 64], self._frames[step % 64 + 1]
        flags = {"terminated": self._flags, "truncated": self._flags}
        return {"obs": obs, "action": self._action, "reward": self._reward, "next_obs": after, **flags}


class Clock:
    """CPU of this process and of some others."""

    def __init__(self) -> None:
        self.empty = 0.0

    def __call__(self, what: str, pids: list[int], calls: int, run: Callable[[int], None]) -> float:
        """Measure `calls` calls, and print a row of a Markdown table."""
        run(max(1, calls // 10))
        before, begun = self._spent(pids), time.perf_counter()
        run(calls)
        wall = time.perf_counter() - begun
        own, theirs = ((b - a) / calls * 1e6 for a, b in zip(before, self._spent(pids), strict=True))
        self.show(what, own, theirs, wall / calls * 1e6)
        return own + theirs

    def show(self, what: str, own: float, theirs: float, wall: float) -> None:
        """Print a row: microseconds a call."""
        ratio = f"{(own + theirs) / self.empty:.2f}" if self.empty else "1"
        print(f"| {what} | {own:,.0f} | {theirs:,.0f} | {ratio} | {wall:,.0f} |", flush=True)

    @staticmethod
    def _spent(pids: list[int]) -> tuple[float, float]:
        spent = [psutil.Process(pid).cpu_times() for pid in (os.getpid(), *pids)]
        times = [each.user + each.system for each in spent]
        return times[0], sum(times[1:])


@ray.remote(num_cpus=0)
class Empty:
    def nothing(self) -> None:
        """Do nothing."""

    def pid(self) -> int:
        return os.getpid()


class Wire:
    """Bytes of what goes to shards, by method, and of what comes back, as they are pickled."""

    def __enter__(self) -> Wire:
        self._call, self._take = Actors.call, Actors.take
        self.sent: dict[str, int] = defaultdict(int)
        self.back = 0

        def call(actors: Actors, shard: int, method: str, *arguments: Any) -> Any:
            self.sent[method] += size_of((method, arguments))
            return self._call(actors, shard, method, *arguments)

        def take(actors: Actors, promise: Any) -> Any:
            result = self._take(actors, promise)
            self.back += size_of(result)
            return result

        Actors.call, Actors.take = call, take  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Actors.call, Actors.take = self._call, self._take  # type: ignore[method-assign]


def size_of(value: Any) -> int:
    """Count the bytes of a value with its arrays, which are pickled apart."""
    arrays: list[pickle.PickleBuffer] = []
    return len(pickle.dumps(value, protocol=5, buffer_callback=arrays.append)) + sum(a.raw().nbytes for a in arrays)


def of_shards(clock: Clock, count: int, steps: Steps) -> None:
    with Shards(SCHEMA, LANES * ROWS, num_envs=LANES, shards=count, sampler=SAMPLER, seed=0) as shards:
        actors = shards._transport
        pids = [actors.take(actors.call(shard, "ready"))[2] for shard in range(count)]
        with shards.writer() as writer:

            def add(calls: int) -> None:
                for step in range(calls):
                    writer.add(**steps.at(step))
                writer.flush()

            def turn(calls: int) -> None:
                for _ in range(calls):
                    batch = shards.sample(BATCH)
                    shards.update_priorities(batch.ids, batch.reward)

            def ahead(calls: int) -> None:
                with shards.prefetch(BATCH, depth=4) as batches:
                    for _, batch in zip(range(calls), batches, strict=False):
                        shards.update_priorities(batch.ids, batch.reward)

            clock(f"{count} shards: add of 32 lanes", pids, 3000, add)
            clock(f"{count} shards: draw + update", pids, max(40, 150 // count), turn)
            clock(f"{count} shards: draw + update, prefetch 4", pids, max(40, 200 // count), ahead)
            with Wire() as wire:
                add(1000)
                ahead(20)
            print(f"| {count} shards: bytes of a step added | {wire.sent['add'] / 1000 / LANES:,.1f} | | | |")
            there, back = wire.sent["draw"] / 20 / BATCH, wire.back / 20 / BATCH
            print(
                f"| {count} shards: bytes of an item drawn and updated | {there:,.1f} | {back:,.1f} | | |", flush=True
            )


def of_one_buffer(clock: Clock, steps: Steps) -> None:
    buffer = relive.ReplayBuffer(SCHEMA, LANES * ROWS, num_envs=LANES, sampler=SAMPLER, seed=0)

    def add(calls: int) -> None:
        for step in range(calls):
            buffer.add(**steps.at(step))

    def turn(calls: int) -> None:
        for _ in range(calls):
            batch = buffer.sample(BATCH)
            buffer.update_priorities(batch.ids, batch.reward)

    clock("one buffer in the process: add of 32 lanes", [], 3000, add)
    clock("one buffer in the process: draw + update", [], 2000, turn)


def of_rllib(clock: Clock) -> None:
    """Measure RLlib's buffer in an actor: episodes of 1,000 steps."""
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode
    from ray.rllib.utils.replay_buffers import PrioritizedEpisodeReplayBuffer

    rng = np.random.default_rng(0)

    def episode() -> Any:
        obs = list(rng.normal(size=(1001, 17)).astype(np.float32))
        actions, rewards = list(np.zeros((1000, 6), np.float32)), [1.0] * 1000
        flags = {"terminated": True, "len_lookback_buffer": 0}
        return SingleAgentEpisode(observations=obs, actions=actions, rewards=rewards, **flags)

    buffer = ray.remote(num_cpus=0)(PrioritizedEpisodeReplayBuffer).remote(capacity=LANES * ROWS, alpha=0.6)
    pid = ray.get(buffer.__ray_call__.remote(lambda _: os.getpid()))
    episodes = [episode() for _ in range(8)]
    ray.get(buffer.add.remote(episodes))

    def turn(calls: int) -> None:
        for _ in range(calls):
            ray.get(buffer.sample.remote(num_items=BATCH, n_step=1, beta=0.4))
            ray.get(buffer.update_priorities.remote(np.ones(BATCH)))

    clock("RLlib's prioritized episode buffer in an actor: draw + update", [pid], 10, turn)


def of_reverb(clock: Clock) -> None:
    """Measure Reverb's server in a process, without Ray: every call reaches it over gRPC on this machine."""
    try:
        rows = ask("costs", lanes=LANES, capacity=LANES * ROWS, batch=BATCH)
    except ImportError as error:
        print(f"| Reverb: {error} | | | | |", flush=True)
        return
    for row in rows:
        clock.show(f"Reverb's server in a process, no Ray: {row['what']}", row["own"], row["theirs"], row["wall"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rllib", action="store_true")
    parser.add_argument("--reverb", action="store_true", help="by the interpreter that RELIVE_REVERB_PYTHON names")
    parser.add_argument("--address", default="local")
    chosen = parser.parse_args()
    own = {"num_cpus": 4, "include_dashboard": False, "object_store_memory": 200 << 20}
    ray.init(address=chosen.address, log_to_driver=False, **(own if chosen.address == "local" else {}))
    clock, steps = Clock(), Steps()
    print("| | caller, us of CPU | actors, us of CPU | in empty calls | wall, us |\n|---|---|---|---|---|")
    empty: Any = Empty.remote()
    pid = ray.get(empty.pid.remote())

    def call(calls: int) -> None:
        for _ in range(calls):
            ray.get(empty.nothing.remote())

    clock.empty = clock("empty actor call", [pid], 400, call)
    of_one_buffer(clock, steps)
    for count in chosen.shards:
        of_shards(clock, count, steps)
    if chosen.rllib:
        of_rllib(clock)
    if chosen.reverb:
        of_reverb(clock)


if __name__ == "__main__":
    main()
