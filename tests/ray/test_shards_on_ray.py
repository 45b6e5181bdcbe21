"""Shards as Ray's actors: the whole way, handles in other actors, deaths, saves, refusals."""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from depth import eventually
from needs import needs

needs("ray")

import relive
from relive.ray import Shards
from relive.ray._keeping import newest
from relive.testing import GO, SCHEMAS, STAY, TERMINATED, Script, SyntheticEnvs
from relive.testing.agreement import assert_same_batch

pytestmark = [
    pytest.mark.filterwarnings("ignore::relive.ReliveWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # Ray's own
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("cluster"),
]
LANES, ROWS = 5, 40
SMALL: dict[str, Any] = {"num_cpus": 0, "memory": None}


def made(shards: int = 2, **choices: Any) -> Shards:
    sampler = relive.Prioritized(alpha=1.0, weights="none", beta=1.0)
    choices = {"sampler": sampler, "seed": 0, "item": relive.Transitions(n_step=2), **choices}
    return Shards(SCHEMAS["nested"], LANES * ROWS, num_envs=LANES, shards=shards, **choices)


def rollout(steps: int = 30) -> dict[str, Any]:
    script = Script([GO] * 6 + [TERMINATED], [STAY], give_next=True)
    return SyntheticEnvs(SCHEMAS["nested"], LANES).rollout(list(range(LANES)), steps, script)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pids(shards: Shards) -> list[int]:
    lines = shards._transport
    promises = [lines.call(shard, "ready") for shard in range(shards.shards)]
    assert all(lines.wait(promises, 60.0))
    return [lines.take(promise)[2] for promise in promises]


def learner_of(ray: Any) -> Any:
    @ray.remote(num_cpus=0)
    class Other:
        def __init__(self, replay: Shards) -> None:
            self.replay = replay

        def act(self, writer: relive.ray.Writer, steps: dict[str, Any]) -> int:
            with writer:
                writer.extend(**steps)
                return writer.flush()

        def learn(self, n: int) -> tuple[Any, int]:
            self.replay.rng = np.random.default_rng(7)
            batch = self.replay.sample(n)
            return batch, self.replay.update_priorities(batch.ids, np.full(n, 3.0))

    return Other


def test_the_whole_way(cluster: Any, tmp_path: Path) -> None:
    twin = relive.ReplayBuffer(SCHEMAS["nested"], LANES * ROWS, num_envs=LANES, item=relive.Transitions(n_step=2))
    steps = rollout()
    twin.extend(**steps)
    with made() as shards:
        processes = pids(shards)
        with pytest.raises(relive.NotEnoughData, match="at least 1 drawable item, got 0"):
            shards.sample(4)
        other = learner_of(cluster).remote(shards)
        assert cluster.get(other.act.remote(shards.writer(), steps)) == 0
        batch = shards.sample(128)
        assert_same_batch(batch, twin.read(batch.ids), without=("weights",))
        np.testing.assert_allclose(batch.weights, 1.0, rtol=1e-6)
        batch.reward[:] = 0  # it belongs to the caller
        drawn, applied = cluster.get(other.learn.remote(64))
        assert applied == 64
        assert_same_batch(drawn, twin.read(drawn.ids), without=("weights",))
        with shards.prefetch(32, depth=3, to="torch") as batches:
            for _, ahead in zip(range(6), batches, strict=False):
                assert shards.update_priorities(ahead.ids, ahead.reward[:, 0]) is None
                np.testing.assert_array_equal(ahead.reward.numpy(), twin.read(ahead.ids.numpy()).reward)
        assert shards.stats().drawn == 128 + 6 * 32
        assert (shards.stats().size, shards.stats().missing) == (150, ())
        saved = shards.save(tmp_path / "saved")
        assert (len(saved.numbers), saved.bytes_written > 0) == (2, True)
        expected = shards.sample(64)
    eventually(lambda: not any(map(alive, processes)), 60)
    with pytest.raises(relive.ReliveError, match="open shards"):
        shards.sample(1)
    for count in (None, 3):
        with Shards.load(tmp_path / "saved", shards=count, boundaries=1) as again:
            assert again.stats().size == 150
            batch = again.sample(64)
            assert_same_batch(batch, twin.read(batch.ids), without=("weights",))
            if count is None:
                np.testing.assert_array_equal(batch.ids, expected.ids)
                np.testing.assert_allclose(batch.weights, expected.weights, rtol=1e-6)


@pytest.mark.slow
def test_a_killed_shard_costs_its_own_steps_and_returns(tmp_path: Path) -> None:
    with made(save_dir=str(tmp_path), save_every=0.2) as shards, shards.writer() as writer:
        writer.extend(**rollout(20))
        assert writer.flush() == 0
        shards.sample(32)
        eventually(lambda: newest(str(tmp_path), 1), 60)
        time.sleep(1.0)  # two more saves
        before = shards.sample(400).ids
        os.kill(pids(shards)[1], signal.SIGKILL)
        begun = time.monotonic()
        batch = shards.sample(400)
        went_on = time.monotonic() - begun
        assert not (batch.ids % LANES % 2 == 1).any() or shards.stats().shards[1].life == 1
        writer.extend(**rollout(3))
        eventually(lambda: shards.stats().shards[1].life == 1 and not shards.stats().missing, 60)
        eventually(lambda: writer.flush() == 0, 60)  # what waits for a dead shard is sent when it answers
        stats = shards.stats()
        assert stats.lost == stats.dropped == 0  # it had saved everything
        assert stats.size == 23 * LANES
        assert shards.update_priorities(before, np.ones(400)) == 400
        assert went_on < 8  # 2 on a quiet machine


@pytest.mark.slow
def test_a_lone_shard_is_waited_for_unless_it_died() -> None:
    with made(shards=1) as shards:
        with shards.writer() as writer:
            writer.extend(**rollout())
        ids = shards.sample(16).ids
        (process,) = pids(shards)
        os.kill(process, signal.SIGSTOP)
        begun = time.monotonic()
        resume = threading.Timer(3.0, os.kill, (process, signal.SIGCONT))
        resume.start()
        assert shards.sample(64).ids.shape == (64,)
        assert 2.5 < time.monotonic() - begun < 20
        resume.join()
        assert shards.update_priorities(ids, np.ones(16)) == 16
        assert (shards.stats().late_batches, shards.stats().lost) == (0, 0)
        os.kill(process, signal.SIGKILL)
        begun = time.monotonic()
        # Or it was started again before the news of its death came.
        with pytest.raises(relive.ReliveError, match=r"None of the shards \[0\] answers|at least 1 drawable item"):
            shards.sample(64)
        assert time.monotonic() - begun < 20  # 2 to 4 on a quiet machine: Ray waits for the news of a death
        eventually(lambda: not shards.stats().missing, 60)
        with pytest.raises(relive.NotEnoughData):
            shards.sample(64)


def test_refusals(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    repeats = relive.Prioritized(replacement=False)
    for choices, text in (
        ({"sampler": repeats}, r"Prioritized\(.*would depend on what all shards drew.*`replacement=True`"),
        ({"shards": 6}, "at most 5 shards, as many as lanes"),
        ({"save_dir": "here"}, "an absolute path"),
        ({"actor_options": [{}]}, "a list of 2 dicts"),
        ({"save_dir": str(tmp_path / "file")}, "a directory"),
    ):
        with pytest.raises((relive.ArgumentError, relive.StorageError), match=text):
            made(**choices)
    with pytest.raises(relive.StorageError, match="a directory of shards"):
        Shards.load(tmp_path)
    begun = time.monotonic()
    with pytest.raises(relive.ReliveError, match=r"Shards \[0, 1\] were not started within 1 s; each needs .*no-such"):
        made(actor_options={"resources": {"no-such": 1.0}}, timeout=1.0)
    assert time.monotonic() - begun < 30


def test_an_error_leaves_no_actor() -> None:
    processes: list[int] = []

    def train() -> None:
        with made() as shards:
            processes.extend(pids(shards))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train()
    assert len(processes) == 2
    eventually(lambda: not any(map(alive, processes)), 60)


DRIVER = """
import os, sys, time
import numpy as np, ray, relive
from relive.ray import Shards
ray.init(address=sys.argv[1], log_to_driver=False)
schema = relive.Schema(obs=relive.Field((60_000,)), action=relive.Field())
@ray.remote(num_cpus=0)
class Runner:
    def run(self, writer):
        obs, no = np.zeros((4, 60_000), np.float32), np.zeros(4, bool)
        with writer:
            while True:
                writer.add(obs=obs, action=no, reward=no, next_obs=obs, terminated=no, truncated=no)
    def pid(self):
        return os.getpid()
with Shards(schema, 400, num_envs=4, shards=2, timeout=300.0) as shards:
    runner = Runner.remote()
    transport = shards._transport
    pids = [ray.get(runner.pid.remote())] + [transport.take(transport.call(i, "ready"))[2] for i in (0, 1)]
    runner.run.remote(shards.writer())
    while not shards.can_sample(1):
        time.sleep(0.1)
    with shards.prefetch(16) as batches:
        for number, batch in enumerate(batches):
            if number == 3:
                print(*pids, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_driver_that_ends_leaves_no_actor_and_no_segment(cluster: Any, how: signal.Signals) -> None:
    """End by Ctrl-C or a kill, while it draws large batches and a runner adds that never ends."""
    address = cluster.get_runtime_context().gcs_address
    before = segments()
    with subprocess.Popen([sys.executable, "-c", DRIVER, address], stdout=subprocess.PIPE, text=True) as driver:
        try:
            processes = [int(word) for word in driver.stdout.readline().split()]
            assert len(processes) == 3
            assert all(map(alive, processes))
            driver.send_signal(how)
            assert driver.wait(60) != 0
        finally:
            driver.kill()
    eventually(lambda: not any(map(alive, processes)), 60)
    eventually(lambda: segments() <= before, 60)


def segments() -> set[str]:
    """List the shared memory of Ray's and relive's."""
    return {name for name in os.listdir("/dev/shm") if name.startswith(("plasma", "psm_", "relive"))}


def test_a_writer_that_was_used_is_not_sent() -> None:
    with made(shards=1) as shards, shards.writer() as writer:
        writer.extend(**rollout(1))
        with pytest.raises(relive.ReliveError, match="a writer that has added nothing yet"):
            pickle.dumps(writer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "end"), [("losing_a_node.py", "the shards are back"), ("losing_the_head.py", "the steps are back")]
)
def test_a_lost_node_costs_what_was_on_it(script: str, end: str, tmp_path: Path) -> None:
    """Lose a node, a raylet, or the head with the driver on it, which leaves the saves by the clock."""
    command = [sys.executable, str(Path(__file__).with_name(script)), str(tmp_path / "saved")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert run.returncode == 0, run.stderr[-2000:]
    assert end in run.stdout


@pytest.mark.parametrize("end", ["a task that returns", "an actor that ends"])
def test_a_writer_that_nobody_closes_sends_what_it_holds(cluster: Any, end: str) -> None:
    def add(writer: relive.ray.Writer) -> None:
        no = np.zeros(2, bool)
        for t in range(100):
            obs = np.full(2, float(t))
            writer.add(env_ids=[0, 1], obs=obs, action=obs, reward=obs, next_obs=obs + 1, terminated=no, truncated=no)

    @cluster.remote(num_cpus=0)
    class Runner:
        def run(self, writer: relive.ray.Writer) -> None:
            self.writer = writer
            add(writer)

    schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    with Shards(schema, 1000, num_envs=4, shards=2) as shards:
        if end == "an actor that ends":
            runner = Runner.remote()
            cluster.get(runner.run.remote(shards.writer()))
            runner.__ray_terminate__.remote()
        else:
            cluster.get(cluster.remote(num_cpus=0)(add).remote(shards.writer()))
        eventually(lambda: shards.stats().added == 200)


LEARNERS, SECONDS = 5, float(os.environ.get("RELIVE_RAY_SECONDS", "60"))


@pytest.mark.slow
def test_many_learners_and_the_object_store_stays_as_it_is(cluster: Any, record_property: Any) -> None:
    """Run for a minute, or RELIVE_RAY_SECONDS: each draws, updates and draws ahead, and two writers add."""
    from ray._private.internal_api import memory_summary

    schema = relive.Schema(obs=relive.Field((1000,)), action=relive.Field())
    lanes = 4

    def place_of(t: int, env_ids: list[int]) -> np.ndarray:
        return np.array(env_ids, np.float32) * 1_000_000 + t

    @cluster.remote(num_cpus=0)
    class Runner:
        def run(self, writer: relive.ray.Writer, env_ids: list[int], seconds: float) -> int:
            end, t, no = time.monotonic() + seconds, 0, np.zeros(len(env_ids), bool)
            with writer:
                while time.monotonic() < end:
                    now, obs = place_of(t, env_ids), np.ones(1000, np.float32)
                    step = {"obs": now[:, None] * obs, "next_obs": (now[:, None] + 1) * obs, "action": now}
                    writer.add(env_ids=env_ids, reward=now, terminated=no, truncated=no, **step)
                    t += 1
            return t

    @cluster.remote(num_cpus=0)
    class Learner:
        def learn(self, shards: Shards, seconds: float, ahead: bool) -> int:
            end, count = time.monotonic() + seconds, 0
            while not shards.can_sample(1):
                time.sleep(0.1)
            draws = iter(shards.prefetch(64)) if ahead else iter(lambda: shards.sample(64), None)
            while time.monotonic() < end:
                batch = next(draws)
                assert (batch.obs == batch.reward[:, None]).all()
                assert (batch.next_obs == batch.reward[:, None] + 1).all()
                shards.update_priorities(batch.ids, np.ones(64))
                count += 64
            return count

    def stored() -> float:
        """Return the MiB in the object stores."""
        text = memory_summary(stats_only=True)
        return float(re.findall(r"Plasma memory usage (\d+) MiB", text)[0])

    with Shards(schema, 4000, num_envs=lanes, shards=2, sampler=relive.Prioritized(), seed=0) as shards:
        runs = [Runner.remote().run.remote(shards.writer(), own, SECONDS) for own in ([0, 1], [2, 3])]
        learning = [Learner.remote() for _ in range(LEARNERS)]
        counts = [one.learn.remote(shards, SECONDS - 2, i % 2 == 0) for i, one in enumerate(learning)]
        sizes = []
        end = time.monotonic() + SECONDS - 2
        while time.monotonic() < end:
            time.sleep(min(5.0, SECONDS / 12))
            sizes.append(stored())
        drawn, added = cluster.get(counts), cluster.get(runs)
        eventually(lambda: not shards.stats().missing, 60)  # one that was busy has answered by then
        stats = shards.stats()
    record_property("cases", sum(drawn))
    print(f"{sum(added)} steps of 2 lanes, items {drawn}, MiB in the object store {sizes}")
    assert min(drawn) > 1000
    assert (stats.missing, stats.lost, stats.dropped, stats.added) == ((), 0, 0, 2 * sum(added))
    half = len(sizes) // 2
    assert max(sizes[half:]) <= 1.5 * max(sizes[:half]) + 16
