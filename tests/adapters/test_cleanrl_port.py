"""The port that docs/switch.md shows, on a loop of CleanRL's shape and on the files of a checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import needs

needs("stable_baselines3")
from counter import GAMMA, Counting, wrong

PAGE = (Path(__file__).parents[2] / "docs" / "switch.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## CleanRL\n")[2].partition("\n## ")[0]
CLEANRL = os.environ.get("RELIVE_CLEANRL")  # a checkout of today's CleanRL

# Lines that change are those of CleanRL's files; what lies between them is ours.
LOOP = """
import gymnasium as gym
import numpy as np
from cleanrl_utils.buffers import ReplayBuffer

def make_env(env_id, seed, idx, capture_video, run_name):
    return lambda: gym.wrappers.RecordEpisodeStatistics(Counting(idx))

def run():
    envs = gym.vector.SyncVectorEnv(
        [make_env(args.env_id, args.seed + i, i, args.capture_video, run_name) for i in range(args.num_envs)]
    )
    rb = ReplayBuffer(1000, envs.single_observation_space, envs.single_action_space, "cpu", n_envs=args.num_envs,
                      n_steps=args.n, gamma=GAMMA, handle_timeout_termination=False)
    obs, _ = envs.reset()
    returns = []
    for _ in range(120):
        next_obs, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())
        if "final_info" in infos:
            for info in infos["final_info"]:
                returns.append((float(info["episode"]["r"]), int(info["episode"]["l"])))
        real_next_obs = next_obs.copy()
        for idx, trunc in enumerate(truncations):
            if trunc:
                real_next_obs[idx] = infos["final_observation"][idx]
        rb.add(obs, real_next_obs, envs.action_space.sample(), rewards, terminations, infos)
        obs = next_obs
    return rb, returns
"""


def port() -> list[tuple[str, str]]:
    """What goes and what comes, from the diffs of the page's section."""
    pairs: list[tuple[list[str], list[str]]] = []
    for block in re.findall(r"```diff\n(.*?)```", SECTION, re.DOTALL):
        for line in block.splitlines():
            if line[0] == "-":
                pairs.append(([], []))
            pairs[-1][line[0] == "+"].append(line[1:])
    return [("\n".join(gone), "\n".join(come)) for gone, come in pairs]


def ported(text: str) -> str:
    for gone, come in port():
        assert text.count(gone) == 1, gone
        text = text.replace(gone, come)
    return text


class Args:
    env_id, seed, capture_video, num_envs = "counting", 1, False, 2

    def __init__(self, n: int) -> None:
        self.n = n


@pytest.mark.parametrize("n", [1, 3])
def test_the_ported_loop_is_right_and_is_told_nothing(n: int) -> None:
    place: dict[str, Any] = {"Counting": Counting, "args": Args(n), "GAMMA": GAMMA, "run_name": ""}
    exec(ported(LOOP), place)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rb, returns = place["run"]()
        data = rb.sample(500)
    discounts = (GAMMA if data.discounts is None else data.discounts) * (1 - data.dones)
    assert wrong(data.observations, data.rewards, discounts, data.next_observations, n) == 0
    assert (discounts == 0).any()
    assert len(returns) > 40
    assert all(total == length * (length + 1) / 2 for total, length in returns)


def test_the_lines_of_the_port_are_four() -> None:
    assert len(port()) == 4


@pytest.mark.slow
@pytest.mark.skipif(CLEANRL is None, reason="RELIVE_CLEANRL names no checkout")
@pytest.mark.parametrize(
    ("file", "env", "steps"),
    [
        ("dqn", "CartPole-v1", 1500),
        ("c51", "CartPole-v1", 1500),
        ("sac_continuous_action", "Pendulum-v1", 800),
        ("ddpg_continuous_action", "Pendulum-v1", 800),
        ("td3_continuous_action", "Pendulum-v1", 800),
    ],
)
def test_cleanrls_files_of_today(file: str, env: str, steps: int, tmp_path: Path) -> None:
    assert CLEANRL is not None
    text = (Path(CLEANRL) / "cleanrl" / f"{file}.py").read_text(encoding="utf-8")
    together = "SyncVectorEnv([make_env(args.env_id, args.seed, 0, args.capture_video, run_name)]"
    if together in text:  # as the page says
        text = text.replace(together, f"{together}, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP")
        for gone, come in [pair for pair in port() if "make_env" not in pair[0]]:
            assert text.count(gone) == 1, gone
            text = text.replace(gone, come)
    else:
        text = ported(text)
    program = tmp_path / f"{file}.py"
    program.write_text(text, encoding="utf-8")
    command = [sys.executable, "-W", "default", str(program), "--env-id", env, "--total-timesteps", str(steps)]
    done = subprocess.run(
        [*command, "--learning-starts", "300"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "episodic_return=" in done.stdout
    assert "relive" not in done.stderr, done.stderr[-2000:]
    assert np.isfinite([float(found) for found in re.findall(r"episodic_return=\[?(-?[\d.]+)", done.stdout)]).all()
