"""Reverb's side of two questions, run by an interpreter of its own: it needs TensorFlow 2.15, and with it NumPy 1.

    ENV/bin/python -m benchmarks.reverb_side rounds '{"seconds": 2, "times": 5, "several": 1}'
    ENV/bin/python -m benchmarks.reverb_side rounds '{"writer": "trajectory", "server": "apart"}'
    ENV/bin/python -m benchmarks.reverb_side openings
    ENV/bin/python -m benchmarks.reverb_side costs

An item is one step, with both its observations. The answer is one line of JSON on standard output, for which
`peers/reverb.py` asks. It needs `pip install 'dm-reverb[tensorflow]==0.14.0'`, nothing of relive, and Linux, as Reverb
does.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import reverb
import tensorflow as tf

from benchmarks.workload import ACTION_SIZE, ALPHA, BETA, OBS_SIZE, Array, Step, endless_steps, lane_steps, td_errors

TABLE, IN_FLIGHT, WRITERS = "steps", 1_000, 2
Add = Callable[[Step], None]
clock = time.perf_counter
processes = multiprocessing.get_context("spawn")  # gRPC does not outlive a fork


def made(capacity: int) -> reverb.Server:
    obs, action = (tf.TensorSpec([1, size], tf.float32) for size in (OBS_SIZE, ACTION_SIZE))
    reward, flag = (tf.TensorSpec([1], dtype) for dtype in (tf.float32, tf.bool))
    table = reverb.Table(
        name=TABLE,
        sampler=reverb.selectors.Prioritized(ALPHA),
        remover=reverb.selectors.Fifo(),
        max_size=capacity,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=(obs, action, reward, obs, flag, flag),
    )
    return reverb.Server([table])


def end_with_parent() -> None:
    """End this process when the one that started it is gone: a writer would wait for its server for ever."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def serve(capacity: int, ports: Any) -> None:
    """Serve in a process of its own."""
    end_with_parent()
    server = made(capacity)
    ports.put(server.port)
    server.wait()


@contextmanager
def serving(where: str, capacity: int) -> Iterator[tuple[str, int]]:
    """Run a server in this process ("here") or in one of its own ("apart"); yield its address and process."""
    if where == "here":
        server = made(capacity)
        yield f"localhost:{server.port}", os.getpid()
        server.stop()
        return
    ports = processes.SimpleQueue()
    process = processes.Process(target=serve, args=(capacity, ports), daemon=True)
    process.start()
    try:
        yield f"localhost:{ports.get()}", process.pid or 0
    finally:
        process.kill()
        process.join()


def inserted(client: reverb.Client) -> int:
    """Return how many items the table has taken: what a writer gave may still be on its way."""
    return client.server_info()[TABLE].rate_limiter_info.insert_stats.completed


def rows(step: Step) -> Iterator[tuple[Any, ...]]:
    """Split a call's steps, and make the reward an array's type: a Python float would be another column's."""
    for obs, action, reward, *others in zip(*step, strict=True) if np.ndim(step.reward) else (step,):
        yield obs, action, np.float32(reward), *others


def by_writer(client: reverb.Client) -> tuple[Add, Callable[[], None]]:
    """Add with the older `Client.writer`, twice as quick for items of one step as what is to replace it."""
    writer = client.writer(1, chunk_length=1, max_in_flight_items=IN_FLIGHT)

    def add(step: Step) -> None:
        for row in rows(step):
            writer.append(row)
            writer.create_item(TABLE, 1, 1.0)

    return add, writer.close


def by_trajectory_writer(client: reverb.Client) -> tuple[Add, Callable[[], None]]:
    writer = client.trajectory_writer(1, validate_items=False)
    given = 0

    def add(step: Step) -> None:
        nonlocal given
        for row in rows(step):
            writer.append(row)
            writer.create_item(TABLE, 1.0, tuple(column[-1:] for column in writer.history))
            given += 1
            if given % 16 == 0:
                writer.flush(block_until_num_items=IN_FLIGHT)

    return add, writer.flush


ADDING = {"writer": by_writer, "trajectory": by_trajectory_writer}


def write(address: str, how: str, several: int, stop: Any) -> None:
    """Write steps in a process of its own until told to stop."""
    end_with_parent()
    add, finish = ADDING[how](reverb.Client(address))
    for step in endless_steps(several):
        if stop.value:
            break
        add(step)
    finish()


def by_dataset(address: str, batch: int) -> Callable[[Array], None]:
    """Make cycles whose draws are ahead by up to a batch, so their priorities are as old; it is the documented way."""
    dataset = reverb.TrajectoryDataset.from_table_signature(
        address, TABLE, max_in_flight_samples_per_worker=batch, num_workers_per_iterator=1
    )
    batches, client = iter(dataset.batch(batch)), reverb.TFClient(address)

    def turn(errors: Array) -> None:
        drawn = next(batches)
        [column.numpy()[:, 0] for column in drawn.data]
        weigh(drawn.info.probability.numpy(), drawn.info.table_size.numpy())
        client.update_priorities(TABLE, drawn.info.key, tf.constant(errors, tf.float64))

    return turn


