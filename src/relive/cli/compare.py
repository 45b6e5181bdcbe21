"""`relive compare`: uniform against prioritized replay over several seeds, same seeds in every arm."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from relive.cli import INTERRUPTED
from relive.cli._report import Curves, Study, align, tables, write
from relive.cli._runs import Job, Outcome, run
from relive.errors import ArgumentError, message
from relive.trainers import SACConfig

EPISODE = 100  # bars in an episode of PairsTrading
HELD_OUT_SEED = 1_000_000
THRESHOLDS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
QUICK_SEEDS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Common:
    """Options of every comparison."""

    seeds: int = 10
    """Seeds in each arm; one seed gives the same initial weights and environment in all arms."""
    first_seed: int = 0
    """The first seed; the others follow."""
    quick: bool = False
    """Take 4 seeds: minutes, and wide intervals."""
    jobs: int | None = None
    """Processes at a time; by default one for each processor."""

    def __post_init__(self) -> None:
        """Refuse counts that are not positive."""
        if self.quick:
            object.__setattr__(self, "seeds", min(self.seeds, QUICK_SEEDS))
        if self.jobs is None:
            object.__setattr__(self, "jobs", os.cpu_count() or 1)
        check = {"seeds": 1, "first_seed": 0, "jobs": 1}
        for name, low in check.items():
            value = getattr(self, name)
            if value < low:
                raise ArgumentError(message(f"at least {low}", f"`{value}`", f"--{name.replace('_', '-')}"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairsOptions:
    """Options of the environment and the learner; what is not given depends on the mode."""

    mode: Literal["break", "dislocation"] = "break"
    """What disturbs the pair: breaks of its relation, or rare jumps of its spread that revert."""
    sigma: float | None = None
    """Quiet volatility of the spread (default: 1 in mode break, 0.3 in mode dislocation)."""
    cost: float = 0.5
    """Cost of one unit traded."""
    update_every: int | None = None
    """Environment steps between updates (default: 8 in mode break, 16 in mode dislocation)."""
    hidden: int = 32
    """Width of the two hidden layers."""
    episodes: int | None = None
    """Training episodes of 100 steps (default: 500 in mode break, 1,500 in mode dislocation)."""
    eval_every: int = 25
    """Training episodes between evaluations."""
    eval_episodes: int = 200
    """Held-out episodes of an evaluation, the same for all."""

    def __post_init__(self) -> None:
        """Fill in what the mode decides, and refuse what cannot be evaluated."""
        usual = {"break": (1.0, 8, 500), "dislocation": (0.3, 16, 1_500)}[self.mode]
        for name, value in zip(("sigma", "update_every", "episodes"), usual, strict=True):
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        for name in ("update_every", "hidden", "episodes", "eval_every", "eval_episodes"):
            value = getattr(self, name)
            if value < 1:
                raise ArgumentError(message("at least 1", f"`{value}`", f"--{name.replace('_', '-')}"))


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Evaluate a policy on a fixed set of PairsTrading episodes, all at once."""

    episodes: int
    settings: dict[str, Any]

    def __call__(self, policy: Callable[[Any], Any]) -> Any:
        """Return the returns, float64 `[episodes]`."""
        import relive.envs

        return relive.envs.evaluate(policy, episodes=self.episodes, seed=HELD_OUT_SEED, **self.settings)


