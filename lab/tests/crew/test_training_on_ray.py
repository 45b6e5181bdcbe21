"""A learner, its actors and shards on a real cluster."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from needs import needs

needs("ray")
import dqn_toys
import trainer_toys
from depth import eventually
from dqn_toys import Signs, small
from ray import cloudpickle

import relive
from relive_lab import DQNTrainer

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # Ray's own
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("cluster"),
]


def pid(handle: Any) -> int:
    """Return the process of an actor."""
    import ray

    found: int = ray.get(handle.__ray_call__.remote(lambda _: os.getpid()))
    return found


def gone(pids: list[int]) -> bool:
    """Return True if no such process runs."""
    return not any(psutil.pid_exists(each) for each in pids)


@pytest.mark.slow
def test_a_run_is_saved_loses_an_actor_and_is_resumed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given: dict[str, Any] = {"actors": 2, "num_envs": 2, "cluster": "local", "shards": 2, "use_per": True}
    config = small(**given, total_steps=600, eval_every=0, update_every=4, buffer_capacity=2_000)
    for module in (dqn_toys, trainer_toys):  # the cluster's processes have no such modules
        cloudpickle.register_pickle_by_value(module)
    trainer, seen = DQNTrainer(config, make_env=Signs), {}

    def watch(now: Any) -> None:
        if now.step > 200 and not seen:
            handles = [*trainer.run._backend.handles.values(), *trainer.buffer._transport.handles]
            seen["pids"] = [pid(handle) for handle in handles]
            os.kill(seen["pids"][1], signal.SIGKILL)

    with caplog.at_level(logging.WARNING, "relive"):
        result = trainer.train(watch, out=tmp_path)
    assert "Actor 1 died and is started again" in caplog.text
    assert result.steps == 600
    assert result.updates > 100
    assert len(result.episode_returns) > 30
    stats = trainer.buffer.stats()
    assert stats.added >= 560  # a killed actor's last steps may be lost
    assert stats.size == stats.added
    trainer.close()
    eventually(lambda: gone(seen["pids"]))

    with pytest.warns(relive.errors.ReliveWarning, match="New episodes begin"):
        again = DQNTrainer.load(tmp_path, make_env=Signs, total_steps=700)
    try:
        assert again.buffer.stats().size == stats.size
        assert again.train().steps == 700
        with pytest.raises(relive.errors.ArgumentError, match=r"Expected a cluster, .*DQNTrainer.load\(cluster\)"):
            DQNTrainer.load(tmp_path, cluster=None)
    finally:
        again.close()


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from relive_lab.cli import main
    from relive_lab.crew.cluster import Cluster

    pids: list[int] = []
    end = Cluster.end

    def noted(backend: Any, grace: float) -> None:
        pids.extend(pid(handle) for handle in backend.handles.values())
        end(backend, grace)

    monkeypatch.setattr(Cluster, "end", noted)
    words = "--env-id CartPole-v1 --actors 1 --cluster local --total-steps 300 --start-steps 100 --eval-every 300"
    words += " --eval-episodes 1 --hidden-sizes 16 --batch-size 16 --use-per --torch-threads 1"
    assert main(["train", "dqn", *words.split(), "--out", str(tmp_path / "run")]) == 0
    assert "300" in capsys.readouterr().out
    assert (tmp_path / "run" / "learner.safetensors").exists()
    assert len(pids) == 1
    eventually(lambda: gone(pids))


@pytest.mark.slow
def test_ctrl_c_ends_a_command_with_its_cluster(tmp_path: Path) -> None:
    """Send Ctrl-C to the whole group, as a terminal does: raylet, shards and actors end, and the results are saved."""
    words = ["--actors", "1", "--cluster", "local", "--total-steps", "1000000", "--start-steps", "100", "--use-per"]
    words += ["--eval-every", "0", "--hidden-sizes", "16", "--save-every", "2000", "--out", f"{tmp_path}"]
    command = [sys.executable, "-m", "relive_lab", "train", "dqn", *words]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            learner = tmp_path / "learner.safetensors"  # the first is from before the first step
            eventually(learner.exists, 300)
            first = learner.stat().st_mtime_ns
            eventually(lambda: learner.stat().st_mtime_ns > first or process.poll() is not None, 300)
            children = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
            assert len(children) > 4
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
    eventually(lambda: gone(children))
