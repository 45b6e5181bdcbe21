"""`relive compare tmaze`: with which memory should a replayed sequence begin?"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

import relive
from relive.errors import ArgumentError, message
from relive.lab import DQNConfig, R2D2Config, TrainerConfig, TrainResult
from relive.lab.statistics import Estimate, interval, probability_of_improvement
from relive.lab.studies._report import draw_bands, new_figure, write_curves
from relive.lab.studies._runs import DEFAULT_RUNS, Job, Outcome, Runs, paired, run, status

Array = npt.NDArray[np.float64]

LENGTH, CHANCE = 10, 0.5
LAST = 100  # episodes over which success is counted
POINTS = 40  # of a curve
BASE, BEST = "zero", "stored + burn-in"
# Memory at a sequence's first step, and steps of burn-in; None is DQN, which has no memory at all.
ARMS: dict[str, tuple[str, int] | None] = {
    "no memory": None,
    BASE: ("zero", 0),
    "stored": ("stored", 0),
    BEST: ("stored", 3),
}


def tmaze_config(arm: str, seed: int, steps: int) -> TrainerConfig:
    """Return the settings of one run of `relive compare tmaze`."""
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
    }
    kind = ARMS[arm]
    if kind is None:
        return DQNConfig(**shared, hidden_sizes=(32, 32), batch_size=192, buffer_capacity=6_000)
    return R2D2Config(
        **shared,
        state="stored" if kind[0] == "stored" else "zero",
        burn_in=kind[1],
        length=6,
        starts=3,  # 6,000 steps are 2,000 sequences
        batch_size=32,
        buffer_capacity=6_000,
        lstm_size=32,
        explore_weights=(4.0, 1.0, 1.0, 1.0),  # otherwise hardly any random episode reaches the junction
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """What came of the same seeds in every arm.

    Attributes:
        seeds: In order.
        complete: Whether these are whole runs.
        final: By arm, share of successes among each run's last episodes, float64 `[S]`.
        times: Environment steps of the curves' points, float64 `[P]`.
        curves: By arm, the same share up to each point, float64 `[S, P]`.
        seconds: By arm, mean wall-clock seconds of a run.
    """

    seeds: list[int]
    complete: bool
    final: dict[str, Array]
    times: Array
    curves: dict[str, Array]
    seconds: dict[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bar:
    """A figure that the experiment should reach."""

    what: str
    wanted: str
    reached: float
    holds: bool


def gather(outcomes: Sequence[Outcome], steps: int) -> Found | None:
    """Return the successes of seeds that every arm has: whole runs, or else those that have seen an episode end."""
    seeds, results, complete = paired(outcomes, ARMS, lambda result: len(result.episode_steps) > 0)
    if not seeds:
        return None
    reached = min(steps, *(r.steps for runs in results.values() for r in runs))
    times = np.linspace(reached / POINTS, reached, POINTS)
    return Found(
        seeds=seeds,
        complete=complete,
        final={arm: np.array([success(r, r.steps) for r in runs]) for arm, runs in results.items()},
        times=times,
        curves={arm: np.array([[success(r, at) for at in times] for r in runs]) for arm, runs in results.items()},
        seconds={arm: float(np.mean([r.seconds for r in runs])) for arm, runs in results.items()},
    )


def success(result: TrainResult, at: float) -> float:
    """Return the share of right turns among the last training episodes that ended by step `at`; 0 before the first."""
    ended = int(np.searchsorted(result.episode_steps, at, side="right"))
    # In 30 steps a right turn leaves room for 19 penalties of 0.05 at most; whatever else happens earns less than 0.
    right = result.episode_returns[max(ended - LAST, 0) : ended] > 0.0
    return float(right.mean()) if ended else 0.0


def bars(found: Found) -> list[Bar]:
    """Return what the experiment should reach, and what it did."""
    best, base = (float(interval(found.final[arm]).value) for arm in (BEST, BASE))
    better = probability_of_improvement(found.final[BEST], found.final[BASE]).low
    return [
        Bar(what=f"{BEST}, IQM", wanted=">= 0.80", reached=best, holds=best >= 0.80),
        Bar(what=f"{BASE}, IQM", wanted="<= 0.60", reached=base, holds=base <= 0.60),
        Bar(what=f"P({BEST} > {BASE}), 2.5 %", wanted=">= 0.90", reached=better, holds=better >= 0.90),
    ]


def tables(found: Found) -> list[Table]:
    """Return the figures of the arms, and the bars."""
    count = len(found.seeds)
    partial = "" if found.complete else f", stopped after {found.times[-1]:g} steps"
    title = f"TMaze, success in the last {LAST} episodes: {count} seed{'' if count == 1 else 's'}{partial}"
    arms = Table(title=title, title_justify="left", caption_justify="left")
    for name in ("state", "IQM [95 %]", "min - max", f"P(> {BASE})"):
        arms.add_column(name, justify="left" if name == "state" else "right")
    for arm, final in found.final.items():
        better = None if arm == BASE else probability_of_improvement(final, found.final[BASE])
        arms.add_row(arm, _text(interval(final)), f"{final.min():.2f} - {final.max():.2f}", _text(better))
    arms.caption = f"Turning at random succeeds {CHANCE:.2f} of the time. Seeds are paired."
    checks = Table(title="Bars", title_justify="left")
    for name in ("bar", "wanted", "reached", "holds"):
        checks.add_column(name, justify="left" if name == "bar" else "right")
    for bar in bars(found):
        checks.add_row(bar.what, bar.wanted, f"{bar.reached:.2f}", "yes" if bar.holds else "no")
    return [arms, checks]


def _text(estimate: Estimate | None) -> Text:
    return Text("-" if estimate is None else f"{estimate:.2f}")


def write(found: Found, settings: dict[str, Any], folder: Path) -> list[Path]:
    """Write `curves.png`, `curves.csv` and `summary.json`, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    picture, data, summary = (folder / name for name in ("curves.png", "curves.csv", "summary.json"))
    write_curves(data, ("steps", "success"), found.seeds, found.times, found.curves)
    arms = {
        arm: {
            "success": final.tolist(),
            "iqm": dataclasses.asdict(interval(final)),
            "better_than_zero": dataclasses.asdict(probability_of_improvement(final, found.final[BASE])),
            "seconds": found.seconds[arm],
        }
        for arm, final in found.final.items()
    }
    content = {"relive": relive.__version__, "settings": settings, "seeds": found.seeds, "complete": found.complete}
    content |= {"arms": arms, "bars": [dataclasses.asdict(bar) for bar in bars(found)]}
    summary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    _draw(found, picture)
    return [picture, data, summary]


