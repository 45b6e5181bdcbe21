"""The command: runs that are not in the file yet, then the tables."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import learning
from benchmarks.learning.evaluation import Course
from relive_lab.statistics import final, interval, paired_difference, ratio_of_medians

MODULES = {"sb3": "benchmarks.learning.in_sb3", "cleanrl": "benchmarks.learning.in_cleanrl"}
ENVS = {"dqn": "CartPole-v1", "sac": "Pendulum-v1"}
STEPS = {("sb3", "dqn"): 50_000, ("sb3", "sac"): 10_000, ("cleanrl", "dqn"): 50_000, ("cleanrl", "sac"): 10_000}
WARM_UP = {"dqn": 1_100, "sac": 600}  # the first updates come before
ARMS = {"own": "Stable-Baselines3's buffer", "relive": "relive's", "prioritized": "relive's, prioritized"}

Run = Mapping[str, Any]


def known(path: Path) -> list[Run]:
    """Read the runs in the file. A line that was cut off in the middle is removed from it."""
    text = path.read_text() if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return [json.loads(line) for line in whole.splitlines()]


def table(runs: Sequence[Run]) -> str:
    """Format one library and task as Markdown, with only those seeds that every arm has."""
    by_arm = {arm: {run["seed"]: run for run in runs if run["replay"] == arm} for arm in ARMS}
    seeds = sorted(set.intersection(*(set(found) for found in by_arm.values())))
    lines = [f"| {len(seeds)} seeds | final return | difference to the first row | s / 1,000 steps | ratio |"]
    lines += ["|---|---:|---:|---:|---:|"]
    if not seeds:
        return "\n".join(lines)
    returns = {arm: final([found[seed]["returns"] for seed in seeds]) for arm, found in by_arm.items()}
    cost = {arm: np.array([found[seed]["cost"] for seed in seeds]) for arm, found in by_arm.items()}
    for arm, name in ARMS.items():
        mean = interval(returns[arm], lambda values: values.mean(axis=-1))
        cells = [name, f"{mean:.1f}"]
        cells.append("" if arm == "own" else f"{paired_difference(returns[arm], returns['own']):+.1f}")
        cells.append(f"{np.median(cost[arm]):.3f}")
        cells.append("" if arm == "own" else f"{ratio_of_medians(cost[arm], cost['own']):.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    each = (f"{name}: {', '.join(f'{value:.0f}' for value in returns[arm])}" for arm, name in ARMS.items())
    return "\n".join([*lines, "", f"Each seed: {'; '.join(each)}."])


def train(library: str, task: str, replay: str, seed: int, steps: int) -> Run:
    """Train once; return what decides the run, mean returns of five evaluations, and CPU seconds for 1,000 steps."""
    course = Course(ENVS[task], seed, steps)
    importlib.import_module(MODULES[library]).run(task, replay, course)
    which = {"library": library, "task": task, "replay": replay, "seed": seed, "steps": steps}
    return {**which, "returns": course.returns, "cost": course.cpu / steps * 1_000}


def main() -> None:
    """Run what is missing, one run after the other; print the tables."""
    parser = argparse.ArgumentParser(description=learning.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--libraries", nargs="+", choices=MODULES, default=list(MODULES))
    parser.add_argument("--tasks", nargs="+", choices=ENVS, default=list(ENVS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="in every run, to try it out")
    parser.add_argument("--report", action="store_true", help="no runs")
    args = parser.parse_args()
    torch.set_num_threads(1)
    pairs = [pair for pair in STEPS if pair[0] in args.libraries and pair[1] in args.tasks]
    runs = known(args.file)
    args.file.parent.mkdir(parents=True, exist_ok=True)
    # Seed by seed, so that arms are timed in turns, and a run that is stopped has as many seeds of every arm.
    wanted = [
        (*pair, arm, seed, args.steps or STEPS[pair]) for seed in range(args.seeds) for pair in pairs for arm in ARMS
    ]
    made = {tuple(run[name] for name in ("library", "task", "replay", "seed", "steps")) for run in runs}
    missing = [] if args.report else [which for which in wanted if which not in made]
    for library, task in dict.fromkeys(which[:2] for which in missing):
        train(library, task, "own", 0, WARM_UP[task])  # what is loaded and made at first is nobody's cost
    for which in missing:
        runs.append(train(*which))
        with args.file.open("a") as file:
            file.write(json.dumps(runs[-1]) + "\n")
        print(runs[-1], flush=True)
    for library, task in pairs:
        steps = args.steps or STEPS[library, task]
        found = [run for run in runs if (run["library"], run["task"], run["steps"]) == (library, task, steps)]
        print(f"\n{library}, {task} on {ENVS[task]}, {steps:,} steps\n\n{table(found)}")


if __name__ == "__main__":
    main()
