"""`relive-lab compare tmaze`: the recurrent state at the start of a replayed sequence: zero, stored, or burnt in."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from relive.errors import ArgumentError, message
from relive_lab import DQNConfig, R2D2Config, TrainerConfig, TrainResult
from relive_lab.statistics import interval, probability_of_improvement
from relive_lab.studies.conduct import Bar
from relive_lab.studies.study import DEFAULT_RUNS, Array, Runs, Study

LENGTH, CHANCE = 10, 0.5
LAST = 100  # episodes over which success is counted
POINTS = 40  # of a curve
BASE, BEST = "zero", "stored + burn-in"
# State at a sequence's first step, and steps of burn-in; None is DQN, which has no memory.
ARMS: dict[str, tuple[str, int] | None] = {
    "no memory": None,
    BASE: ("zero", 0),
    "stored": ("stored", 0),
    BEST: ("stored", 3),
}


def tmaze_config(arm: str, seed: int, steps: int) -> TrainerConfig:
    """Return the settings of one run of `relive-lab compare tmaze`."""
    shared: dict[str, Any] = {
        "env_id": "relive/TMaze-v0",
        "env_kwargs": {"length": LENGTH},
        "num_envs": 10,
        "total_steps": steps,
        "seed": seed,
        "gamma": 0.98,
        "learning_rate": 2e-3,
        "target_every": 100,
        "update_every": 10,
        "start_steps": 1_000,
        "epsilon_start": 1.0,
        "epsilon_end": 0.05,
        "epsilon_steps": steps // 4,
        "eval_every": 2_000,
        "eval_episodes": 32,
        "torch_threads": 1,
        "buffer_capacity": 6_000,
    }
    kind = ARMS[arm]
    if kind is None:
        return DQNConfig(**shared, hidden_sizes=(32, 32), batch_size=192)
    return R2D2Config(
        **shared,
        state="stored" if kind[0] == "stored" else "zero",
        burn_in=kind[1],
        length=6,
        starts=3,  # 6,000 steps are 2,000 sequences
        batch_size=32,
        lstm_size=32,
        explore_weights=(4.0, 1.0, 1.0, 1.0),  # otherwise hardly any random episode reaches the junction
    )


def success(result: TrainResult, at: float) -> float:
    """Return the share of right turns among the last training episodes that ended by step `at`; 0 before the first."""
    ended = int(np.searchsorted(result.episode_steps, at, side="right"))
    # In 30 steps a right turn leaves room for at most 19 penalties of 0.05; every other episode returns less than 0.
    right = result.episode_returns[max(ended - LAST, 0) : ended] > 0.0
    return float(right.mean()) if ended else 0.0


def successes(runs: Sequence[TrainResult]) -> tuple[Array, Array] | None:
    """Measure success at equal distances, up to the end of the shortest run."""
    if not all(len(run.episode_steps) for run in runs):
        return None
    reached = min(run.steps for run in runs)
    times = np.linspace(reached / POINTS, reached, POINTS)
    # A run may have gone a few steps further than the shortest; its last point counts all of its episodes.
    return times, np.array([[*(success(run, at) for at in times[:-1]), success(run, run.steps)] for run in runs])


def judge(finals: dict[str, Array]) -> list[Bar]:
    """Return what the experiment should reach, and what it did."""
    best, base = interval(finals[BEST]).value, interval(finals[BASE]).value
    better = probability_of_improvement(finals[BEST], finals[BASE]).low
    return [
        Bar(f"{BEST}, IQM >= 0.80", f"{best:.2f}", best >= 0.80),
        Bar(f"{BASE}, IQM <= 0.60", f"{base:.2f}", base <= 0.60),
        Bar(f"P({BEST} > {BASE}), 2.5 % >= 0.90", f"{better:.2f}", better >= 0.90),
    ]


def tmaze_study(settings: dict[str, Any]) -> Study:
    """Return the study that `relive-lab compare tmaze` runs."""
    return Study(
        title=f"TMaze, success in the last {LAST} episodes",
        arms=tuple(ARMS),
        baseline=BASE,
        unit="steps",
        metric="success",
        digits=".2f",
        measure=successes,
        last=1,
        threshold=0.8,
        reference=("turning at random", CHANCE),
        judge=judge,
        settings=settings,
    )


def tmaze(
    runs: tyro.conf.OmitArgPrefixes[Runs] = DEFAULT_RUNS,
    steps: int = 20_000,
    out: Path = Path("runs/tmaze"),
) -> int:
    """Compare recurrent Q-learning from replayed sequences that begin with zero, stored, or burnt-in memory.

    A cue at the start of a corridor says where to turn at its end. DQN, which has no memory, is the fourth arm.

    Example: relive-lab compare tmaze --quick --out runs/tmaze

    Args:
        runs: Seeds and processes.
        steps: Environment steps of a run.
        out: Folder for curves.png, curves.csv and summary.json.
    """
    if steps < 2_000:
        raise ArgumentError(message("at least 2000", f"`{steps}`", "--steps"))
    study = tmaze_study({**dataclasses.asdict(runs), "steps": steps})
    return study.run(runs, lambda arm, seed: tmaze_config(arm, seed, steps), out)
