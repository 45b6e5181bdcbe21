"""`relive top` and `relive shm`, beside a buffer that is in use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from depth import eventually

import relive
from relive._ring import kernels
from relive.checkpoints.watching import SavesWatch
from relive.cli import main
from relive.cli.processes import _shown
from relive.storage.shared import FOLDER, PREFIX

pytestmark = pytest.mark.skipif(not kernels.is_native(), reason="only native kernels share")
SCHEMA = relive.Schema(obs=relive.Field(), action=relive.Field())


def fill(buffer: relive.ReplayBuffer, count: int) -> None:
    t, off = np.arange(float(count)), np.zeros(count, bool)
    buffer.extend(obs=t, action=t, reward=t, next_obs=t + 1, terminated=off, truncated=off, env_ids=[1])


def test_top_tells_what_happens_meanwhile(capsys: pytest.CaptureFixture[str]) -> None:
    limiter = relive.RateLimiter(samples_per_insert=1, min_size=1, error_buffer=1000)
    shared = {"storage": relive.Shared(), "sampler": relive.Prioritized(), "limiter": limiter}
    with relive.ReplayBuffer(SCHEMA, 100, num_envs=2, **shared) as buffer:
        fill(buffer, 70)
        from relive.processes.watching import Watch

        watch = Watch(buffer.storage.name)
        watch.look()
        fill(buffer, 10)
        batch = buffer.sample(20)
        fill(buffer, 45)
        buffer.update_priorities(batch.ids, np.full(20, 4.0))
        seen = watch.look()
        assert (seen.added, seen.stored, seen.drawn, seen.samples_per_insert) == (125, 50, 20, 20 / 55)
        assert (seen.updates, seen.creator_alive, len(seen.ages)) == (20, True, 5)
        assert seen.stale_updates == buffer.stats().stale_updates > 0
        assert seen.priority_quantiles[-1] == pytest.approx(4.0, rel=1e-5)
        assert [(lane.writer, lane.steps) for lane in seen.lanes] == [(0, 0), (os.getpid(), 125)]
        assert seen.limiter.samples == 20
        assert (seen.replay_volume, seen.draw_age) == (20 / 125, (seen.ages[2], seen.ages[2]))
        assert seen.draw_entropy == 0.0  # all priorities were those of new items
        assert main(["top", buffer.storage.name, "--json", "--interval", "0.05"]) == 0
        assert json.loads(capsys.readouterr().out)["added"] == 125
    assert main(["top", buffer.storage.name]) == 2


def test_top_tells_how_old_a_save_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    buffer, watch = relive.ReplayBuffer(SCHEMA, 100, num_envs=2, seed=0), SavesWatch(tmp_path)
    assert main(["top", str(tmp_path)]) == 2
    assert "a complete save of a buffer" in capsys.readouterr().err
    with buffer.autosave(tmp_path, every=0.1, keep=2):
        first = watch.look()
        fill(buffer, 20)
        buffer.sample(3)
        eventually(lambda: watch.look().number > first.number)
        seen = watch.look()
        assert (seen.saves, seen.drawn, seen.late) == (2, 3, False)
        assert 0 < seen.interval < 10
        assert main(["top", str(tmp_path), "--json", "--interval", "0.05"]) == 0
        assert json.loads(capsys.readouterr().out)["number"] == seen.number
    assert seen.__replace__(age=5 + 4 * seen.interval).late
    assert "late" in str(_shown(seen.__replace__(age=60.0)))


def test_shm_lists_and_removes_what_was_left(capsys: pytest.CaptureFixture[str]) -> None:
    code = (
        "import os, relive, relive.storage.shared\n"
        "relive.storage.shared._Sweeper.tell = lambda *_: None\n"
        "schema = relive.Schema(obs=relive.Field(), action=relive.Field())\n"
        "buffer = relive.ReplayBuffer(schema, 100, storage=relive.Shared())\n"
        "print(buffer.storage.name, flush=True); os._exit(0)"
    )
    left = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    unfinished = f"{FOLDER}/{PREFIX}unfinished-{os.getpid()}"
    with open(os.open(unfinished, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
        file.write(bytes(100))
    os.utime(unfinished, (0, time.time() - 100))
    with relive.ReplayBuffer(SCHEMA, 100, storage=relive.Shared()) as buffer:
        assert main(["shm", "list"]) == 0
        listed = capsys.readouterr().out
        assert buffer.storage.name in listed
        assert left in listed
        assert main(["shm", "clean"]) == 0
        assert os.path.exists(buffer.storage.file)
    removed = capsys.readouterr().out
    assert left in removed
    assert not os.path.exists(unfinished)
    assert not os.path.exists(f"{FOLDER}/{PREFIX}{left}")


def test_shm_needs_no_package() -> None:
    """Check that a killed program's remains can be removed by an installation without extras."""
    code = (
        "import sys\n"
        "for name in ('rich', 'tyro', 'torch', 'gymnasium'):\n    sys.modules[name] = None\n"
        "from relive.cli import main\n"
        "import relive\n"
        "schema = relive.Schema(obs=relive.Field(), action=relive.Field())\n"
        "buffer = relive.ReplayBuffer(schema, 10, storage=relive.Shared('shm-without-packages'))\n"
        "assert main(['shm', 'list']) == main(['shm', 'clean']) == 0\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert any(line.split()[0] == "shm-without-packages" and "in use" in line for line in done.stdout.splitlines())