def _draw(found: Found, path: Path) -> None:
    figure, axes = new_figure()
    draw_bands(axes, found.times, found.curves)
    axes.axhline(CHANCE, color="grey", linestyle="--", linewidth=0.8, label="chance")
    axes.set_ylim(0.0, 1.02)
    axes.set_xlabel("environment steps")
    axes.set_ylabel(f"success in the last {LAST} episodes: IQM and 95 % interval")
    axes.set_title(f"TMaze: with which memory does a replayed sequence begin? ({len(found.seeds)} seeds)")
    axes.legend(frameon=False, loc="upper left")
    figure.savefig(path, dpi=120)


def tmaze(
    runs: tyro.conf.OmitArgPrefixes[Runs] = DEFAULT_RUNS,
    steps: int = 20_000,
    out: Path = Path("runs/tmaze"),
) -> int:
    """Recurrent Q-learning from replayed sequences that begin with zero memory, stored memory, or that and a burn-in.

    A cue at the start of a corridor says where to turn at its end, after the sequences that show the cue are over. DQN,
    which has no memory, is the fourth arm.

    Example: relive compare tmaze --quick --out runs/tmaze

    Args:
        runs: Seeds and processes.
        steps: Environment steps of a run.
        out: Folder for curves.png, curves.csv and summary.json.
    """
    if steps < 2_000:
        raise ArgumentError(message("at least 2000", f"`{steps}`", "--steps"))
    jobs = [Job(arm, seed, tmaze_config(arm, seed, steps)) for seed in runs.chosen() for arm in ARMS]
    console = Console()
    processes = min(runs.jobs, len(jobs))
    console.print(f"TMaze: {len(jobs)} runs on {processes} processes, same seeds in every arm", markup=False)
    outcomes = run(jobs, processes, console)
    found = gather(outcomes, steps)
    if found is None:
        console.print("No seed has an episode in every arm: nothing to compare.")
    else:
        for table in tables(found):
            console.print(table)
        for path in write(found, {**dataclasses.asdict(runs), "steps": steps}, out):
            console.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)
    return status(jobs, outcomes)