def pairs_config(options: PairsOptions, seed: int, use_per: bool) -> SACConfig:
    """Return the settings of one run of `relive compare pairs`."""
    steps, every = int(options.episodes or 0) * EPISODE, int(options.update_every or 1)
    start = 1_000
    return SACConfig(
        env_id="relive/PairsTrading-v0",
        env_kwargs=_market(options),
        total_steps=steps,
        seed=seed,
        use_per=use_per,
        per_alpha=0.6,
        per_beta_start=0.4,
        per_beta_end=1.0,
        per_beta_anneal_steps=max((steps - start) // every, 1),
        gamma=0.97,
        buffer_capacity=100_000,
        batch_size=64,
        hidden_sizes=(options.hidden, options.hidden),
        learning_rate=1e-3,
        tau=0.01,
        target_entropy=-1.0,
        init_alpha=0.1,
        start_steps=start,
        update_every=every,
        eval_every=options.eval_every * EPISODE,
        eval_episodes=options.eval_episodes,
        torch_threads=1,
    )


def pairs(
    common: tyro.conf.OmitArgPrefixes[Common] = Common(),
    options: tyro.conf.OmitArgPrefixes[PairsOptions] = PairsOptions(),
    out: Path = Path("runs/pairs"),
) -> int:
    """Compare replay on a simulated pair of stocks (about 15 s a run; 30 s in mode dislocation).

    Example: relive compare pairs --quick --out runs/pairs

    Args:
        common: Seeds and processes.
        options: Environment and learner.
        out: Folder for curves.png, curves.csv and summary.json.
    """
    evaluator = HeldOut(options.eval_episodes, _market(options))
    study = Study(
        title=f"SAC on PairsTrading, mode {options.mode}",
        baseline="uniform",
        arms=("uniform", "prioritized"),
        unit="episodes",
        steps_per_unit=EPISODE,
        threshold=None,
        reference=_best_rule(evaluator),
        settings={**dataclasses.asdict(common), **dataclasses.asdict(options)},
    )
    jobs = [
        Job(arm, seed, pairs_config(options, seed, use_per=arm == "prioritized"), evaluator)
        for seed in range(common.first_seed, common.first_seed + common.seeds)
        for arm in study.arms
    ]
    return _compare(study, jobs, common, out)


def pendulum_config(seed: int, use_per: bool, n_step: int, steps: int) -> SACConfig:
    """Return the settings of one run of `relive compare pendulum`."""
    start = 1_000
    return SACConfig(
        env_id="Pendulum-v1",
        total_steps=steps,
        seed=seed,
        use_per=use_per,
        per_beta_anneal_steps=max(steps - start, 1),
        n_step=n_step,
        gamma=0.99,
        buffer_capacity=100_000,
        batch_size=64,
        hidden_sizes=(64, 64),
        learning_rate=1e-3,
        tau=0.01,
        target_entropy=-1.0,
        init_alpha=0.1,
        reward_scale=0.1,
        start_steps=start,
        eval_every=250,
        eval_episodes=16,
        torch_threads=1,
    )


def pendulum(
    common: tyro.conf.OmitArgPrefixes[Common] = Common(),
    steps: Annotated[int, tyro.conf.arg(help="Environment steps of a run.")] = 5_000,
    out: Path = Path("runs/pendulum"),
) -> int:
    """Compare uniform, prioritized and 3-step replay on Pendulum-v1: all of them solve it (about 10 s a run).

    Example: relive compare pendulum --quick --out runs/pendulum

    Args:
        common: Seeds and processes.
        steps: Environment steps of a run.
        out: Folder for curves.png, curves.csv and summary.json.
    """
    arms = {"uniform": (False, 1), "prioritized": (True, 1), "uniform, 3-step": (False, 3)}
    study = Study(
        title="SAC on Pendulum-v1",
        baseline="uniform",
        arms=tuple(arms),
        unit="steps",
        steps_per_unit=1,
        threshold=-200.0,
        reference=None,
        settings={**dataclasses.asdict(common), "steps": steps},
    )
    jobs = [
        Job(arm, seed, pendulum_config(seed, use_per, n_step, steps))
        for seed in range(common.first_seed, common.first_seed + common.seeds)
        for arm, (use_per, n_step) in arms.items()
    ]
    return _compare(study, jobs, common, out)


def _market(options: PairsOptions) -> dict[str, Any]:
    return {"mode": options.mode, "sigma": options.sigma, "cost": options.cost}


def _best_rule(evaluator: HeldOut) -> tuple[str, float]:
    from relive.envs import ThresholdPolicy

    found = {threshold: float(evaluator(ThresholdPolicy(threshold)).mean()) for threshold in THRESHOLDS}
    best = max(found, key=lambda threshold: found[threshold])
    return f"rule: trade where |spread| > {best:g}", found[best]


def _compare(study: Study, jobs: list[Job], common: Common, out: Path) -> int:
    console = Console()
    console.print(f"{study.title}: {len(jobs)} runs on {min(common.jobs or 1, len(jobs))} processes")
    outcomes = run(jobs, common.jobs or 1, console)
    curves = align(study, outcomes)
    if curves is None:
        console.print("No seed has an evaluation in every arm yet: nothing to compare.")
    else:
        _show(study, curves, console, out)
    return _status(jobs, outcomes)


def _show(study: Study, curves: Curves, console: Console, out: Path) -> None:
    for table in tables(study, curves):
        console.print(table)
    for path in write(study, curves, out):
        console.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)


def _status(jobs: list[Job], outcomes: list[Outcome]) -> int:
    if any(outcome.error for outcome in outcomes):
        return 1
    whole = len(outcomes) == len(jobs) and all(outcome.complete for outcome in outcomes)
    return 0 if whole else INTERRUPTED
