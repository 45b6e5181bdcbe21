"""What the doctor says of other libraries is so: shown again by a few steps put into their buffers by hand."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from needs import needs

from relive.doctor import Report, examine, pipelines
from relive.doctor._pipeline import Patient
from relive.doctor._priorities import table_c

GAMMA = 0.5
# Two episodes of three steps: the first is truncated, the second terminates. Rewards are 1, 2, 3, ...
OBS = [0, 1, 2, 10, 11, 12]
NEXT = [1, 2, 3, 11, 12, 13]
TERMINATED = [False] * 5 + [True]
TRUNCATED = [False] * 2 + [True] + [False] * 3


def verdicts(name: str, **choices: Any) -> tuple[Report, dict[tuple[str, str, int], int]]:
    report = examine(pipelines.named(name), name=name, **choices)
    return report, {(f.probe, f.autoreset_mode, f.n_step): f.wrong for f in report.findings}


def only(found: dict[tuple[str, str, int], int], mode: str, n_step: int) -> dict[str, int]:
    return {probe: wrong for (probe, at, n), wrong in found.items() if (at, n) == (mode, n_step)}


def test_stable_baselines3() -> None:
    buffers = needs("stable_baselines3.common.buffers")

    def windows(infos: bool) -> dict[int, tuple[float, float, float]]:
        spaces = gymnasium.spaces.Box(0, 99, (1,)), gymnasium.spaces.Discrete(2)
        buffer = buffers.NStepReplayBuffer(6, *spaces, "cpu", n_steps=3, gamma=GAMMA)
        for t in range(6):
            done = TERMINATED[t] or (infos and TRUNCATED[t])
            info = [{"TimeLimit.truncated": TRUNCATED[t]}] if infos else [{}]
            step = np.array([[OBS[t]]]), np.array([[NEXT[t]]]), np.array([0]), np.array([t + 1.0]), np.array([done])
            buffer.add(*step, info)
        got = buffer._get_samples(np.arange(6))
        columns = got.rewards, got.discounts * (1 - got.dones), got.next_observations
        return {OBS[t]: tuple(float(column[t]) for column in columns) for t in range(6)}

    # With the time limit in the infos windows end there; as CleanRL's loops call it they run on.
    assert windows(True)[1] == (2 + 0.5 * 3, GAMMA**2, 3)
    assert windows(False)[1] == (2 + 0.5 * 3 + 0.25 * 4, GAMMA**3, 11)
    assert windows(True)[11][:2] == windows(False)[11][:2] == (5 + 0.5 * 6, 0)

    _, loop = verdicts("sb3")
    assert only(loop, "disabled", 1) == only(loop, "disabled", 3) == only(loop, "same_step", 1) == {}
    assert only(loop, "same_step", 3) == {"reset in mid-episode": 8}
    assert only(loop, "next_step", 1) == only(loop, "next_step", 3) == {"phantom step": 40}
    _, cleanrl = verdicts("sb3-cleanrl", n_steps=[3], modes=["same_step"])
    wrong = {"wrong next_obs bootstrapped": 52, "wrong reward": 52, "wrong discount": 52}
    assert only(cleanrl, "same_step", 3) == wrong
    _, learn = verdicts("sb3-learn", n_steps=[3])
    assert learn == {("reset in mid-episode", "disabled", 3): 8}
    _, memory = verdicts("sb3-memory", n_steps=[1])
    assert memory["truncation taken for an end", "disabled", 1] == 26


def test_tianshou() -> None:
    data = needs("tianshou.data")

    def filled(kind: Any, **choices: Any) -> Any:
        buffer = kind(6, **choices)
        for t in range(6):
            flags = {"terminated": TERMINATED[t], "truncated": TRUNCATED[t], "done": TERMINATED[t] or TRUNCATED[t]}
            buffer.add(data.Batch(obs=OBS[t], act=0, rew=t + 1.0, obs_next=NEXT[t], info={}, **flags))
        return buffer

    # Without `obs_next` the final observation of the truncated episode is the one before it.
    assert filled(data.ReplayBuffer)[np.array([2])].obs_next.tolist() == [3]
    assert filled(data.ReplayBuffer, ignore_obs_next=True)[np.array([2])].obs_next.tolist() == [2]
    prioritized = filled(data.PrioritizedReplayBuffer, alpha=1.0, beta=0.4)
    prioritized.update_weight(np.array([0, 1]), np.array([1.0, np.nan]))
    with pytest.raises(AssertionError):
        prioritized.sample(4)

    report, loop = verdicts("tianshou", n_steps=[1], modes=["same_step"])
    found = only(loop, "same_step", 1)
    assert set(found) >= {"one NaN among 8", "one infinite TD error among 8", "late priorities"}
    assert not any(finding.table == "A" for finding in report.findings if finding.autoreset_mode == "same_step")
    _, collected = verdicts("tianshou-collector", n_steps=[3])
    assert collected == {("reset in mid-episode", "disabled", 3): 8}
    _, ignoring = verdicts("tianshou-ignore-obs-next", n_steps=[1])
    assert ignoring == {("wrong next_obs bootstrapped", "disabled", 1): 28}


def test_cpprb() -> None:
    cpprb = needs("cpprb")
    fields: dict[str, Any] = {"obs": {}, "act": {}, "rew": {}, "next_obs": {}, "done": {}}
    window = {"size": 3, "gamma": GAMMA, "rew": "rew", "next": "next_obs"}
    buffer = cpprb.ReplayBuffer(6, fields, Nstep=window)
    for t in range(6):
        buffer.add(obs=OBS[t], act=0, rew=t + 1, next_obs=NEXT[t], done=TERMINATED[t])
        if TERMINATED[t] or TRUNCATED[t]:
            buffer.on_episode_end()
    got = {name: values[:, 0].tolist() for name, values in buffer.get_all_transitions().items()}
    # The window from 10 on has a terminal last step, yet its `done` is 0. That from 1 on is shortened by the time
    # limit, and its `next_obs` was never written.
    assert got["done"] == [0, 0, 0, 0, 1, 1]
    assert got["next_obs"][0] == 3
    assert got["next_obs"][1] not in OBS[2:] + NEXT[1:]

    prioritized = cpprb.PrioritizedReplayBuffer(6, fields, alpha=1.0)
    for t in range(6):
        prioritized.add(obs=OBS[t], act=0, rew=t + 1, next_obs=NEXT[t], done=TERMINATED[t])
    prioritized.update_priorities(np.array([2, 3]), np.array([1.0, np.nan]))
    drawn = prioritized.sample(1000)
    assert len(np.unique(drawn["obs"])) < 6
    assert not np.isfinite(drawn["weights"]).all()
    # Sums are float32: of rows of mass 1 behind one of 2**24 some are drawn twice as often, the others never.
    many = cpprb.PrioritizedReplayBuffer(2**16 + 1, {"obs": {}}, alpha=1.0, eps=0.0)
    many.add(obs=np.zeros(2**16 + 1), priorities=np.array([2.0**24, *[1.0] * 2**16]))
    at = many.sample(2**20)["indexes"]
    counts = np.bincount(at[at > 0] % 4, minlength=4)
    assert sorted(counts)[:2] == [0, 0]
    assert min(sorted(counts)[2:]) > 1500

    _, loop = verdicts("cpprb", modes=["same_step"])
    one, three = only(loop, "same_step", 1), only(loop, "same_step", 3)
    assert {name: three[name] for name in ("bootstraps from a terminal state", "wrong discount")} == {
        "bootstraps from a terminal state": 24,
        "wrong discount": 52,
    }
    assert "ring wraps in mid-episode" not in three  # nothing new: table A has these kinds of faults already
    assert set(one) == {
        "late priorities",
        "late priorities, another draw in between",
        "one negative TD error among 8",
        "one infinite TD error among 8",
        "one NaN among 8",
        "draws by mass at 42 million rows",
    }
    checked = Patient(pipelines.named("cpprb-check-for-update"), "checked")
    found = {check.probe: check.wrong for check in table_c(checked, AutoresetMode.SAME_STEP, (1,), ())}
    assert found["late priorities"] == 0 < found["one NaN among 8"]

    class Either(pipelines.named("cpprb-done-either")):
        sample = update = choose = None

    findings = examine(Either, modes="disabled", n_steps=1).findings
    assert {finding.wrong for finding in findings if finding.probe == "truncation taken for an end"} == {26}


def test_torchrl() -> None:
    needs("torchrl")
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
    from torchrl.envs.transforms import MultiStepTransform

    column = {name: torch.tensor(values)[:, None] for name, values in (("o", OBS), ("n", NEXT), ("t", TERMINATED))}
    done = column["t"] | torch.tensor(TRUNCATED)[:, None]
    after = {"observation": column["n"], "reward": torch.arange(1.0, 7.0)[:, None], "done": done}
    steps = TensorDict({"observation": column["o"], "next": {**after, "terminated": column["t"]}}, [6])
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(6), transform=MultiStepTransform(2, GAMMA), batch_size=1)
    buffer.extend(torch.cat([steps, steps]))  # the newest two steps wait for more
    got = buffer[:]
    first = int((got["observation"][:, 0] == 11).nonzero()[0, 0])
    # Its window ends in the terminal state 13, but `terminated` is that of the step itself.
    assert got["next", "observation"][first].item() == 13
    assert not got["next", "terminated"][first].item()

    _, found = verdicts("torchrl", n_steps=[3])
    assert found == {("bootstraps from a terminal state", "disabled", 3): 48}


def test_lerobot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the stand-in, which `tests/lerobot/test_real_lerobot.py` compares with LeRobot's class, if installed."""
    monkeypatch.setitem(sys.modules, "lerobot.rl.buffer", None)
    torn = {("draws in mid-add", "disabled", 1), ("adds in mid-draw", "disabled", 1)}
    _, found = verdicts("lerobot", n_steps=[1])
    assert found.pop(("wrong next_obs bootstrapped", "disabled", 1)) == 13
    assert found.keys() == torn
    _, found = verdicts("lerobot-next-states", n_steps=[1])
    assert found.keys() == torn
    needs("torch")
    report, found = verdicts("relive.lerobot", n_steps=[1])
    assert found == {}
    probes = {"ring wraps in mid-episode", "reset in mid-episode", "draws in mid-add", "adds in mid-draw"}
    assert {check.probe for check in report.checks} >= probes


@pytest.mark.parametrize(
    ("name", "library", "modes"),
    [
        ("relive.sb3", "stable_baselines3", ["same_step"]),
        ("relive.sb3-cleanrl", "stable_baselines3", ["disabled"]),
        ("relive.sb3-learn", "stable_baselines3", None),
        ("relive.tianshou", "tianshou", ["disabled"]),
        ("relive.tianshou-collector", "tianshou", None),
        ("relive.torchrl", "torchrl", None),
    ],
)
def test_nothing_is_wrong_with_relive_in_their_place(name: str, library: str, modes: list[str] | None) -> None:
    needs(library)
    report, found = verdicts(name, modes=modes, n_steps=[3])
    assert found == {}
    assert {check.probe for check in report.checks} >= {"ring wraps in mid-episode", "reset in mid-episode"}
    if name in ("relive.tianshou", "relive.torchrl"):
        assert "late priorities" in {check.probe for check in report.checks}
