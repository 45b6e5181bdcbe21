"""The learner is killed at any moment, inside of its checkpoints above all, and always goes on with what it had."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from depth import LONG
from needs import needs
from standing_in import DEMONSTRATION, LAYOUTS, configuration, demonstrations, installed

torch = needs("torch")
from relive.checkpoints import autosave
from relive.errors import ArgumentError, MissingExtra, ReliveError, ReliveWarning, StorageError
from relive.lerobot import ReplayBuffer
from relive.lerobot import __main__ as command
from relive.lerobot._checkpoints import last_checkpoint, run_of
from relive.lerobot._learner import Options, Safe, prepared

OWN = ["--relive.every=0.1"]
INSTANTS = 480  # of about 540 in a run
LOST = 2.0  # seconds, by far: machines stop processes


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with installed(request.param, monkeypatch):
        yield request.param


def lived(arguments: list[str], die_at: int | None = None, after: float | None = None) -> int:
    """Run the launcher in a child that is killed at so many instants, or after so many seconds; how it ended."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            import lerobot.instants

            count = 0

            def reached() -> None:
                nonlocal count
                count += 1
                if count == die_at:
                    os.kill(os.getpid(), signal.SIGKILL)

            lerobot.instants.reached = reached
            status = command.main(["learner", *OWN, *arguments])
            gc.collect()
            autosave._end()  # as at the end of an interpreter
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    until, ended = time.monotonic() + (after or 60.0), (0, 0)
    while not ended[0] and time.monotonic() < until:
        time.sleep(0.002)
        ended = os.waitpid(child, os.WNOHANG)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        ended = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(ended[1])


def command_for(folder: Path) -> list[str]:
    """What a user says after a kill: LeRobot's command where there is a checkpoint, else the first one again."""
    run = folder / "run"
    if last_checkpoint(run) is not None:
        last = run / "checkpoints" / "last" / "pretrained_model" / "train_config.json"
        return [f"--config_path={last}", "--resume=true"]
    return [f"--config_path={folder / 'train.json'}"]


def age_of_lost(run: Path, first: int, when: float) -> float:
    """Look at what a kill left of the steps from this number on; how old the oldest lost one was, in seconds."""
    from lerobot.rl.arm import EPISODE, Arm

    arm, found = Arm(run), {}
    for name in ("online", "offline"):
        buffer = ReplayBuffer(64, "cpu", path=run / "relive" / name, use_drq=False)
        if buffer.initialized:
            arm.check(buffer._read(np.arange(len(buffer))))
        found[name] = [int(reward) for reward in buffer.rewards]
        del buffer
    added = [number for number in range(first, int(arm.count[0])) if arm.times[number] > 0]
    kept = [number for number in found["online"] if number >= first]
    newest = max(kept, default=first - 1)
    lost = [number for number in added if number > newest]
    assert sorted(kept) == [number for number in added if number <= newest][len(added) - len(lost) - len(kept) :]
    assert all(number >= DEMONSTRATION or number % EPISODE < 3 for number in found["offline"])
    return when - arm.times[lost[0]] if lost else 0.0


def kills(folder: Path, count: int, seed: int) -> list[float]:
    """Kill a run so many times, half of them inside a checkpoint; the age of the oldest lost step of each."""
    from lerobot.rl.arm import Arm

    rng, ages = random.Random(seed), []
    for number in range(count):
        inside = number % 2 == 0
        first = int(Arm(folder / "run").count[0]) if (folder / "run" / "clock").exists() else 0
        ended = lived(
            command_for(folder), rng.randrange(1, INSTANTS) if inside else None, None if inside else rng.uniform(0, 0.5)
        )
        assert ended in (0, -signal.SIGKILL), "a run that cannot go on"
        if (folder / "run" / "clock").exists():
            ages.append(age_of_lost(folder / "run", first, time.monotonic()))
        if ended == 0:  # it came to its end, so another one begins
            assert ages[-1] == 0.0, "a run that ends writes a last save"
            os.rename(folder / "run", folder / f"run.{number}")
    return ages


