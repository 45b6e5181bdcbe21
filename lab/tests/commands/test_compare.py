"""`relive-lab compare`, end to end and small, with its processes."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from interrupted import interrupted

from relive_lab import SACConfig
from relive_lab.cli import main
from relive_lab.statistics import Estimate
from relive_lab.studies import final_observations as final
from relive_lab.studies import tmaze
from relive_lab.studies.arms import Arms
from relive_lab.studies.pairs import PairsLearner, pairs_config, pendulum_config
from relive_lab.studies.study import Runs
from relive_lab.studies.verdict import verdict
from relive_lab.td3 import TD3Config


def test_what_the_arms_set() -> None:
    arms = Arms(arms=("uniform", "td", "precision", "3-step"), loss="huber")
    found = {name: pendulum_config(3, 5_000, **arms.settings(arm)) for name, arm in arms.chosen().items()}
    assert list(found) == ["uniform", "prioritized", "precision", "uniform, 3-step"]
    base = found["uniform"]
    assert (base.use_per, base.critic_loss, base.huber_threshold) == (False, "huber", 0.3)
    assert found["prioritized"] == dataclasses.replace(base, use_per=True)
    assert found["precision"] == dataclasses.replace(base, use_per=True, priority="precision")
    assert found["uniform, 3-step"] == dataclasses.replace(base, n_step=3)
    assert (base.hidden_sizes, base.reward_scale, base.update_every) == ((64, 64), 0.1, 1)


@pytest.mark.parametrize(
    ("difference", "base", "seeds", "text"),
    [
        ((-0.06, -0.09, -0.02), 1.5, 10, "It costs 4.0 % of the final return here [1.3, 6.0]: it is noise."),
        ((30.0, 15.0, 45.0), -150.0, 10, "It gains 20.0 % of the final return here [10.0, 30.0]; it is noise."),
        ((0.05, 0.04, 0.06), 0.01, 10, "It gains 0.05 in the final return here [0.04, 0.06]; it is noise."),
        (
            (0.0, 0.0, 0.0),
            1.0,
            10,
            "It makes no clear difference here (final return +0.0 % [+0.0, +0.0]); it is noise.",
        ),
        ((-0.01, -0.03, 0.02), 1.0, 5, "It makes no clear difference here (final return -1.0 % [-3.0, +2.0]); it"),
        ((-0.3, -0.3, -0.3), 1.0, 1, "1 seed is too few for a verdict on it (final return -30.0 % [-30.0, -30.0]); i"),
    ],
)
def test_the_line_that_says_what_a_difference_means(
    difference: tuple[float, float, float], base: float, seeds: int, text: str
) -> None:
    assert verdict("it", "final return", Estimate(*difference), base, seeds, "it is noise").startswith(text)
    assert verdict("it", "final return", Estimate(*difference), base, seeds).endswith(("].", ")."))


PUBLISHED: dict[str, Any] = {
    "env_id": "relive/PairsTrading-v0", "env_kwargs": {"mode": "break", "sigma": 1.0, "cost": 0.5},
    "total_steps": 50_000, "per_alpha": 0.6, "per_beta_start": 0.4, "per_beta_end": 1.0, "per_beta_anneal_steps": 6_125,
    "gamma": 0.97, "buffer_capacity": 100_000, "batch_size": 64, "hidden_sizes": (32, 32), "learning_rate": 1e-3,
    "tau": 0.01, "target_entropy": -1.0, "init_alpha": 0.1, "start_steps": 1_000, "update_every": 8,
    "eval_every": 2_500, "eval_episodes": 200, "torch_threads": 1,
}  # fmt: skip


def test_the_settings_of_pairs_are_those_of_the_published_comparison() -> None:
    config = pairs_config(PairsLearner(), seed=3, use_per=True)
    assert config == SACConfig(**PUBLISHED, seed=3, use_per=True)
    assert pairs_config(PairsLearner(), 3, use_per=False) == dataclasses.replace(config, use_per=False)
    front_page = pairs_config(PairsLearner(num_envs=10, learning_rate=1.5e-3), seed=3, use_per=True)
    assert front_page == dataclasses.replace(config, num_envs=10, learning_rate=1.5e-3)
    for changes, found in (({}, (0.3, 16, 150_000)), ({"sigma": 1.0, "episodes": 100}, (1.0, 16, 10_000))):
        rare = pairs_config(PairsLearner(mode="dislocation", **changes), seed=3, use_per=False)
        assert (rare.env_kwargs["sigma"], rare.update_every, rare.total_steps) == found
        assert changes or rare.per_beta_anneal_steps == 149_000 // 16


def test_quick_takes_few_seeds_and_fewer_episodes() -> None:
    assert PairsLearner().resolved(quick=True).episodes == 400
    assert PairsLearner(mode="dislocation").resolved(quick=True).episodes == 1_200
    assert PairsLearner(episodes=77).resolved(quick=True).episodes == 77
    assert list(Runs(seeds=10, first_seed=5).chosen()) == list(range(5, 15))
    assert list(Runs(first_seed=5, quick=True).chosen()) == [5, 6, 7, 8, 9, 10]
    assert list(Runs(seeds=2, quick=True).chosen()) == [0, 1]


def test_what_the_ends_of_episodes_bootstrap_from_is_all_that_differs() -> None:
    shared = final.Learner(n_step=3, use_per=True).settings()
    configs = {arm: TD3Config(**shared, **final.ARMS[arm].changes) for arm in final.ARMS}
    assert {arm: config.ends for arm, config in configs.items()} == {
        final.BASE: "final", "reset obs": "reset", "nothing": "none",
    }  # fmt: skip
    base = configs[final.BASE]
    assert (base.env, base.limit, base.n_step, base.use_per, base.num_envs) == ("reach", 30, 3, True, 256)
    assert (base.total_steps, base.eval_every, base.buffer_capacity) == (256_000, 25_600, 256_000)
    assert final.Learner(env="pendulum").settings()["limit"] == 200


WALKS = "--n 4 12 --learners table --seeds 12"  # all of n = 4 is done before some runs of n = 12
SHORT = ["--episodes", "12", "--eval-every", "4", "--eval-episodes", "8", "--hidden", "8"]


def compared(name: str, words: str, out: Path, capsys: Any, *texts: str) -> tuple[str, dict[str, Any]]:
    """Run a comparison of one or two seeds from 7 on; return its output and its summary."""
    assert main(["compare", name, *words.split(), "--first-seed", "7", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    for text in ("final return, IQM" if name != "tmaze" else "success, IQM", "P(higher", *texts):
        assert text in shown
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((out / "summary.json").read_text())
    assert (found["seeds"][0], found["complete"]) == (7, True)
    return shown, found


@pytest.mark.slow
def test_pairs_from_the_command_to_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ("SAC on PairsTrading, mode break: 4 runs on 2 processes", "never reached it", "For scale: the rule")
    words = " ".join(["--seeds 2 --jobs 2", *SHORT])
    shown, found = compared("pairs", words, tmp_path, capsys, *texts)
    assert len(re.findall(r"\[\d/4\] (?:uniform|prioritized), seed [78]: return", shown)) == 4
    assert len((tmp_path / "curves.csv").read_text().splitlines()) == 1 + 2 * 2 * 3
    assert (found["settings"]["update_every"], found["settings"]["arms"]) == (8, ["uniform", "td"])
    assert [arm["arm"] for arm in found["arms"]] == ["uniform", "prioritized"]
    assert len(found["noise_share"]) == 2
    assert all(0.0 < share <= 1.0 for share in found["noise_share"])
    (line,) = found["verdicts"]
    assert re.fullmatch(r"2 seeds are too few .* by TD error \(.*\); up to \d+ % of its signal is noise\.", line)
    assert line in " ".join(shown.split())


@pytest.mark.slow
def test_arms_and_loss_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = " ".join(["--seeds 1 --jobs 1 --loss huber --huber-threshold 0.2 --cost 1.5", *SHORT])
    words += " --arms precision td"
    _, found = compared("pairs", words, tmp_path, capsys, "Differences and P are against precision")
    assert [arm["arm"] for arm in found["arms"]] == ["precision", "prioritized"]
    settings = {"arms": ["precision", "td"], "loss": "huber", "huber_threshold": 0.2, "cost": 1.5}
    assert settings.items() <= found["settings"].items()


@pytest.mark.slow
def test_final_observations_from_the_command_to_the_picture(tmp_path: Path, capsys: Any) -> None:
    words = "--seeds 1 --jobs 1 --steps 3200 --num-envs 16"
    texts = ("TD3 on reach, episodes of 30 steps: 3 runs", "against final obs")
    _, found = compared("final-observations", words, tmp_path, capsys, *texts)
    assert found["settings"]["total_steps"] == 3_200
    assert [arm["arm"] for arm in found["arms"]] == list(final.ARMS)


@pytest.mark.slow
def test_tmaze_from_the_command_to_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ("TMaze, success in the last 100 episodes: 4 runs on 2 processes", "episodes: 1 seed", "Bars", "holds")
    words = "--seeds 1 --jobs 2 --steps 2000"
    shown, found = compared("tmaze", words, tmp_path, capsys, "against zero", *texts)
    assert len(re.findall(r"\[\d/4\] (?:no memory|zero|stored|stored \+ burn-in), seed 7: return", shown)) == 4
    assert len((tmp_path / "curves.csv").read_text().splitlines()) == 1 + 4 * 40
    assert found["settings"]["steps"] == 2_000
    assert [arm["arm"] for arm in found["arms"]] == list(tmaze.ARMS)
    assert [bar["text"][-7:] for bar in found["bars"]] == [">= 0.80", "<= 0.60", ">= 0.90"]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(
    ("words", "after", "shown", "picture"),
    [
        (["pairs", "--seeds", "200", *SHORT], "[2/", r"SAC on PairsTrading, mode break: \d+ seeds?\b", "curves.png"),
        (["cliffwalk", *WALKS.split()], "[112/216]", "seeds: a table", "cliffwalk.png"),
    ],
)
def test_ctrl_c_ends_the_processes_and_shows_what_was_reached(
    words: list[str], after: str, shown: str, picture: str, tmp_path: Path
) -> None:
    told = interrupted(["compare", *words, "--jobs", "2", "--out", str(tmp_path)], after=after)
    assert "Ending the runs; Ctrl-C again ends at once." in told
    assert re.search(shown, told)
    assert (tmp_path / picture).exists()
