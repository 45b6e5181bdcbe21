"""The port that docs/switch.md shows, on a loop of CleanRL's shape and on the files of a checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from needs import needs

needs("stable_baselines3")
from counter import GAMMA, Counting, length, wrong

PAGE = (Path(__file__).parents[2] / "docs" / "switch.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## CleanRL\n")[2].partition("\n## ")[0]
CLEANRL = os.environ.get("RELIVE_CLEANRL")  # a checkout of today's CleanRL

# Lines that change are those of CleanRL's files; what lies between them is ours.
LOOP = """
import gymnasium as gym
import numpy as np
from cleanrl_utils.buffers import ReplayBuffer

def make_env(env_id, seed, idx, capture_video, run_name):
    return lambda: Lives(gym.wrappers.RecordEpisodeStatistics(Counting(idx)))

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


def port() -> str:
    """Read the lines of the page's section."""
    (lines,) = re.findall(r"```sed\n(.*?)```", SECTION, re.DOTALL)
    return str(lines)


def ported(text: str, tmp_path: Path) -> str:
    (tmp_path / "port.sed").write_text(port(), encoding="utf-8")
    command = ["sed", "-f", str(tmp_path / "port.sed")]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the page's command is GNU sed's")


class Lives(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Every third step loses a life, which ends an episode here, and not inside: as Atari's wrapper does it."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.over, self.count = True, 0

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.over, self.count = terminated or truncated, self.count + 1
        self.last = obs
        return obs, reward, terminated or (not self.over and self.count % 3 == 0), truncated, info

    def reset(self, **choices: Any) -> Any:
        return self.env.reset(**choices) if self.over else (self.last, {})


class Args:
    env_id, seed, capture_video, num_envs = "counting", 1, False, 2

    def __init__(self, n: int) -> None:
        self.n = n


@pytest.mark.parametrize("lives", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_the_ported_loop_is_right_and_is_told_nothing(n: int, lives: bool, tmp_path: Path) -> None:
    place: dict[str, Any] = {"Counting": Counting, "args": Args(n), "GAMMA": GAMMA, "run_name": ""}
    place["Lives"] = Lives if lives else lambda env: env
    exec(ported(LOOP, tmp_path), place)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rb, returns = place["run"]()
        data = rb.sample(3000)
    discounts = (GAMMA if data.discounts is None else data.discounts) * (1 - data.dones)
    assert lives or wrong(data.observations, data.rewards, discounts, data.next_observations, n) == 0
    assert (discounts == 0).any()
    # Of all episodes but a lane's last one every step is drawn. A truncated one is known to have ended by the next.
    drawn = {tuple(row) for row in data.observations.int().tolist()}
    last = [max(episode for number, episode, _ in drawn if number == lane) for lane in range(2)]
    for lane, end in enumerate(last):
        assert end > 15
        assert {(lane, e, t) for e in range(end) for t in range(length(lane, e))} <= drawn
    assert len(returns) > 40
    assert all(total == length * (length + 1) / 2 for total, length in returns)


def test_the_lines_of_the_port_are_those_of_the_table() -> None:
    assert len(port().splitlines()) == 8


CARTPOLE = ["--env-id", "CartPole-v1", "--total-timesteps", "1200", "--learning-starts", "300"]
PENDULUM = ["--env-id", "Pendulum-v1", "--total-timesteps", "600", "--learning-starts", "300"]
BREAKOUT = ["--env-id", "BreakoutNoFrameskip-v4", "--total-timesteps", "400", "--learning-starts", "200"]
BREAKOUT += ["--buffer-size", "1000", "--batch-size", "4"]
OFTEN, SAVED, CPU = ["--train-frequency", "10"], ["--save-model"], ["--no-cuda"]
TAUGHT = [*BREAKOUT, *OFTEN, "--teacher-eval-episodes", "1", "--teacher-steps", "300", "--offline-steps", "3"]
FILES = {
    "dqn": [*CARTPOLE, *SAVED],
    "c51": [*CARTPOLE, *SAVED],
    "dqn_jax": [*CARTPOLE, *SAVED],
    "c51_jax": [*CARTPOLE, *SAVED],
    "ddpg_continuous_action": [*PENDULUM, *SAVED],
    "td3_continuous_action": [*PENDULUM, *SAVED],
    "sac_continuous_action": PENDULUM,
    "ddpg_continuous_action_jax": [*PENDULUM, *SAVED],
    "td3_continuous_action_jax": [*PENDULUM, *SAVED],
    "dqn_atari": [*BREAKOUT, *OFTEN, *SAVED, *CPU],
    "c51_atari": [*BREAKOUT, *OFTEN, *SAVED, *CPU],
    "sac_atari": [*BREAKOUT, *CPU],
    "dqn_atari_jax": [*BREAKOUT, *OFTEN, *SAVED],
    "c51_atari_jax": [*BREAKOUT, *OFTEN, *SAVED],
    "qdagger_dqn_atari_impalacnn": [*TAUGHT, *CPU],
    "qdagger_dqn_atari_jax_impalacnn": TAUGHT,
}
# Teachers come from the net; here they are what another file has saved.
HUB = """
import os

def hf_hub_download(repo_id, filename):
    return os.environ["TEACHER"]
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a ported copy of the checkout, without its videos, and without a hub."""
    folder = tmp_path_factory.mktemp("cleanrl")
    for name in ("cleanrl", "cleanrl_utils"):
        shutil.copytree(Path(str(CLEANRL)) / name, folder / name)
    (folder / "port.sed").write_text(port(), encoding="utf-8")
    command = "sed -i -f port.sed cleanrl/*.py cleanrl_utils/evals/*.py"
    assert command in SECTION
    subprocess.run(["bash", "-c", command], cwd=folder, check=True)
    for path in (folder / "cleanrl_utils" / "evals").glob("*.py"):
        path.write_text(
            path.read_text(encoding="utf-8").replace("capture_video: bool = True", "capture_video: bool = False")
        )
    (folder / "huggingface_hub.py").write_text(HUB, encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.skipif(CLEANRL is None, reason="RELIVE_CLEANRL names no checkout")
@pytest.mark.parametrize("file", FILES)
def test_cleanrls_files_of_today(file: str, checkout: Path) -> None:
    for module in ("flax", "optax") if "_jax" in file else ():
        needs(module)
    if "atari" in file:
        needs("ale_py")
    done = run(checkout, file)
    assert "episodic_return=" in done.stdout
    if "--save-model" in FILES[file] or "qdagger" in file:
        assert "eval_episode=" in done.stdout
    assert "relive" not in done.stderr, done.stderr[-2000:]
    assert np.isfinite([float(found) for found in re.findall(r"episodic_return=\[?(-?[\d.]+)", done.stdout)]).all()


def run(checkout: Path, file: str) -> Any:
    paths = os.pathsep.join([str(checkout), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    if "qdagger" in file:
        teacher = "dqn_atari_jax" if "_jax" in file else "dqn_atari"
        saved = f"runs/*__{teacher}__*/{teacher}.cleanrl_model"
        if not [*checkout.glob(saved)]:
            run(checkout, teacher)
        environment["TEACHER"] = str(next(checkout.glob(saved)))
    command = [sys.executable, "-W", "default", f"cleanrl/{file}.py", *FILES[file]]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=1800, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done