def test_kills(layout: str, tmp_path: Path, record_property: Any) -> None:
    """Every run goes on, and loses what came since the last save."""
    configuration(tmp_path, online_steps=24, async_prefetch=layout == "main")
    ages = kills(tmp_path, 250 if LONG else 10, LAYOUTS.index(layout))
    record_property("cases", len(ages))
    assert max(ages) < LOST


def test_a_run_that_lerobot_began_goes_on(layout: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What `dataset/` has is read once; where LeRobot left half of it, the demonstrations come from where they were."""
    import lerobot.rl.learner as learner

    configuration(tmp_path)
    cfg = learner.Config.from_pretrained(tmp_path / "train.json")
    cfg.resume = True
    safe = Safe(learner, Options(every=0.1))
    demonstrations(cfg.output_dir / "dataset", episodes=2)
    demonstrations(cfg.output_dir / "dataset_offline", episodes=1)
    (cfg.output_dir / "dataset_offline/meta/info.json").write_text("{")
    online, offline = safe.online(cfg, "cpu", "cpu"), safe.offline(cfg, "cpu", "cpu")
    assert (len(online), len(offline)) == (10, 15)
    assert "LeRobot cannot open its data set" in caplog.text
    with pytest.warns(ReliveWarning, match="Left out `is_intervention`"):
        offline.add(**next(learner.Arm(cfg.output_dir).episode()))
    del online, offline
    again = safe.online(cfg, "cpu", "cpu"), safe.offline(cfg, "cpu", "cpu")
    assert [len(buffer) for buffer in again] == [10, 16]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, None),
        ({"000100/training_state/training_step.json": '{"step": 100}'}, None),
        ({"000100/training_state/training_state.pt": "PK"}, None),
        (dict.fromkeys(["000100/training_state/training_step.json"], '{"step": 1, "interaction_step": 0}'), "000100"),
        (
            {
                "000100/training_state/training_step.json": '{"step": 1, "interaction_step": 0}',
                "000200/training_state/training_step.json": '{"step": 1, "interaction_step": 0}',
                "000300/training_state/training_step.json": "{",
                "other/training_state/training_step.json": '{"step": 1, "interaction_step": 0}',
            },
            "000200",
        ),
    ],
)
def test_a_lost_link_is_made_again(files: dict[str, str], found: str | None, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / "checkpoints" / name).parent.mkdir(parents=True)
        (tmp_path / "checkpoints" / name).write_text(text)
    checkpoint = last_checkpoint(tmp_path)
    assert (None if checkpoint is None else checkpoint.name) == found
    assert (tmp_path / "checkpoints/last").exists() == (found is not None)
    assert last_checkpoint(tmp_path) == checkpoint
    for path, run in ((tmp_path / "checkpoints/last/pretrained_model/x.json", tmp_path), (tmp_path / "x.json", None)):
        assert run_of(str(path)) == run


def test_refusals(layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, error, text in [
        (["--relive.evry=1"], ArgumentError, "evry"),
        (["--relive.every=often"], ArgumentError, "a number of seconds"),
        (["--relive.images=uint4"], ArgumentError, "uint4"),
        ([f"--config_path={tmp_path}/checkpoints/last/x.json"], StorageError, "a complete checkpoint"),
    ]:
        with pytest.raises(error, match=text):
            prepared(arguments)
    with pytest.raises(ReliveError, match="no `ReplayBuffer`"):
        Safe(ModuleType("learner"), Options())
    assert command.main(["learner", "--relive.every=often"]) == 2
    assert command.main(["actor"]) == 2
    assert command.main(["--help"]) == 0
    assert "usage:" in capsys.readouterr().out
    (tmp_path / "run").mkdir()
    path = tmp_path / "train.json"
    path.write_text(json.dumps({"output_dir": str(tmp_path / "run"), "policy": {}, "dataset": None}))
    with pytest.raises(FileExistsError):  # as LeRobot has it: no run of this launcher was there
        prepared([f"--config_path={path}"])()


def test_without_lerobot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lerobot", None)
    with pytest.raises(MissingExtra, match="pip install 'lerobot"):
        prepared([])