def by_client(address: str, batch: int) -> Callable[[Array], None]:
    """Make cycles that draw when they are asked to, item by item in Python; "not for real training"."""
    client = reverb.Client(address)

    def turn(errors: Array) -> None:
        drawn = list(client.sample(TABLE, batch, emit_timesteps=False))
        [np.concatenate(column) for column in zip(*(item.data for item in drawn), strict=True)]
        weigh(*(np.array([getattr(item.info, name) for item in drawn]) for name in ("probability", "table_size")))
        client.mutate_priorities(TABLE, {item.info.key: float(e) for item, e in zip(drawn, errors, strict=True)})

    return turn


def weigh(probability: Array, size: Array) -> Array:
    weights: Array = (probability * size) ** -BETA
    return weights / weights.max()


DRAWING = {"dataset": by_dataset, "client": by_client}


def rounds(
    capacity: int = 1_000_000,
    seconds: float = 2.0,
    times: int = 5,
    several: int = 1,
    batch: int = 256,
    writer: str = "writer",
    server: str = "here",
    learner: str = "dataset",
) -> list[tuple[float, list[float]]]:
    """Let two processes add and this one make cycles: microseconds a step, and of each cycle, round by round."""
    stop = processes.RawValue("b", 0)
    with serving(server, capacity) as (address, _):
        arguments = (address, writer, several, stop)
        children = [processes.Process(target=write, args=arguments, daemon=True) for _ in range(WRITERS)]
        for child in children:
            child.start()
        try:
            client = reverb.Client(address)
            while inserted(client) < 8 * batch:
                time.sleep(0.01)
                if not all(child.is_alive() for child in children):
                    raise RuntimeError("a writer's process ended")
            turn, errors = DRAWING[learner](address, batch), cycle(td_errors(batch))
            one_round(client, turn, errors, seconds / 4)
            return [one_round(client, turn, errors, seconds) for _ in range(times)]
        finally:
            stop.value = 1
            for child in children:
                child.join(5)
                child.kill()
                child.join()


def one_round(
    client: reverb.Client, turn: Callable[[Array], None], errors: Iterator[Array], seconds: float
) -> tuple[float, list[float]]:
    added, begun, cycles = inserted(client), clock(), list[float]()
    while (before := clock()) < begun + seconds or len(cycles) < 2:
        turn(next(errors))
        cycles.append((clock() - before) * 1e6)
    return (clock() - begun) * 1e6 / max(inserted(client) - added, 1), cycles


def openings(times: int = 7, server: str = "apart") -> list[float]:
    """Let this process connect to a server of another one, to draw and to add: microseconds each."""
    found = []
    with serving(server, 1_000) as (address, _):
        reverb.Client(address).server_info()  # until it has started
        for _ in range(times):
            before = clock()
            client = reverb.Client(address)
            client.server_info()
            client.writer(1).close()
            found.append((clock() - before) * 1e6)
    return found


def costs(lanes: int = 32, capacity: int = 131_072, batch: int = 256) -> list[dict[str, Any]]:
    """Measure CPU and wall of calls on a server in a process of its own: microseconds a call, here and there."""
    found = []
    with serving("apart", capacity) as (address, pid):
        client, steps = reverb.Client(address), lane_steps(lanes, 64)

        def measure(what: str, calls: int, run: Callable[[int], None]) -> None:
            run(max(1, calls // 10))
            before, begun = (spent(os.getpid()), spent(pid)), clock()
            run(calls)
            wall = clock() - begun
            own, theirs = spent(os.getpid()) - before[0], spent(pid) - before[1]
            per = {"own": own, "theirs": theirs, "wall": wall}
            found.append({"what": what, **{name: value / calls * 1e6 for name, value in per.items()}})

        def adding(how: str) -> Callable[[int], None]:
            add, _ = ADDING[how](client)

            def run(calls: int) -> None:
                due = inserted(client) + calls * lanes
                for k in range(calls):
                    add(steps[k % len(steps)])
                while inserted(client) < due:
                    time.sleep(0.005)

            return run

        def turning(how: str) -> Callable[[int], None]:
            turn, errors = DRAWING[how](address, batch), cycle(td_errors(batch))

            def run(calls: int) -> None:
                for _ in range(calls):
                    turn(next(errors))

            return run

        measure(f"add of {lanes} lanes, `Client.writer`", 400, adding("writer"))
        measure(f"add of {lanes} lanes, `TrajectoryWriter`", 200, adding("trajectory"))
        measure("draw + update, `Client.sample`", 15, turning("client"))
        measure("draw + update, `TrajectoryDataset`, drawn ahead", 150, turning("dataset"))
    return found


def spent(pid: int) -> float:
    """Return the CPU seconds of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    asked: dict[str, Callable[..., Any]] = {"rounds": rounds, "openings": openings, "costs": costs}
    answer = asked[sys.argv[1]](**json.loads(sys.argv[2] if len(sys.argv) > 2 else "{}"))
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)  # TensorFlow's threads may still wait for samples
