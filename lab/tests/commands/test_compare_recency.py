"""`relive-lab compare recency`: the settings of its arms, from the command to the files, and the table of several."""

from __future__ import annotations

import dataclasses
import importlib
import multiprocessing
from pathlib import Path

import pytest
import torch

import relive
from relive_lab import SACConfig
from relive_lab.cli import main
from relive_lab.config import sampler_of
from relive_lab.studies import recency
from relive_lab.studies.recency import ARMS, TASKS, VOLUMES, Learner, table

RECENT, PRIORITIZED = relive.Recent(share=0.25), relive.Prioritized()


def test_arms_differ_in_their_samplers_alone() -> None:
    for task in TASKS:
        for volume in VOLUMES:
            learner = Learner(task=task, volume=volume)
            configs = {arm: dataclasses.asdict(learner.config(3, **ARMS[arm].changes)) for arm in ARMS}
            for config in configs.values():
                assert config.pop("use_per") in (False, True)
                config.pop("recent_share")
                assert config == configs["uniform"]
    samplers = {arm: SACConfig(**ARMS[arm].changes).sampler() for arm in ARMS}
    assert samplers["uniform"] == relive.Uniform()
    assert [samplers[f"recent {share:g}"].share for share in (0.4, 0.25, 0.1)] == [0.4, 0.25, 0.1]
    assert [type(member).__name__ for member, _ in samplers["blend"].members] == ["Uniform", "Prioritized", "Recent"]
    assert sampler_of(None, 0.25) == RECENT
    assert sampler_of(PRIORITIZED, None) == PRIORITIZED


def test_volumes_are_what_they_are_called() -> None:
    for task in TASKS:
        low, high = (Learner(task=task, volume=volume).items_per_step for volume in VOLUMES)
        assert high >= 8 * low
    config = Learner(task="pendulum-sac", volume="low").config(0)
    assert config.batch_size / config.update_every == Learner(task="pendulum-sac", volume="low").items_per_step
    config = Learner().config(0)
    assert config.batch_size * config.updates_per_step / config.num_envs == Learner().items_per_step


@pytest.mark.parametrize(
    ("task", "steps"), [("reach", 640), pytest.param("pendulum-sac", 2000, marks=pytest.mark.slow)]
)
def test_from_the_command_to_the_table(
    task: str, steps: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recency, "EVALUATIONS", 4)  # twenty of them would take most of the time
    context = multiprocessing.get_context
    if not torch.cuda.is_available():  # a process that forks has PyTorch, whose imports take most of the time
        importlib.import_module("torch._dynamo")  # which an optimizer imports
        monkeypatch.setattr(multiprocessing, "get_context", lambda kind: context("fork"))
    out = tmp_path / f"{task}-low"
    words = ["compare", "recency", "--task", task, "--seeds", "1", "--jobs", "1", "--num-envs", "16"]
    assert main([*words, "--steps", str(steps), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert f"on {task}" in shown
    assert "against uniform" in shown
    lines = table(tmp_path)
    assert len(lines) == 3
    assert lines[2].startswith(f"| {task}, ")
    assert lines[2].count("|") == lines[0].count("|") == len(ARMS) + 2
